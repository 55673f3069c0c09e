/* topk - exact attention to the k visible keys of the largest scores.
 *
 *   S(i) = the k visible keys of largest r_ij (ties: the lower index), besides the first `sink` keys and the
 *   last `window`; o_i = softmax over S(i) of the exact scores s_ij
 * The score that ranks, r_ij:
 *   exact   s_ij. Gupta et al. 2021 (arXiv:2106.06899). No other k keys have more of the softmax's mass.
 *   sparq   c sum of q_il k_jl over the r coordinates of largest |q_il| (ties: the lower). SparQ, Ribar et
 *           al. 2024 (arXiv:2312.04985), which reads r of d coordinates of each key.
 *   loki    c (P q_i).(P k_j), P the r eigenvectors of largest eigenvalue (ties: the lower index) of
 *           sum_j k_j k_j^T over the kv head's keys that exist. Loki, Singhania et al. 2024
 *           (arXiv:2406.02542). Deviation: the paper's P is that of calibration texts; here also of keys that
 *           are in a query's future.
 *   index   sum_h w_ih max(index_q_ih . index_k_j, 0) over index heads, one selection for all heads of a
 *           batch entry: the lightning indexer of DeepSeek-V3.2 (arXiv:2512.02556, formula from memory),
 *           which has 64 heads of width 128 and keeps 2048 keys. index_q, index_k and index_w are extra
 *           tensors of the call. A call without them ranks by the queries and the mean of the keys over kv
 *           heads, w = 1, which no training made good at it. Each kv head ranks anew.
 *   random  independent uniform draws: keys at random
 * p > 0: not k keys, but the fewest of the ranked ones whose softmax of r has at least the mass p (top-p).
 * share=group: heads of a kv head share a selection, by the largest r among them; by=index knows no other
 * way.
 *
 * Cost n_q n_kv d_qk for the ranking (sparq: multiplied by zeros here, not left out; loki: by P^T P k_j, of
 * d_qk elements, which take 2 n_kv d_qk^2, and about 5 d_qk^3 for eigenvectors) and n_q k (d_qk + d_v) for
 * attention; memory O(n). k >= n is tiled. Bounds: SP-1, SP-2; FP-2 on the selected keys. */
#include "attn_variant.h"

#include <math.h>

typedef enum { EXACT, SPARQ, LOKI, RANDOM, INDEX } ranks;

typedef struct params {
  int64_t k, r, sink, window, seed;
  attn_index index;
  double p;
  int by, share;
} params;

static const char *const rankings[] = {"exact", "sparq", "loki", "random", "index", NULL};
static const char *const shares[] = {"row", "group", NULL}; /* as attn_share */

static const attn_param table[] = {
    {"k", ATTN_INT, offsetof(params, k), 1, 1 << 20, "64", NULL, "keys of a query, of largest score"},
    {"p", ATTN_REAL, offsetof(params, p), 0, 1, "0", NULL,
     "mass of the fewest keys that are kept, instead of k; 0: k counts"},
    {"by", ATTN_CHOICE, offsetof(params, by), 0, 4, "exact", rankings, "the score that ranks"},
    {"r", ATTN_INT, offsetof(params, r), 1, 1 << 16, "16", NULL,
     "coordinates that sparq and loki rank by: of a query, of the keys' basis"},
    {"sink", ATTN_INT, offsetof(params, sink), 0, 1 << 20, "0", NULL, "first keys that are kept besides"},
    {"window", ATTN_INT, offsetof(params, window), 0, 1 << 20, "0", NULL, "last keys that are kept besides"},
    {"share", ATTN_CHOICE, offsetof(params, share), 0, 1, "row", shares,
     "which queries share a selection: none, or those of a kv head's heads"},
    {"seed", ATTN_INT, offsetof(params, seed), 0, 1e15, "0", NULL, "seed of by=random"},
    {"index_heads", ATTN_INT, offsetof(params, index.heads), 0, 1 << 10, "0", NULL,
     "by=index: heads of the extra tensors index_q and index_w; 0: the queries'"},
    {"index_width", ATTN_INT, offsetof(params, index.width), 0, 1 << 14, "0", NULL,
     "by=index: columns of index_q and index_k; 0: d_qk"},
    {.name = NULL},
};

static void keys(const attn_call *call, int64_t batch, int64_t kv_head, int64_t first, int64_t count,
                 void *to) {
  const attn_problem *p = call->context->problem;
  for (int64_t j = 0; j < count; j++)
    attn_load_row(call->context->kernels, attn_stored(p->k, p->dtype), p->d_qk,
                  attn_row(call->k, p->k, batch, kv_head, first + j, p->dtype),
                  attn_at(to, j * p->d_qk, p->dtype));
}

/* Is coordinate l one of those by which a row ranks? */
static bool ranks_by(const params *x, const void *q, int64_t l, int64_t d, attn_dtype t) {
  const double own = fabs(attn_get(q, l, t));
  int64_t ahead = 0;
  if (x->by != SPARQ) return true;
  for (int64_t m = 0; m < d; m++) {
    const double other = fabs(attn_get(q, m, t));
    ahead += other > own || (!(other < own) && m < l);
  }
  return ahead < x->r;
}

/* sparq: a query's other coordinates are 0. */
static void query(const attn_call *call, int64_t batch, int64_t head, int64_t i, void *to) {
  const attn_problem *p = call->context->problem;
  const params *x = call->context->params;
  const attn_dtype t = attn_stored(p->q, p->dtype);
  const void *q = attn_row(call->q, p->q, batch, head, i, p->dtype);
  for (int64_t l = 0; l < p->d_qk; l++)
    attn_set(to, l, p->dtype, ranks_by(x, q, l, p->d_qk, t) ? attn_get(q, l, t) : 0);
}

/* The draw of a key is the same whatever the length of the sequence, and the same for every batch entry. */
static double draw(const attn_query *query, int64_t key) {
  const params *x = query->call->context->params;
  const int64_t position = attn_call_position(query->call, query->batch, query->i);
  attn_rng rng;
  attn_rng_init(&rng, (uint64_t)x->seed, ((uint64_t)query->head << 32) + (uint64_t)position, (uint64_t)key);
  return attn_rounded(attn_rng_uniform(&rng), query->call->context->problem->dtype);
}

static void scores(const attn_rank_chunk *chunk) {
  const attn_context *c = chunk->call->context;
  const params *x = c->params;
  for (int64_t r = 0; r < chunk->rows; r++) {
    void *own = attn_at(chunk->x, r * chunk->x_row, c->problem->dtype);
    const attn_query of = {.call = chunk->call,
                           .batch = chunk->block->batch,
                           .head = attn_rank_head(chunk, r),
                           .i = attn_rank_row(chunk, r)};
    for (int64_t j = 0; x->by == RANDOM && j < chunk->count; j++)
      attn_set(own, j, c->problem->dtype, draw(&of, chunk->first + j));
    if (x->by != RANDOM)
      attn_score_row(chunk->call, of.batch, of.head, of.i, chunk->first, chunk->count, own);
  }
}

/* Keys between the sink and the window are ranked. */
static attn_rank_span span(const attn_call *call, int64_t batch, int64_t head, int64_t i, int64_t count) {
  (void)count;
  const params *x = call->context->params;
  attn_rank_span s;
  attn_visible_keys(call, batch, head, i, &s.begin, &s.end);
  s.from = attn_min(s.begin + x->sink, s.end);
  s.to = s.end - attn_min(x->window, s.end - s.from);
  return s;
}

/* The law: first and last keys that exist and are visible, whatever their score; the score. */
static bool always(const attn_query *query, int64_t key) {
  const params *x = query->call->context->params;
  int64_t first, end;
  attn_visible_keys(query->call, query->batch, query->head, query->i, &first, &end);
  return key - first < x->sink || end - key <= x->window;
}

static double score(const attn_query *query, int64_t key, double *error) {
  const attn_problem *p = query->call->context->problem;
  const params *x = query->call->context->params;
  const attn_dtype t = attn_stored(p->q, p->dtype), of_k = attn_stored(p->k, p->dtype);
  const int64_t kv_head = query->head / (p->heads / p->kv_heads);
  const void *q = attn_row(query->call->q, p->q, query->batch, query->head, query->i, p->dtype),
             *k = attn_row(query->call->k, p->k, query->batch, kv_head, key, p->dtype);
  double sum = 0, size = 0;
  *error = 0;
  if (x->by == RANDOM) return draw(query, key);
  for (int64_t l = 0; l < p->d_qk; l++) {
    const double product = ranks_by(x, q, l, p->d_qk, t) ? attn_get(q, l, t) * attn_get(k, l, of_k) : 0;
    sum += product;
    size += fabs(product);
  }
  *error = attn_rank_error(p, p->d_qk, size);
  return attn_rank_score(query, key, sum, error);
}

/* sparq: the other coordinates add at most the product of their norms. */
static void enclose(const attn_query *query, int64_t units, double *low, double *high) {
  const attn_problem *p = query->call->context->problem;
  const params *x = query->call->context->params;
  const attn_dtype t = attn_stored(p->q, p->dtype), of_k = attn_stored(p->k, p->dtype);
  const int64_t kv_head = query->head / (p->heads / p->kv_heads);
  const void *q = attn_row(query->call->q, p->q, query->batch, query->head, query->i, p->dtype),
             *k = attn_rows(query->call->k, p->k, query->batch, kv_head, p->dtype);
  double norm = 0;
  for (int64_t j = 0; j < units; j++) low[j] = high[j] = 0;
  for (int64_t l = 0; l < p->d_qk; l++) {
    const bool ranked = ranks_by(x, q, l, p->d_qk, t);
    const double own = attn_get(q, l, t);
    if (!ranked) norm += own * own;
    for (int64_t j = 0; j < units; j++) {
      const double other = attn_get(k, j * p->k.row + l, of_k);
      *(ranked ? &low[j] : &high[j]) += ranked ? p->scale * own * other : other * other;
    }
  }
  for (int64_t j = 0; j < units; j++) {
    const double off = fabs(p->scale) * sqrt(norm * high[j]);
    high[j] = low[j] + off;
    low[j] -= off;
  }
}

static attn_ranker ranker_of(const attn_context *c) {
  const params *x = c->params;
  const attn_problem *p = c->problem;
  const int64_t n = p->n_kv, kept = attn_min(x->k, n);
  const bool plain = attn_problem_plain(p) && p->scale > 0 && x->by != RANDOM && !(x->p > 0),
             products = x->by != RANDOM && x->by != INDEX;
  const attn_index index = {x->index.heads ? x->index.heads : p->heads,
                            x->index.width ? x->index.width : p->d_qk};
  return (attn_ranker){.share = x->by == INDEX ? ATTN_SHARE_GROUP : (attn_share)x->share,
                       .every = x->k >= n && !(x->p > 0),
                       .unit = 1,
                       .depth = x->by == INDEX ? index.width
                                : products     ? p->d_qk
                                               : 0,
                       .index = x->by == INDEX ? index : (attn_index){0, 0},
                       .kept = kept,
                       .max_keys = kept > n - x->sink - x->window ? n : kept + x->sink + x->window,
                       .mass = x->p,
                       .columns = products ? keys : NULL,
                       .query = products ? query : NULL,
                       .scores = plain || x->by == INDEX ? NULL : scores,
                       .span = span,
                       .always = always,
                       .score =
                           x->by == INDEX || (x->by == EXACT && x->share == ATTN_SHARE_ROW) ? NULL : score,
                       .enclose = x->by == SPARQ ? enclose : NULL};
}

/* ---- loki: the ranker is given P^T P k_j for k_j, and needs no other queries ------------------------- */

/* P^T P, in a; 0 where there is no basis, of keys that are not finite. rest: [d, d] and [3, d]. */
static void project(const attn_call *call, int64_t batch, int64_t kv_head, double *a, double *rest) {
  const attn_problem *p = call->context->problem;
  const params *x = call->context->params;
  const void *k = attn_rows(call->k, p->k, batch, kv_head, p->dtype);
  const attn_dtype t = attn_stored(p->k, p->dtype);
  const int64_t d = p->d_qk, keys = attn_call_keys(call, batch);
  for (int64_t l = 0; l < d * d; l++) a[l] = 0;
  for (int64_t j = 0; j < keys; j++)
    for (int64_t l = 0; l < d; l++) {
      const double own = attn_get(k, j * p->k.row + l, t);
      for (int64_t m = 0; m < d; m++) a[l * d + m] += own * attn_get(k, j * p->k.row + m, t);
    }
  const bool found = attn_eigen(d, a, rest, rest + d * d, rest + d * d + d);
  for (int64_t l = 0; l < d * d; l++) {
    a[l] = 0;
    for (int64_t e = 0; e < x->r && e < d && found; e++) a[l] += rest[e * d + l / d] * rest[e * d + l % d];
  }
}

/* What project takes, then the keys P^T P k_j. */
static size_t basis_bytes(const attn_context *c) {
  const attn_problem *p = c->problem;
  const double d = (double)p->d_qk,
               bytes = (16 * d + 24 + (double)(p->n_kv * (int64_t)attn_dtype_size(p->dtype))) * d;
  return bytes < 0x1p62 ? ((size_t)bytes + 63) / 64 * 64 : SIZE_MAX / 2;
}

static void loki_prepare(const void *ranker, const attn_call *call, int64_t batch, int64_t kv_head,
                         void *prepared, void *scratch) {
  attn_context c = *call->context;
  attn_problem p = *c.problem;
  attn_call own = *call;
  const int64_t d = p.d_qk, keys = attn_call_keys(call, batch);
  double *a = scratch, *rest = a + d * d, *own_keys = rest + (d + 3) * d;
  const void *k = attn_rows(call->k, p.k, batch, kv_head, p.dtype);
  project(call, batch, kv_head, a, rest);
  for (int64_t j = 0; j < keys; j++)
    for (int64_t l = 0; l < d; l++) {
      double sum = 0;
      for (int64_t m = 0; m < d; m++)
        sum += a[l * d + m] * attn_get(k, j * p.k.row + m, attn_stored(p.k, p.dtype));
      attn_set(own_keys, j * d + l, p.dtype, sum);
    }
  p.k = (attn_stride){.row = d};
  c.problem = &p;
  own.context = &c;
  own.k = own_keys;
  attn_ranker_selector(&c, ranker)
      .prepare(ranker, &own, batch, kv_head, prepared, (char *)scratch + basis_bytes(&c));
}

/* ---- the variant ------------------------------------------------------------------------------------- */

static attn_cost cost(const attn_context *c) {
  const attn_ranker ranker = ranker_of(c);
  const attn_problem *p = c->problem;
  const double d = (double)p->d_qk;
  attn_cost result = attn_ranker_cost(c, &ranker);
  if (((const params *)c->params)->by == LOKI && !ranker.every)
    result.mul_add += (double)(p->batch * p->kv_heads) * (2 * (double)p->n_kv + 5 * d) * d * d;
  return result;
}

/* loki states no law: a score would take a basis for every key. */
static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  static const char basis[] = "the basis of by=loki is of all keys of a head, also of later ones",
                    group[] = "share=group ranks keys for all heads of a kv head",
                    all[] = "by=index ranks keys for all heads together";
  enum { OF_BASES = ATTN_EXEMPT_LOOKAHEAD | ATTN_EXEMPT_PREFIX };
  static const attn_exemption of_bases[] = {{OF_BASES, basis}, {0, NULL}},
                              of_all[] = {{ATTN_EXEMPT_GROUPS | ATTN_EXEMPT_HEADS, all}, {0, NULL}},
                              of_groups[] = {{ATTN_EXEMPT_GROUPS, group}, {0, NULL}},
                              of_both[] = {{OF_BASES, basis}, {ATTN_EXEMPT_GROUPS, group}, {0, NULL}};
  const params *x = c->params;
  const attn_ranker ranker = ranker_of(c);
  const attn_status status = attn_ranker_describe(b, c, &ranker, &out->selector);
  if (x->share == ATTN_SHARE_GROUP) out->exempt = of_groups;
  if (x->by == INDEX) out->exempt = of_all;
  if (x->by == RANDOM) out->seed = "seed";
  if (x->by != LOKI) return status;
  out->exempt = x->share == ATTN_SHARE_GROUP ? of_both : of_bases;
  out->selector.prepare = loki_prepare;
  out->selector.scratch_bytes = attn_size_sum(basis_bytes(c), out->selector.scratch_bytes);
  out->selector.grain = 0;
  return status;
}

ATTN_VARIANT(topk, .summary = "exact attention to the k keys of largest score",
             .formula = "softmax over the k visible keys j of largest s_ij (by= ranks them otherwise), the "
                        "first `sink` and the last `window`; O(n^2 d + n k d)",
             .cite = "Gupta et al. 2021, arXiv:2106.06899; Ribar et al. 2024, arXiv:2312.04985; "
                     "Singhania et al. 2024, arXiv:2406.02542; DeepSeek-AI 2025, arXiv:2512.02556",
             .caps = (ATTN_CAP_SOFTMAX & ~ATTN_CAP_SHIFT) | ATTN_CAP_LSE | ATTN_CAP_DATA | ATTN_CAP_POSITIONS,
             .params = table, .params_size = sizeof(params), .budget = {.parameter = "k"},
             .describe = describe, .cost = cost)
