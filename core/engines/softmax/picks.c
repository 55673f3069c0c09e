/* picks.c - selections: how they are written, neighbours of one weight in one run, and what they must be
 * before anything follows them: runs of keys that exist, ascending and disjoint, as many as there is room
 * for, with weights that are numbers. They come from a variant's select, which anybody may have written. */
#include "core/engines/softmax/softmax.h"

#include <math.h>
#include <string.h>

/* ---- asked for, and written -------------------------------------------------------------------------- */

void attn_picks_add(attn_picks *picks, int64_t i, int64_t first, int64_t end, double log_weight) {
  if (!picks || !picks->runs || !picks->counts || first >= end) return;
  const int64_t count = picks->counts[i], last = i * picks->max_runs + count - 1;
  attn_run *runs = picks->runs;
  double *weights = picks->log_weights;
  if (count > 0 && count <= picks->max_runs && runs[last].first + runs[last].count == first &&
      !(weights && (weights[last] < log_weight || weights[last] > log_weight))) {
    runs[last].count += end - first;
    return;
  }
  if (count < picks->max_runs) {
    runs[last + 1] = (attn_run){first, end - first, 1};
    if (weights) weights[last + 1] = log_weight;
  }
  picks->counts[i]++;
}

int64_t attn_selection_rows(const attn_problem *p, const attn_selector *x) {
  return attn_min(x->rows, p->n_q);
}

int64_t attn_picks_count(const attn_block *b, const attn_selector *x) {
  return x->share == ATTN_SHARE_TILE ? 1 : b->count;
}

attn_picks attn_picks_carve(const attn_selector *x, int64_t rows, attn_carver *carver) {
  return (attn_picks){.max_runs = x->max_runs,
                      .runs = attn_carve(carver, rows, x->max_runs, sizeof(attn_run)),
                      .counts = attn_carve(carver, rows, 1, sizeof(int64_t)),
                      .log_weights =
                          x->weighted ? attn_carve(carver, rows, x->max_runs, sizeof(double)) : NULL};
}

void attn_picks_ask(const attn_selector *x, const attn_call *call, const attn_block *block,
                    const void *prepared, attn_picks *picks, void *scratch) {
  if (x->weighted)
    memset(picks->log_weights, 0, (size_t)(attn_picks_count(block, x) * x->max_runs) * sizeof(double));
  x->select(x->state, call, block, prepared, picks, scratch);
}

/* ---- whether they are sound -------------------------------------------------------------------------- */

static attn_picks_fault find_fault(const attn_selector *x, int64_t n_kv, const attn_picks *picks, int64_t i) {
  const attn_run *runs = picks->runs + i * picks->max_runs;
  const int64_t count = picks->counts[i];
  int64_t end = 0, keys = 0;
  if (count < 0) return ATTN_PICKS_NEGATIVE;
  if (count > picks->max_runs) return ATTN_PICKS_MANY;
  for (int64_t r = 0; r < count; r++) {
    if (runs[r].step != 1) return ATTN_PICKS_STEP;
    if (runs[r].count < 1) return ATTN_PICKS_EMPTY;
    if (runs[r].first < end) return ATTN_PICKS_ORDER;
    if (runs[r].first >= n_kv || runs[r].count > n_kv - runs[r].first) return ATTN_PICKS_BEYOND;
    end = runs[r].first + runs[r].count;
    if (x->weighted && !isfinite(picks->log_weights[i * picks->max_runs + r])) return ATTN_PICKS_WEIGHT;
    keys += runs[r].count;
  }
  return x->max_keys && keys > x->max_keys ? ATTN_PICKS_KEYS : ATTN_PICKS_SOUND;
}

attn_picks_fault attn_picks_check(const attn_selector *x, int64_t n_kv, const attn_picks *picks, int64_t i) {
  const int64_t count = picks->counts[i];
  const bool noted = count > ATTN_PICKS_NOTED && count < ATTN_PICKS_NOTED + ATTN_PICKS_FAULTS;
  return noted ? (attn_picks_fault)(count - ATTN_PICKS_NOTED) : find_fault(x, n_kv, picks, i);
}

const char *attn_picks_error_text(const attn_selector *x, int64_t n_kv, const attn_picks *picks, int64_t i) {
  static const char *const texts[] = {
      [ATTN_PICKS_SOUND] = NULL,
      [ATTN_PICKS_NEGATIVE] = "has a negative number of runs",
      [ATTN_PICKS_MANY] = "has more than max_runs runs",
      [ATTN_PICKS_STEP] = "has a run of another step than 1",
      [ATTN_PICKS_EMPTY] = "has a run of no keys",
      [ATTN_PICKS_ORDER] = "has runs that overlap or do not ascend",
      [ATTN_PICKS_BEYOND] = "goes beyond the last key",
      [ATTN_PICKS_WEIGHT] = "has a weight that is not finite",
      [ATTN_PICKS_KEYS] = "has more than max_keys keys",
      [ATTN_PICKS_OWNED] = "has keys that a term before it owns, which it says to leave alone",
  };
  return texts[attn_picks_check(x, n_kv, picks, i)];
}
