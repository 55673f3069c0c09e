/* run_law.c - see run_law.h. */
#include "experiments/checks/tails/run_law.h"

#include "experiments/checks/selection/selection_picks.h"

#include "experiments/evidence/rows.h"
#include "experiments/evidence/weights/law.h"

#include <math.h>
#include <stdlib.h>

static const double moments_most = 0x1p17; /* that are asked for */

const char *law_missing(const evidence *e) {
  const attn_selector *x = e->view->selector;
  return x->moments && x->log_weight
             ? NULL
             : "the variant describes no law of its weights (attn_selector.moments, log_weight)";
}

typedef struct walk {
  const seen_keys *seen;
  run_law *found; /* [judged] */
  bool no_memory;
} walk;

/* The keys that the row sees, their exact weights and v - o, and the variances of the sums. */
static bool measure(const row_case *c, run_law *f) {
  const attn_problem *p = c->e->problem;
  const row_space *s = c->space;
  const int64_t n = s->count, columns = p->d_v + 1;
  const attn_call call = evidence_call(c->e);
  const attn_query query = evidence_query(&call, c->row);
  region memory = {.last = NULL}; /* of a thread */
  double *m = region_take(&memory, n * n, sizeof *m), *weights = region_take(&memory, n, sizeof *weights),
         *x = region_take(&memory, n * columns, sizeof *x),
         *variance = region_take(&memory, columns, sizeof *variance);
  const bool room = !memory.refused;
  if (room) {
    weight_moments(c->e->view->selector, &query, s->index, n, m);
    f->always = c->sink;
    for (int64_t a = 0; a < n; a++) {
      weights[a] = c->p[s->index[a]];
      if (weight_always(m, n, a)) f->always += weights[a];
      x[a * columns + p->d_v] = 1;
      for (int64_t l = 0; l < p->d_v; l++)
        x[a * columns + l] = c->head->v[s->index[a] * p->d_v + l] - c->o[l];
    }
    weight_variances(m, n, weights, x, columns, variance);
    for (int64_t l = 0; l < p->d_v; l++) f->square += variance[l];
    f->spread = variance[p->d_v];
    if (!isfinite(f->square) || !isfinite(f->spread))
      f->why =
          "the sums of the row have no finite variance: a key can never be drawn, or numbers are too large";
  }
  region_free(&memory);
  return room;
}

static void visit(void *context, int64_t r, const row_case *c) {
  walk *w = context;
  run_law *f = &w->found[r];
  row_space *s = c->space;
  const int64_t d_v = c->e->problem->d_v;
  double sum = c->sink, error = 0, rounding = 0;
  row_see(c->head, w->seen, c->row->i, s);
  const row_verdict verdict = row_bound(c->head, &c->e->view->rounding, false, NULL, s);
  if (verdict != ROW_OK) {
    f->why = row_reason(verdict);
    return;
  }
  for (int64_t a = 0; a < s->count; a++) sum += c->p[s->index[a]] * exp(s->log_weight[a]);
  for (int64_t l = 0; l < d_v; l++) {
    const double off = s->given[l] - c->o[l];
    error += off * off;
    rounding += 4 * s->bound[l] * s->bound[l];
  }
  /* o and v - o are known to fp64 alone, which D~ multiplies. */
  const double known = 0x1p-44 * c->head->v_max * sqrt((double)d_v);
  f->error = isnan(error) ? (double)INFINITY : fmax(0, sqrt(error) - sqrt(rounding) - known);
  f->w = isinf(f->error) ? f->error : fmax(0, sum * f->error - known);
  row_support(c->head, NULL, c->row->i, s);
  if (!measure(c, f)) {
#pragma omp atomic write
    w->no_memory = true;
  }
}

attn_status run_laws(const evidence *e, run_law out[RUN_LAW_ROWS], int64_t *count) {
  const int64_t judged = e->exact->judged;
  const int64_t *place = NULL;
  walk w = {.found = region_zeros(e->memory, judged, sizeof *w.found)};
  bool *take = region_zeros(e->memory, judged, sizeof *take);
  attn_status status = region_status(e->memory, "for the laws of rows");
  const double square = (double)e->problem->n_kv * (double)e->problem->n_kv;
  const int64_t most = (int64_t)fmin(RUN_LAW_ROWS, fmax(1, moments_most / square));
  *count = 0;
  if (!status && e->problem->n_kv <= RUN_LAW_KEYS) status = facts_seen(e, &w.seen, &place);
  if (place) picks_spread(place, judged, most, take);
  if (!status && place) status = rows_walk(e, take, &(rows_visitor){.context = &w, .visit = visit});
  if (w.no_memory) status = attn_fail(ATTN_ENOMEM, "no memory for the law of a row");
  for (int64_t r = 0; !status && r < judged; r++)
    if (take[r]) out[(*count)++] = w.found[r];
  return status;
}
