/* hyper.c - settings at which the variant hyper is exact attention. Its weights are for LAW-1 to LAW-5
 * (experiments/checks). */
#include "tests/support/core.h"

enum { BATCH = 2, HEADS = 4, N_Q = 75, N_KV = 90, D = 16, D_V = 7 };

Test(variants_hyper, one_block_is_exact_attention) {
  const char *const specs[] = {"hyper", "hyper:exact_below=90", "hyper:exact_below=0,block=90",
                               "hyper:exact_below=0,block=90,exclude=no,sampling=values"};
  inputs in = inputs_shaped((case_shape){BATCH, HEADS, 2, N_Q, N_KV, D, D_V, false, true}, ATTN_F32, 23, 1);
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
    expect_same_outputs(&in.problem, run_spec("tiled", NULL, &in), run_spec(specs[s], NULL, &in), specs[s]);
}
