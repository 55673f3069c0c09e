/* kv_head.c - the keys of a kv head under a rule (attn_eviction.h): which go when one arrives. */
#include "core/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A held key that may go. */
struct attn_kv_rank {
  double score;
  int64_t at;
};

static void *piece(attn_carver *c, int64_t count, size_t size) { return attn_carve(c, count, 1, size); }

/* Of h->weights. */
static int64_t lines(const attn_kv_head *h) {
  return h->rule.score->window * (h->rule.score->products ? h->heads : 1);
}

static void carve(attn_kv_head *h, attn_carver *c) {
  const attn_kv_score *s = h->rule.score;
  const int64_t n = h->capacity;
  h->gone = piece(c, n, sizeof *h->gone);
  h->gone_position = piece(c, n, sizeof *h->gone_position);
  h->score = piece(c, n, sizeof *h->score);
  h->own = attn_kv_observes(s) ? piece(c, n, sizeof *h->own) : NULL;
  h->mean = attn_kv_observes(s) ? piece(c, n, sizeof *h->mean) : NULL;
  h->rank = piece(c, n, sizeof *h->rank);
  h->fixed = s->fixed ? piece(c, n, sizeof *h->fixed) : NULL;
  h->sum = s->sums ? piece(c, n, sizeof *h->sum) : NULL;
  h->seen = s->sums ? piece(c, n, sizeof *h->seen) : NULL;
  h->weights = s->window ? attn_carve(c, lines(h), n, sizeof *h->weights) : NULL;
  h->query = s->products ? attn_carve(c, lines(h), h->d, sizeof *h->query) : NULL;
}

static attn_kv_head head_of(const attn_kv_rule *rule, const attn_problem *p, int64_t capacity,
                            attn_carver *carver) {
  attn_kv_head h = {
      .rule = *rule, .d = p->d_qk, .d_v = p->d_v, .heads = p->heads / p->kv_heads, .capacity = capacity};
  carve(&h, carver);
  return h;
}

size_t attn_kv_head_bytes(const attn_kv_rule *rule, const attn_problem *p, int64_t capacity) {
  attn_carver counter = {0};
  head_of(rule, p, capacity, &counter);
  return counter.used;
}

void attn_kv_head_begin(attn_kv_head *h, const attn_kv_rule *rule, const attn_problem *p, int64_t kv_head,
                        int64_t capacity, bool by_position, int64_t *position, void *memory) {
  attn_carver carver = {.base = memory};
  *h = head_of(rule, p, capacity, &carver);
  h->kv_head = kv_head;
  h->by_position = by_position;
  h->position = position;
  if (h->query) memset(h->query, 0, (size_t)(lines(h) * h->d) * sizeof *h->query);
}

static attn_kv_held held(const attn_kv_head *h, const double *keys) {
  return (attn_kv_held){.d = h->d,
                        .count = h->count,
                        .position = h->position,
                        .keys = keys,
                        .row = h->by_position ? h->position : NULL,
                        .d_v = h->d_v,
                        .values = h->values,
                        .seed = h->rule.seed,
                        .kv_head = h->kv_head,
                        .recent = h->rule.recent,
                        .filter = h->rule.filters ? h->rule.filters + h->kv_head * h->d : NULL,
                        .queries = h->queries,
                        .window = h->rule.score->window,
                        .weights_row = h->capacity,
                        .newest = h->newest,
                        .weights = h->weights,
                        .heads = h->heads,
                        .sum = h->sum,
                        .seen = h->seen,
                        .later = h->later};
}

/* The first to go first. */
static int by_score(const struct attn_kv_rank *x, const struct attn_kv_rank *y) {
  if (x->score < y->score) return -1;
  if (x->score > y->score) return 1;
  return (x->at < y->at) - (x->at > y->at);
}

static int by_place(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static double mean_score(const attn_kv_head *h, int64_t first, int64_t count) {
  double sum = 0;
  for (int64_t j = first; j < first + count; j++) sum += h->score[j];
  return isnan(sum) ? -(double)INFINITY : sum / (double)count;
}

/* Makes a heap of x[at] and the heaps below it, each with the last to go on top. */
static void sift(struct attn_kv_rank *x, int64_t n, int64_t at) {
  for (int64_t child = 2 * at + 1; child < n; at = child, child = 2 * at + 1) {
    if (child + 1 < n && by_score(&x[child], &x[child + 1]) < 0) child++;
    if (by_score(&x[at], &x[child]) >= 0) return;
    const struct attn_kv_rank below = x[child];
    x[child] = x[at];
    x[at] = below;
  }
}

/* The `count` first to go among held keys 0 ... open - 1, which are whole chunks, ascending, in h->gone. */
static void choose(attn_kv_head *h, int64_t open, int64_t count) {
  const int64_t chunk = h->rule.chunk, chunks = open / chunk, going = count / chunk;
  for (int64_t c = 0; c < chunks; c++) h->rank[c] = (struct attn_kv_rank){mean_score(h, c * chunk, chunk), c};
  for (int64_t c = going / 2; c-- > 0;) sift(h->rank, going, c);
  for (int64_t c = going; c < chunks; c++) {
    if (by_score(&h->rank[c], h->rank) >= 0) continue;
    h->rank[0] = h->rank[c];
    sift(h->rank, going, 0);
  }
  for (int64_t i = 0; i < going; i++) h->gone[i] = h->rank[i].at;
  qsort(h->gone, (size_t)going, sizeof *h->gone, by_place);
  for (int64_t i = count - 1; i >= 0; i--) h->gone[i] = h->gone[i / chunk] * chunk + i % chunk;
}

/* Closes the gaps that the keys in h->gone leave. */
static void drop(attn_kv_head *h, int64_t count) {
  int64_t kept = 0, next = 0;
  for (int64_t j = 0; j < h->count; j++) {
    if (next < count && h->gone[next] == j) {
      h->gone_position[next++] = h->position[j];
      continue;
    }
    h->position[kept] = h->position[j];
    if (h->fixed) h->fixed[kept] = h->fixed[j];
    if (h->sum) h->sum[kept] = h->sum[j];
    if (h->seen) h->seen[kept] = h->seen[j];
    for (int64_t q = 0; q < lines(h); q++)
      h->weights[q * h->capacity + kept] = h->weights[q * h->capacity + j];
    kept++;
  }
  h->count = kept;
}

/* Scores of the held keys, of which those that may go when this position arrives are as many as it returns,
 * in whole chunks. */
static int64_t score_held(attn_kv_head *h, int64_t position, const double *keys) {
  const attn_kv_rule *r = &h->rule;
  const int64_t recent = (position - r->recent + 1) / r->chunk * r->chunk;
  int64_t open = h->count;
  while (open > 0 && h->position[open - 1] >= recent) open--;
  if (h->fixed) {
    memcpy(h->score, h->fixed, (size_t)h->count * sizeof *h->score);
  } else {
    const attn_kv_held all = held(h, keys);
    r->score->score(&all, h->score);
  }
  return open;
}

/* Of the open keys those that are not admitted when this position arrives, which rank last. */
static int64_t refuse(attn_kv_head *h, int64_t position, int64_t open) {
  const attn_kv_rule *r = &h->rule;
  int64_t refused = 0;
  for (int64_t j = 0; j < open && attn_kv_admits(r); j++) {
    const bool judged = position == r->prompt || h->position[j] == position - r->recent;
    if (!judged || h->score[j] >= r->admit) continue;
    h->score[j] = -(double)INFINITY;
    refused++;
  }
  return refused;
}

static int64_t make_room(attn_kv_head *h, int64_t position, const double *keys) {
  const attn_kv_rule *r = &h->rule;
  if (position < r->prompt || (h->count < r->budget && !attn_kv_admits(r))) return 0;
  const int64_t open = score_held(h, position, keys), refused = refuse(h, position, open),
                count = attn_max(refused, open - attn_kv_kept(r) * r->chunk);
  choose(h, open, count);
  drop(h, count);
  return count;
}

void attn_kv_chunk_scores(attn_kv_head *h, int64_t position, const double *keys, double *out) {
  const int64_t chunk = h->rule.chunk, open = score_held(h, position, keys);
  for (int64_t c = 0; c < open / chunk; c++) out[c] = mean_score(h, c * chunk, chunk);
}

static double product(const attn_kv_head *h, int64_t line, const double *key) {
  double sum = 0;
  for (int64_t l = 0; l < h->d; l++) sum += h->query[line * h->d + l] * key[l];
  return sum;
}

int64_t attn_kv_arrive(attn_kv_head *h, int64_t position, const double *keys, const double *own) {
  const int64_t gone = make_room(h, position, keys), at = h->count++;
  h->position[at] = position;
  if (h->sum) h->sum[at] = 0;
  if (h->seen) h->seen[at] = 0;
  for (int64_t q = 0; q < lines(h); q++) h->weights[q * h->capacity + at] = h->query ? product(h, q, own) : 0;
  if (h->fixed) {
    attn_kv_held alone = held(h, own);
    alone.position += at;
    alone.count = 1;
    alone.row = NULL;
    h->rule.score->score(&alone, &h->fixed[at]);
  }
  return gone;
}

/* ---- queries ----------------------------------------------------------------------------------------- */

static const double *held_key(const attn_kv_head *h, const double *keys, int64_t j) {
  return keys + (h->by_position ? h->position[j] : j) * h->d;
}

/* Softmax of a query's scores of the held keys, in h->own. p: with the positions of the query and the
 * keys. */
static void weigh(attn_kv_head *h, const attn_problem *p, int64_t batch, int64_t head, const double *q,
                  const double *keys) {
  double most = -(double)INFINITY, sum = 0;
  for (int64_t j = 0; j < h->count; j++) {
    const double *k = held_key(h, keys, j);
    double product = 0;
    for (int64_t l = 0; l < h->d; l++) product += q[l] * k[l];
    h->own[j] = attn_score_of(p, batch, head, 0, j, p->scale * product);
    most = fmax(most, h->own[j]);
  }
  for (int64_t j = 0; j < h->count; j++) sum += h->own[j] = exp(h->own[j] - most);
  for (int64_t j = 0; j < h->count; j++) h->own[j] /= sum;
}

/* The ring takes a query. */
static void take_query(attn_kv_head *h) {
  const int64_t window = h->rule.score->window;
  h->newest = (h->newest + 1) % window;
  if (h->queries < window) h->queries++;
}

static void take_weights(attn_kv_head *h) {
  for (int64_t j = 0; j < h->count && h->sum; j++) {
    h->sum[j] += h->mean[j];
    h->seen[j]++;
  }
  if (!h->rule.score->window) return;
  take_query(h);
  memcpy(h->weights + h->newest * h->capacity, h->mean, (size_t)h->count * sizeof *h->mean);
}

static void take_products(attn_kv_head *h, double scale, const double *q, const double *keys) {
  take_query(h);
  for (int64_t i = 0; i < h->heads; i++) {
    const int64_t line = h->newest * h->heads + i;
    for (int64_t l = 0; l < h->d; l++) h->query[line * h->d + l] = scale * q[i * h->d + l];
    for (int64_t j = 0; j < h->count; j++)
      h->weights[line * h->capacity + j] = product(h, line, held_key(h, keys, j));
  }
}

void attn_kv_observe(attn_kv_head *h, const attn_problem *problem, int64_t batch, int64_t head, int64_t heads,
                     const double *q, const double *keys, int64_t position) {
  attn_problem p = *problem;
  if (!attn_kv_observes(h->rule.score) || !h->count) return;
  if (h->query) {
    take_products(h, p.scale, q, keys);
    return;
  }
  p.positions = (attn_positions){.shift = position - (p.n_kv - p.n_q), .key = h->position, .keys = h->count};
  for (int64_t j = 0; j < h->count; j++) h->mean[j] = 0;
  for (int64_t i = 0; i < heads; i++) {
    weigh(h, &p, batch, head + i, q + i * h->d, keys);
    for (int64_t j = 0; j < h->count; j++) h->mean[j] += h->own[j] / (double)heads;
  }
  take_weights(h);
}
