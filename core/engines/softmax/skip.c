/* skip.c - steps of keys that queries pass over (BLASST, arXiv:2512.12087).
 *
 * ATTN_TILE queries of a head walk their keys step by step. With M_i the largest score of query i so far,
 * they pass over a step whose scores are all below: s_ij < M_i + ln(skip) for every query i of them and every
 * key j of the step that i sees. M only grows by keys that are taken, so that a key passed over has less than
 * `skip` times the weight of the heaviest key taken, and n of them hold less than n skip / (1 + n skip) of a
 * row's mass.
 *
 * What is visited depends on the scores as they are computed here, so that who asks for it gets a walk of the
 * same steps by the same kernels. */
#include "core/engines/softmax/softmax.h"

#include <math.h>
#include <stdlib.h>

attn_status attn_softmax_skip_check(const attn_context *c, const attn_pattern *pattern, attn_tiling tiling) {
  const char *name = c->variant->name;
  const int64_t queries = tiling.blocks.query;
  if (!(tiling.skip >= 0 && tiling.skip <= 1))
    return attn_fail(ATTN_EINVAL, "variant %s: tiling.skip = %g, expected 0 ... 1", name, tiling.skip);
  if ((unsigned)tiling.order > ATTN_ORDER_SINK_FIRST)
    return attn_fail(ATTN_EINVAL, "variant %s: tiling.order = %d, no such order", name, (int)tiling.order);
  if (!(tiling.skip > 0)) return ATTN_OK;
  if (tiling.path > ATTN_PATH_FMA)
    return attn_fail(ATTN_EINVAL, "variant %s: steps are passed over with path=fma alone", name);
  if (queries > ATTN_TILE && queries % ATTN_TILE)
    return attn_fail(
        ATTN_EINVAL,
        "variant %s: tiles of %lld queries, expected at most %d or a multiple of it where steps are "
        "passed over",
        name, (long long)queries, ATTN_TILE);
  if (pattern || c->problem->mask.kind == ATTN_MASK_PATTERN)
    return attn_fail(ATTN_EUNSUPPORTED, "variant %s: a %s is not supported where steps are passed over", name,
                     pattern ? "pattern" : "user's graph as a mask");
  return ATTN_OK;
}

softmax_shape attn_softmax_skip_shape(const attn_context *c, attn_tiling tiling) {
  const attn_problem *p = c->problem;
  int64_t queries = tiling.blocks.query ? tiling.blocks.query : c->blocks.query;
  if (queries > ATTN_TILE) queries -= queries % ATTN_TILE;
  softmax_shape s = {.heads = 1, .splits = 1, .kernels = &c->kernels->tile};
  s.blocks.query = s.rows = attn_min(queries, p->n_q);
  s.seen = s.blocks.key = attn_min(tiling.blocks.key ? tiling.blocks.key : c->blocks.key, p->n_kv);
  s.split = attn_ceil_div(p->n_kv, s.blocks.key) * s.blocks.key;
  return s;
}

/* ---- walking ----------------------------------------------------------------------------------------- */

/* The step that comes at this place, if the order begins at step `start`. */
static int64_t step_at(attn_order order, int64_t start, int64_t place) {
  if (place > start) return place;
  return order == ATTN_ORDER_DIAGONAL ? start - place : place ? start - place + 1 : 0;
}

void attn_softmax_walk_above(const softmax_task *t, softmax_worker *w, attn_tile *tiles) {
  const softmax_tile *tile = t->tile;
  const attn_problem *p = &t->problem;
  const int64_t keys = t->s->shape.blocks.key, last = tile->rows[tile->row_count - 1];
  int64_t first, end, other;
  attn_visible_span(p, tile->rows[0], &first, &other);
  attn_visible_span(p, last, &other, &end);
  const int64_t steps = attn_ceil_div(end - first, keys), begin = t->placed ? first : 0;
  if (t->s->skip.order == ATTN_ORDER_FORWARD || !steps) {
    attn_softmax_walk(t, w, tiles, 0, INT64_MAX);
    return;
  }
  const int64_t own = attn_key_at(p, attn_problem_position(p, last)) - first,
                start = attn_max(attn_min(own / keys, steps - 1), 0);
  for (int64_t place = 0; place < steps; place++)
    attn_softmax_walk(t, w, tiles, begin + step_at(t->s->skip.order, start, place) * keys, keys);
}

static void record(softmax_visits *x, const attn_step *step, const int64_t *keys) {
  for (int64_t j = 0; j < step->count; j++) {
    if (step->mask && !step->mask[j]) continue;
    attn_run *last = x->count ? &x->runs[x->count - 1] : NULL;
    if (last && last->first + last->count == keys[j])
      last->count++;
    else
      x->runs[x->count++] = (attn_run){keys[j], 1, 1};
  }
}

void attn_softmax_step_above(const softmax_task *t, softmax_worker *w, attn_tile *tiles, int64_t i,
                             const attn_step *step) {
  const attn_problem *p = t->call->context->problem;
  const bool taken = t->s->shape.kernels->step_above(&tiles[i], step, p->d_qk, p->d_v, p->scale * ATTN_LOG2E,
                                                     t->s->skip.margin);
  if (taken && w->visits && w->visits->tile == i) record(w->visits, step, w->keys + step->first);
}

/* ---- what is visited --------------------------------------------------------------------------------- */

static int by_first(const void *a_, const void *b_) {
  const attn_run *a = a_, *b = b_;
  return (a->first > b->first) - (a->first < b->first);
}

/* Runs in ascending order, neighbours joined. Returns how many. */
static int64_t settle(attn_run *runs, int64_t count) {
  int64_t kept = 0;
  qsort(runs, (size_t)count, sizeof *runs, by_first);
  for (int64_t r = 0; r < count; r++) {
    if (kept && runs[kept - 1].first + runs[kept - 1].count == runs[r].first)
      runs[kept - 1].count += runs[r].count;
    else
      runs[kept++] = runs[r];
  }
  return kept;
}

static int64_t find_tile(const attn_softmax *s, int64_t row) {
  for (int64_t t = 0; t < s->tile_count; t++)
    if (s->tiles[t].rows[0] <= row && row < s->tiles[t].rows[0] + s->tiles[t].row_count) return t;
  return 0;
}

static void visit(const void *state, const attn_call *call, const attn_block *block, const void *prepared,
                  attn_picks *picks, void *scratch) {
  const attn_softmax *s = state;
  attn_call asked = *call;
  attn_carver carver = {.base = scratch};
  (void)prepared;
  asked.o = scratch; /* has an address; nothing is written to it */
  softmax_worker w = attn_softmax_carve(call->context, &s->shape, s->max_runs, &carver);
  const softmax_task t = attn_softmax_task(s, &asked, block->batch, block->head, find_tile(s, block->first));
  softmax_visits visits = {.tile = (block->first - t.tile->rows[0]) / s->shape.kernels->lanes,
                           .runs = picks->runs};
  w.visits = &visits;
  attn_softmax_begin(&t, &w, w.tiles);
  attn_softmax_sink(&t, w.tiles);
  attn_softmax_walk_above(&t, &w, w.tiles);
  picks->counts[0] = settle(picks->runs, visits.count);
}

static size_t visit_bytes(const attn_softmax *s, const attn_context *c) {
  attn_carver counter = {0};
  attn_softmax_carve(c, &s->shape, s->max_runs, &counter);
  return counter.used;
}

void attn_softmax_skip(const attn_context *c, attn_tiling tiling, attn_softmax *s) {
  const attn_problem *p = c->problem;
  if (!(tiling.skip > 0)) return;
  s->skip = (softmax_skip){tiling.skip, log2(tiling.skip), tiling.order};
  /* A bias may hide every other key. */
  const int64_t steps = attn_ceil_div(p->n_kv, s->shape.blocks.key) + 1,
                holes = p->score.dense.at ? p->n_kv / 2 + 1 : 0;
  s->visited = (attn_selector){.state = s,
                               .share = ATTN_SHARE_TILE,
                               .rows = attn_min(s->shape.blocks.query, ATTN_TILE),
                               .max_runs = steps + holes,
                               .scratch_bytes = visit_bytes(s, c),
                               .select = visit,
                               .least = tiling.skip};
}
