/* runs.c - see runs.h. Everything is linear in the number of runs, except that runs of a step above 1 are
 * taken key by key. */
#include "core/expression/runs.h"

static double weight_of(const run_set *s, int64_t r) { return s->log_weights ? s->log_weights[r] : 0; }

void run_add(run_set *s, int64_t first, int64_t end, double log_weight) {
  attn_picks picks = {
      .max_runs = s->most, .runs = s->runs, .counts = &s->count, .log_weights = s->log_weights};
  attn_picks_add(&picks, 0, first, end, log_weight);
}

void run_add_any(run_set *s, attn_run *runs, int64_t count, int64_t begin, int64_t end) {
  bool apart = true;
  for (int64_t r = 0; r < count; r++)
    apart = apart && runs[r].step == 1 && (!r || runs[r].first >= runs[r - 1].first + runs[r - 1].count);
  for (int64_t r = 0; apart && r < count; r++)
    run_add(s, attn_max(runs[r].first, begin), attn_min(runs[r].first + runs[r].count, end), 0);
  while (!apart) {
    int64_t next = -1;
    for (int64_t r = 0; r < count; r++)
      if (runs[r].count > 0 && (next < 0 || runs[r].first < runs[next].first)) next = r;
    if (next < 0) break;
    attn_run *run = &runs[next];
    if (run->first >= begin && run->first < end) run_add(s, run->first, run->first + 1, 0);
    run->first += run->step;
    run->count--;
  }
}

void run_join(const run_set *owned, const run_set *more, int64_t begin, int64_t end, run_set *out) {
  int64_t o = 0, m = 0, at = begin; /* of `more`, keys before `at` are done with */
  out->count = 0;
  while (o < owned->count || m < more->count) {
    const int64_t own = o < owned->count ? owned->runs[o].first : INT64_MAX;
    if (m < more->count) {
      const attn_run run = more->runs[m];
      const int64_t last = attn_min(run.first + run.count, end), first = attn_max(run.first, at);
      if (first < own) run_add(out, first, attn_min(last, own), weight_of(more, m));
      if (last <= own) {
        m++;
        continue;
      }
    }
    run_add(out, own, own + owned->runs[o].count, weight_of(owned, o));
    at = attn_max(at, own + owned->runs[o].count);
    o++;
  }
}

bool run_sets_intersect(const run_set *a, const run_set *b) {
  for (int64_t i = 0, j = 0; i < a->count && j < b->count;) {
    if (a->runs[i].first + a->runs[i].count <= b->runs[j].first)
      i++;
    else if (b->runs[j].first + b->runs[j].count <= a->runs[i].first)
      j++;
    else
      return true;
  }
  return false;
}

bool run_has(const run_set *s, int64_t key) {
  int64_t low = 0, high = s->count;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (s->runs[middle].first + s->runs[middle].count <= key)
      low = middle + 1;
    else
      high = middle;
  }
  return low < s->count && s->runs[low].first <= key;
}
