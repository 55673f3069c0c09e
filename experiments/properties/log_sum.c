/* log_sum.c - see log_sum.h; the bound is row_log_sum's. */
#include "experiments/properties/log_sum.h"

#include "experiments/evidence/stored_copies.h"
#include "experiments/evidence/support_row.h"
#include "experiments/reference/seen.h"

#include <math.h>

static attn_rounding rounding_of(const attn_view *view, const attn_problem *p) {
  attn_rounding r = row_reference_rounding(p, p->n_kv);
  if (view->rounding.unit > 0) return view->rounding;
  r.unit = attn_numbers[p->dtype].unit;
  r.exp_error = 4 * r.unit;
  r.kappa_s = 2;
  return r;
}

attn_status log_sum_rows(const evidence *of, const sample_row *rows, int64_t count, double *expected,
                         double *bound, const char **why) {
  const attn_problem *p = of->problem;
  const attn_rounding rounding = rounding_of(of->view, p);
  evidence copy = *of, *e = &copy; /* of keys as they are stored */
  stored_copies copies;
  row_space space;
  seen_keys seen;
  head_data h = {.batch = -1};
  if (!e->view->pattern && !e->view->selector && !(e->view->caps & ATTN_CAP_EXACT) &&
      (!e->view->store || e->view->store->reader)) {
    for (int64_t r = 0; r < count; r++) bound[r] = (double)NAN;
    *why = "the variant does not describe which keys a query sees";
    return ATTN_OK;
  }
  attn_status status = stored_copies_make(p, e->view->store, e->k, e->v, e->kv_len, &copies);
  e->k = copies.k;
  if (!status) status = row_space_make(p, e->view->pattern, &space);
  if (status) {
    stored_copies_free(&copies);
    return status;
  }
  if ((status = seen_make(&(seen_run){e->plan, e->view, evidence_tensors(e)}, rows, NULL, count, &seen)))
    goto out;
  for (int64_t r = 0; !status && r < count; r++) {
    if (rows[r].batch != h.batch || rows[r].head != h.head || copies.versions) {
      stored_copies_see(&copies, rows[r].batch * p->kv_heads + rows[r].head / (p->heads / p->kv_heads),
                        rows[r].i);
      head_data_free(&h);
      h = (head_data){.batch = -1};
      if ((status = head_data_load(e, rows[r].batch, rows[r].head, &h))) break;
    }
    row_extremes scores;
    row_widen(e->q, p->dtype, row_offset(p, &rows[r], p->d_qk), p->d_qk, space.q);
    row_see(&h, &seen, rows[r].i, &space);
    row_verdict verdict = row_attend(&h, NULL, &space, &scores);
    if (verdict == ROW_OK) verdict = row_log_sum(&h, &rounding, &scores, &space, &expected[r], &bound[r]);
    if (verdict == ROW_OK) continue;
    bound[r] = (double)NAN;
    *why = row_reason(verdict);
  }
  head_data_free(&h);
  seen_free(&seen);
out:
  row_space_free(&space);
  stored_copies_free(&copies);
  return status;
}

bool log_sum_holds(double given, double expected, double bound) {
  if (isinf(expected)) return isinf(given) && given < 0;
  return fabs(given - expected) <= bound;
}
