/* nonfinite.c - see nonfinite.h. A row depends on its query, on the keys that it sees and on one component of
 * their values; which keys a selection takes depends on all visible keys, so these count for a selection. */
#include "experiments/evidence/rounding/nonfinite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "experiments/evidence/rows.h"

typedef enum { RIGHT, UNCAUSED, MISSING } finding;

typedef struct walk {
  finding *found;     /* [judged] */
  int64_t *component; /* [judged] */
} walk;

static bool is_finite(const double *x, int64_t count) {
  for (int64_t l = 0; l < count; l++)
    if (!isfinite(x[l])) return false;
  return true;
}

static void visit(void *context, int64_t r, const row_case *c) {
  walk *w = context;
  const attn_problem *p = c->e->problem;
  const head_data *h = c->head;
  row_space *s = c->space;
  row_support(h, c->e->view->pattern, c->row->i, s);
  bool scores = is_finite(s->q, p->d_qk);
  for (int64_t a = 0; scores && a < s->count; a++) scores = is_finite(h->k + s->index[a] * p->d_qk, p->d_qk);
  for (int64_t l = 0; l < p->d_v && w->found[r] == RIGHT; l++) {
    bool finite = scores || s->count == 0;
    for (int64_t a = 0; finite && a < s->count; a++) finite = isfinite(h->v[s->index[a] * p->d_v + l]);
    const bool nan = isnan(s->given[l]);
    if (nan && finite) w->found[r] = UNCAUSED;
    if (!nan && isnan(c->o[l]) && c->e->view->caps & ATTN_CAP_EXACT) w->found[r] = MISSING;
    w->component[r] = l;
  }
}

static bool rows_are_mixed(const attn_view *view) {
  const uint32_t mixed = ATTN_EXEMPT_ROWS | ATTN_EXEMPT_LOOKAHEAD | ATTN_EXEMPT_CAUSAL;
  return view->low_rank || view->projection || attn_exempt(view->exempt, mixed);
}

attn_status nonfinite_judge(const evidence *e, char fault[NONFINITE_TEXT]) {
  const int64_t judged = e->exact->judged;
  *fault = '\0';
  if (rows_are_mixed(e->view)) return ATTN_OK;
  walk w = {.found = calloc((size_t)judged, sizeof *w.found),
            .component = calloc((size_t)judged, sizeof *w.component)};
  bool *take = rows_subsample(e, (double)judged);
  attn_status status = w.found && w.component && take
                           ? rows_walk(e, take, &(rows_visitor){.context = &w, .visit = visit})
                           : attn_fail(ATTN_ENOMEM, "no memory to judge rows that are not finite");
  for (int64_t r = 0; !status && r < judged && !*fault; r++) {
    const sample_row *at = &e->exact->rows[r];
    if (w.found[r] == RIGHT) continue;
    snprintf(fault, NONFINITE_TEXT, "output[%lld,%lld,%lld,%lld] is %s", (long long)at->batch,
             (long long)at->head, (long long)at->i, (long long)w.component[r],
             w.found[r] == UNCAUSED ? "NaN, but all that it depends on is finite"
                                    : "a number, but NaN by the definition of attention");
  }
  free(take);
  free(w.found);
  free(w.component);
  return status;
}
