/* pages - attention to the pages of keys that a cheap score ranks first.
 *
 * Keys come in pages of B. The score of a page for a query, with c the problem's scale:
 *   box   c sum_l max(q_l m_l, q_l M_l), m and M the least and largest elements of its keys: no key's score
 *   is above it
 *   ball  c q.k' + |c| |q| r, k' the mean of its keys, r the largest distance from it: as above
 *   mean  c q.k'
 *   weight  what the softmax over means of blocks gives to the page's keys (attn_means), one ranking for the
 *   heads of a kv head: the selected branch of NSA, Yuan et al. 2025 (arXiv:2502.11089), with page=64,
 *   block=16, overlap=16, first=1, last=2, budget=1024; there a learned MLP makes the entries
 *   max, mass  the largest score, log sum_j e^s_j: oracles, which read all keys
 *   index  sum_h w_h max(index_q_h . index_k', 0), index_k' the mean of the page's (attn_index), one ranking
 *          for all heads: with page=4, budget=2048 and no weights QSA, known from its kernels alone
 *          (cudnn-frontend, pull requests 826 and 830)
 * Kept are the own page and the last - 1 before it (causal problems), the `first` pages, and the best of
 * those between that are seen whole, budget / B pages in all (ties: the lower); and besides, pages that a
 * query of those that share sees in part (in causal problems, also a short last page). Statistics are over
 * keys that exist; biases of the problem enter max and mass alone, but a page takes no place of whose keys a
 * bias of -Inf hides all. share: one ranking for the heads of a kv head (group), or for a head's 64 queries
 * of a block (tile), by the largest score among them.
 *
 * Quest, Tang et al. 2024 (arXiv:2406.10774): page=16,score=box (the preset last=1 keeps the newest page,
 * short or not). MoBA, Lu et al. 2025 (arXiv:2502.13189): page=512,budget=1536,score=mean. Cost n d for the
 * statistics, n (n / B) d products (2 for box), n budget (d_qk + d_v) for attention. budget >= n is tiled.
 * Bounds: SP-1, SP-2; FP-2 on the selected keys. Deviation: the authors' code of Quest keeps at least 3 pages
 * and leaves two layers dense. */
#include "attn_variant.h"

#include <math.h>

typedef enum { BOX, MEAN, BALL, MAX, MASS, INDEX, WEIGHT } page_score;
typedef struct params {
  int64_t page, budget, first, last;
  attn_index index;
  attn_means means;
  int score, share;
} params;
static const char *const scores[] = {"box", "mean", "ball", "max", "mass", "index", "weight", NULL};
static const char *const shares[] = {"row", "group", "tile", NULL}; /* as attn_share */

static const attn_param table[] = {
    {"page", ATTN_INT, offsetof(params, page), 1, 1 << 16, "16", NULL, "keys of a page (MoBA: 512)"},
    {"budget", ATTN_INT, offsetof(params, budget), 1, 1 << 20, "1024", NULL,
     "keys of a query, in whole pages, first and last ones included (MoBA: 1536)"},
    {"score", ATTN_CHOICE, offsetof(params, score), 0, 6, "box", scores, "Quest: box, MoBA: mean"},
    {"first", ATTN_INT, offsetof(params, first), 0, 1 << 20, "0", NULL, "first pages that are always kept"},
    {"last", ATTN_INT, offsetof(params, last), 0, 1 << 20, "1", NULL, "last pages a causal query keeps"},
    {"share", ATTN_CHOICE, offsetof(params, share), 0, 2, "row", shares, "one ranking for each"},
    {"index_heads", ATTN_INT, offsetof(params, index.heads), 0, 1 << 10, "0", NULL,
     "score=index: heads of the extra tensors index_q and index_w; 0: the queries'"},
    {"index_width", ATTN_INT, offsetof(params, index.width), 0, 1 << 14, "0", NULL,
     "score=index: columns of index_q and index_k; 0: d_qk"},
    {"block", ATTN_INT, offsetof(params, means.block), 1, 1 << 16, "16", NULL,
     "score=weight: keys from a mean to the next"},
    {"overlap", ATTN_INT, offsetof(params, means.overlap), 0, 1 << 16, "16", NULL,
     "score=weight: keys before its block that a mean is of, too"},
    {.name = NULL},
};

/* An index and means know one way of sharing, and no queries of a block. */
static attn_share share_of(const params *x) {
  return x->score >= INDEX ? ATTN_SHARE_GROUP : (attn_share)x->share;
}

static bool is_oracle(const params *x) { return x->score == MAX || x->score == MASS; }

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t pages_of(int64_t keys, int64_t page) { return (keys + page - 1) / page; }

/* box: [M; m] with [max(q, 0); min(q, 0)]; ball: [k'; r] with [q; |q|]; mean: k' with q. */
static int64_t depth(const attn_context *c) {
  const params *x = c->params;
  return x->score == BOX ? 2 * c->problem->d_qk : c->problem->d_qk + (x->score == BALL);
}

/* |x - from|, of elements of these types. */
static double length(const void *x, attn_dtype t, int64_t d, const void *from, attn_dtype of_from) {
  double sum = 0;
  for (int64_t l = 0; l < d; l++)
    sum = hypot(sum, attn_get(x, l, t) - (from ? attn_get(from, l, of_from) : 0));
  return sum;
}

static void statistics(const attn_call *call, int64_t batch, int64_t kv_head, int64_t first, int64_t count,
                       void *to) {
  const attn_problem *p = call->context->problem;
  const params *x = call->context->params;
  const attn_dtype t = p->dtype, stored = attn_stored(p->k, t);
  const int64_t all = attn_call_keys(call, batch), e = depth(call->context), d = p->d_qk;
  for (int64_t page = first; page < first + count; page++, to = attn_at(to, e, t)) {
    const int64_t keys = smaller(x->page, all - page * x->page);
    const void *k = attn_row(call->k, p->k, batch, kv_head, page * x->page, t);
    for (int64_t l = 0; l < d; l++) {
      double sum = 0, least = (double)INFINITY, most = -(double)INFINITY;
      for (int64_t j = 0; j < keys; j++) {
        const double own = attn_get(k, j * p->k.row + l, stored);
        sum += own;
        least = own < least ? own : least;
        most = own > most ? own : most;
      }
      attn_set(to, l, t, x->score == BOX ? most : sum / (double)keys);
      if (x->score == BOX) attn_set(to, d + l, t, least);
    }
    if (x->score != BALL) continue;
    double farthest = 0;
    for (int64_t j = 0; j < keys; j++)
      farthest = fmax(farthest, length(attn_row_behind(k, p->k, j, t), stored, d, to, t));
    attn_set(to, d, t, farthest);
  }
}

static void query(const attn_call *call, int64_t batch, int64_t head, int64_t i, void *to) {
  const attn_problem *p = call->context->problem;
  const params *x = call->context->params;
  const attn_dtype t = p->dtype, stored = attn_stored(p->q, t);
  const void *q = attn_row(call->q, p->q, batch, head, i, t);
  const int64_t d = p->d_qk;
  const double scale = is_oracle(x) ? 1 : p->scale;
  for (int64_t l = 0; l < d; l++) {
    const double own = scale * attn_get(q, l, stored);
    attn_set(to, l, t, x->score == BOX ? fmax(own, 0) : own);
    if (x->score == BOX) attn_set(to, d + l, t, fmin(own, 0));
  }
  if (x->score == BALL) attn_set(to, d, t, fabs(scale) * length(q, stored, d, NULL, t));
}

/* The largest of scores, or the log of their exponentials' sum, with one more. */
static double joined(int score, double a, double b) {
  const double high = fmax(a, b);
  return score == MAX || !isfinite(high) ? high : high + log(exp(a - high) + exp(b - high));
}

/* max and mass: scores of a page's keys, x_row at a time. */
static void oracle(const attn_rank_chunk *chunk) {
  const attn_context *c = chunk->call->context;
  const attn_problem *p = c->problem;
  const params *x = c->params;
  const attn_block *b = chunk->block;
  const int64_t keys = attn_call_keys(chunk->call, b->batch);
  const void *k = attn_rows(chunk->call->k, p->k, b->batch, b->head / (p->heads / p->kv_heads), p->dtype);
  for (int64_t page = 0; page < chunk->count; page++) {
    const int64_t begin = (chunk->first + page) * x->page, end = smaller(begin + x->page, keys);
    for (int64_t first = begin, count; first < end; first += count) {
      count = smaller(end - first, chunk->x_row);
      const attn_matrix rows =
          attn_load_rows(c->kernels, attn_stored(p->k, p->dtype), attn_row_behind(k, p->k, first, p->dtype),
                         p->k.row, count, p->d_qk, chunk->keys);
      attn_gemm(c->kernels, chunk->rows, count, p->d_qk, (attn_matrix){chunk->queries, p->d_qk, 1},
                (attn_matrix){rows.at, 1, rows.row}, false, chunk->spare, chunk->x_row, chunk->gemm);
      for (int64_t r = 0; r < chunk->rows; r++) {
        void *own = attn_at(chunk->spare, r * chunk->x_row, p->dtype);
        const int64_t at = r * chunk->x_row + page;
        attn_score_row(chunk->call, b->batch, attn_rank_head(chunk, r), attn_rank_row(chunk, r), first, count,
                       own);
        double total = first > begin ? attn_get(chunk->x, at, p->dtype) : -(double)INFINITY;
        for (int64_t j = 0; j < count; j++) total = joined(x->score, total, attn_get(own, j, p->dtype));
        attn_set(chunk->x, at, p->dtype, total);
      }
    }
  }
}

/* Pages are ranked that every query of the block sees whole, except the kept ones. */
static attn_rank_span span(const attn_call *call, int64_t batch, int64_t head, int64_t i, int64_t count) {
  const attn_problem of_head = attn_call_problem(call, batch, head), *p = &of_head;
  const params *x = call->context->params;
  const int64_t keys = attn_call_keys(call, batch);
  int64_t begin, end, whole_begin, whole_end;
  attn_visible_span(p, i, &begin, &whole_end);
  attn_visible_span(p, i + count - 1, &whole_begin, &end);
  whole_end = smaller(whole_end, keys);
  attn_rank_span s = {.begin = begin, .end = smaller(end, keys)};
  s.to = whole_end == keys && !p->causal ? pages_of(keys, x->page) : whole_end / x->page;
  if (p->causal) s.to = smaller(s.to, pages_of(whole_end, x->page) - x->last);
  if (s.to < 0) s.to = 0;
  s.from = begin / x->page + x->first;
  if (s.from < pages_of(whole_begin, x->page)) s.from = pages_of(whole_begin, x->page);
  s.from = smaller(s.from, s.to);
  return s;
}

/* ---- the law ----------------------------------------------------------------------------------------- */

static bool always(const attn_query *query, int64_t page) {
  const attn_problem of_head = attn_call_problem(query->call, query->batch, query->head), *p = &of_head;
  const params *x = query->call->context->params;
  const int64_t keys = attn_call_keys(query->call, query->batch), all = pages_of(keys, x->page),
                rows = share_of(x) == ATTN_SHARE_TILE ? ATTN_TILE : 1, row = query->i / rows * rows;
  int64_t begin, end, last_begin, last_end;
  attn_visible_span(p, row, &begin, &end);
  attn_visible_span(p, smaller(row + rows, p->n_q) - 1, &last_begin, &last_end);
  end = smaller(end, keys);
  return page < begin / x->page + x->first || (p->causal && page >= pages_of(end, x->page) - x->last) ||
         page * x->page < last_begin ||
         (page + 1) * x->page > (p->causal || end < keys ? end : all * x->page);
}

/* The largest and the mean score of coordinate l of a page's keys, and the mean magnitude. */
typedef struct along {
  double most, mean, size;
} along;

static along along_of(const attn_query *query, const void *q, const void *k, int64_t keys, int64_t l) {
  const attn_problem *p = query->call->context->problem;
  const attn_dtype of_q = attn_stored(p->q, p->dtype), of_k = attn_stored(p->k, p->dtype);
  along a = {.most = -(double)INFINITY};
  for (int64_t j = 0; j < keys; j++) {
    const double own = p->scale * attn_get(q, l, of_q) * attn_get(k, j * p->k.row + l, of_k);
    a.most = fmax(a.most, own);
    a.mean += own / (double)keys;
    a.size += fabs(own) / (double)keys;
  }
  return a;
}

/* From their mean. */
static double farthest(const attn_problem *p, const void *k, int64_t keys) {
  enum { SOME = 256 };
  const attn_dtype t = attn_stored(p->k, p->dtype);
  double far = 0;
  for (int64_t first = 0; first < keys; first += SOME) {
    const int64_t count = smaller(SOME, keys - first);
    double square[SOME] = {0};
    for (int64_t l = 0; l < p->d_qk; l++) {
      double mean = 0;
      for (int64_t j = 0; j < keys; j++) mean += attn_get(k, j * p->k.row + l, t) / (double)keys;
      for (int64_t j = 0; j < count; j++)
        square[j] += pow(attn_get(k, (first + j) * p->k.row + l, t) - mean, 2);
    }
    for (int64_t j = 0; j < count; j++) far = fmax(far, sqrt(square[j]));
  }
  return far;
}

static double score_of(const attn_query *query, int64_t page, double *error) {
  const attn_problem *p = query->call->context->problem;
  const params *x = query->call->context->params;
  const attn_dtype of_q = attn_stored(p->q, p->dtype), of_k = attn_stored(p->k, p->dtype);
  const int64_t first = page * x->page, kv_head = query->head / (p->heads / p->kv_heads),
                keys = smaller(x->page, attn_call_keys(query->call, query->batch) - first);
  const void *q = attn_row(query->call->q, p->q, query->batch, query->head, query->i, p->dtype),
             *k = attn_row(query->call->k, p->k, query->batch, kv_head, first, p->dtype);
  double sum = 0, size = 0, square = 0, most = -(double)INFINITY;
  *error = 0;
  for (int64_t l = 0; l < p->d_qk && x->score < MAX; l++) {
    const along a = along_of(query, q, k, keys, l);
    sum += x->score == BOX ? a.most : a.mean;
    size += x->score == BOX ? fabs(a.most) : a.size;
    square += pow(p->scale * attn_get(q, l, of_q), 2);
  }
  for (int64_t j = 0; j < keys && x->score >= MAX; j++) {
    double product = 0, off = 0;
    for (int64_t l = 0; l < p->d_qk; l++) {
      const double own = attn_get(q, l, of_q) * attn_get(k, j * p->k.row + l, of_k);
      product += own;
      off += fabs(own);
    }
    off = attn_rank_error(p, p->d_qk, off);
    most = joined(x->score, most, attn_rank_score(query, first + j, product, &off));
    *error = fmax(*error, off);
  }
  if (x->score == BALL) sum += sqrt(square) * farthest(p, k, keys);
  if (x->score == BALL) size += 2 * (sqrt(square) * farthest(p, k, keys) + size);
  if (x->score < MAX) *error = attn_rank_error(p, p->d_qk + x->page + 4, size);
  if (x->score == MASS && isfinite(most)) *error += attn_rank_error(p, keys / 512 + 4, fabs(most) + 1);
  return x->score < MAX ? sum : most;
}

/* No key's product is above the score of a box or a ball; none is below that of a ball, mirrored at its
 * centre. */
static void enclose(const attn_query *query, int64_t units, double *low, double *high) {
  const attn_problem *p = query->call->context->problem;
  const params *x = query->call->context->params;
  const attn_dtype t = p->dtype;
  const int64_t kv_head = query->head / (p->heads / p->kv_heads),
                all = attn_call_keys(query->call, query->batch);
  const void *q = attn_row(query->call->q, p->q, query->batch, query->head, query->i, t),
             *k = attn_rows(query->call->k, p->k, query->batch, kv_head, t);
  for (int64_t page = 0; page < units; page++) {
    const int64_t first = page * x->page, keys = smaller(x->page, all - first);
    double error, mean = 0;
    high[page] = score_of(query, page, &error);
    for (int64_t l = 0; l < p->d_qk && x->score == BALL; l++)
      mean += along_of(query, q, attn_row_behind(k, p->k, first, t), keys, l).mean;
    low[page] = x->score == BALL ? 2 * mean - high[page] : -(double)INFINITY;
  }
}

static attn_ranker ranker_of(const attn_context *c) {
  const params *x = c->params;
  const bool tile = share_of(x) == ATTN_SHARE_TILE;
  const attn_problem *p = c->problem;
  const int64_t all = pages_of(p->n_kv, x->page), budget = pages_of(x->budget, x->page),
                edges = x->first + (p->causal ? x->last : 0), kept = budget > edges ? budget - edges : 0,
                besides = p->mask.kind ? (tile ? all : 2)
                          : p->causal  ? (tile ? pages_of(ATTN_TILE - 1, x->page) : 0) + !x->last
                                       : 0;
  const attn_index index = {x->index.heads ? x->index.heads : p->heads,
                            x->index.width ? x->index.width : p->d_qk};
  const bool indexed = x->score == INDEX, weighed = x->score == WEIGHT;
  return (attn_ranker){.share = share_of(x),
                       .every = budget >= all,
                       .unit = x->page,
                       .depth = indexed ? index.width : depth(c),
                       .index = indexed ? index : (attn_index){0, 0},
                       .means = weighed ? x->means : (attn_means){0, 0},
                       .kept = smaller(kept, all),
                       .max_keys = smaller(smaller(kept + edges + besides, all) * x->page, p->n_kv),
                       .columns = is_oracle(x) || indexed || weighed ? NULL : statistics,
                       .query = indexed ? NULL : query,
                       .scores = is_oracle(x) ? oracle : NULL,
                       .span = span,
                       .always = always,
                       .score = weighed ? NULL : score_of,
                       .enclose = x->score == BOX || x->score == BALL ? enclose : NULL};
}

static attn_status applicable(const attn_context *c) {
  if (((const params *)c->params)->score != WEIGHT || !(c->problem->mask.kind || c->problem->score.dense.at))
    return ATTN_OK;
  return attn_fail(ATTN_EUNSUPPORTED, "variant pages: score=weight takes no masks of keys");
}

static attn_cost cost(const attn_context *c) {
  const attn_ranker ranker = ranker_of(c);
  return attn_ranker_cost(c, &ranker);
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  static const attn_exemption of_tiles[] = {
      {ATTN_EXEMPT_LOOKAHEAD | ATTN_EXEMPT_PREFIX | ATTN_EXEMPT_ROWS,
       "share=tile ranks pages for all queries of a block, of which later ones are some"},
      {0, NULL}};
  static const attn_exemption of_groups[] = {
      {ATTN_EXEMPT_GROUPS, "share=group ranks pages for all heads of a kv head"}, {0, NULL}};
  static const attn_exemption of_all[] = {
      {ATTN_EXEMPT_GROUPS | ATTN_EXEMPT_HEADS, "score=index ranks pages for all heads together"}, {0, NULL}};
  const attn_ranker ranker = ranker_of(c);
  if (ranker.share == ATTN_SHARE_TILE) out->exempt = of_tiles;
  if (ranker.share == ATTN_SHARE_GROUP) out->exempt = ranker.index.heads ? of_all : of_groups;
  return attn_ranker_describe(b, c, &ranker, &out->selector);
}

ATTN_VARIANT(
    pages, .summary = "attention to the pages of keys that a cheap score ranks first",
    .formula =
        "keys of the budget / page pages whose score is largest, of the first ones and the query's own; the "
        "score bounds (box, ball) or averages (mean) q_i.k_j over the page; O(n (n / page + budget) d)",
    .cite = "Tang et al. 2024, arXiv:2406.10774; Lu et al. 2025, arXiv:2502.13189",
    .caps = (ATTN_CAP_SOFTMAX & ~ATTN_CAP_SHIFT) | ATTN_CAP_LSE | ATTN_CAP_DATA | ATTN_CAP_POSITIONS,
    .params = table, .params_size = sizeof(params), .budget = {.parameter = "budget"},
    .applicable = applicable, .describe = describe, .cost = cost)
