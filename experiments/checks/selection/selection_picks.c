/* selection_picks.c - see selection_picks.h. */
#include "experiments/checks/selection/selection_picks.h"

#include <math.h>

bool picks_have(const attn_run *runs, int64_t count, int64_t key) {
  for (int64_t r = 0; r < count && runs[r].first <= key; r++)
    if (key < runs[r].first + runs[r].count) return true;
  return false;
}

typedef struct pick_walk {
  const seen_keys *seen;
  pick_judge *judge;
  const void *context;
  pick_finding *found; /* [judged] */
} pick_walk;

static void visit(void *context, int64_t r, const row_case *row) {
  pick_walk *w = context;
  pick_case c = {.row = row};
  c.count = seen_picks(w->seen, row->row, &c.runs);
  if (w->seen->log_weights && c.runs) c.log_weights = w->seen->log_weights + (c.runs - w->seen->runs);
  w->judge(w->context, &c, &w->found[r]);
}

/* Of equal parts each a row at another place of its part, by the golden ratio: rows of one position of each
 * head would see as many keys. */
void picks_spread(const int64_t *place, int64_t judged, int64_t most, bool *take) {
  static const double golden = 0.6180339887498949;
  int64_t known = 0, at = 0, part = 0;
  for (int64_t r = 0; r < judged; r++) known += place[r] >= 0;
  if (!most || most > known) most = known;
  for (int64_t r = 0; r < judged; r++) {
    take[r] = false;
    if (place[r] < 0) continue;
    const double within = (double)(part + 1) * golden - floor((double)(part + 1) * golden);
    const int64_t first = part * known / most, size = (part + 1) * known / most - first;
    take[r] = at++ - first == (int64_t)(within * (double)size);
    if (at == first + size) part++;
  }
}

attn_status picks_sum(const evidence *e, int64_t most, pick_judge *judge, const void *context,
                      result_bound *bound, pick_sums *sums) {
  const exact_rows *x = e->exact;
  const int64_t *place = NULL;
  pick_walk w = {.judge = judge, .context = context};
  outcome worst = OUTCOME_NONE;
  int64_t of = -1;
  bool *take = region_zeros(e->memory, x->judged, sizeof *take);
  w.found = region_zeros(e->memory, x->judged, sizeof *w.found);
  attn_status status = region_status(e->memory, "for the findings of a check");
  if (!status) status = facts_seen(e, &w.seen, &place);
  if (!status) picks_spread(place, x->judged, most, take);
  if (!status) status = rows_walk(e, take, &(rows_visitor){.context = &w, .visit = visit});
  *sums = (pick_sums){.rows = 0};
  for (int64_t r = 0; r < x->judged && !status; r++) {
    if (take[r] && outcome_worsen(&worst, w.found[r].x)) of = r;
    for (int i = 0; i < 2; i++) sums->told[i] += w.found[r].told[i];
    sums->rows += w.found[r].tells;
  }
  if (!status) outcome_to_verdict(&worst, bound);
  if (!status && bound->verdict == VERDICT_VIOLATED)
    bound_say(bound, "batch entry %lld, head %lld, query %lld %s", (long long)x->rows[of].batch,
              (long long)x->rows[of].head, (long long)x->rows[of].i, w.found[of].text);
  return status;
}

attn_status picks_check(const evidence *e, int64_t most, pick_judge *judge, const void *context,
                        result_bound *bound) {
  pick_sums sums;
  return picks_sum(e, most, judge, context, bound, &sums);
}
