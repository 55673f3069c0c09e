/* rows.c - goes through the sampled rows for a check, and reduces their findings to one. */
#include "experiments/evidence/rows.h"

#include "experiments/evidence/stored_copies.h"
#include "experiments/reference/visible.h"

#include <math.h>
#include <stdlib.h>

static const double budget = 0x1p24;             /* multiply-adds of one check */
static const uint64_t purpose_take = 0x74616b65; /* "take" */

static bool broken(const outcome *x) { return !(x->measured <= x->value * (1 + 1e-6)); }

static double ratio(const outcome *x) { return x->measured == 0 ? 0 : x->measured / x->value; }

const char outcome_nothing[] = "there is nothing to compare";
const char outcome_vacuous[] = "vacuous: the declared rounding may be more than 1 % of the values here";
static const double vacuous = 0.01;

static int rank_of(const outcome *x) {
  if (x->why && x->why != outcome_vacuous) return 1;
  return broken(x) ? 2 : isinf(x->value) ? 1 : 0;
}

bool outcome_worsen(outcome *worst, outcome x) {
  const int rank = rank_of(&x), held = rank_of(worst);
  const bool hollow = x.why == outcome_vacuous || worst->why == outcome_vacuous;
  if (x.why == outcome_nothing) return false;
  const bool worse = worst->why == outcome_nothing || rank > held ||
                     (rank == held && rank != 1 && (worst->value == 0 || !(ratio(&x) <= ratio(worst))));
  if (worse) *worst = x;
  if (hollow && rank_of(worst) == 0) worst->why = outcome_vacuous;
  return worse;
}

attn_status outcome_to_verdict(const outcome *worst, result_bound *bound) {
  if (worst->why == outcome_nothing) return bound_not_applicable(bound, worst->why);
  if (!worst->why || worst->why == outcome_vacuous) bound_hard(bound, worst->measured, worst->value);
  return worst->why ? bound_uncertifiable(bound, worst->why) : ATTN_OK;
}

outcome outcome_components(const double *a, const double *b, const double *bound, int64_t d) {
  outcome worst = OUTCOME_NONE;
  for (int64_t l = 0; l < d; l++) outcome_worsen(&worst, (outcome){fabs(a[l] - b[l]), bound[l], NULL});
  return worst;
}

outcome outcome_rounded(const double *a, const double *b, const double *bound, int64_t d, double size) {
  outcome worst = outcome_components(a, b, bound, d);
  for (int64_t l = 0; l < d && !worst.why && !broken(&worst); l++)
    if (bound[l] > vacuous * size && size > 0) worst.why = outcome_vacuous;
  return worst;
}

double row_cost(const evidence *e) {
  const attn_problem *p = e->problem;
  double keys = (double)p->n_kv;
  if (e->view->selector && e->view->selector->max_keys)
    keys = fmin(keys, (double)e->view->selector->max_keys);
  if (e->view->pattern) {
    attn_run *runs = calloc((size_t)e->view->pattern->max_runs, sizeof *runs);
    int64_t count = runs ? visible_runs(e->view->pattern, p, 0, p->n_q - 1, p->n_kv, runs) : 0;
    if (runs) keys = 0;
    for (int64_t r = 0; r < count; r++) keys += (double)runs[r].count;
    free(runs);
  }
  return keys * (double)(p->d_qk + p->d_v);
}

/* Of rows first ... last - 1 about a share, evenly from a random one on. */
static void take_share(attn_rng *rng, int64_t first, int64_t last, double share, bool *take) {
  double from = attn_rng_uniform(rng);
  for (int64_t r = first; r < last; r++) {
    double at = (double)(r - first) * share + from;
    take[r] = share >= 1 || floor(at + share) > floor(at);
  }
}

bool *rows_subsample(const evidence *e, double wanted) {
  const exact_rows *x = e->exact;
  bool *take = calloc((size_t)x->judged + 1, sizeof *take);
  attn_rng rng;
  attn_rng_init(&rng, e->seed, purpose_take, 0);
  if (!take) return NULL;
  wanted = fmax(floor(wanted), 8);
  double edges = (double)(x->judged - x->count), of_edges = fmin(edges, fmax(4, floor(wanted / 4)));
  take_share(&rng, 0, x->count, fmin(1, fmax(4, wanted - of_edges) / (double)x->count), take);
  if (edges > 0) take_share(&rng, x->count, x->judged, of_edges / edges, take);
  return take;
}

/* The rows first .. last of one (batch, head), those with take[r] set. */
static attn_status head_walk(const evidence *e, int64_t first, int64_t last, const bool *take,
                             const rows_visitor *v) {
  const attn_problem *p = e->problem;
  const exact_rows *x = e->exact;
  head_data head;
  attn_status status = head_data_borrow(e, x->rows[first].batch, x->rows[first].head, &head);
  if (status) return status;
  if (v->prepare) status = v->prepare(v->context, &head);
  bool failed = false;
#pragma omp parallel if (!status)
  {
    row_space space = {0};
    bool ready = !row_space_make(p, e->view->pattern, &space);
    if (!ready) {
#pragma omp atomic write
      failed = true;
    }
#pragma omp for schedule(dynamic, 1)
    for (int64_t r = first; r < last; r++) {
      if (!take[r] || !ready || status) continue;
      row_widen(e->q, p->dtype, row_offset(p, &x->rows[r], p->d_qk), p->d_qk, space.q);
      row_widen(e->o, p->dtype, row_offset(p, &x->rows[r], p->d_v), p->d_v, space.given);
      const row_case c = {.e = e,
                          .head = &head,
                          .row = &x->rows[r],
                          .p = x->p + r * p->n_kv,
                          .o = x->o + r * p->d_v,
                          .sink = x->sink[r],
                          .keys = x->keys[r],
                          .space = &space};
      v->visit(v->context, r, &c);
    }
    row_space_free(&space);
  }
  head_data_return(e, &head);
  if (status) return status;
  return failed ? attn_fail(ATTN_ENOMEM, "no memory for one row of %lld keys", (long long)p->n_kv) : ATTN_OK;
}

attn_status rows_walk(const evidence *e, const bool *take, const rows_visitor *v) {
  const exact_rows *x = e->exact;
  attn_status status = ATTN_OK;
  for (int64_t first = 0, last; first < x->judged && !status; first = last) {
    bool any = take[first];
    for (last = first + 1; last < x->judged && x->rows[last].batch == x->rows[first].batch &&
                           x->rows[last].head == x->rows[first].head;)
      any |= take[last++];
    if (any) status = head_walk(e, first, last, take, v);
  }
  return status;
}

attn_status rows_walk_stored(const evidence *of, const stored_walk *w) {
  const attn_problem *p = of->problem;
  evidence e = *of;
  stored_copies copies;
  row_space space = {0};
  seen_keys seen = {.pattern = NULL};
  head_data h = {.batch = -1};
  attn_status status = stored_copies_make(p, e.view->store, e.k, e.v, e.kv_len, &copies);
  e.k = copies.k;
  e.v = copies.v;
  const seen_run own = {e.plan, e.view, evidence_tensors(&e)}, *by = w->by ? w->by : &own;
  if (!status) status = row_space_make(p, by->view->pattern, &space);
  if (!status) status = seen_make(by, w->rows, w->take, w->count, &seen);
  for (int64_t r = 0; !status && r < w->count; r++) {
    const sample_row *row = &w->rows[r];
    if (w->take && !w->take[r]) continue;
    if (row->batch != h.batch || row->head != h.head || copies.versions) {
      stored_copies_see(&copies, row->batch * p->kv_heads + row->head / (p->heads / p->kv_heads), row->i);
      head_data_free(&h);
      h = (head_data){.batch = -1};
      if ((status = head_data_load(&e, row->batch, row->head, &h))) break;
    }
    row_widen(e.q, p->dtype, row_offset(p, row, p->d_qk), p->d_qk, space.q);
    if (e.o) row_widen(e.o, p->dtype, row_offset(p, row, p->d_v), p->d_v, space.given);
    row_see(&h, &seen, row->i, &space);
    w->visit(w->context, r, &h, &space);
  }
  head_data_free(&h);
  seen_free(&seen);
  row_space_free(&space);
  stored_copies_free(&copies);
  return status;
}

typedef struct check_walk {
  const rows_judge *by;
  outcome *found;
} check_walk;

static attn_status check_prepare(void *context, const head_data *h) {
  const check_walk *w = context;
  return w->by->prepare ? w->by->prepare(w->by->context, h) : ATTN_OK;
}

static void check_visit(void *context, int64_t r, const row_case *c) {
  const check_walk *w = context;
  row_case own = *c;
  own.context = w->by->context;
  w->found[r] = w->by->judge(&own);
}

attn_status rows_check_with(const evidence *e, double cost_per_row, const rows_judge *judge,
                            result_bound *bound) {
  const exact_rows *x = e->exact;
  outcome worst = OUTCOME_NONE;
  check_walk w = {judge, calloc((size_t)x->judged + 1, sizeof *w.found)};
  bool *take = rows_subsample(e, budget / cost_per_row);
  attn_status status =
      w.found && take ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for the findings of a check");
  if (!status) status = rows_walk(e, take, &(rows_visitor){&w, check_prepare, check_visit});
  for (int64_t r = 0; r < x->judged && !status; r++)
    if (take[r]) outcome_worsen(&worst, w.found[r]);
  if (!status) outcome_to_verdict(&worst, bound);
  free(w.found);
  free(take);
  return status;
}

attn_status rows_check(const evidence *e, double cost_per_row, outcome (*judge)(const row_case *),
                       result_bound *bound) {
  return rows_check_with(e, cost_per_row, &(rows_judge){.judge = judge}, bound);
}
