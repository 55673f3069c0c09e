/* picks.h - what a plan selects from inputs, for the tests of variants that select keys. */
#ifndef TESTS_VARIANTS_PICKS_H
#define TESTS_VARIANTS_PICKS_H

#include "tests/support/core.h"

typedef struct picks {
  attn_plan *plan;
  attn_view view;
  attn_run *runs;
  int64_t *counts;
} picks;

/* They go with the process. */
static inline picks picks_of(const char *spec, const inputs *in) {
  picks x = {.plan = NULL};
  x.plan = keep_object(plan_inspected(&in->problem, spec, NULL, &x.view), destroy_plan);
  cr_assert_not_null(x.view.selector);
  const size_t rows = (size_t)(in->problem.batch * in->problem.heads * in->problem.n_q);
  x.runs = kept_memory(calloc(rows * (size_t)x.view.selector->max_runs, sizeof *x.runs));
  x.counts = kept_memory(calloc(rows, sizeof *x.counts));
  const int64_t heads = in->problem.heads, n_q = in->problem.n_q;
  int64_t *all = calloc((size_t)n_q, sizeof *all);
  for (int64_t i = 0; i < n_q; i++) all[i] = i;
  for (int64_t line = 0; line < in->problem.batch * heads; line++) {
    const attn_row_set set = {line / heads, line % heads, n_q, all};
    attn_picks own = {.max_runs = x.view.selector->max_runs};
    own.runs = x.runs + line * n_q * own.max_runs;
    own.counts = x.counts + line * n_q;
    EXPECT_STATUS(
        attn_plan_select(
            x.plan,
            &(attn_tensors){.q = in->q, .k = in->k, .v = in->v, .kv_len = in->padded ? in->kv_len : NULL},
            &set, &own),
        ATTN_OK);
  }
  free(all);
  return x;
}

static inline bool picks_has(const picks *x, int64_t line, int64_t key) {
  const attn_run *runs = x->runs + line * x->view.selector->max_runs;
  for (int64_t r = 0; r < x->counts[line]; r++)
    if (key >= runs[r].first && key < runs[r].first + runs[r].count) return true;
  return false;
}

#endif
