/* hyper.c - settings at which the variant hyper is exact attention, and hyper by halves. Its weights are for
 * LAW-1 to LAW-5 (experiments/checks). */
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

Test(variants_hyper, causal_attention_is_by_halves) {
  attn_problem p = shape_problem((case_shape){BATCH, HEADS, 2, N_KV, N_KV, D, D_V, true, false}, ATTN_F64);
  inputs in = inputs_make(&p, false, 23, 1);
  attn_plan *plan = NULL;
  expect_no_plan(&p, "hyper", ATTN_EUNSUPPORTED, "");
  const char *const specs[] = {"dyadic(tiled,base=16)", "dyadic(hyper:exact_below=0,block=64,base=16)",
                               "dyadic(hyper:exact_below=0,block=8,sample=8,base=16)"};
  void *o[3];
  for (size_t s = 0; s < 3; s++) {
    cr_assert_not_null(plan = plan_or_note(&p, specs[s], NULL));
    o[s] = run_plain(plan, &in);
    attn_plan_destroy(plan);
  }
  EXPECT(!memcmp(o[0], o[1], tensor_bytes(&p, TENSOR_O)));
  int64_t unlike = 0;
  for (int64_t i = 0; i < N_KV; i++) {
    const double want = output_get(&p, o[0], 0, 0, i, 0), got = output_get(&p, o[2], 0, 0, i, 0);
    EXPECT(isfinite(got));
    unlike += !(fabs(got - want) < 1e-12);
    if (i < 16) EXPECT(fabs(got - want) < 1e-12);
  }
  EXPECT(unlike > N_KV / 2);
  for (size_t s = 0; s < 3; s++) free(o[s]);
  inputs_free(&in);
}
