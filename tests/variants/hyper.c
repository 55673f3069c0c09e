/* hyper.c - settings at which the variant hyper is exact attention. Its weights are for LAW-1 to LAW-5
 * (experiments/checks). */
#include "tests/support/core.h"

enum { BATCH = 2, HEADS = 4, N_Q = 75, N_KV = 90, D = 16, D_V = 7 };

Test(variants_hyper, one_block_is_exact_attention) {
  const char *const specs[] = {"hyper", "hyper:exact_below=90", "hyper:exact_below=0,block=90",
                               "hyper:exact_below=0,block=90,exclude=no,sampling=values"};
  attn_problem p = shape_problem((case_shape){BATCH, HEADS, 2, N_Q, N_KV, D, D_V, false, true}, ATTN_F32);
  inputs in = inputs_make(&p, true, 23, 1);
  attn_plan *tiled = plan_or_note(&p, "tiled", NULL);
  void *want = run_plain(tiled, &in);
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
    attn_plan *own = plan_or_note(&p, specs[s], NULL);
    void *got = run_plain(own, &in);
    EXPECT(!memcmp(want, got, tensor_bytes(&p, TENSOR_O)));
    free(got);
    attn_plan_destroy(own);
  }
  free(want);
  attn_plan_destroy(tiled);
  inputs_free(&in);
}
