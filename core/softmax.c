/* softmax.c - the softmax engine: every tile of queries walks its keys in steps, keeping a running maximum
 * and sum (online softmax; Milakov and Gimelshein 2018, Dao et al. 2022), so that no n x n matrix exists.
 * Work is one task per batch entry, head and tile, each in a fixed order of keys: results do not depend on
 * the number of threads. */
#include "softmax.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#define LOG2E 1.4426950408889634

/* A stretch of a segment inside a step: keys first, first + step, ... stand at positions at, at + 1, ... */
typedef struct piece {
  int64_t first, count, step, at;
  bool partial;
} piece;

/* One thread's workspace. */
typedef struct worker {
  attn_tile *tiles; /* the tile's queries, ATTN_LANES at a time */
  int64_t *keys;    /* of a step */
  uint64_t *mask;
  piece *pieces;
  int64_t piece_count;
  const void **q; /* the tile's rows */
  void **o;
  attn_run *runs; /* [row][max_runs], clipped to the keys that exist */
  int64_t *run_count;
} worker;

static worker carve(const attn_context *c, attn_blocks blocks, int64_t max_runs, attn_carver *carver) {
  const attn_problem *p = c->problem;
  size_t e = attn_dtype_size(p->dtype);
  int64_t subtiles = attn_ceil_div(blocks.query, ATTN_LANES);
  worker w = {.tiles = attn_carve(carver, subtiles, 1, sizeof *w.tiles),
              .keys = attn_carve(carver, blocks.key, 1, sizeof *w.keys),
              .mask = attn_carve(carver, blocks.key, 1, sizeof *w.mask),
              .pieces = attn_carve(carver, blocks.key, 1, sizeof *w.pieces),
              .q = attn_carve(carver, blocks.query, 1, sizeof *w.q),
              .o = attn_carve(carver, blocks.query, 1, sizeof *w.o),
              .runs = attn_carve(carver, blocks.query, max_runs, sizeof *w.runs),
              .run_count = attn_carve(carver, blocks.query, 1, sizeof *w.run_count)};
  void *weights = attn_carve(carver, blocks.key, ATTN_LANES, e);
  for (int64_t t = 0; t < subtiles; t++) {
    attn_tile tile = {.q = attn_carve(carver, p->d_qk, ATTN_LANES, e),
                      .o = attn_carve(carver, p->d_v, ATTN_LANES, e),
                      .weights = weights,
                      .max = attn_carve(carver, ATTN_LANES, 1, e),
                      .sum = attn_carve(carver, ATTN_LANES, 1, e)};
    if (carver->base) w.tiles[t] = tile;
  }
  return w;
}

size_t attn_softmax_work_size(const attn_context *c, attn_blocks blocks, int64_t max_runs) {
  attn_carver one = {0};
  carve(c, attn_softmax_blocks(c, blocks), max_runs, &one);
  return attn_size_times(one.used, (size_t)c->threads);
}

/* The lanes of subtile `sub` that see each key of the step; returns how many lanes see any, all: every lane
 * every key. */
static uint64_t build_mask(const worker *w, const softmax_tile *tile, int64_t sub, int64_t max_runs,
                           int64_t count, bool *all) {
  int64_t row0 = sub * ATTN_LANES, lanes = attn_min(tile->row_count - row0, ATTN_LANES);
  uint64_t used = lanes == 64 ? UINT64_MAX : (UINT64_C(1) << lanes) - 1;
  for (int64_t i = 0; i < w->piece_count; i++) {
    const piece *s = &w->pieces[i];
    for (int64_t j = 0; j < s->count; j++) w->mask[s->at + j] = s->partial ? 0 : used;
    if (!s->partial) continue;
    for (int64_t lane = 0; lane < lanes; lane++) {
      const attn_run *run = w->runs + (row0 + lane) * max_runs;
      for (int64_t r = 0; r < w->run_count[row0 + lane]; r++, run++) {
        if (run->step != s->step || (run->first - s->first) % s->step) continue;
        int64_t offset = (run->first - s->first) / s->step;
        int64_t from = attn_max(offset, 0), to = attn_min(offset + run->count, s->count);
        for (int64_t j = from; j < to; j++) w->mask[s->at + j] |= UINT64_C(1) << lane;
      }
    }
  }
  uint64_t any = 0, every = used;
  for (int64_t j = 0; j < count; j++) {
    any |= w->mask[j];
    every &= w->mask[j];
  }
  *all = every == used;
  return any;
}

typedef struct task {
  const attn_softmax *s;
  const attn_call *call;
  const softmax_tile *tile;
  const void *k, *v; /* of the head */
  int64_t keys;      /* that exist */
} task;

/* Lets every subtile take the keys gathered in the worker. */
static void take_step(const task *t, worker *w, int64_t count, bool partial) {
  const attn_context *c = t->call->context;
  const attn_problem *p = c->problem;
  attn_step step = {t->k, t->v, p->k.row, p->v.row, w->keys, count, NULL, true};
  if (partial) {
    for (int64_t i = 0; i < w->piece_count && step.v_finite; i++)
      step.v_finite = attn_all_finite(attn_at(t->v, w->pieces[i].first * p->v.row, p->dtype),
                                      w->pieces[i].step * p->v.row, w->pieces[i].count, p->d_v, p->dtype);
  }
  for (int64_t sub = 0; sub * ATTN_LANES < t->tile->row_count; sub++) {
    uint64_t any = UINT64_MAX;
    bool all = true;
    if (partial) any = build_mask(w, t->tile, sub, t->s->dense ? 1 : t->s->pattern.max_runs, count, &all);
    if (!any) continue;
    step.mask = all ? NULL : w->mask;
    w->tiles[sub].seen |= any;
    c->kernels->tile.step(&w->tiles[sub], &step, p->d_qk, p->d_v, p->scale * LOG2E);
  }
}

static void clip_runs(const task *t, worker *w, int64_t head) {
  const attn_softmax *s = t->s;
  int64_t max_runs = s->dense ? 1 : s->pattern.max_runs;
  for (int64_t r = 0; r < t->tile->row_count; r++) {
    attn_run *runs = w->runs + r * max_runs;
    int64_t count = attn_pattern_row(s->dense ? NULL : &s->pattern, t->call->context->problem, head,
                                     t->tile->rows[r], runs);
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) {
      if (runs[i].first >= t->keys) continue;
      runs[kept] = runs[i];
      runs[kept].count = attn_min(runs[i].count, (t->keys - runs[i].first - 1) / runs[i].step + 1);
      kept++;
    }
    w->run_count[r] = kept;
  }
}

static void run_tile(const task *t, worker *w, int64_t head, const void *q, void *o) {
  const attn_context *c = t->call->context;
  const attn_problem *p = c->problem;
  const softmax_tile *tile = t->tile;
  for (int64_t r = 0; r < tile->row_count; r++) {
    w->q[r] = attn_at(q, tile->rows[r] * p->q.row, p->dtype);
    w->o[r] = attn_at(o, tile->rows[r] * p->o.row, p->dtype);
  }
  for (int64_t sub = 0; sub * ATTN_LANES < tile->row_count; sub++) {
    w->tiles[sub].rows = attn_min(tile->row_count - sub * ATTN_LANES, ATTN_LANES);
    c->kernels->tile.begin(&w->tiles[sub], w->q + sub * ATTN_LANES, p->d_qk, p->d_v);
  }
  bool runs_ready = false, partial = false;
  int64_t count = 0;
  w->piece_count = 0;
  for (int64_t i = 0; i < tile->segment_count; i++) {
    softmax_segment seg = tile->segments[i];
    if (seg.first >= t->keys) continue;
    seg.count = attn_min(seg.count, (t->keys - seg.first - 1) / seg.step + 1);
    if (seg.partial && !runs_ready) {
      clip_runs(t, w, head);
      runs_ready = true;
    }
    while (seg.count) {
      int64_t take = attn_min(seg.count, t->s->blocks.key - count);
      w->pieces[w->piece_count++] = (piece){seg.first, take, seg.step, count, seg.partial};
      for (int64_t j = 0; j < take; j++) w->keys[count++] = seg.first + j * seg.step;
      seg.first += take * seg.step;
      seg.count -= take;
      partial |= seg.partial;
      if (count == t->s->blocks.key) {
        take_step(t, w, count, partial);
        count = w->piece_count = 0;
        partial = false;
      }
    }
  }
  if (count) take_step(t, w, count, partial);
  for (int64_t sub = 0; sub * ATTN_LANES < tile->row_count; sub++)
    c->kernels->tile.end(&w->tiles[sub], w->o + sub * ATTN_LANES, p->d_v);
}

attn_status attn_softmax_execute(const attn_softmax *s, const attn_call *call) {
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  int64_t group = p->heads / p->kv_heads, tasks = p->batch * p->heads * s->tile_count;
  int64_t max_runs = s->dense ? 1 : s->pattern.max_runs;
  size_t share = attn_softmax_work_size(c, s->blocks, max_runs) / (size_t)c->threads;
#pragma omp parallel num_threads(c->threads)
  {
    fenv_t outer;
    attn_float_enter(&outer);
    attn_carver carver = {.base = (char *)call->work + (size_t)omp_get_thread_num() * share};
    worker w = carve(c, s->blocks, max_runs, &carver);
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < tasks; i++) {
      int64_t tile = i % s->tile_count, head = i / s->tile_count % p->heads, b = i / s->tile_count / p->heads;
      task t = {.s = s,
                .call = call,
                .tile = &s->tiles[(s->pattern_heads > 1 ? head : 0) * s->tile_count + tile],
                .k = attn_rows(call->k, p->k, b, head / group, p->dtype),
                .v = attn_rows(call->v, p->v, b, head / group, p->dtype),
                .keys = attn_call_keys(call, b)};
      run_tile(&t, &w, head, attn_rows(call->q, p->q, b, head, p->dtype),
               (void *)(uintptr_t)attn_rows(call->o, p->o, b, head, p->dtype));
    }
    attn_float_leave(&outer);
  }
  return ATTN_OK;
}

attn_cost attn_softmax_cost(const attn_context *c, double pairs) {
  const attn_problem *p = c->problem;
  double all = (double)p->batch * (double)p->heads * pairs, e = (double)attn_dtype_size(p->dtype);
  double q = (double)(p->batch * p->heads * p->n_q), kv = (double)(p->batch * p->kv_heads * p->n_kv);
  return (attn_cost){.mul_add = all * (double)(p->d_qk + p->d_v),
                     .exp = all,
                     .bytes = e * (q + kv) * (double)(p->d_qk + p->d_v)};
}

attn_rounding attn_softmax_rounding(const attn_softmax *s, const attn_context *c) {
  int64_t steps = attn_ceil_div(s->most_keys, s->blocks.key),
          chain = attn_min(s->blocks.key, s->most_keys) + 2 * steps;
  return (attn_rounding){.unit = c->problem->dtype == ATTN_F64 ? 0x1p-53 : 0x1p-24,
                         .score = attn_score_chain(c->problem),
                         .value = chain,
                         .sum = chain,
                         .block = s->blocks.key,
                         .exp_error = c->kernels->exp_error,
                         .kappa_s = 1,
                         .kappa_d = 1};
}
