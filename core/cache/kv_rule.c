/* kv_rule.c - a rule of caches (attn_eviction.h): whether it fits a problem, how many keys it holds, in each
 * of the kv heads that share a budget and at a position, and what attending to them costs. Heads that share
 * differ by the same number of keys at every position from the prompt's end on, so that a head of equal
 * shares is their mean. */
#include "core/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

attn_status attn_kv_applicable(const attn_context *c, const attn_kv_rule *r) {
  if (!c || !r) return attn_null("a rule of caches", c ? "rule" : "context");
  const attn_problem *p = c->problem;
  const char *name = c->variant->name;
  if (!r->score || !r->score->score) return attn_fail(ATTN_EINVAL, "variant %s: its rule has no score", name);
  if (r->budget < 1 || r->recent < 1 || r->prompt < 0 || r->every < 1 || r->chunk < 1)
    return attn_fail(
        ATTN_EINVAL,
        "variant %s: its rule has budget %lld, recent %lld, prompt %lld, every %lld and chunk %lld, "
        "expected at least 1, but 0 of prompt",
        name, (long long)r->budget, (long long)r->recent, (long long)r->prompt, (long long)r->every,
        (long long)r->chunk);
  if (r->recent > r->budget)
    return attn_fail(ATTN_EINVAL, "variant %s: budget = %lld, expected at least recent = %lld", name,
                     (long long)r->budget, (long long)r->recent);
  if (attn_kv_kept(r) < 0)
    return attn_fail(
        ATTN_EINVAL,
        "variant %s: budget = %lld, expected at least recent - 1 and every = %lld in chunks of %lld: %lld",
        name, (long long)r->budget, (long long)r->every, (long long)r->chunk,
        (long long)(r->recent - 1 + attn_kv_period(r)));
  if (!(r->shared >= 0 && r->shared <= 1))
    return attn_fail(ATTN_EINVAL, "variant %s: shared = %g, expected 0 ... 1", name, r->shared);
  if (r->shared > 0 && r->prompt <= r->budget)
    return attn_fail(
        ATTN_EINVAL,
        "variant %s: shared = %g divides budgets by the scores of a prompt's keys: prompt = %lld, "
        "expected more than budget = %lld",
        name, r->shared, (long long)r->prompt, (long long)r->budget);
  if (!isfinite(r->admit) || (attn_kv_admits(r) && (r->every > 1 || r->chunk > 1 || r->shared > 0)))
    return attn_fail(
        ATTN_EINVAL,
        "variant %s: admit = %g judges keys one by one, each in its kv head: every = %lld, chunk "
        "= %lld and shared = %g, expected a finite number, 1, 1 and 0",
        name, r->admit, (long long)r->every, (long long)r->chunk, r->shared);
  if (r->score->fixed && r->score->values)
    return attn_fail(ATTN_EINVAL, "variant %s: score %s is fixed, and reads values; let it not be fixed",
                     name, r->score->name);
  if (r->score->products && (!r->score->window || r->score->sums))
    return attn_fail(ATTN_EINVAL, "variant %s: score %s reads products, which needs a window and no sums",
                     name, r->score->name);
  if (r->score->filters != (r->filters_file && *r->filters_file))
    return attn_fail(ATTN_EINVAL, "variant %s: score=%s %s", name, r->score->name,
                     r->score->filters ? "needs filters=FILE, npy [kv_heads, d_qk]" : "reads no filters");
  if (!p->causal) return attn_fail(ATTN_EUNSUPPORTED, "variant %s: only causal attention", name);
  if ((attn_kv_observes(r->score) || r->score->future) && p->n_q != p->n_kv)
    return attn_fail(
        ATTN_EUNSUPPORTED,
        "variant %s: score=%s ranks by the weights of all queries, of which %lld of %lld are given", name,
        r->score->name, (long long)p->n_q, (long long)p->n_kv);
  return p->score.dense.at ? attn_fail(ATTN_EUNSUPPORTED, "variant %s: a bias of the scores", name) : ATTN_OK;
}

attn_status attn_kv_read_filters(attn_kv_rule *r, const attn_problem *p, attn_arena *arena) {
  int64_t rows, columns;
  double *given = NULL, *kept = NULL;
  if (!r->score->filters) return ATTN_OK;
  attn_status status = attn_matrix_read(r->filters_file, &rows, &columns, &given);
  if (status) return status;
  if (rows != p->kv_heads || columns != p->d_qk)
    status =
        attn_fail(ATTN_EINVAL, "filters: %s is %lld x %lld, expected %lld kv heads x %lld", r->filters_file,
                  (long long)rows, (long long)columns, (long long)p->kv_heads, (long long)p->d_qk);
  else if (!(kept = attn_arena_alloc(arena, rows * columns, sizeof *kept)))
    status = ATTN_ENOMEM;
  else
    memcpy(kept, given, (size_t)(rows * columns) * sizeof *kept);
  free(given);
  r->filters = kept;
  return status;
}

/* ---- how many keys --------------------------------------------------------------------------------- */

static int descending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x < y) - (x > y);
}

void attn_kv_share(const attn_kv_rule *r, int64_t heads, int64_t row, double *scores, int64_t *budget) {
  const int64_t pooled = attn_kv_pooled(r), kept = attn_kv_kept(r),
                most = kept + (r->prompt - r->budget) / r->chunk,
                chunks = (r->prompt - r->recent + 1) / r->chunk;
  for (int64_t h = 0; h < heads; h++) {
    qsort(scores + h * row, (size_t)chunks, sizeof *scores, descending);
    budget[h] = kept - pooled; /* chunks that stay, so far */
  }
  for (int64_t i = 0; i < heads * pooled; i++) {
    int64_t next = -1;
    for (int64_t h = 0; h < heads; h++)
      if (budget[h] < most && (next < 0 || scores[h * row + budget[h]] > scores[next * row + budget[next]]))
        next = h;
    budget[next]++;
  }
  for (int64_t h = 0; h < heads; h++) budget[h] = r->budget + (budget[h] - kept) * r->chunk;
}

/* When keys go: at position `first`; from `second` on, at every `period`-th. */
typedef struct schedule {
  int64_t first, second, period;
} schedule;

/* The first time chunks may begin elsewhere, where it is the prompt's end. */
static schedule schedule_of(const attn_kv_rule *r) {
  const int64_t first = attn_max(r->prompt, r->budget);
  return (schedule){.first = first,
                    .second = first + r->budget - r->recent + 1 - attn_kv_kept(r) * r->chunk -
                              (first - r->recent + 1) % r->chunk,
                    .period = attn_kv_period(r)};
}

int64_t attn_kv_count(const attn_kv_rule *r, int64_t position) {
  const schedule s = schedule_of(r);
  if (position < s.first) return position + 1;
  const int64_t last = position < s.second ? s.first : position - (position - s.second) % s.period;
  return attn_kv_kept(r) * r->chunk + position + 1 - (last - r->recent + 1) / r->chunk * r->chunk;
}

/* from + (from + 1) + ... of n terms. */
static double ascending(double n, double from) { return n * from + n * (n - 1) / 2; }

/* Keys that the queries at the first n positions see, of a head. */
static double pairs_up_to(const attn_kv_rule *r, double n) {
  const schedule s = schedule_of(r);
  const double first = (double)s.first, second = (double)s.second, period = (double)s.period,
               later = fmax(0, n - second), rest = fmod(later, period),
               from = (double)attn_kv_count(r, s.second);
  return n <= 0 ? 0
                : ascending(fmin(n, first), 1) +
                      ascending(fmax(0, fmin(n, second) - first), (double)attn_kv_count(r, s.first)) +
                      (later - rest) / period * ascending(period, from) + ascending(rest, from);
}

/* The same of positions from ... end - 1. */
static double pairs_between(const attn_kv_rule *r, double from, double end) {
  return pairs_up_to(r, end) - pairs_up_to(r, from);
}

/* What scores that look at queries take where keys go: weights of a head for the run, and for each replay of
 * its prompt, which is over before. */
static double weights_of(const attn_kv_rule *r, const attn_problem *p) {
  const double n = (double)p->n_kv, prompt = (double)r->prompt, first = (double)attn_kv_first(r),
               from = r->score->sums ? 0 : fmax(0, first - (double)r->score->window),
               replays = attn_kv_pooled(r) ? (double)p->kv_heads : 0;
  return r->score->future ? (1 + replays) * n * (n + 1)
                          : pairs_between(r, from, n) + replays * pairs_between(r, from, prompt);
}

attn_cost attn_kv_cost(const attn_context *c, const attn_kv_rule *r) {
  if (!c || !r) return (attn_cost){0};
  const attn_problem *p = c->problem;
  const double d = (double)p->d_qk;
  attn_cost result =
      attn_softmax_cost(c, pairs_between(r, (double)attn_problem_position(p, 0), (double)p->n_kv));
  if (attn_kv_first(r) >= p->n_kv) return result;
  if (attn_kv_observes(r->score) || r->score->future) {
    const double weights = (double)(p->batch * p->heads) * weights_of(r, p);
    result.mul_add += weights * d;
    result.exp += weights;
    if (r->score->products)
      result.mul_add += (double)(p->batch * p->heads * p->n_kv * r->score->window) * d +
                        weights * 4 * (double)r->score->window / (double)r->every;
  } else if (!r->score->fixed) {
    const double times = (double)(p->n_kv - attn_kv_first(r)) / (double)attn_kv_period(r),
                 scores =
                     times * (double)r->budget + (attn_kv_pooled(r) ? (double)(p->kv_heads * r->prompt) : 0);
    result.mul_add +=
        (double)(p->batch * p->kv_heads) * scores * 2 * (d + (r->score->values ? (double)p->d_v : 0));
  }
  return result;
}
