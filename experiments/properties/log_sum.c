/* log_sum.c - see log_sum.h; the bound is row_log_sum's. */
#include "experiments/properties/log_sum.h"

#include "experiments/evidence/rows.h"

#include <math.h>

static attn_rounding rounding_of(const attn_view *view, const attn_problem *p) {
  attn_rounding r = row_reference_rounding(p, p->n_kv);
  if (view->rounding.unit > 0) return view->rounding;
  r.unit = attn_numbers[p->dtype].unit;
  r.exp_error = 4 * r.unit;
  r.kappa_s = 2;
  return r;
}

typedef struct log_sums {
  attn_rounding rounding;
  double *expected, *bound;
  const char **why;
} log_sums;

static void sum_row(void *context, int64_t r, const head_data *h, row_space *s) {
  const log_sums *x = context;
  row_extremes scores;
  row_verdict verdict = row_attend(h, NULL, s, &scores);
  if (verdict == ROW_OK) verdict = row_log_sum(h, &x->rounding, &scores, s, &x->expected[r], &x->bound[r]);
  if (verdict == ROW_OK) return;
  x->bound[r] = (double)NAN;
  *x->why = row_reason(verdict);
}

attn_status log_sum_rows(const evidence *e, const sample_row *rows, int64_t count, double *expected,
                         double *bound, const char **why) {
  const attn_view *v = e->view;
  log_sums x = {rounding_of(v, e->problem), expected, bound, why};
  if (v->pattern || v->selector || v->caps & ATTN_CAP_EXACT || (v->store && !v->store->reader))
    return rows_walk_stored(e, &(stored_walk){.rows = rows, .count = count, .context = &x, .visit = sum_row});
  for (int64_t r = 0; r < count; r++) bound[r] = (double)NAN;
  *why = "the variant does not describe which keys a query sees";
  return ATTN_OK;
}

bool log_sum_holds(double given, double expected, double bound) {
  if (isinf(expected)) return isinf(given) && given < 0;
  return fabs(given - expected) <= bound;
}
