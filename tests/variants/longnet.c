/* longnet.c - longnet against its branches, each a softmax of its own, joined by their denominators, in long
 * double; and where it is another variant. */
#include "tests/support/core.h"

enum { HEADS = 4, N_Q = 75, N_KV = 90, D = 16, D_V = 5, BRANCHES = 3 };
static const int64_t segments[BRANCHES] = {8, 24, 50}, dilations[BRANCHES] = {1, 3, 5};

/* sum_b Z_b o_b / sum_b Z_b; false: no branch has a key for the query. */
static bool joined(const inputs *in, int64_t b, int64_t h, int64_t i, long double *o) {
  const int64_t kv_head = h / 2, t = i + N_KV - N_Q;
  int64_t keys[N_KV];
  const int64_t count = oracle_keys(in, NULL, b, h, i, keys);
  long double z = 0;
  for (int64_t l = 0; l < D_V; l++) o[l] = 0;
  for (int c = 0; c < BRANCHES; c++) {
    const int64_t w = segments[c], r = dilations[c], start = t / w * w;
    for (int64_t place = start + h % r; place < start + w; place += r)
      for (int64_t a = 0; a < count; a++) {
        if (keys[a] != place || (t - start) % r != h % r) continue;
        long double s = 0;
        for (int64_t l = 0; l < D; l++)
          s += (long double)inputs_get(in, TENSOR_Q, b, h, i, l) *
               (long double)inputs_get(in, TENSOR_K, b, kv_head, place, l);
        s = expl(s * (long double)in->problem.scale);
        z += s;
        for (int64_t l = 0; l < D_V; l++)
          o[l] += s * (long double)inputs_get(in, TENSOR_V, b, kv_head, place, l);
      }
  }
  for (int64_t l = 0; l < D_V && z > 0; l++) o[l] /= z;
  return z > 0;
}

Test(variants_longnet, branches_are_joined_by_their_denominators) {
  for (int causal = 0; causal < 2; causal++) {
    const attn_problem p =
        shape_problem((case_shape){2, HEADS, 2, N_Q, N_KV, D, D_V, causal, true}, ATTN_F64);
    inputs in = inputs_make(&p, true, 41, 1);
    attn_plan *plan = plan_or_note(&p, "longnet:segments=8+24+50,dilations=1+3+5", NULL);
    void *o = run_plain(plan, &in);
    long double want[D_V];
    int64_t rows = 0;
    double error = 0;
    for (int64_t b = 0; b < 2; b++)
      for (int64_t h = 0; h < HEADS; h++)
        for (int64_t i = 0; i < N_Q; i++) {
          rows += joined(&in, b, h, i, want);
          for (int64_t l = 0; l < D_V; l++)
            error = fmax(error, fabs(output_get(&p, o, b, h, i, l) - (double)want[l]));
        }
    cr_expect(error < 1e-13 && rows > N_Q, "%g, %d rows", error, (int)rows);
    free(o);
    attn_plan_destroy(plan);
    inputs_free(&in);
  }
}

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
  attn_plan *plan = NULL;
  for (int s = 0; s < 3; s++) EXPECT_STATUS(attn_plan_create(&plan, &p, wrong[s], NULL), ATTN_EINVAL);
  EXPECT_STATUS(attn_plan_create(&plan, &many, "longnet", NULL), ATTN_EUNSUPPORTED);
}
