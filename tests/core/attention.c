/* attention.c - attention in one call is what a plan of the same spec computes, and fails as that does. */
#include "tests/support/core.h"

Test(core_attention, one_call_is_a_plan_executed_once) {
  static const char *const specs[] = {"full", "tiled", "longformer:window=4", "linformer:k=3",
                                      "performer:features=8"};
  attn_problem p = shape_problem((case_shape){2, 4, 2, 9, 9, 8, 4, false, false}, ATTN_F32);
  inputs in = inputs_make(&p, false, 1, 1);
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
    note_context("%s", specs[s]);
    void *planned = run_spec(specs[s], NULL, &in), *o = calloc(output_count(&p), sizeof(float));
    cr_assert(planned && o);
    EXPECT_STATUS(attn_attention(in.q, in.k, in.v, o, &p, specs[s]), ATTN_OK);
    expect_same(&p, planned, o, "one call");
    free(planned);
    free(o);
  }
  inputs_free(&in);
}

Test(core_attention, errors_are_those_of_plans) {
  const float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  float o[8] = {0};
  attn_problem p = attn_problem_make(1, 1, 4, 2);
  EXPECT_STATUS(attn_attention(x, x, x, o, &p, "longfromer"), ATTN_ENOTFOUND);
  EXPECT(strstr(attn_last_error(), "did you mean 'longformer'?"));
  EXPECT_STATUS(attn_attention(x, x, x, o, &p, "longformer:window=x"), ATTN_EINVAL);
  EXPECT(strstr(attn_last_error(), "window=x"));
  p.causal = true;
  EXPECT_STATUS(attn_attention(x, x, x, o, &p, "linformer"), ATTN_EUNSUPPORTED);
  p.heads = 0;
  EXPECT_STATUS(attn_attention(x, x, x, o, &p, "tiled"), ATTN_EINVAL);
  EXPECT(strstr(attn_last_error(), "heads"));
  for (int i = 0; i < 8; i++) EXPECT(o[i] <= 0 && o[i] >= 0);
}
