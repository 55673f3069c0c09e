/* linear_gradients.c - gradients of sums of features over several segments, which threads take apart: the
 * same bits for any number of them, and v.dv = o.d_o, as outputs are linear in V. GRAD-FD and
 * tests/python/gradients_test.py judge the other numbers. */
#include "tests/support/core.h"

enum { HEADS = 4, KV_HEADS = 2, N_Q = 4300, N_KV = 4401, D = 3, D_V = 2 };

typedef double results[3][HEADS * N_Q * D];

static void differentiate(const inputs *in, const char *spec, int threads, results into) {
  static double o[HEADS * N_Q * D_V], d_o[HEADS * N_Q * D_V];
  const attn_options options = {.threads = threads};
  size_t size = 0;
  attn_plan *plan = plan_kept(&in->problem, spec, &options);
  EXPECT_STATUS(attn_plan_backward_size(plan, &size), ATTN_OK);
  void *work = malloc(size + attn_plan_work_size(plan) + 1);
  const attn_tensors x = {.q = in->q, .k = in->k, .v = in->v, .kv_len = in->kv_len, .o = o, .work = work};
  const attn_gradients g = {.d_o = d_o, .dq = into[0], .dk = into[1], .dv = into[2]};
  for (int i = 0; i < HEADS * N_Q * D_V; i++) d_o[i] = i % 7 < 3 ? 1 : -2;
  EXPECT_STATUS(attn_plan_run(plan, &x), ATTN_OK);
  EXPECT_STATUS(attn_plan_backward(plan, &x, &g), ATTN_OK);
  for (int64_t h = 0; h < KV_HEADS;
       h++) { /* a chain is of N_Q terms for each key, and of N_KV for each query */
    double left = 0, most = 0;
    for (int64_t l = h * (HEADS / KV_HEADS) * N_Q * D_V; l < (h + 1) * (HEADS / KV_HEADS) * N_Q * D_V; l++)
      left += o[l] * d_o[l], most += fabs(o[l] * d_o[l]);
    for (int64_t l = h * N_KV * D_V; l < (h + 1) * N_KV * D_V; l++)
      left -= l / D_V % N_KV < in->kv_len[0] ? ((const double *)in->v)[l] * into[2][l] : 0;
    EXPECT(fabs(left) <= 0x1p-53 * 8 * (N_Q + N_KV) * most);
  }
  free(work);
}

Test(core_linear_gradients, segments) {
  static const char *const specs[] = {"performer:features=6,eps=0.01", "linear:feature=exp"};
  static results one, other;
  for (int i = 0; i < 4; i++) {
    const attn_problem p =
        shape_problem((case_shape){1, HEADS, KV_HEADS, N_Q, N_KV, D, D_V, i % 2, false}, ATTN_F64);
    inputs in = inputs_make(&p, true, 9, 1);
    in.kv_len[0] = N_KV - 130; /* a chunk of padding and more */
    note_context("%s%s", specs[i / 2], i % 2 ? " causal" : "");
    differentiate(&in, specs[i / 2], 1, one);
    for (int threads = 2; threads <= 7; threads += threads == 3 ? 4 : 1) {
      differentiate(&in, specs[i / 2], threads, other);
      if (memcmp(one, other, sizeof one)) note_failure("%d threads, other bits", threads);
    }
    inputs_free(&in);
  }
}
