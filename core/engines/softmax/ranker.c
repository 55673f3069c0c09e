/* ranker.c - selectors that rank columns: keys, or pages of them, by products with a query or by scores of
 * the variant's own (attn_ranker, attn_selector.h). Columns are taken in chunks, so that their scores stay in
 * the cache. */
#include "core/engines/softmax/ranking.h"

#include <math.h>

enum { ROWS = 64, CHUNK = 512 };

/* Rows that are multiplied together are those of `selections` selections, `pool` of each. */
typedef struct layout {
  int64_t selections, pool, rows, columns, width;
} layout;

static layout layout_of(const attn_context *c, const attn_ranker *x) {
  const attn_problem *p = c->problem;
  layout l = {.selections = 1, .pool = 1, .columns = attn_ceil_div(p->n_kv, x->unit)};
  if (x->share == ATTN_SHARE_GROUP) l.pool = x->index.heads ? x->index.heads : p->heads / p->kv_heads;
  if (x->share == ATTN_SHARE_TILE) l.pool = attn_min(ATTN_TILE, p->n_q);
  if (x->share != ATTN_SHARE_TILE) l.selections = attn_min(attn_max(ROWS / l.pool, 1), p->n_q);
  l.rows = l.selections * l.pool;
  l.width = x->mass > 0 ? l.columns + CHUNK : 2 * attn_min(x->kept, l.columns) + CHUNK;
  return l;
}

typedef struct room {
  void *queries, *scores, *spare, *gemm, *keys;
  void *shares;     /* of means */
  void *found;      /* scores [selections][width] */
  int32_t *columns; /* of these */
  double *weights;
} room;

static room lay_out(const attn_context *c, const attn_ranker *x, attn_carver *carver) {
  const layout l = layout_of(c, x);
  const size_t e = attn_dtype_size(c->problem->dtype);
  return (room){.queries = attn_carve(carver, attn_max(l.rows, CHUNK), x->depth, e),
                .scores = attn_carve(carver, l.rows, CHUNK, e),
                .spare = attn_carve(carver, x->scores ? l.rows : x->index.heads > 0, CHUNK, e),
                .gemm = attn_carve(carver, 1, 1, attn_gemm_scratch(c->kernels)),
                .keys =
                    attn_carve(carver, x->scores && c->problem->k.stored ? CHUNK : 0, c->problem->d_qk, e),
                .shares = attn_carve(carver, l.rows, attn_means_entries(x, c->problem->n_kv), e),
                .found = attn_carve(carver, l.selections, l.width, e),
                .columns = attn_carve(carver, l.selections, l.width, sizeof(int32_t)),
                .weights = attn_carve(carver, x->mass > 0 ? l.columns : 0, 1, sizeof(double))};
}

static size_t scratch_bytes(const attn_context *c, const attn_ranker *x) {
  attn_carver counter = {0};
  lay_out(c, x, &counter);
  return counter.used;
}

/* ---- what is prepared -------------------------------------------------------------------------------- */

static bool ranks_products(const attn_ranker *x) { return x->columns || x->index.heads; }

static size_t chunk_bytes(const attn_context *c, const attn_ranker *x) {
  return (attn_gemm_packed_bytes(c->kernels, x->depth, CHUNK) + 63) & ~(size_t)63;
}

static size_t prepared_bytes(const attn_context *c, const attn_ranker *x) {
  if (x->means.block)
    return (size_t)((attn_means_entries(x, c->problem->n_kv) + 1) * x->depth) *
           attn_dtype_size(c->problem->dtype);
  const int64_t chunks = attn_ceil_div(layout_of(c, x).columns, CHUNK);
  return attn_size_times(chunk_bytes(c, x), (size_t)chunks);
}

static void prepare(const void *state, const attn_call *call, int64_t batch, int64_t kv_head, void *prepared,
                    void *scratch) {
  const attn_ranker *x = state;
  const attn_context *c = call->context;
  const int64_t columns = attn_ceil_div(attn_call_keys(call, batch), x->unit);
  attn_carver carver = {.base = scratch};
  const room w = lay_out(c, x, &carver);
  if (x->means.block) attn_means_prepare(x, call, batch, kv_head, prepared);
  for (int64_t first = 0; first < columns && ranks_products(x); first += CHUNK) {
    const int64_t count = attn_min(CHUNK, columns - first);
    if (x->index.heads)
      attn_index_columns(x, call, batch, first, count, w.queries);
    else
      x->columns(call, batch, kv_head, first, count, w.queries);
    attn_gemm_pack(c->kernels, x->depth, count, (attn_matrix){w.queries, 1, x->depth},
                   (char *)prepared + (size_t)(first / CHUNK) * chunk_bytes(c, x));
  }
}

/* ---- selecting --------------------------------------------------------------------------------------- */

static int64_t add_run(attn_run *runs, int64_t count, int64_t first, int64_t end) {
  if (first >= end) return count;
  if (count && runs[count - 1].first + runs[count - 1].count == first) {
    runs[count - 1].count += end - first;
    return count;
  }
  runs[count] = (attn_run){first, end - first, 1};
  return count + 1;
}

static int64_t write_runs(const attn_ranking *r, const attn_rank_span *s, int64_t unit, attn_run *runs) {
  int64_t count = add_run(runs, 0, s->begin, attn_min(s->from * unit, s->end));
  for (int64_t i = 0; i < r->count; i++)
    count = add_run(runs, count, r->columns[i] * unit, attn_min((r->columns[i] + 1) * unit, s->end));
  return add_run(runs, count, attn_max(s->to * unit, s->begin), s->end);
}

/* The largest score of those that share, at the place of the first. */
static void pool_scores(void *x, int64_t pool, int64_t count, attn_dtype t) {
  for (int64_t r = 1; r < pool; r++)
    for (int64_t j = 0; j < count; j++) {
      const double own = attn_get(x, r * CHUNK + j, t);
      if (own > attn_get(x, j, t) || isnan(attn_get(x, j, t))) attn_set(x, j, t, own);
    }
}

/* Does a bias hide all keys of the column from the row? Ranked by an index, from that of all heads. */
static bool hidden(const attn_ranker *x, const attn_query *of, int64_t column) {
  const attn_problem *p = of->call->context->problem;
  const int64_t end = attn_min((column + 1) * x->unit, attn_call_keys(of->call, of->batch)),
                heads = x->index.heads ? p->heads / p->kv_heads : 1, first = of->head / heads * heads;
  for (int64_t h = first; h < first + heads; h++)
    for (int64_t key = column * x->unit; key < end; key++)
      if (!attn_score_hides(p, of->batch, h, of->i, key)) return false;
  return true;
}

/* Columns of which a row sees no key rank last, whatever they are scored by. */
static void hide(const attn_ranker *x, const attn_rank_chunk *chunk) {
  const attn_problem *p = chunk->call->context->problem;
  for (int64_t r = 0; p->score.dense.at && r < chunk->rows; r += x->index.heads ? x->index.heads : 1) {
    const attn_query of = {.call = chunk->call,
                           .batch = chunk->block->batch,
                           .head = x->index.heads ? chunk->block->head : attn_rank_head(chunk, r),
                           .i = attn_rank_row(chunk, r)};
    for (int64_t j = 0; j < chunk->count; j++)
      if (hidden(x, &of, chunk->first + j)) attn_set(chunk->x, r * CHUNK + j, p->dtype, -(double)INFINITY);
  }
}

static void rank_chunk(const attn_ranker *x, const attn_rank_chunk *chunk, const layout *l,
                       const attn_rank_span *spans, const void *shares, int64_t selections,
                       attn_ranking *ranked) {
  const attn_dtype t = chunk->call->context->problem->dtype;
  if (x->scores) x->scores(chunk);
  if (x->index.heads) attn_index_join(x, chunk);
  if (x->means.block) attn_means_share(x, chunk, shares);
  hide(x, chunk);
  for (int64_t s = 0; s < selections; s++) {
    const int64_t from = attn_max(spans[s].from, chunk->first),
                  to = attn_min(spans[s].to, chunk->first + chunk->count);
    if (from >= to) continue;
    void *scores = attn_at(chunk->x, s * l->pool * CHUNK + from - chunk->first, t);
    if (!x->index.heads && !x->means.block)
      pool_scores(scores, attn_min(l->pool, chunk->rows - s * l->pool), to - from, t);
    attn_ranking_offer(&ranked[s], scores, from, to - from);
  }
}

static void select(const void *state, const attn_call *call, const attn_block *b, const void *prepared,
                   attn_picks *picks, void *scratch) {
  const attn_ranker *x = state;
  const attn_context *c = call->context;
  const attn_dtype t = c->problem->dtype;
  const layout l = layout_of(c, x);
  const int64_t selections = x->share == ATTN_SHARE_TILE ? 1 : b->count,
                columns = attn_ceil_div(attn_call_keys(call, b->batch), x->unit);
  attn_carver carver = {.base = scratch};
  const room w = lay_out(c, x, &carver);
  attn_rank_chunk chunk = {.call = call,
                           .block = b,
                           .heads = x->share == ATTN_SHARE_GROUP ? l.pool : 1,
                           .rows = x->share == ATTN_SHARE_GROUP ? b->count * l.pool : b->count,
                           .queries = w.queries,
                           .x = w.scores,
                           .x_row = CHUNK,
                           .spare = w.spare,
                           .gemm = w.gemm,
                           .keys = w.keys};
  attn_rank_span spans[ATTN_TILE];
  attn_ranking ranked[ATTN_TILE];
  int64_t begin = columns, end = 0;
  for (int64_t r = 0; x->index.heads && r < chunk.rows; r++)
    attn_index_query(x, call, b->batch, r % l.pool, attn_rank_row(&chunk, r),
                     attn_at(w.queries, r * x->depth, t));
  for (int64_t r = 0; x->query && r < chunk.rows; r++)
    x->query(call, b->batch, attn_rank_head(&chunk, r), attn_rank_row(&chunk, r),
             attn_at(w.queries, r * x->depth, t));
  if (x->means.block) attn_means_weigh(x, &chunk, prepared, w.shares);
  for (int64_t s = 0; s < selections; s++) {
    const int64_t count = x->share == ATTN_SHARE_TILE ? b->count : 1;
    spans[s] = x->span(call, b->batch, b->head, b->first + s, count);
    ranked[s] = (attn_ranking){.kernels = c->kernels,
                               .kept = x->mass > 0 ? l.columns : attn_min(x->kept, l.columns),
                               .scores = attn_at(w.found, s * l.width, t),
                               .columns = w.columns + s * l.width,
                               .least = -(double)INFINITY};
    if (spans[s].from < spans[s].to) begin = attn_min(begin, spans[s].from), end = attn_max(end, spans[s].to);
  }
  for (chunk.first = begin / CHUNK * CHUNK; chunk.first < end; chunk.first += CHUNK) {
    const int64_t whole = attn_min(CHUNK, columns - chunk.first);
    chunk.count = attn_min(end - chunk.first, CHUNK);
    if (ranks_products(x))
      attn_gemm_packed(
          c->kernels, chunk.rows, chunk.count, x->depth, (attn_matrix){w.queries, x->depth, 1},
          (attn_packed){(const char *)prepared + (size_t)(chunk.first / CHUNK) * chunk_bytes(c, x), x->depth,
                        whole},
          false, w.scores, CHUNK, w.gemm);
    rank_chunk(x, &chunk, &l, spans, w.shares, selections, ranked);
  }
  for (int64_t s = 0; s < selections; s++) {
    if (x->mass > 0)
      attn_ranking_select_mass(&ranked[s], x->mass, w.weights);
    else
      attn_ranking_select_top(&ranked[s]);
    picks->counts[s] = write_runs(&ranked[s], &spans[s], x->unit, picks->runs + s * picks->max_runs);
  }
}

/* ---- the law ----------------------------------------------------------------------------------------- */

/* By margins a unit is a key. */
static bool always(const void *state, const attn_query *query, int64_t unit) {
  const attn_ranker *x = state;
  return x->always(query, x->means.block ? unit / x->unit : unit);
}

/* The largest of all rows that share and see a key of the column; -Inf: none does. */
static double score(const void *state, const attn_query *query, int64_t column, double *error) {
  const attn_ranker *x = state;
  const attn_problem *p = query->call->context->problem;
  const int64_t group = x->share == ATTN_SHARE_GROUP && !x->index.heads ? p->heads / p->kv_heads : 1,
                rows = x->share == ATTN_SHARE_TILE ? ATTN_TILE : 1, first = query->i / rows * rows;
  const int64_t key = column * x->unit,
                keys = attn_min(x->unit, attn_call_keys(query->call, query->batch) - key);
  attn_query own = *query;
  double most = -(double)INFINITY;
  *error = 0;
  for (int64_t r = 0; r < group * rows && first + r / group < p->n_q; r++) {
    double off = 0;
    own.head = query->head / group * group + r % group;
    own.i = first + r / group;
    if (hidden(x, &own, column)) continue;
    most = fmax(most, x->index.heads ? attn_index_score(&x->index, &own, key, keys, &off)
                                     : x->score(&own, column, &off));
    *error = fmax(*error, off);
  }
  return most;
}

static void enclose(const void *state, const attn_query *query, int64_t columns, double *low, double *high) {
  ((const attn_ranker *)state)->enclose(query, columns, low, high);
}

double attn_rank_error(const attn_problem *p, int64_t terms, double size) {
  if (!p) return (double)NAN;
  const attn_number *number = &attn_numbers[p->dtype];
  const double chain = (double)(terms + 2) * number->unit;
  return chain / (1 - chain) * size + (double)(terms + 2) * number->normal;
}

double attn_rank_score(const attn_query *x, int64_t key, double product, double *error) {
  if (!x || !error) return (double)NAN;
  const attn_context *c = x->call->context;
  const attn_problem of_head = attn_call_problem(x->call, x->batch, x->head), *p = &of_head;
  const double unit = attn_numbers[p->dtype].unit, t = p->scale * product,
               s = attn_score_of(p, x->batch, x->head, x->i, key, t);
  *error = fabs(p->scale) * *error + (c->kernels->map_error + 4 * unit) * fabs(t) +
           (isfinite(s) ? 2 * unit * fabs(s) : 0);
  return s;
}

attn_selector attn_ranker_selector(const attn_context *c, const attn_ranker *x) {
  if (!c || !x) return (attn_selector){0};
  const layout l = layout_of(c, x);
  const int64_t kept = x->mass > 0 ? l.columns : attn_min(x->kept, l.columns);
  const bool prepares = ranks_products(x) || x->means.block;
  return (attn_selector){.state = x,
                         .share = x->share,
                         .every = x->every,
                         .rows = x->share == ATTN_SHARE_TILE ? l.pool : l.selections,
                         .max_runs = kept + 2,
                         .max_keys = x->mass > 0 ? 0 : x->max_keys,
                         .prepared_bytes = prepares ? prepared_bytes(c, x) : 0,
                         .prepare = prepares ? prepare : NULL,
                         .scratch_bytes = scratch_bytes(c, x),
                         .select = select,
                         .grain = x->means.block ? 1 : x->unit,
                         .kept = x->means.block ? 0 : kept,
                         .margins = x->means.block ? attn_means_margins : NULL,
                         .mass = x->mass,
                         .always = x->always ? always : NULL,
                         .score = x->score || x->index.heads ? score : NULL,
                         .index = x->index,
                         .enclose = x->enclose ? enclose : NULL};
}

attn_status attn_ranker_describe(attn_builder *b, const attn_context *c, const attn_ranker *x,
                                 attn_selector *out) {
  if (!c || !x || !out) return attn_null("ranker", !c ? "context" : !x ? "ranker" : "selector");
  const void *kept;
  const attn_status status = attn_builder_keep(b, x, sizeof *x, &kept);
  if (!status) *out = attn_ranker_selector(c, kept ? kept : x);
  return status;
}

attn_cost attn_ranker_cost(const attn_context *c, const attn_ranker *x) {
  if (!c || !x) return (attn_cost){0};
  const attn_problem *p = c->problem;
  const double visible = attn_visible_pairs(p), most = (double)p->n_q * (double)x->max_keys;
  attn_cost result = attn_softmax_cost(c, visible < most || x->mass > 0 ? visible : most);
  if (x->every) return result;
  const int64_t lines = x->index.heads ? p->kv_heads * x->index.heads : p->heads,
                step = x->means.block      ? x->means.block
                       : ranks_products(x) ? x->unit
                                           : 1;
  result.mul_add += (double)(p->batch * lines * x->depth) * visible / (double)step;
  if (ranks_products(x)) result.mul_add += (double)(p->batch * p->kv_heads * p->n_kv * p->d_qk);
  return result;
}
