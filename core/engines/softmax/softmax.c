/* softmax.c - the softmax engine: every tile of queries walks its keys in steps, keeping a running maximum
 * and sum (online softmax; Milakov and Gimelshein 2018, Dao et al. 2022), so that no n x n matrix exists.
 * Work is one task per batch entry, head and tile, each in a fixed order of keys: results do not depend on
 * the number of threads. */
#include "core/engines/softmax/softmax.h"

#include <math.h>
#include <omp.h>
#include <string.h>

/* The stretch of a step that some lane of a tile sees, and whether every lane sees all of it. */
typedef struct seen_keys {
  int64_t first, end;
  uint64_t any; /* lanes */
  bool all;
} seen_keys;

/* Adds a run of positions, of a step above 1, to the mask of a lane. */
static void mark_positions(const softmax_task *t, const softmax_piece *s, const attn_run *run, uint64_t lane,
                           uint64_t *mask) {
  const int64_t last = run->first + (run->count - 1) * run->step,
                end = attn_min(attn_key_at(&t->problem, last + 1), s->first + s->count);
  for (int64_t key = attn_max(attn_key_at(&t->problem, run->first), s->first); key < end; key++)
    if ((attn_key_position(&t->problem, key) - run->first) % run->step == 0) mask[key - s->first] |= lane;
}

/* Masks of the lanes from row0 on. Within a piece a key's mask differs from the one before it by the lanes
 * whose runs begin or end there. */
static void build_mask(const softmax_task *t, const softmax_worker *w, int64_t row0, uint64_t used) {
  int64_t lanes = attn_min(softmax_rows(t) - row0, t->s->shape.kernels->lanes);
  int64_t max_runs = t->s->max_runs;
  for (int64_t i = 0; i < w->piece_count; i++) {
    const softmax_piece *s = &w->pieces[i];
    uint64_t *mask = w->mask + s->at;
    for (int64_t j = 0; j < s->count; j++) mask[j] = 0;
    mask[0] = s->partial ? 0 : used;
    for (int64_t lane = 0, row = row0 % t->tile->row_count; s->partial && lane < lanes; lane++, row++) {
      if (row == t->tile->row_count) row = 0;
      const attn_run *run = w->runs + row * max_runs;
      for (int64_t r = 0; r < w->run_count[row]; r++, run++) {
        if (run->step != s->step) continue;
        int64_t offset = run->first - s->first;
        if (s->step > 1) { /* a division takes as long as 40 other instructions */
          if (offset % s->step) continue;
          offset /= s->step;
        }
        int64_t from = attn_max(offset, 0), end = attn_min(offset + run->count, s->count);
        if (from >= end) continue;
        mask[from] ^= UINT64_C(1) << lane;
        if (end < s->count) mask[end] ^= UINT64_C(1) << lane;
      }
    }
    for (int64_t j = 1; j < s->count; j++) mask[j] ^= mask[j - 1];
    for (int64_t lane = 0; t->placed && s->partial && lane < lanes; lane++) {
      const int64_t row = (row0 + lane) % t->tile->row_count;
      for (int64_t r = 0; r < w->run_count[row]; r++)
        if (w->runs[row * max_runs + r].step > 1)
          mark_positions(t, s, &w->runs[row * max_runs + r], UINT64_C(1) << lane, mask);
    }
  }
}

static seen_keys find_seen(const softmax_worker *w, int64_t count, uint64_t used) {
  seen_keys seen = {.first = 0, .end = count, .any = 0, .all = true};
  while (seen.first < seen.end && !w->mask[seen.first]) seen.first++;
  while (seen.first < seen.end && !w->mask[seen.end - 1]) seen.end--;
  for (int64_t j = seen.first; j < seen.end; j++) {
    seen.any |= w->mask[j];
    seen.all &= w->mask[j] == used;
  }
  return seen;
}

/* The rows of a step that are stored in another type, converted side by side: all tiles read them there. */
static void gather(const softmax_task *t, softmax_worker *w, const softmax_rows_read *x, attn_step *step) {
  const attn_problem *p = t->call->context->problem;
  const attn_kernels *kernels = t->call->context->kernels;
  const attn_dtype k = attn_stored(x->k_at, p->dtype), v = attn_stored(x->v_at, p->dtype);
  const int64_t k_row = attn_padded(p->d_qk, p->dtype), v_row = attn_padded(p->d_v, p->dtype);
  kernels->load[k](step->count, p->d_qk, x->k, x->k_at.row, step->keys, w->k, k_row);
  kernels->load[v](step->count, p->d_v, x->v, x->v_at.row, step->keys, w->v, v_row);
  for (int64_t j = 0; j < step->count; j++) w->places[j] = j;
  step->k = w->k;
  step->v = w->v;
  step->k_row = k_row;
  step->v_row = v_row;
  step->keys = w->places;
}

/* Whether few rows read keys and values as they are stored: converting these apart would take longer. */
static bool reads_stored(const softmax_task *t, const softmax_rows_read *x) {
  const attn_problem *p = t->call->context->problem;
  const attn_dtype type = x->k_at.stored;
  const bool codes = type > ATTN_BF16;
  const int64_t unit = codes ? 1 << attn_numbers[type].shift : t->s->shape.kernels->stored_unit;
  return t->s->shape.kernels->stored_unit && type > ATTN_F64 && x->v_at.stored == type &&
         softmax_rows(t) <= (codes ? 1 : 4) && p->d_qk % unit == 0 && p->d_v % unit == 0;
}

/* Applies the keys gathered in the worker to the tiles, as they are read in one way; mixed: by those rows
 * that read them so. */
static void take_way(const softmax_task *t, softmax_worker *w, attn_tile *tiles, int64_t count, bool partial,
                     unsigned way, bool mixed) {
  const attn_tile_kernels *kernels = t->s->shape.kernels;
  const attn_problem *p = t->call->context->problem;
  const softmax_score *score = &t->s->score;
  const softmax_rows_read x = attn_softmax_read(t, way);
  attn_step step = {.k = x.k,
                    .v = x.v,
                    .k_row = x.k_at.row,
                    .v_row = x.v_at.row,
                    .keys = w->keys,
                    .count = count,
                    .map = score->mapped ? &score->map : NULL,
                    .packed = w->packed};
  const bool masks = partial || mixed || t->picks || p->score.dense.at;
  if (!masks && !w->back && reads_stored(t, &x))
    step.stored = x.k_at.stored;
  else if (x.k_at.stored || x.v_at.stored)
    gather(t, w, &x, &step);
  const int64_t *keys = step.keys;
  /* The kernels sum in another order where all rows see all keys, which is for other rows to decide. */
  const bool apart = t->picks && !t->picks->shared;
  if (kernels->pack && !w->back) kernels->pack(&step, p->d_qk, p->d_v, w->packed);
  for (int64_t i = 0; i * kernels->lanes < softmax_rows(t); i++) {
    const int64_t row0 = i * kernels->lanes, lanes = attn_min(softmax_rows(t) - row0, kernels->lanes);
    const uint64_t used = UINT64_MAX >> (64 - lanes);
    seen_keys seen = {0, count, UINT64_MAX, true};
    if (masks && !t->picks) build_mask(t, w, row0, used);
    if (mixed && t->picks) memcpy(w->mask, w->taken, (size_t)count * sizeof *w->mask);
    if (score->biased) attn_softmax_bias(t, w, row0, count);
    if (t->s->shape.weighted) attn_softmax_weigh(t, w, row0, count);
    if (mixed) attn_softmax_keep_way(t, w, row0, count, way);
    if (masks) seen = find_seen(w, count, used);
    if (!seen.any) continue;
    int64_t before = seen.first % kernels->key_unit;
    seen.first -= before;
    step.first = seen.first;
    step.keys = keys + seen.first;
    step.count = seen.end - seen.first;
    step.seen = attn_min(step.count, t->s->shape.seen);
    step.mask = seen.all && !before && !apart ? NULL : w->mask + seen.first;
    step.bias = score->biased || t->s->shape.weighted ? w->bias + seen.first : NULL;
    if (w->back) {
      attn_softmax_back_step(t, w, i, &step);
      continue;
    }
    tiles[i].seen |= seen.any;
    if (t->s->skip.least > 0)
      attn_softmax_step_above(t, w, tiles, i, &step);
    else
      kernels->step(&tiles[i], &step, p->d_qk, p->d_v, p->scale * ATTN_LOG2E);
  }
}

static void take_step(const softmax_task *t, softmax_worker *w, attn_tile *tiles, int64_t count,
                      bool partial) {
  const unsigned ways = t->call->settled ? attn_softmax_ways(t, w, count) : 1;
  const bool mixed = ways & (ways - 1);
  if (mixed && t->picks) memcpy(w->taken, w->mask, (size_t)count * sizeof *w->mask);
  for (unsigned way = 0; ways >> way; way++)
    if (ways >> way & 1) take_way(t, w, tiles, count, partial, way, mixed);
}

/* Where the rows of queries and outputs are, or outputs wait to be stored. */
static void find_rows(const softmax_task *t, softmax_worker *w) {
  const attn_problem *p = t->call->context->problem;
  const attn_dtype stored = attn_stored(p->q, p->dtype);
  for (int64_t h = 0, at = 0; h < t->heads; h++) {
    const void *q = attn_rows(t->call->q, p->q, t->batch, t->head + h, p->dtype),
               *o = attn_rows(t->call->o, p->o, t->batch, t->head + h, p->dtype);
    for (int64_t r = 0; r < t->tile->row_count; r++, at++) {
      const int64_t row = t->tile->rows[r];
      w->q[at] = attn_at(q, row * p->q.row, stored);
      w->o[at] =
          p->o.stored ? attn_at(w->outputs, at * p->d_v, p->dtype) : attn_at(o, row * p->o.row, p->dtype);
    }
  }
}

static void load_queries(const softmax_task *t, softmax_worker *w) {
  const attn_problem *p = t->call->context->problem;
  for (int64_t at = 0; p->q.stored && at < softmax_rows(t); at++) {
    void *to = attn_at(w->queries, at * p->d_qk, p->dtype);
    t->call->context->kernels->load[p->q.stored](1, p->d_qk, w->q[at], 0, NULL, to, 0);
    w->q[at] = to;
  }
}

static void store_outputs(const softmax_task *t, const softmax_worker *w, int64_t row0, int64_t rows) {
  const attn_problem *p = t->call->context->problem;
  for (int64_t at = row0; p->o.stored && at < row0 + rows; at++)
    t->call->context->kernels->store[p->o.stored](p->d_v, w->o[at],
                                                  attn_row(t->call->o, p->o, t->batch,
                                                           t->head + at / t->tile->row_count,
                                                           t->tile->rows[at % t->tile->row_count], p->dtype));
}

void attn_softmax_begin(const softmax_task *t, softmax_worker *w, attn_tile *tiles) {
  const softmax_shape *shape = &t->s->shape;
  const attn_problem *p = t->call->context->problem;
  const int64_t lanes = shape->kernels->lanes;
  find_rows(t, w);
  if (w->back) {
    attn_softmax_back_begin(t, w);
    return;
  }
  load_queries(t, w);
  for (int64_t i = 0; i * lanes < softmax_rows(t); i++) {
    tiles[i].rows = attn_min(softmax_rows(t) - i * lanes, lanes);
    shape->kernels->begin(&tiles[i], w->q + i * lanes, p->d_qk, p->d_v);
  }
}

void attn_softmax_take(const softmax_task *t, softmax_worker *w, attn_tile *tiles, int64_t count) {
  take_step(t, w, tiles, count, true);
}

/* Keys run->first ... that lie between the first and the last of a run. */
static attn_run span_of(const softmax_task *t, attn_run run) {
  if (run.step == 1) return run;
  const int64_t first = attn_key_at(&t->problem, run.first);
  return (attn_run){first, attn_key_at(&t->problem, run.first + (run.count - 1) * run.step + 1) - first, 1};
}

/* Keys that are walked together: first ... first + count - 1. */
typedef struct stretch {
  int64_t first, count;
  bool whole; /* every row sees all of them */
} stretch;

/* The first key from `key` on that lies in the span of a run of some row, and those after it that all rows
 * see, or else that lie in spans: at least as many as there are runs, so that looking for the next costs no
 * more than to walk these. */
static stretch next_stretch(const softmax_task *t, const softmax_worker *w, int64_t key) {
  int64_t first = t->keys, end = 0, whole = 0, seeing = 0, runs = 0;
  for (int64_t row = 0; row < t->tile->row_count; row++)
    for (int64_t r = 0; r < w->run_count[row]; r++, runs++) {
      const attn_run run = w->runs[row * t->s->max_runs + r], span = span_of(t, run);
      const int64_t from = attn_max(span.first, key), past = span.first + span.count;
      if (past <= from || from > first) continue;
      if (from < first) end = whole = past, seeing = 0;
      first = from;
      end = attn_max(end, past);
      whole = attn_min(whole, past);
      seeing += run.step == 1;
    }
  if (seeing == t->tile->row_count) return (stretch){first, attn_min(whole, t->keys) - first, true};
  return (stretch){first, attn_min(attn_max(end - first, runs), t->keys - first), false};
}

/* Keys skip ... skip + left - 1 where positions are the call's: those that rows of the tile may see. */
static void walk_placed(const softmax_task *t, softmax_worker *w, attn_tile *tiles, int64_t skip,
                        int64_t left) {
  const int64_t most = t->s->shape.blocks.key, past = skip < t->keys - left ? skip + left : t->keys;
  int64_t count = 0;
  bool partial = false;
  attn_softmax_clip_runs(t, w);
  w->piece_count = 0;
  for (stretch x = next_stretch(t, w, skip); x.first < past; x = next_stretch(t, w, x.first)) {
    const int64_t take = attn_min(attn_min(x.count, past - x.first), most - count);
    w->pieces[w->piece_count++] = (softmax_piece){x.first, take, 1, count, !x.whole};
    partial |= !x.whole;
    for (int64_t j = 0; j < take; j++) w->keys[count++] = x.first++;
    if (count < most) continue;
    take_step(t, w, tiles, count, partial);
    count = w->piece_count = 0;
    partial = false;
  }
  if (count > 0) take_step(t, w, tiles, count, partial);
}

void attn_softmax_walk(const softmax_task *t, softmax_worker *w, attn_tile *tiles, int64_t skip,
                       int64_t left) {
  if (t->placed) {
    walk_placed(t, w, tiles, skip, left);
    return;
  }
  const softmax_shape *shape = &t->s->shape;
  bool runs_ready = false, partial = false;
  int64_t count = 0;
  w->piece_count = 0;
  for (int64_t i = 0; i < t->tile->segment_count && left; i++) {
    softmax_segment seg = t->tile->segments[i];
    if (seg.first >= t->keys) continue;
    seg.count = attn_min(seg.count, (t->keys - seg.first - 1) / seg.step + 1);
    int64_t skipped = attn_min(skip, seg.count);
    skip -= skipped;
    seg.first += skipped * seg.step;
    seg.count = attn_min(seg.count - skipped, left);
    left -= seg.count;
    if (seg.partial && seg.count && !runs_ready) {
      attn_softmax_clip_runs(t, w);
      runs_ready = true;
    }
    while (seg.count) {
      int64_t take = attn_min(seg.count, shape->blocks.key - count);
      w->pieces[w->piece_count++] = (softmax_piece){seg.first, take, seg.step, count, seg.partial};
      for (int64_t j = 0; j < take; j++) w->keys[count++] = seg.first + j * seg.step;
      seg.first += take * seg.step;
      seg.count -= take;
      partial |= seg.partial;
      if (count == shape->blocks.key) {
        take_step(t, w, tiles, count, partial);
        count = w->piece_count = 0;
        partial = false;
      }
    }
  }
  if (count) take_step(t, w, tiles, count, partial);
}

static void run_split(const softmax_task *t, softmax_worker *w, attn_tile *tiles, int64_t split) {
  const softmax_shape *shape = &t->s->shape;
  for (int64_t i = 0; i * shape->kernels->lanes < softmax_rows(t); i++)
    attn_softmax_use_room(&tiles[i], &w->tiles[i]);
  attn_softmax_begin(t, w, tiles);
  if (!split) attn_softmax_sink(t, tiles);
  if (t->s->skip.least > 0)
    attn_softmax_walk_above(t, w, tiles);
  else
    attn_softmax_walk(t, w, tiles, split * shape->split,
                      split + 1 < shape->splits ? shape->split : INT64_MAX);
}

/* Where the maximum never rose, no score is above -Inf; the sum is then of least weights, or NaN. */
static double row_lse(const attn_tile *tile, int64_t r, attn_dtype t) {
  double max = attn_get(tile->max, r, t), sum = attn_get(tile->sum, r, t), least = -attn_numbers[t].largest;
  return max > least || isnan(sum) ? max / ATTN_LOG2E + log(sum) : -(double)INFINITY;
}

static void write_lse(const softmax_task *t, const attn_tile *tile, int64_t row0) {
  const attn_problem *p = t->call->context->problem;
  for (int64_t r = 0; r < tile->rows; r++) {
    int64_t at = row0 + r, row = t->tile->rows[at % t->tile->row_count],
            head = t->batch * p->heads + t->head + at / t->tile->row_count;
    const double unseen = p->score.sink ? p->score.sink[head % p->heads] : -(double)INFINITY;
    t->call->lse[head * p->n_q + row] = tile->seen >> r & 1 ? row_lse(tile, r, p->dtype) : unseen;
  }
}

void attn_softmax_finish(const softmax_task *t, softmax_worker *w, const attn_tile *tiles) {
  const attn_tile_kernels *kernels = t->s->shape.kernels;
  find_rows(t, w);
  if (w->back) {
    attn_softmax_back_finish(t, w);
    return;
  }
  for (int64_t i = 0; i * kernels->lanes < softmax_rows(t); i++) {
    int64_t row0 = i * kernels->lanes;
    uint64_t infinite = kernels->end(&tiles[i], w->o + row0, t->call->context->problem->d_v);
    if (infinite) attn_softmax_repair(t, w, &tiles[i], row0, infinite);
    store_outputs(t, w, row0, tiles[i].rows);
    if (t->call->lse) write_lse(t, &tiles[i], row0);
  }
}

softmax_task attn_softmax_task(const attn_softmax *s, const attn_call *call, int64_t batch, int64_t head,
                               int64_t tile) {
  const attn_problem *p = call->context->problem;
  const int64_t group = p->heads / p->kv_heads, kv_head = head / group;
  return (softmax_task){.s = s,
                        .call = call,
                        .problem = attn_call_problem(call, batch, head),
                        .placed = attn_call_placed(call),
                        .tile = &s->tiles[(s->pattern_heads > 1 ? head : 0) * s->tile_count + tile],
                        .batch = batch,
                        .head = head,
                        .heads = attn_min(s->shape.heads, group - head % group),
                        .k = attn_rows(call->k, p->k, batch, kv_head, p->dtype),
                        .v = attn_rows(call->v, p->v, batch, kv_head, p->dtype),
                        .keys = attn_call_keys(call, batch)};
}

/* Units that read the same keys are neighbours: first the heads of a group, then the tiles. */
static softmax_task unit_task(const attn_softmax *s, const attn_call *call, int64_t unit) {
  const attn_problem *p = call->context->problem;
  int64_t group = p->heads / p->kv_heads, parts = attn_ceil_div(group, s->shape.heads);
  int64_t part = unit % parts, tile = unit / parts % s->tile_count;
  int64_t kv_head = unit / parts / s->tile_count % p->kv_heads,
          batch = unit / parts / s->tile_count / p->kv_heads;
  return attn_softmax_task(s, call, batch, kv_head * group + part * s->shape.heads, tile);
}

attn_status attn_softmax_execute(const void *state, const attn_call *call) {
  const attn_softmax *s = state;
  const attn_context *c = call->context;
  const softmax_shape *shape = &s->shape;
  int64_t max_runs = s->max_runs, all = attn_softmax_units(c->problem, shape, s->tile_count);
  size_t share = attn_softmax_worker_bytes(c, shape, max_runs), left = attn_softmax_split_bytes(c, shape);
  char *states = (char *)call->work + (size_t)c->threads * share; /* [unit][split] */
#pragma omp parallel num_threads(c->threads)
  {
    fenv_t outer;
    attn_float_enter(&outer);
    attn_carver carver = attn_carver_at(call, (char *)call->work + (size_t)omp_get_thread_num() * share);
    softmax_worker w = attn_softmax_carve(c, shape, max_runs, &carver);
    if (shape->kernels->enter) shape->kernels->enter();
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < all * shape->splits; i++) {
      softmax_task t = unit_task(s, call, i / shape->splits);
      attn_carver carved = {.base = states + (size_t)i * left};
      attn_tile *tiles = shape->splits > 1 ? attn_softmax_carve_tiles(c, shape, &carved) : w.tiles;
      run_split(&t, &w, tiles, i % shape->splits);
      if (shape->splits == 1) attn_softmax_finish(&t, &w, tiles);
    }
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < (shape->splits > 1 ? all : 0); i++) {
      softmax_task t = unit_task(s, call, i);
      attn_tile *tiles = (attn_tile *)(void *)(states + (size_t)(i * shape->splits) * left);
      for (int64_t split = 1; split < shape->splits; split++)
        for (int64_t j = 0; j * shape->kernels->lanes < softmax_rows(&t); j++)
          shape->kernels->merge(&tiles[j], (attn_tile *)(void *)((char *)tiles + (size_t)split * left) + j,
                                c->problem->d_v);
      attn_softmax_finish(&t, &w, tiles);
    }
    if (shape->kernels->leave) shape->kernels->leave();
    attn_float_leave(&outer);
  }
  return ATTN_OK;
}

attn_cost attn_softmax_cost(const attn_context *c, double pairs) {
  if (!c) return (attn_cost){0};
  const attn_problem *p = c->problem;
  double all = (double)p->batch * (double)p->heads * pairs;
  return (attn_cost){.mul_add = all * (double)(p->d_qk + p->d_v), .exp = all, .bytes = attn_problem_bytes(p)};
}

/* Roundings of a sum of n products by tile products of 32: 16 within one, one for each. Split, the terms add
 * up to at most 1 + 2^-7 times the products, and the omitted ones to 1.001 u (core/README.md). */
static int64_t product_chain(const attn_tile_kernels *k, int64_t n) {
  int64_t chain = 16 + k->products * attn_ceil_div(n, 32);
  return k->products > 1 ? chain + chain / 64 + 2 : chain;
}

static const char *path_name(const attn_kernels *all, const attn_tile_kernels *k) {
  const attn_products *by = all->products;
  if (!by) return NULL;
  if (k == &by->bf16) return by->emulated ? "bf16-emulated" : "bf16";
  if (k == &by->split) return by->emulated ? "split-emulated" : "split";
  return "fma";
}

attn_rounding attn_softmax_rounding(const attn_softmax *s, const attn_context *c) {
  const attn_tile_kernels *k = s->shape.kernels;
  /* Splits are whole steps, and merging one costs each term what a step does. */
  int64_t steps = attn_ceil_div(s->most_keys, s->shape.blocks.key) + (c->problem->score.sink ? 1 : 0),
          chain = attn_min(s->shape.blocks.key, s->most_keys);
  attn_rounding r = {.unit = attn_numbers[c->problem->dtype].unit,
                     .score = attn_score_chain(c->problem),
                     .value = chain + 2 * steps,
                     .sum = chain + 2 * steps,
                     .block = s->shape.blocks.key,
                     .exp_error = c->kernels->exp_error,
                     .kappa_s = 1,
                     .kappa_d = 1,
                     .map = s->score.map.cap > 0 ? c->kernels->map_error : 0,
                     .path = path_name(c->kernels, k)};
  if (!k->products) return r;
  /* A row may go through tile products or the fp32 kernel, and a step has a part of each. */
  r.score = attn_max(r.score, product_chain(k, c->problem->d_qk));
  r.value = attn_max(chain, product_chain(k, chain)) + 4 * steps;
  r.sum = chain + 4 * steps;
  r.exp_error *= 2;
  r.underflow = k->products > 1 ? 0x1p-123 : 0x1p-125;
  if (k->products == 1) r.operand = r.weight = attn_numbers[ATTN_BF16].unit;
  return r;
}
