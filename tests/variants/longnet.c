/* longnet.c - where longnet is exact attention, and what it refuses. LN-1 and papers.py hold its branches to
 * their definition. */
#include "tests/support/core.h"

enum { HEADS = 4, N_Q = 75, N_KV = 90, D = 16, D_V = 5 };

Test(variants_longnet, one_long_segment_is_exact_attention) {
  const attn_problem p = shape_problem((case_shape){1, HEADS, 2, N_Q, N_KV, D, D_V, true, false}, ATTN_F64);
  static const char *const specs[] = {"tiled", "longnet:segments=90,dilations=1",
                                      "longnet:segments=4096,dilations=1"};
  inputs in = inputs_make(&p, false, 42, 1);
  void *o[3];
  for (int s = 0; s < 3; s++) {
    attn_plan *plan = plan_or_note(&p, specs[s], NULL);
    o[s] = run_plain(plan, &in);
    attn_plan_destroy(plan);
  }
  for (int64_t i = 0; i < N_Q; i++)
    for (int s = 1; s < 3; s++)
      EXPECT(fabs(output_get(&p, o[s], 0, 3, i, 2) - output_get(&p, o[0], 0, 3, i, 2)) < 1e-13);
  for (int s = 0; s < 3; s++) free(o[s]);
  inputs_free(&in);
}

Test(variants_longnet, refused) {
  const attn_problem p = shape_problem((case_shape){1, 1, 1, N_Q, N_KV, D, D_V, true, false}, ATTN_F64),
                     many = shape_problem((case_shape){1, 1, 1, N_KV, N_Q, D, D_V, true, false}, ATTN_F64);
  static const char *const wrong[] = {"longnet:segments=8", "longnet:segments=8+9+10,dilations=1+2+11",
                                      "longnet:segments=,dilations="};
  for (int s = 0; s < 3; s++) expect_no_plan(&p, wrong[s], ATTN_EINVAL, "");
  expect_no_plan(&many, "longnet", ATTN_EUNSUPPORTED, "");
}
