/* rolling.c - STR-0: the pattern is what a cache of fixed size can decode.
 *
 * A query that attends to attention sinks and a window (Xiao et al. 2023) needs no key that its predecessor
 * did not keep:
 *
 *   S(i) is in S(i - 1) and i,   i is in S(i),   |S(i)| = min(i + 1, L),
 *
 * so that a cache of L keys, from which one is thrown out for each that comes, has what every query sees, and
 * what was thrown out is not asked for again. SP-0 holds the pattern against the variant's own second
 * statement of it; this is a third one, which knows neither sinks nor windows: a window that is a key too
 * short or too long, sinks that are evicted, or counted twice, show in it even if both statements agree. */
#include "experiments/checks/check_table.h"

#include "experiments/reference/exact.h"
#include "experiments/reference/visible.h"

#include <stdlib.h>
#include <string.h>

enum { POSITIONS = 256 };
static const uint64_t purpose_positions = 0x73747230; /* "str0" */

typedef struct cache_walk {
  const evidence *e;
  int64_t head;
  attn_run *runs;
  bool *own, *before; /* [n_kv] */
  int64_t wrong;      /* keys that are too many or too few */
} cache_walk;

static int64_t mark(const cache_walk *w, int64_t i, bool *inside) {
  const attn_problem *p = w->e->problem;
  const int64_t count = visible_runs(w->e->view->pattern, p, w->head, i, p->n_kv, w->runs);
  int64_t keys = 0;
  memset(inside, 0, (size_t)p->n_kv);
  for (int64_t r = 0; r < count; r++)
    for (int64_t c = 0; c < w->runs[r].count; c++, keys++)
      inside[w->runs[r].first + c * w->runs[r].step] = true;
  return keys;
}

/* Query i has a position, 0 ... n_kv - 1. */
static void judge_position(cache_walk *w, int64_t i, result_bound *bound) {
  const attn_problem *p = w->e->problem;
  const int64_t position = attn_problem_position(p, i), most = w->e->view->pattern->cache,
                wanted = position + 1 < most ? position + 1 : most, first_wrong = w->wrong;
  const int64_t count = mark(w, i, w->own);
  int64_t key = -1;
  w->wrong += llabs(count - wanted) + !w->own[position];
  if (position > 0) mark(w, i - 1, w->before);
  for (int64_t j = 0; j < position; j++)
    if (w->own[j] && !w->before[j] && position > 0) {
      key = j;
      w->wrong++;
    }
  if (first_wrong || !w->wrong) return;
  if (key >= 0)
    bound_say(bound, "head %lld, query %lld sees key %lld, which the query before it has thrown out",
              (long long)w->head, (long long)i, (long long)key);
  else
    bound_say(bound, "head %lld, query %lld sees %lld keys%s, and a cache of %lld keys has %lld",
              (long long)w->head, (long long)i, (long long)count, w->own[position] ? "" : " but itself",
              (long long)most, (long long)wanted);
}

static attn_status rolling_evaluate(const evidence *e, result_bound *bound) {
  const attn_problem *p = e->problem;
  const attn_pattern *pattern = e->view->pattern;
  const int64_t hidden = p->n_q > p->n_kv ? p->n_q - p->n_kv : 0, queries = p->n_q - hidden,
                heads = pattern->per_head ? p->heads : 1;
  if (!p->causal)
    return bound_not_applicable(bound, "not causal: a cache grows with the queries that decode");
  int64_t rows[POSITIONS] = {0}, count = queries < POSITIONS ? queries : POSITIONS;
  cache_walk w = {.e = e,
                  .runs = region_zeros(e->memory, pattern->max_runs, sizeof *w.runs),
                  .own = region_zeros(e->memory, p->n_kv, 1),
                  .before = region_zeros(e->memory, p->n_kv, 1)};
  attn_status status = region_status(e->memory, "for the keys of a query");
  attn_rng rng;
  attn_rng_init(&rng, e->seed, purpose_positions, 0);
  rows_spread(&rng, queries, count, rows);
  bound_hard(bound, 0, 0);
  for (; !status && w.head < heads; w.head++)
    for (int64_t r = 0; r < count; r++) judge_position(&w, hidden + rows[r], bound);
  if (!status && w.wrong) status = bound_hard(bound, (double)w.wrong, 0);
  return status;
}

const check check_str0 = {
    .name = "STR-0",
    .of = &of_rolling,
    .kind = KIND_HARD,
    .statement =
        "a cache of fixed size holds what every query sees, and nothing that was thrown out is seen again",
    .source = "the rolling cache of Xiao et al. 2023, arXiv:2309.17453",
    .formula =
        "Of up to 256 queries, edges among them, keys of S(i) that are neither i nor in S(i - 1), a missing "
        "i, and | |S(i)| - min(i + 1, L) |, L the size of the cache that the pattern states; positions count "
        "for numbers of queries. measured: their sum, which must be 0.",
    .assumes = "The pattern states the size of a cache (attn_pattern.cache), and the run is causal.",
    .cause = "the window is counted without the query itself, sinks go when the window has left them, or are "
             "counted twice while it covers them",
    .nulls =
        CHECK_BLIND("it judges the pattern, and looks at no output: SP-1 and FP-2 judge what is made of it"),
    .evaluate = rolling_evaluate,
};
