/* rows.c - goes through the sampled rows for a check, and reduces their findings to one. */
#include "experiments/evidence/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double budget = 0x1p24; /* multiply-adds of one check */

static bool broken(const outcome *x) { return !(x->measured <= x->value * (1 + 1e-6)); }

static double ratio(const outcome *x) { return x->measured == 0 ? 0 : x->measured / x->value; }

void outcome_worsen(outcome *worst, outcome x) {
  int rank = x.why ? 1 : broken(&x) ? 2 : 0, held = worst->why ? 1 : broken(worst) ? 2 : 0;
  if (rank > held || (rank == held && !worst->why && (worst->value == 0 || !(ratio(&x) <= ratio(worst)))))
    *worst = x;
}

attn_status outcome_settle(const outcome *worst, result_bound *bound) {
  return worst->why ? bound_uncertifiable(bound, worst->why)
                    : bound_hard(bound, worst->measured, worst->value);
}

outcome outcome_components(const double *a, const double *b, const double *bound, int64_t d) {
  outcome worst = {0, 0, NULL};
  for (int64_t l = 0; l < d; l++) outcome_worsen(&worst, (outcome){fabs(a[l] - b[l]), bound[l], NULL});
  return worst;
}

double row_cost(const evidence *e) {
  const attn_problem *p = e->problem;
  double keys = (double)p->n_kv;
  if (e->view->pattern) {
    attn_run *runs = calloc((size_t)e->view->pattern->max_runs, sizeof *runs);
    int64_t count = runs ? attn_pattern_row(e->view->pattern, p, 0, p->n_q - 1, runs) : 0;
    if (runs) keys = 0;
    for (int64_t r = 0; r < count; r++) keys += (double)runs[r].count;
    free(runs);
  }
  return keys * (double)(p->d_qk + p->d_v);
}

/* The rows first .. last of one (batch, head), those with take[r] set. */
static attn_status head_check(const evidence *e, int64_t first, int64_t last, const bool *take,
                              outcome (*judge)(const row_case *), outcome *found) {
  const attn_problem *p = e->problem;
  const exact_rows *x = e->exact;
  head_data head;
  attn_status status = head_data_borrow(e, x->rows[first].batch, x->rows[first].head, &head);
  if (status) return status;
  bool failed = false;
#pragma omp parallel
  {
    row_space space = {0};
    bool ready = !row_space_make(p, e->view->pattern, &space);
    if (!ready) {
#pragma omp atomic write
      failed = true;
    }
#pragma omp for schedule(dynamic, 1)
    for (int64_t r = first; r < last; r++) {
      if (!take[r] || !ready) continue;
      row_widen(e->q, p->dtype, row_offset(p, &x->rows[r], p->d_qk), p->d_qk, space.q);
      row_widen(e->o, p->dtype, row_offset(p, &x->rows[r], p->d_v), p->d_v, space.given);
      row_case c = {e, &head, &x->rows[r], x->p + r * p->n_kv, x->o + r * p->d_v, x->keys[r], &space};
      found[r] = judge(&c);
    }
    row_space_free(&space);
  }
  head_data_return(e, &head);
  return failed ? attn_fail(ATTN_ENOMEM, "no memory for one row of %lld keys", (long long)p->n_kv) : ATTN_OK;
}

attn_status rows_check(const evidence *e, double cost_per_row, outcome (*judge)(const row_case *),
                       result_bound *bound) {
  const exact_rows *x = e->exact;
  if (x->judged == 0) return bound_not_applicable(bound, "there is no row to compare");
  double wanted = floor(budget / cost_per_row), share = fmin(1, fmax(wanted, 8) / (double)x->judged);
  outcome *found = calloc((size_t)x->judged, sizeof *found), worst = {0, 0, NULL};
  bool *take = calloc((size_t)x->judged, sizeof *take);
  attn_status status =
      found && take ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for the findings of a check");
  if (status) goto out;
  for (int64_t r = 0; r < x->judged; r++) take[r] = floor((double)(r + 1) * share) > floor((double)r * share);
  for (int64_t first = 0, last; first < x->judged && !status; first = last) {
    for (last = first + 1; last < x->judged && x->rows[last].batch == x->rows[first].batch &&
                           x->rows[last].head == x->rows[first].head;)
      last++;
    status = head_check(e, first, last, take, judge, found);
  }
  if (status) goto out;
  for (int64_t r = 0; r < x->judged; r++)
    if (take[r]) outcome_worsen(&worst, found[r]);
  outcome_settle(&worst, bound);
out:
  free(found);
  free(take);
  return status;
}
