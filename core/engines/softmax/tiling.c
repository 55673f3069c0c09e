/* tiling.c - from a pattern, row by row, to tiles and the segments of keys they visit.
 *
 * A sweep over the end points of the rows' runs tells which keys all queries of a tile see (full), which only
 * some do (partial: masked at execution) and which none does (never visited). Runs of another step, or of
 * another residue class of that step, are swept on their own. */
#include "core/engines/softmax/softmax.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A split leaves an unnormalised row of the output for each query: at 64 keys or more for each query they
 * take at most 1/64 of the values' memory. 1024 keys outweigh the cost of a task. */
enum { SPLIT_KEYS = 1024, SPLIT_KEYS_PER_QUERY = 64 };

/* Tile products: 32 queries and 128 keys leave scores of 16 KiB; keys are packed for each tile anew. */
enum { PRODUCT_QUERIES = 8 * ATTN_LANES, PRODUCT_KEYS = 128 };

/* Few queries, and keys that are converted: with their values they stay in L1, in these bytes, until they are
 * taken. */
enum { CONVERTED_BYTES = 24 << 10, CONVERTED_LEAST = 16 };

/* Beyond this scale what underflows in a tile product is no longer small in the scores. */
static const double most_split_scale = 0x1p80;

const attn_tile_kernels *attn_softmax_kernels(const attn_context *c, attn_path path, int64_t rows) {
  const attn_kernels *k = c->kernels;
  const attn_products *products = k->products;
  if (path == ATTN_PATH_BF16) return &products->bf16;
  bool tiles = products && products->split_pays && rows > ATTN_DECODE_ROWS;
  if ((path == ATTN_PATH_SPLIT || (path == ATTN_PATH_AUTO && tiles)) &&
      fabs(c->problem->scale) <= most_split_scale)
    return &products->split;
  /* The kernels for decoding have their scores in another order, and no maps or biases of them. */
  const attn_score *s = &c->problem->score;
  const bool changed = s->softcap > 0 || s->leaky > 0 || s->relative || s->dense.at;
  return rows <= ATTN_DECODE_ROWS && !changed ? &k->decode : &k->tile;
}

softmax_shape attn_softmax_shape(const attn_context *c, const attn_pattern *pattern, attn_tiling tiling) {
  const attn_problem *p = c->problem;
  if (tiling.skip > 0) return attn_softmax_skip_shape(c, tiling);
  int64_t group = p->heads / p->kv_heads, queries = tiling.blocks.query;
  if (!queries && pattern) queries = ATTN_TILE;
  if (!queries)
    queries = attn_softmax_kernels(c, tiling.path, INT64_MAX)->products ? PRODUCT_QUERIES : c->blocks.query;
  softmax_shape s = {.heads = 1};
  s.blocks.query = attn_min(queries, p->n_q);
  if (!pattern || !pattern->per_head) s.heads = attn_min(queries / s.blocks.query, group);
  s.rows = s.heads * s.blocks.query;
  s.kernels = attn_softmax_kernels(c, tiling.path, s.rows);
  int64_t keys = s.kernels->products ? PRODUCT_KEYS : c->blocks.key;
  if (s.kernels == &c->kernels->decode && softmax_gathers(p)) {
    const int64_t row = (p->d_qk + p->d_v) * (int64_t)attn_dtype_size(p->dtype);
    keys = attn_min(keys, attn_max(CONVERTED_BYTES / row, CONVERTED_LEAST));
  }
  s.seen = s.blocks.key = attn_min(tiling.blocks.key ? tiling.blocks.key : keys, p->n_kv);
  int64_t least = p->n_q > p->n_kv / group / SPLIT_KEYS_PER_QUERY
                      ? p->n_kv
                      : attn_max(SPLIT_KEYS, SPLIT_KEYS_PER_QUERY * group * p->n_q);
  s.split = attn_ceil_div(least, s.blocks.key) * s.blocks.key;
  s.splits = p->n_q <= queries ? attn_ceil_div(p->n_kv, s.split) : 1;
  return s;
}

typedef struct edge {
  int64_t step, residue, at; /* key = residue + step * at */
  int64_t change;            /* +1 a run starts, -1 it has ended */
} edge;

static int by_place(const void *a_, const void *b_) {
  const edge *a = a_, *b = b_;
  if (a->step != b->step) return a->step < b->step ? -1 : 1;
  if (a->residue != b->residue) return a->residue < b->residue ? -1 : 1;
  return (a->at > b->at) - (a->at < b->at);
}

static int by_first(const void *a_, const void *b_) {
  const softmax_segment *a = a_, *b = b_;
  if (a->first != b->first) return a->first < b->first ? -1 : 1;
  return (a->step > b->step) - (a->step < b->step);
}

static size_t segments_scratch(int64_t rows, int64_t max_runs) {
  return (size_t)(2 * rows * max_runs) * (sizeof(edge) + sizeof(softmax_segment));
}

/* Collects the ends of all runs of the tile's rows. */
static attn_status collect(const attn_pattern_reader *reader, int64_t head, const softmax_tile *tile,
                           edge *edges, int64_t *collected) {
  const attn_run *runs = reader->runs;
  int64_t n = 0;
  for (int64_t r = 0; r < tile->row_count; r++) {
    int64_t count = 0;
    attn_status status = attn_pattern_read(reader, head, tile->rows[r], &count);
    if (status) return status;
    for (int64_t i = 0; i < count; i++) {
      edge e = {runs[i].step, runs[i].first % runs[i].step, runs[i].first / runs[i].step, 1};
      edges[n++] = e;
      e.at += runs[i].count;
      e.change = -1;
      edges[n++] = e;
    }
  }
  *collected = n;
  return ATTN_OK;
}

/* Fills segments of one tile from the runs of its rows. */
static attn_status segments_fill(attn_builder *b, const attn_pattern_reader *reader, int64_t head,
                                 softmax_tile *tile, void *scratch) {
  int64_t max_runs = reader->pattern ? reader->pattern->max_runs : 1, n = 0, count = 0, cover = 0;
  edge *edges = scratch;
  softmax_segment *found = (softmax_segment *)(edges + 2 * tile->row_count * max_runs);
  attn_status status = collect(reader, head, tile, edges, &n);
  if (status) return status;
  qsort(edges, (size_t)n, sizeof *edges, by_place);
  for (int64_t i = 0; i < n; i++) {
    cover += edges[i].change;
    if (i + 1 == n || !cover || edges[i + 1].at == edges[i].at) continue;
    /* cover > 0: a run is open, so the next edge is of the same class. */
    softmax_segment seg = {edges[i].residue + edges[i].step * edges[i].at, edges[i + 1].at - edges[i].at,
                           edges[i].step, cover < tile->row_count};
    softmax_segment *last = count ? &found[count - 1] : NULL;
    if (last && last->step == seg.step && last->partial == seg.partial &&
        last->first + last->count * last->step == seg.first)
      last->count += seg.count;
    else
      found[count++] = seg;
  }
  qsort(found, (size_t)count, sizeof *found, by_first);
  softmax_segment *kept = attn_builder_alloc(b, count, sizeof *kept);
  if (!kept) return ATTN_ENOMEM;
  memcpy(kept, found, (size_t)count * sizeof *kept);
  tile->segments = kept;
  tile->segment_count = count;
  for (int64_t i = 0; i < count; i++) tile->keys += kept[i].count;
  return ATTN_OK;
}

typedef struct grouped_row {
  int64_t group, row;
} grouped_row;

static int by_group(const void *a_, const void *b_) {
  const grouped_row *a = a_, *b = b_;
  if (a->group != b->group) return a->group < b->group ? -1 : 1;
  return (a->row > b->row) - (a->row < b->row);
}

static int by_work(const void *a_, const void *b_) {
  const softmax_tile *a = a_, *b = b_;
  if (a->keys != b->keys) return a->keys > b->keys ? -1 : 1;
  return (a->rows[0] > b->rows[0]) - (a->rows[0] < b->rows[0]);
}

/* Cuts the rows, ordered by group, into tiles of at most blocks.query rows of one group. tiles: NULL to
 * count. */
static int64_t cut(const grouped_row *rows, int64_t n, int64_t size, const int64_t *order,
                   softmax_tile *tiles) {
  int64_t count = 0;
  for (int64_t i = 0, end; i < n; i = end, count++) {
    for (end = i + 1; end < n && end - i < size && rows[end].group == rows[i].group; end++) continue;
    if (tiles) tiles[count] = (softmax_tile){.rows = order + i, .row_count = end - i};
  }
  return count;
}

static attn_status plan_tiles(attn_builder *b, attn_softmax *s, const attn_pattern_reader *reader,
                              grouped_row *rows, void *scratch) {
  const attn_problem *p = b->context.problem;
  for (int64_t i = 0; i < p->n_q; i++) {
    bool grouped = !s->dense && s->pattern.group;
    rows[i] = (grouped_row){grouped ? s->pattern.group(s->pattern.state, attn_problem_position(p, i)) : 0, i};
  }
  qsort(rows, (size_t)p->n_q, sizeof *rows, by_group);
  int64_t *order = attn_builder_alloc(b, p->n_q, sizeof *order);
  if (!order) return ATTN_ENOMEM;
  for (int64_t i = 0; i < p->n_q; i++) order[i] = rows[i].row;

  s->tile_count = cut(rows, p->n_q, s->shape.blocks.query, order, NULL);
  s->tiles = attn_builder_alloc(b, s->pattern_heads * s->tile_count, sizeof *s->tiles);
  if (!s->tiles) return ATTN_ENOMEM;
  for (int64_t head = 0; head < s->pattern_heads; head++) {
    softmax_tile *tiles = s->tiles + head * s->tile_count;
    cut(rows, p->n_q, s->shape.blocks.query, order, tiles);
    for (int64_t t = 0; t < s->tile_count; t++) {
      attn_status status = segments_fill(b, reader, head, &tiles[t], scratch);
      if (status) return status;
      s->most_keys = attn_max(s->most_keys, tiles[t].keys);
    }
    qsort(tiles, (size_t)s->tile_count, sizeof *tiles, by_work);
  }
  s->shape.splits = s->tile_count > 1
                        ? 1
                        : attn_min(s->shape.splits, attn_max(attn_ceil_div(s->most_keys, s->shape.split), 1));
  return ATTN_OK;
}

/* A variant's pattern within the problem's graph; of neither: none. */
static attn_status find_pattern(attn_builder *b, const attn_pattern *own, attn_pattern *out) {
  const attn_problem *p = b->context.problem;
  const attn_pattern *graph = p->mask.kind == ATTN_MASK_PATTERN ? p->mask.pattern : NULL;
  *out = own ? *own : graph ? *graph : (attn_pattern){0};
  if (!own || !graph) return ATTN_OK;
  void *memory = attn_builder_scratch(b, 1, attn_pattern_reader_bytes(own, p));
  if (!memory) return ATTN_ENOMEM;
  const attn_pattern_reader reader = attn_pattern_reader_make(b->context.variant->name, own, p, memory);
  return attn_softmax_within(b, &reader, out);
}

attn_status attn_softmax_prepare(attn_builder *b, const attn_pattern *pattern, attn_tiling tiling,
                                 void **state) {
  const attn_problem *p = b->context.problem;
  attn_softmax *s = attn_builder_alloc(b, 1, sizeof *s);
  if (!s) return ATTN_ENOMEM;
  *s = (attn_softmax){.dense = true};
  attn_status status = attn_softmax_score(b, &s->score);
  if (!status) status = find_pattern(b, pattern, &s->pattern);
  if (status) return status;
  s->dense = !s->pattern.row;
  s->max_runs = s->dense ? 1 : s->pattern.max_runs;
  pattern = s->dense ? NULL : &s->pattern;
  s->shape = attn_softmax_shape(&b->context, pattern, tiling);
  s->pattern_heads = pattern && pattern->per_head ? p->heads : 1;
  attn_softmax_skip(&b->context, tiling, s);

  /* Temporary: from the same allocator, released at once. */
  attn_arena temporary = {.allocator = b->arena->allocator};
  grouped_row *rows = attn_arena_alloc(&temporary, p->n_q, sizeof *rows);
  void *scratch =
      rows ? attn_arena_alloc(&temporary, 1,
                              segments_scratch(s->shape.blocks.query, pattern ? pattern->max_runs : 1))
           : NULL;
  void *row = scratch ? attn_arena_alloc(&temporary, 1, attn_pattern_reader_bytes(pattern, p)) : NULL;
  status = ATTN_ENOMEM;
  if (row) {
    attn_pattern_reader reader = attn_pattern_reader_make(b->context.variant->name, pattern, p, row);
    status = plan_tiles(b, s, &reader, rows, scratch);
  }
  attn_arena_free(&temporary);
  if (!status) *state = s;
  return status;
}

/* What the engine cannot follow. */
static attn_status check_tiling(const attn_context *c, const attn_pattern *pattern, attn_tiling tiling) {
  const char *name = c->variant->name;
  if (tiling.blocks.query < 0 || tiling.blocks.query > ATTN_BLOCK_MAX || tiling.blocks.key < 0 ||
      tiling.blocks.key > ATTN_BLOCK_MAX)
    return attn_fail(ATTN_EINVAL, "variant %s: tiling of %lld queries and %lld keys, expected 0 ... %d", name,
                     (long long)tiling.blocks.query, (long long)tiling.blocks.key, ATTN_BLOCK_MAX);
  if ((unsigned)tiling.path > ATTN_PATH_BF16)
    return attn_fail(ATTN_EINVAL, "variant %s: tiling.path = %d, no such path", name, (int)tiling.path);
  if (tiling.path > ATTN_PATH_FMA && !c->kernels->products)
    return attn_fail(ATTN_EUNSUPPORTED, "variant %s: tiling.path of bf16 products needs fp32 tensors", name);
  return attn_softmax_skip_check(c, pattern, tiling);
}

/* -- the engine -- */

static const attn_pattern *pattern_of(const attn_parts *p) { return p->pattern.row ? &p->pattern : NULL; }

static bool accepts(const attn_parts *p) {
  return (attn_parts_kinds(p) | ATTN_PART_PATTERN) == ATTN_PART_PATTERN;
}

static attn_status work_size(const attn_context *c, const attn_parts *p, size_t *bytes) {
  const attn_status status = check_tiling(c, pattern_of(p), p->tiling);
  if (!status) *bytes = attn_softmax_size(c, pattern_of(p), p->tiling);
  return status;
}

static attn_status plan(attn_builder *b, const attn_parts *p, void **state) {
  return attn_softmax_prepare(b, pattern_of(p), p->tiling, state);
}

static attn_status backward_size(const void *state, const attn_context *c, const attn_parts *p,
                                 size_t *bytes) {
  (void)state;
  *bytes = attn_softmax_back_size(c, pattern_of(p), p->tiling);
  return attn_softmax_back_check(c, p->tiling);
}

/* The pattern is seen as it is within the problem's graph. */
static void inspect(const void *state, const attn_context *c, attn_view *view) {
  const attn_softmax *s = state;
  if (view->pattern) view->pattern = &s->pattern;
  /* What a pattern has within the user's graph is known of the plan's positions. */
  if (view->pattern && c->problem->mask.kind == ATTN_MASK_PATTERN)
    view->caps &= ~(uint32_t)ATTN_CAP_POSITIONS;
  if (s->skip.least > 0) view->selector = &s->visited;
  view->rounding = attn_softmax_rounding(s, c);
}

const attn_engine attn_engine_softmax = {"softmax",
                                         accepts,
                                         {.work_size = work_size,
                                          .plan = plan,
                                          .execute = attn_softmax_execute,
                                          .inspect = inspect,
                                          .backward_size = backward_size,
                                          .backward = attn_softmax_backward,
                                          .bias_gradients = true}};
