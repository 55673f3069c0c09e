/* work.c - the softmax engine's memory: what each thread works in, and the states that splits leave. */
#include "core/engines/softmax/softmax.h"

static int64_t round_up(int64_t x, int64_t unit) { return attn_ceil_div(x, unit) * unit; }

/* The running state of a tile's queries. */
attn_tile *attn_softmax_carve_tiles(const attn_context *c, const softmax_shape *s, attn_carver *carver) {
  const attn_problem *p = c->problem;
  size_t e = attn_dtype_size(p->dtype);
  int64_t lanes = s->kernels->lanes, count = attn_ceil_div(s->rows, lanes);
  attn_tile *tiles = attn_carve(carver, count, 1, sizeof *tiles);
  for (int64_t i = 0; i < count; i++) {
    int64_t rows = round_up(attn_min(s->rows - i * lanes, lanes), s->kernels->row_unit);
    attn_tile tile = {.o = attn_carve(carver, round_up(p->d_v, s->kernels->width_unit), rows, e),
                      .max = attn_carve(carver, rows, 1, e),
                      .sum = attn_carve(carver, rows, 1, e)};
    if (carver->base) tiles[i] = tile;
  }
  return tiles;
}

void attn_softmax_use_room(attn_tile *tile, const attn_tile *from) {
  tile->q = from->q;
  tile->packed = from->packed;
  tile->weights = from->weights;
  tile->spans = from->spans;
  tile->scratch = from->scratch;
}

softmax_worker attn_softmax_carve(const attn_context *c, const softmax_shape *s, int64_t max_runs,
                                  attn_carver *carver) {
  const attn_problem *p = c->problem;
  size_t e = attn_dtype_size(p->dtype);
  int64_t lanes = s->kernels->lanes, keys = s->blocks.key, width = s->kernels->width_unit;
  const bool biased = p->score.relative || p->score.dense.at || s->weighted;
  softmax_worker w = {.tiles = attn_softmax_carve_tiles(c, s, carver),
                      .keys = attn_carve(carver, keys, 1, sizeof *w.keys),
                      .mask = attn_carve(carver, keys, 1, sizeof *w.mask),
                      .taken = attn_carve(carver, keys, 1, sizeof *w.taken),
                      .pieces = attn_carve(carver, keys, 1, sizeof *w.pieces),
                      .bias = attn_carve(carver, biased ? keys : 0, 1, sizeof *w.bias),
                      .biases = attn_carve(carver, biased ? keys : 0, ATTN_LANES, e),
                      .q = attn_carve(carver, s->rows, 1, sizeof *w.q),
                      .o = attn_carve(carver, s->rows, 1, sizeof *w.o),
                      .runs = attn_carve(carver, s->blocks.query, max_runs, sizeof *w.runs),
                      .run_count = attn_carve(carver, s->blocks.query, 1, sizeof *w.run_count)};
  const int64_t gathered = softmax_gathers(p) ? keys : 0;
  w.queries = attn_carve(carver, p->q.stored ? s->rows : 0, p->d_qk, e);
  w.outputs = attn_carve(carver, p->o.stored ? s->rows : 0, p->d_v, e);
  w.k = attn_carve(carver, gathered, attn_padded(p->d_qk, p->dtype), e);
  w.v = attn_carve(carver, gathered, attn_padded(p->d_v, p->dtype), e);
  w.places = attn_carve(carver, gathered, 1, sizeof *w.places);
  attn_tile_room room = {0};
  if (s->kernels->room) room = s->kernels->room(keys, p->d_qk, p->d_v);
  w.packed = attn_carve(carver, 1, 1, room.step);
  attn_tile shared = {.weights = attn_carve(carver, round_up(s->seen, width) + width,
                                            round_up(attn_min(s->rows, lanes), s->kernels->row_unit), e),
                      .spans = attn_carve(carver, keys, 1, sizeof *shared.spans),
                      .scratch = attn_carve(carver, 1, 1, room.scratch)};
  for (int64_t i = 0; i * lanes < s->rows; i++) {
    shared.q = attn_carve(carver, round_up(p->d_qk, width), lanes, e);
    shared.packed = attn_carve(carver, 1, 1, room.query);
    if (carver->base) attn_softmax_use_room(&w.tiles[i], &shared);
  }
  return w;
}

/* Bytes of the state that one split of a tile leaves. No variant comes near it: it has no redzones. */
size_t attn_softmax_split_bytes(const attn_context *c, const softmax_shape *s) {
  attn_carver one = {0};
  attn_softmax_carve_tiles(c, s, &one);
  return one.used;
}
size_t attn_softmax_worker_bytes(const attn_context *c, const softmax_shape *s, int64_t max_runs) {
  attn_carver one = attn_carver_count(c);
  attn_softmax_carve(c, s, max_runs, &one);
  return one.used;
}

/* Tiles of all heads and batches; a tile's splits are tasks of their own. */
int64_t attn_softmax_units(const attn_problem *p, const softmax_shape *s, int64_t tile_count) {
  return p->batch * p->kv_heads * attn_ceil_div(p->heads / p->kv_heads, s->heads) * tile_count;
}

static size_t size_of(const attn_context *c, const attn_pattern *pattern, attn_tiling tiling) {
  attn_pattern outline;
  pattern = attn_softmax_outline(c->problem, pattern, &outline) ? &outline : NULL;
  softmax_shape s = attn_softmax_shape(c, pattern, tiling);
  size_t splits =
      s.splits > 1 ? attn_size_times((size_t)attn_softmax_units(c->problem, &s, 1), (size_t)s.splits) : 0;
  size_t worker = attn_softmax_worker_bytes(c, &s, pattern ? pattern->max_runs : 1);
  return attn_size_sum(attn_size_times(splits, attn_softmax_split_bytes(c, &s)),
                       attn_size_times(worker, (size_t)c->threads));
}

size_t attn_softmax_size(const attn_context *c, const attn_pattern *pattern, attn_tiling tiling) {
  const size_t bytes = size_of(c, pattern, tiling);
  if (!pattern || !pattern->per_head_later) return bytes;
  attn_pattern apart = *pattern;
  apart.per_head = true;
  const size_t other = size_of(c, &apart, tiling);
  return bytes > other ? bytes : other;
}
