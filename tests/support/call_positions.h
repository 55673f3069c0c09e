/* call_positions.h - runs of a small batch whose queries and keys stand where a call says, and their
 * outputs. */
#ifndef TESTS_SUPPORT_CALL_POSITIONS_H
#define TESTS_SUPPORT_CALL_POSITIONS_H

#include "tests/support/core.h"

enum { BATCH = 3, HEADS = 4, KV_HEADS = 2, N_KV = 91, D = 17, D_V = 9 };
static const int64_t queries[] = {1, 3, 20};

/* Twice what a softmax or a quotient of sums over N_KV keys may be off, for values within `most`. */
static inline double tolerance(attn_dtype t, double most) {
  return 8 * (double)(N_KV + D + 64) * (t == ATTN_F64 ? 0x1p-53 : 0x1p-24) * most;
}

static inline attn_problem problem_of(int64_t n_q, attn_dtype t, bool causal) {
  return shape_problem((case_shape){BATCH, HEADS, KV_HEADS, n_q, N_KV, D, D_V, causal, false}, t);
}

static inline attn_score alibi(void) {
  static double table[HEADS * (2 * N_KV - 1)];
  cr_assert_eq(attn_alibi(HEADS, N_KV, table), ATTN_OK);
  return (attn_score){.relative = table, .relative_heads = HEADS, .span = 2 * N_KV - 1, .zero = N_KV - 1};
}

/* The output and the log-sum-exps of a run, contiguous; lse NULL without ATTN_CAP_LSE.
 * They go with the process. */
typedef struct output {
  void *o;
  double *lse;
} output;

static inline output output_make(const attn_problem *p, bool lse) {
  output x = {.o = kept_memory(calloc(output_count(p), attn_dtype_size(p->dtype)))};
  if (lse) x.lse = kept_memory(calloc((size_t)(p->batch * p->heads * p->n_q), sizeof *x.lse));
  cr_assert(x.o && (!lse || x.lse));
  return x;
}

static inline attn_status run(const attn_plan *plan, const attn_tensors *given, output *x) {
  attn_tensors all = *given;
  all.o = x->o;
  all.lse = x->lse;
  return run_tensors(plan, all);
}

static inline bool gives_lse(const attn_plan *plan) {
  attn_view view;
  cr_assert_eq(attn_plan_inspect(plan, &view), ATTN_OK);
  return view.caps & ATTN_CAP_LSE;
}

static inline bool near(double a, double b, double off) {
  if (isfinite(a) || isfinite(b)) return fabs(a - b) <= off;
  return !isnan(a) && !isnan(b) && (a > 0) == (b > 0);
}

/* Entry b of `all` against the only entry of `one`, of as many queries. */
static inline void expect_entry(const attn_problem *p, const output *all, const output *one, int64_t b) {
  const double off = tolerance(p->dtype, 4);
  for (int64_t row = 0; row < HEADS * p->n_q; row++) {
    for (int64_t l = 0; l < D_V; l++) {
      const double got = attn_get(all->o, (b * HEADS * p->n_q + row) * D_V + l, p->dtype),
                   expected = attn_get(one->o, row * D_V + l, p->dtype);
      if (!near(got, expected, off))
        note_failure("entry %d head %d query %d: %.9g, expected %.9g", (int)b, (int)(row / p->n_q),
                     (int)(row % p->n_q), got, expected);
    }
    if (all->lse && !near(all->lse[b * HEADS * p->n_q + row], one->lse[row], off))
      note_failure("entry %d row %d: log-sum-exp %.9g, expected %.9g", (int)b, (int)row,
                   all->lse[b * HEADS * p->n_q + row], one->lse[row]);
  }
}

#endif
