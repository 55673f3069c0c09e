/* topk - exact attention to the k visible keys of the largest scores.
 *
 *   S(i) = the k visible keys of largest s_ij (ties: the lower index), besides the first `sink` keys and the last
 *   `window`; o_i = softmax over S(i)
 *
 * Gupta et al. 2021 (arXiv:2106.06899). The oracle of every method that keeps k keys: no other set of k keys has more
 * of the softmax's mass. Cost n_q n_kv d_qk for the ranking and n_q k (d_qk + d_v) for attention; memory O(n). k >= n is
 * tiled. Bounds: SP-1, SP-2; FP-2 on the selected keys. */
#include "attn_variant.h"

#include <math.h>
#include <stdlib.h>

typedef struct params {
  int64_t k, sink, window;
} params;

static const attn_param table[] = {
    {"k", ATTN_INT, offsetof(params, k), 1, 1 << 20, "64", NULL, "keys of a query, of largest score"},
    {"sink", ATTN_INT, offsetof(params, sink), 0, 1 << 20, "0", NULL, "first keys that are kept besides"},
    {"window", ATTN_INT, offsetof(params, window), 0, 1 << 20, "0", NULL, "last keys that are kept besides"},
    {.name = NULL},
};

enum {
  ROWS = 32,
  CHUNK = 512,
  STRIDE = 32
}; /* queries ranked together; keys of a product; keys looked at at once */

typedef struct candidate {
  double score;
  int64_t key;
} candidate;

static int64_t most_kept(const attn_context *c) {
  const params *x = c->params;
  const int64_t n = c->problem->n_kv;
  return x->k < n ? x->k : n;
}

/* The workspace of a thread: scores of a chunk, a packed product's scratch, candidates of each row. */
typedef struct room {
  void *scores, *gemm;
  candidate *found; /* [ROWS][2 k + CHUNK] */
  int64_t width;
} room;

static room lay_out(const attn_context *c, attn_carver *carver) {
  const int64_t width = 2 * most_kept(c) + CHUNK;
  return (room){.scores = attn_carve(carver, ROWS, CHUNK, attn_dtype_size(c->problem->dtype)),
                .gemm = attn_carve(carver, 1, 1, attn_gemm_scratch(c->kernels)),
                .found = attn_carve(carver, ROWS, width, sizeof(candidate)),
                .width = width};
}

static size_t scratch_bytes(const void *state, const attn_context *c) {
  (void)state;
  attn_carver counter = {0};
  lay_out(c, &counter);
  return counter.used;
}

/* K^T of a kv head, packed chunk by chunk. */
static size_t chunk_bytes(const attn_context *c) {
  return (attn_gemm_packed_bytes(c->kernels, c->problem->d_qk, CHUNK) + 63) & ~(size_t)63;
}

static size_t prepared_bytes(const void *state, const attn_context *c) {
  (void)state;
  return attn_size_times(chunk_bytes(c), (size_t)((c->problem->n_kv + CHUNK - 1) / CHUNK));
}

static void prepare(const void *state, const attn_call *call, int64_t batch, int64_t kv_head, void *prepared,
                    void *scratch) {
  (void)state, (void)scratch;
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  const void *k = attn_rows(call->k, p->k, batch, kv_head, p->dtype);
  const int64_t keys = attn_call_keys(call, batch);
  for (int64_t first = 0; first < keys; first += CHUNK) {
    const int64_t count = keys - first < CHUNK ? keys - first : CHUNK;
    attn_gemm_pack(c->kernels, p->d_qk, count,
                   (attn_matrix){attn_at(k, first * p->k.row, p->dtype), 1, p->k.row},
                   (char *)prepared + (size_t)(first / CHUNK) * chunk_bytes(c));
  }
}

static bool before(const candidate *a, const candidate *b) {
  return a->score > b->score || (!(a->score < b->score) && a->key < b->key);
}

/* Moves the `kept` first of `count` candidates to the front, the last of them to kept - 1 (quickselect). */
static void prune(candidate *x, int64_t count, int64_t kept) {
  int64_t low = 0, high = count - 1;
  while (low < high) {
    const candidate pivot = x[low + (high - low) / 2];
    int64_t i = low, j = high;
    while (i <= j) {
      while (before(&x[i], &pivot)) i++;
      while (before(&pivot, &x[j])) j--;
      if (i > j) break;
      const candidate swap = x[i];
      x[i++] = x[j];
      x[j--] = swap;
    }
    if (kept - 1 <= j)
      high = j;
    else if (kept - 1 >= i)
      low = i;
    else
      return;
  }
}

/* One row's running selection. */
typedef struct ranking {
  candidate *found;
  int64_t count, kept;
  double least; /* of the kept ones, once there are so many */
} ranking;

static void offer(ranking *r, double score, int64_t key) {
  r->found[r->count++] = (candidate){isnan(score) ? -(double)INFINITY : score, key};
}

static void settle(ranking *r) {
  if (r->count <= r->kept) return;
  prune(r->found, r->count, r->kept);
  r->count = r->kept;
  r->least = r->found[r->kept - 1].score;
}

/* Keys first ... of a row's scores that its span has. A later key of an equal score ranks behind. */
static void rank(ranking *r, const void *scores, attn_dtype t, int64_t first, int64_t from, int64_t to) {
  for (int64_t j = from; j < to; j += STRIDE) {
    const int64_t end = to - j < STRIDE ? to : j + STRIDE;
    double x[STRIDE];
    int any = r->count < r->kept;
    for (int64_t i = j; i < end; i++) x[i - j] = attn_get(scores, i - first, t);
    for (int64_t i = j; i < end; i++) any |= x[i - j] > r->least;
    for (int64_t i = j; any && i < end; i++)
      if (r->count < r->kept || x[i - j] > r->least) offer(r, x[i - j], i);
  }
  if (r->count > 2 * r->kept) settle(r);
}

static int by_key(const void *a_, const void *b_) {
  const candidate *a = a_, *b = b_;
  return (a->key > b->key) - (a->key < b->key);
}

/* Keys as runs, with those before `sink_end` and from `window_begin` to `end` besides. */
static int64_t write_runs(const ranking *r, int64_t first, int64_t sink_end, int64_t window_begin,
                          int64_t end, attn_run *runs) {
  int64_t count = 0;
  if (sink_end > first) runs[count++] = (attn_run){first, sink_end - first, 1};
  for (int64_t i = 0; i < r->count; i++) {
    const int64_t key = r->found[i].key;
    if (count && runs[count - 1].first + runs[count - 1].count == key)
      runs[count - 1].count++;
    else
      runs[count++] = (attn_run){key, 1, 1};
  }
  if (window_begin < end) {
    if (count && runs[count - 1].first + runs[count - 1].count == window_begin)
      runs[count - 1].count += end - window_begin;
    else
      runs[count++] = (attn_run){window_begin, end - window_begin, 1};
  }
  return count;
}

/* What a row may rank: between its sink and its window. */
typedef struct span {
  int64_t first, from, to, end;
} span;

static span span_of(const attn_call *call, const attn_block *b, int64_t i) {
  const params *x = call->context->params;
  const int64_t keys = attn_call_keys(call, b->batch);
  span s;
  attn_visible_span(call->context->problem, b->first + i, &s.first, &s.end);
  if (s.end > keys) s.end = keys;
  if (s.first > s.end) s.first = s.end;
  s.from = s.end - s.first < x->sink ? s.end : s.first + x->sink;
  s.to = s.end - s.from < x->window ? s.from : s.end - x->window;
  return s;
}

static void select(const void *state, const attn_call *call, const attn_block *b, const void *prepared,
                   attn_run *runs, int64_t *counts, void *scratch) {
  (void)state;
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  const bool plain = attn_problem_plain(p) && p->scale > 0;
  attn_carver carver = {.base = scratch};
  const room w = lay_out(c, &carver);
  const void *q =
      attn_at(attn_rows(call->q, p->q, b->batch, b->head, p->dtype), b->first * p->q.row, p->dtype);
  ranking ranked[ROWS];
  int64_t end = 0, max_runs = most_kept(c) + 2;
  for (int64_t i = 0; i < b->count; i++) {
    ranked[i] = (ranking){w.found + i * w.width, 0, most_kept(c), -(double)INFINITY};
    const span s = span_of(call, b, i);
    if (s.to > end) end = s.to;
  }
  for (int64_t first = 0; first < end; first += CHUNK) {
    const int64_t keys = attn_call_keys(call, b->batch), whole = keys - first < CHUNK ? keys - first : CHUNK,
                  count = end - first < CHUNK ? end - first : CHUNK;
    attn_gemm_packed(
        c->kernels, b->count, count, p->d_qk, (attn_matrix){q, p->q.row, 1},
        (attn_packed){(const char *)prepared + (size_t)(first / CHUNK) * chunk_bytes(c), p->d_qk, whole},
        false, w.scores, CHUNK, w.gemm);
    for (int64_t i = 0; i < b->count; i++) {
      const span s = span_of(call, b, i);
      const int64_t from = s.from > first ? s.from : first, to = s.to < first + count ? s.to : first + count;
      void *scores = attn_at(w.scores, i * CHUNK, p->dtype);
      if (from >= to) continue;
      if (!plain) attn_score_row(c, b->batch, b->head, b->first + i, first, to - first, scores);
      rank(&ranked[i], scores, p->dtype, first, from, to);
    }
  }
  for (int64_t i = 0; i < b->count; i++) {
    const span s = span_of(call, b, i);
    settle(&ranked[i]);
    qsort(ranked[i].found, (size_t)ranked[i].count, sizeof(candidate), by_key);
    counts[i] = write_runs(&ranked[i], s.first, s.from, s.to, s.end, runs + i * max_runs);
  }
}

/* The law: first and last keys that exist and are visible, whatever their score. */
static bool always(const void *state, const attn_query *query, int64_t key) {
  (void)state;
  const params *x = query->call->context->params;
  int64_t first, end;
  attn_visible_span(query->call->context->problem, query->i, &first, &end);
  const int64_t keys = attn_call_keys(query->call, query->batch), last = end < keys ? end : keys;
  return key - first < x->sink || last - key <= x->window;
}

static attn_selector selector_of(const attn_context *c) {
  const params *x = c->params;
  const int64_t n = c->problem->n_kv;
  return (attn_selector){.share = ATTN_SHARE_ROW,
                         .rows = ROWS,
                         .max_runs = most_kept(c) + 2,
                         .max_keys =
                             most_kept(c) > n - x->sink - x->window ? n : most_kept(c) + x->sink + x->window,
                         .prepared_bytes = prepared_bytes,
                         .prepare = prepare,
                         .scratch_bytes = scratch_bytes,
                         .select = select,
                         .grain = 1,
                         .kept = most_kept(c),
                         .always = always};
}

static attn_status plan(attn_builder *b, void **state) {
  const attn_selector selector = selector_of(attn_builder_context(b));
  return attn_selection_plan(b, &selector, state);
}

static size_t work_size(const attn_context *c) {
  const attn_selector selector = selector_of(c);
  return attn_selection_work_size(c, &selector);
}

static attn_cost cost(const attn_context *c) {
  const attn_problem *p = c->problem;
  const double visible = attn_visible_pairs(p), most = (double)p->n_q * (double)selector_of(c).max_keys;
  attn_cost result = attn_softmax_cost(c, visible < most ? visible : most);
  result.mul_add += (double)p->batch * (double)p->heads * visible * (double)p->d_qk;
  return result;
}

ATTN_VARIANT(topk, .summary = "exact attention to the k keys of largest score",
             .cite = "Gupta et al. 2021, arXiv:2106.06899",
             .caps = (ATTN_CAP_SOFTMAX & ~ATTN_CAP_SHIFT) | ATTN_CAP_LSE | ATTN_CAP_DATA, .params = table,
             .params_size = sizeof(params), .budget = {.parameter = "k"}, .work_size = work_size,
             .cost = cost, .plan = plan, .execute = attn_selection_execute, .inspect = attn_selection_inspect)
