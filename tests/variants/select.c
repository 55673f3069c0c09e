/* select.c - keys that are selected from Q and K: topk against a full ranking in long double, what an execution attends
 * to, selections that cover everything, and selectors that break their contract. */
#include "tests/support/core.h"

enum { HEADS = 4, N_Q = 75, N_KV = 90, D = 16, D_V = 7 };

static inputs make(attn_dtype t, bool causal, double std) {
  attn_problem p = shape_problem((case_shape){2, HEADS, 2, N_Q, N_KV, D, D_V, causal, true}, t);
  return inputs_make(&p, true, 11, std);
}

typedef struct picks {
  attn_plan *plan;
  attn_view view;
  attn_run *runs;
  int64_t *counts;
} picks;

static picks pick(const char *spec, const inputs *in) {
  picks x = {.plan = plan_or_note(&in->problem, spec, NULL)};
  cr_assert_not_null(x.plan);
  cr_assert_eq(attn_plan_inspect(x.plan, &x.view), ATTN_OK);
  cr_assert_not_null(x.view.selector);
  const size_t rows = (size_t)(in->problem.batch * in->problem.heads * in->problem.n_q);
  x.runs = calloc(rows * (size_t)x.view.selector->max_runs, sizeof *x.runs);
  x.counts = calloc(rows, sizeof *x.counts);
  EXPECT_STATUS(
      attn_plan_select(x.plan, in->q, in->k, in->v, in->padded ? in->kv_len : NULL, x.runs, x.counts),
      ATTN_OK);
  return x;
}

static void picks_free(picks *x) {
  free(x->runs);
  free(x->counts);
  attn_plan_destroy(x->plan);
}

static bool picked(const picks *x, int64_t line, int64_t key) {
  const attn_run *runs = x->runs + line * x->view.selector->max_runs;
  for (int64_t r = 0; r < x->counts[line]; r++)
    if (key >= runs[r].first && key < runs[r].first + runs[r].count) return true;
  return false;
}

/* Scores are multiples of 1/64 so that they are exact, and many are equal. */
static long double exact_score(const inputs *in, int64_t b, int64_t h, int64_t i, int64_t j) {
  long double s = 0;
  for (int64_t l = 0; l < D; l++)
    s += (long double)inputs_get(in, TENSOR_Q, b, h, i, l) *
         (long double)inputs_get(in, TENSOR_K, b, h / (in->problem.heads / in->problem.kv_heads), j, l);
  return s * (long double)in->problem.scale;
}

/* A visible key is picked iff fewer than k visible keys come before it. */
static void check_ranks(const char *spec, int64_t k, int64_t sink, int64_t window, attn_dtype t,
                        bool causal) {
  inputs in = make(t, causal, 1);
  inputs_quantise(&in, TENSOR_Q, 1);
  inputs_quantise(&in, TENSOR_K, 1);
  note_context("%s%s %s", spec, causal ? " causal" : "", t == ATTN_F64 ? "f64" : "f32");
  picks x = pick(spec, &in);
  int64_t keys[N_KV], wrong = 0;
  for (int64_t b = 0; b < 2; b++)
    for (int64_t h = 0; h < HEADS; h++)
      for (int64_t i = 0; i < N_Q; i++) {
        const int64_t count = oracle_keys(&in, NULL, b, h, i, keys);
        for (int64_t a = 0; a < count; a++) {
          const bool kept = a < sink || a >= count - window;
          const long double own = exact_score(&in, b, h, i, keys[a]);
          int64_t ahead = 0;
          for (int64_t c = sink; c < count - window && !kept; c++) {
            const long double other = exact_score(&in, b, h, i, keys[c]);
            ahead += other > own || (!(other < own) && c < a);
          }
          wrong += picked(&x, (b * HEADS + h) * N_Q + i, keys[a]) != (kept || ahead < k);
        }
      }
  if (wrong) note_failure("%d keys", (int)wrong);
  picks_free(&x);
  inputs_free(&in);
}

Test(variants_select, topk_ranks_all_keys) {
  for (attn_dtype t = ATTN_F32; t <= ATTN_F64; t++)
    for (int causal = 0; causal <= 1; causal++) {
      check_ranks("topk:k=7", 7, 0, 0, t, causal);
      check_ranks("topk:k=1", 1, 0, 0, t, causal);
      check_ranks("topk:k=9,sink=3,window=5", 9, 3, 5, t, causal);
    }
}

/* The pattern of one batch entry's selection. */
typedef struct recorded {
  const picks *x;
  int64_t batch;
} recorded;

static int64_t recorded_row(const void *state, int64_t head, int64_t position, attn_run *runs) {
  const recorded *r = state;
  const int64_t line = (r->batch * HEADS + head) * N_Q + position - (N_KV - N_Q),
                most = r->x->view.selector->max_runs;
  memcpy(runs, r->x->runs + line * most, (size_t)r->x->counts[line] * sizeof *runs);
  return r->x->counts[line];
}

static void check_attended(const char *spec, attn_dtype t, bool causal, double softcap) {
  inputs in = make(t, causal, 2);
  in.problem.score.softcap = softcap;
  picks x = pick(spec, &in);
  const attn_problem *p = &in.problem;
  void *o = run_plain(x.plan, &in);
  note_context("%s%s %s", spec, causal ? " causal" : "", t == ATTN_F64 ? "f64" : "f32");
  double want[D_V], bound[D_V];
  int64_t keys[N_KV], wrong = 0;
  for (int64_t b = 0; b < 2; b++)
    for (int64_t h = 0; h < HEADS; h++)
      for (int64_t i = 0; i < N_Q; i++) {
        const recorded state = {&x, b};
        const attn_pattern pattern = {
            .state = &state, .row = recorded_row, .max_runs = x.view.selector->max_runs};
        const int64_t count = oracle_keys(&in, &pattern, b, h, i, keys);
        oracle_row(&in, &x.view.rounding, NULL, b, h, i, keys, count, false, want, bound);
        for (int64_t l = 0; l < D_V; l++)
          wrong += !(fabs(output_get(p, o, b, h, i, l) - want[l]) <= bound[l]);
      }
  if (wrong) note_failure("%d outputs", (int)wrong);
  free(o);
  picks_free(&x);
  inputs_free(&in);
}

Test(variants_select, what_is_selected_is_attended_to) {
  static const char *const specs[] = {"topk:k=9", "topk:k=5,window=4", "topk:k=200"};
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
    for (attn_dtype t = ATTN_F32; t <= ATTN_F64; t++)
      for (int causal = 0; causal <= 1; causal++) {
        check_attended(specs[i], t, causal, 0);
        check_attended(specs[i], t, causal, 3);
      }
}
