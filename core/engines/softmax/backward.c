/* backward.c - the gradients of the softmax engine (attn_gradients.h): every tile of queries walks its keys
 * once more, as it did forward, by the same segments and masks.
 *
 * Weights are recomputed from lse, step by step, so that no n x n matrix exists (Dao et al. 2022). Five
 * products a step: S^T = K Q^T, dP^T = V dO^T, dV += P^T dO, dK += dS^T Q, dQ += dS K. A tile keeps its dQ;
 * dK and dV are those of a unit of work, a slice of the tiles of a kv head, which are added in order
 * (back_sums.c): the slices follow from the problem alone, and so do the bits.
 *
 * A zero weight does not hide what it multiplies if that is infinite or NaN. Such rows of Q, dO and K are
 * zeros in the products, and then taken pair by pair where they are seen: other pairs keep their bits. */
#include "core/engines/softmax/backward.h"

#include <math.h>
#include <omp.h>
#include <string.h>

/* Slices that give few kv heads enough work for many threads, as far as their sums stay small: beside those
 * that the caller gives. Keys of a block whose lanes are looked up together. */
enum { BACK_UNITS = 16, BACK_KEYS = 12 };
static const double back_bytes = 64 << 20;

int64_t attn_softmax_back_slices(const attn_problem *p, int64_t items) {
  const int64_t lines = p->batch * p->kv_heads;
  const double bytes = (double)lines * (double)p->n_kv * (double)(p->d_qk + p->d_v) *
                       (double)attn_dtype_size(p->dtype),
               q = (double)p->batch * (double)p->heads * (double)p->n_q * (double)p->d_qk *
                   (double)attn_dtype_size(p->dtype),
               room = (q > back_bytes / 2 ? 2 * q : back_bytes) / bytes;
  const int64_t wanted = attn_min(attn_ceil_div(BACK_UNITS, lines), items);
  return room < (double)(wanted - 1) ? 1 + (int64_t)room : wanted;
}

softmax_back attn_softmax_back_carve(const attn_context *c, const softmax_shape *s, attn_carver *carver) {
  const attn_problem *p = c->problem;
  const size_t e = attn_dtype_size(p->dtype);
  const int64_t qk = attn_padded(p->d_qk, p->dtype), v = attn_padded(p->d_v, p->dtype),
                groups = attn_ceil_div(s->rows, ATTN_LANES), rows = groups * ATTN_LANES, keys = s->blocks.key;
  return (softmax_back){.qk = qk,
                        .v = v,
                        .q = attn_carve(carver, rows, qk, e),
                        .d_o = attn_carve(carver, rows, v, e),
                        .q_columns = attn_carve(carver, groups * p->d_qk, ATTN_LANES, e),
                        .d_o_columns = attn_carve(carver, groups * p->d_v, ATTN_LANES, e),
                        .dq = attn_carve(carver, rows, qk, e),
                        .lse = attn_carve(carver, rows, 1, e),
                        .rest = attn_carve(carver, rows, 1, e),
                        .delta = attn_carve(carver, rows, 1, e),
                        .odd_q = attn_carve(carver, groups, 1, sizeof(uint64_t)),
                        .odd_d_o = attn_carve(carver, groups, 1, sizeof(uint64_t)),
                        .scores = attn_carve(carver, keys, ATTN_LANES, e),
                        .gradients = attn_carve(carver, keys, ATTN_LANES, e),
                        .k = attn_carve(carver, keys, qk, e),
                        .sums = attn_carve(carver, keys, attn_max(qk, v), e),
                        .products = attn_carve(carver, keys, ATTN_LANES, e)};
}

/* -- a tile of queries -- */

static int64_t head_of(const softmax_task *t, int64_t at) { return t->head + at / t->tile->row_count; }
static int64_t query_of(const softmax_task *t, int64_t at) { return t->tile->rows[at % t->tile->row_count]; }

static const void *d_o_row(const softmax_task *t, const softmax_back *b, int64_t at) {
  const attn_dtype dtype = t->call->context->problem->dtype;
  return attn_row(b->of->d_o, b->of->d_o_at, t->batch, head_of(t, at), query_of(t, at), dtype);
}

/* D = d_o.o - dlse. */
static double delta_of(const softmax_task *t, const softmax_back *b, int64_t at, const void *d_o) {
  const attn_problem *p = t->call->context->problem;
  const int64_t head = head_of(t, at), i = query_of(t, at);
  const attn_dtype stored = attn_stored(p->o, p->dtype);
  const void *o = attn_row(t->call->o, p->o, t->batch, head, i, p->dtype);
  double sum = stored == p->dtype ? t->call->context->kernels->inner_row(p->d_v, d_o, o) : 0;
  for (int64_t l = 0; stored != p->dtype && l < p->d_v; l++)
    sum += attn_get(d_o, l, p->dtype) * attn_get(o, l, stored);
  return b->of->dlse ? sum - b->of->dlse[(t->batch * p->heads + head) * p->n_q + i] : sum;
}

/* A query that sees no key has the weight 2^-Inf of each. */
static double lse_of(const softmax_task *t, int64_t at) {
  const attn_problem *p = t->call->context->problem;
  const double lse = t->call->lse[(t->batch * p->heads + head_of(t, at)) * p->n_q + query_of(t, at)];
  return lse == -(double)INFINITY ? (double)INFINITY : lse * ATTN_LOG2E;
}

/* Rows as operands of products, where they are zeros if they are not finite; returns which are not. Between
 * them are zeros. */
static uint64_t take_operands(const attn_kernels *k, int64_t rows, int64_t d, void *x, int64_t row) {
  uint64_t odd = 0;
  if (k->finite((rows - 1) * row + d, x)) return 0;
  for (int64_t i = 0; i < rows; i++) {
    void *at = attn_at(x, i * row, k->dtype);
    if (k->finite(d, at)) continue;
    memset(at, 0, attn_row_bytes(d, k->dtype));
    odd |= UINT64_C(1) << i;
  }
  return odd;
}

void attn_softmax_back_begin(const softmax_task *t, softmax_worker *w) {
  softmax_back *b = w->back;
  const attn_problem *p = t->call->context->problem;
  const attn_kernels *k = t->call->context->kernels;
  const attn_dtype dtype = p->dtype;
  for (int64_t first = 0, rows; first < softmax_rows(t); first += ATTN_LANES) {
    const int64_t g = first / ATTN_LANES;
    rows = attn_min(softmax_rows(t) - first, ATTN_LANES);
    void *q = attn_at(b->q, first * b->qk, dtype), *d_o = attn_at(b->d_o, first * b->v, dtype),
         *q_columns = attn_at(b->q_columns, first * p->d_qk, dtype),
         *d_o_columns = attn_at(b->d_o_columns, first * p->d_v, dtype);
    memset(q, 0, attn_row_bytes(ATTN_LANES * b->qk, dtype));
    memset(d_o, 0, attn_row_bytes(ATTN_LANES * b->v, dtype));
    memset(attn_at(b->dq, first * b->qk, dtype), 0, attn_row_bytes(ATTN_LANES * b->qk, dtype));
    for (int64_t lane = 0; lane < ATTN_LANES; lane++) {
      const int64_t at = first + lane;
      const bool used = lane < rows;
      if (used) {
        attn_load_row(k, attn_stored(p->q, dtype), p->d_qk, w->q[at], attn_at(q, lane * b->qk, dtype));
        memcpy(attn_at(d_o, lane * b->v, dtype), d_o_row(t, b, at), attn_row_bytes(p->d_v, dtype));
      }
      const double lse = used ? lse_of(t, at) : 0;
      attn_set(b->lse, at, dtype, lse);
      const double rest = lse - attn_get(b->lse, at, dtype);
      attn_set(b->rest, at, dtype, isfinite(rest) ? rest : 0);
      attn_set(b->delta, at, dtype, used ? delta_of(t, b, at, attn_at(d_o, lane * b->v, dtype)) : 0);
    }
    k->transpose(ATTN_LANES, p->d_qk, q, b->qk, q_columns, ATTN_LANES);
    k->transpose(ATTN_LANES, p->d_v, d_o, b->v, d_o_columns, ATTN_LANES);
    b->odd_q[g] = take_operands(k, rows, p->d_qk, q, b->qk);
    b->odd_d_o[g] = take_operands(k, rows, p->d_v, d_o, b->v);
  }
}

/* -- a step -- */

/* Keys of a step that stand at equal distances: `step` from one to the next; 0: they do not. */
static int64_t distance_of(const int64_t *keys, int64_t count) {
  const int64_t step = count > 1 ? keys[1] - keys[0] : 1;
  for (int64_t j = 2; j < count; j++)
    if (keys[j] - keys[j - 1] != step) return 0;
  return step;
}

/* The step's rows of K or V as a left operand: in place where they stand at equal distances. */
static attn_matrix left_rows(const attn_kernels *k, const attn_step *step, int64_t distance, const void *x,
                             int64_t row, int64_t d, void *room, int64_t room_row) {
  if (distance) return (attn_matrix){attn_at(x, step->keys[0] * row, k->dtype), distance * row, 1};
  for (int64_t j = 0; j < step->count; j++)
    memcpy(attn_at(room, j * room_row, k->dtype), attn_at(x, step->keys[j] * row, k->dtype),
           attn_row_bytes(d, k->dtype));
  return (attn_matrix){room, room_row, 1};
}

/* Lanes of a group, and keys of a step that they see: a rectangle of pairs. */
typedef struct lane_range {
  int64_t group, first, rows;
} lane_range;

/* to[key] += the rows of x^T y, x [keys][ATTN_LANES] of a step, y [rows]. */
static void add_rows(const attn_kernels *k, const int64_t *keys, int64_t count, int64_t distance,
                     int64_t rows, const void *x, const void *y, int64_t y_row, int64_t d, void *to,
                     void *room, int64_t room_row) {
  const attn_matrix a = {x, ATTN_LANES, 1};
  if (distance) {
    k->product(count, d, rows, a, y, y_row, true, attn_at(to, keys[0] * d, k->dtype), distance * d);
    return;
  }
  k->product(count, d, rows, a, y, y_row, false, room, room_row);
  for (int64_t j = 0; j < count; j++) {
    void *at = attn_at(to, keys[j] * d, k->dtype);
    k->combine_rows(d, 1, at, 1, attn_at(room, j * room_row, k->dtype), at);
  }
}

/* to += weight x, x of another type. */
static void add_scaled(int64_t d, double weight, const void *x, attn_dtype stored, void *to, attn_dtype t) {
  for (int64_t l = 0; l < d; l++) attn_set(to, l, t, attn_get(to, l, t) + weight * attn_get(x, l, stored));
}

/* What rows that are not finite add to the keys that their queries see. */
static void add_odd(const softmax_task *t, const softmax_worker *w, int64_t group, const attn_step *step,
                    const int64_t *keys) {
  const softmax_back *b = w->back;
  const attn_problem *p = t->call->context->problem;
  for (uint64_t left = b->odd_q[group] | b->odd_d_o[group]; left; left &= left - 1) {
    const int64_t lane = __builtin_ctzll(left), at = group * ATTN_LANES + lane;
    for (int64_t j = 0; j < step->count; j++) {
      if (step->mask && !(step->mask[j] >> lane & 1)) continue;
      const double weight = attn_get(b->scores, j * ATTN_LANES + lane, p->dtype),
                   gradient = attn_get(b->gradients, j * ATTN_LANES + lane, p->dtype);
      if (b->odd_q[group] >> lane & 1 && b->dk)
        add_scaled(p->d_qk, gradient, w->q[at], attn_stored(p->q, p->dtype),
                   attn_at(b->dk, keys[j] * p->d_qk, p->dtype), p->dtype);
      if (b->odd_d_o[group] >> lane & 1 && b->dv)
        add_scaled(p->d_v, weight, d_o_row(t, b, at), p->dtype, attn_at(b->dv, keys[j] * p->d_v, p->dtype),
                   p->dtype);
    }
  }
}

/* Are the step's rows of K finite? row: from one to the next; 0: they stand anywhere. */
static bool keys_finite(const attn_kernels *k, const attn_step *step, int64_t row, int64_t d) {
  bool finite = true;
  if (row == d) return k->finite(step->count * d, attn_at(step->k, step->keys[0] * step->k_row, k->dtype));
  for (int64_t j = 0; j < step->count && finite; j++)
    finite = k->finite(d, attn_at(step->k, step->keys[j] * step->k_row, k->dtype));
  return finite;
}

/* dQ += dS K. Rows of K that not all queries see are zeros where they are not finite, and taken by those that
 * see them. */
static void add_queries(const softmax_task *t, const softmax_worker *w, lane_range at, const attn_step *step,
                        int64_t distance) {
  const softmax_back *b = w->back;
  const attn_problem *p = t->call->context->problem;
  const attn_kernels *k = t->call->context->kernels;
  const attn_matrix a = {attn_at(b->gradients, at.first, p->dtype), 1, ATTN_LANES};
  void *dq = attn_at(b->dq, (at.group * ATTN_LANES + at.first) * b->qk, p->dtype);
  const bool odd = step->mask && !keys_finite(k, step, distance * step->k_row, p->d_qk);
  if (!odd && distance && attn_row_bytes(p->d_qk, p->dtype) % 64 == 0) {
    k->product(at.rows, p->d_qk, step->count, a, attn_at(step->k, step->keys[0] * step->k_row, p->dtype),
               distance * step->k_row, true, dq, b->qk);
    return;
  }
  for (int64_t j = 0; j < step->count; j++) {
    void *to = attn_at(b->k, j * b->qk, p->dtype);
    memcpy(to, attn_at(step->k, step->keys[j] * step->k_row, p->dtype), attn_row_bytes(p->d_qk, p->dtype));
    const bool ignored = odd && take_operands(k, 1, p->d_qk, to, b->qk);
    for (int64_t lane = at.first; ignored && lane < at.first + at.rows; lane++)
      if (step->mask[j] >> lane & 1)
        add_scaled(p->d_qk, attn_get(b->gradients, j * ATTN_LANES + lane, p->dtype),
                   attn_at(step->k, step->keys[j] * step->k_row, p->dtype), p->dtype,
                   attn_at(dq, (lane - at.first) * b->qk, p->dtype), p->dtype);
  }
  k->product(at.rows, p->d_qk, step->count, a, b->k, b->qk, true, dq, b->qk);
}

/* Keys of a step, for the lanes of a range. */
static void take_keys(const softmax_task *t, softmax_worker *w, lane_range at, const attn_step *step) {
  softmax_back *b = w->back;
  const attn_problem *p = t->call->context->problem;
  const attn_kernels *k = t->call->context->kernels;
  const attn_dtype dtype = p->dtype;
  const int64_t group = at.group * ATTN_LANES, row = group + at.first,
                line = 64 / (int64_t)attn_dtype_size(dtype), lanes = attn_ceil_div(at.rows, line) * line,
                *keys = w->keys + step->first, distance = distance_of(keys, step->count),
                read = step->keys == keys ? distance : distance_of(step->keys, step->count);
  void *s = attn_at(b->scores, at.first, dtype), *ds = attn_at(b->gradients, at.first, dtype);
  const attn_matrix k_rows = left_rows(k, step, read, step->k, step->k_row, p->d_qk, b->k, b->qk);
  k->product(step->count, lanes, p->d_qk, k_rows, attn_at(b->q_columns, group * p->d_qk + at.first, dtype),
             ATTN_LANES, false, s, ATTN_LANES);
  const attn_matrix v_rows = left_rows(k, step, read, step->v, step->v_row, p->d_v, b->sums, b->v);
  k->product(step->count, lanes, p->d_v, v_rows, attn_at(b->d_o_columns, group * p->d_v + at.first, dtype),
             ATTN_LANES, false, ds, ATTN_LANES);
  if (b->biases) memcpy(b->products, b->gradients, attn_row_bytes(step->count * ATTN_LANES, dtype));
  k->step_back(step, at.first, lanes, p->scale * ATTN_LOG2E, attn_at(b->lse, group, dtype),
               attn_at(b->rest, group, dtype), attn_at(b->delta, group, dtype), b->scores, b->gradients);
  if (b->biases) {
    attn_softmax_back_biases(t, b, step, keys, at.group, at.first, at.rows);
    return;
  }
  attn_softmax_sums_meet(b, p, keys, step->count);
  if (b->dv)
    add_rows(k, keys, step->count, distance, at.rows, s, attn_at(b->d_o, row * b->v, dtype), b->v, p->d_v,
             b->dv, b->sums, b->v);
  if (b->dk)
    add_rows(k, keys, step->count, distance, at.rows, ds, attn_at(b->q, row * b->qk, dtype), b->qk, p->d_qk,
             b->dk, b->sums, b->qk);
  add_odd(t, w, at.group, step, keys);
  if (b->of->dq) add_queries(t, w, at, step, read);
}

/* The lanes that see some of a step's keys from ... end - 1, in whole lines; no rows: none does. */
static lane_range lanes_of(const softmax_task *t, int64_t group, const attn_step *step, int64_t from,
                           int64_t end) {
  const int64_t line = 64 / (int64_t)attn_dtype_size(t->call->context->problem->dtype);
  uint64_t any = 0;
  for (int64_t j = from; j < end; j++) any |= step->mask[j];
  if (!any) return (lane_range){group, 0, 0};
  const int64_t first = __builtin_ctzll(any) / line * line;
  return (lane_range){group, first, ATTN_LANES - __builtin_clzll(any) - first};
}

/* Where not all lanes see all keys, blocks of keys are taken for the lanes that see some of them. */
void attn_softmax_back_step(const softmax_task *t, softmax_worker *w, int64_t group, const attn_step *step) {
  const int64_t rows = attn_min(softmax_rows(t) - group * ATTN_LANES, ATTN_LANES);
  if (!step->mask) {
    take_keys(t, w, (lane_range){group, 0, rows}, step);
    return;
  }
  for (int64_t from = 0, end; from < step->count; from = end) {
    end = attn_min(from + BACK_KEYS, step->count);
    const lane_range at = lanes_of(t, group, step, from, end);
    while (end < step->count && at.rows) { /* blocks alike are taken together */
      const lane_range next = lanes_of(t, group, step, end, attn_min(end + BACK_KEYS, step->count));
      if (next.first != at.first || next.rows != at.rows) break;
      end = attn_min(end + BACK_KEYS, step->count);
    }
    attn_step part = *step;
    part.first += from;
    part.keys += from;
    part.count = end - from;
    part.mask += from;
    if (part.bias) part.bias += from;
    if (at.rows) take_keys(t, w, at, &part);
  }
}

void attn_softmax_back_finish(const softmax_task *t, const softmax_worker *w) {
  const softmax_back *b = w->back;
  const attn_problem *p = t->call->context->problem;
  for (int64_t at = 0; b->of->dq && !b->biases && at < softmax_rows(t); at++) {
    const int64_t row = (t->batch * p->heads + head_of(t, at)) * p->n_q + query_of(t, at);
    t->call->context->kernels->scale_row(p->d_qk, p->scale, attn_at(b->dq, at * b->qk, p->dtype),
                                         attn_at(b->of->dq, row * p->d_qk, p->dtype));
  }
}

/* -- all of them -- */

/* dsink = -sum exp(sink - lse) D over the queries of a head. */
void attn_softmax_sink_back(const attn_call *call, const attn_gradients *g) {
  const attn_problem *p = call->context->problem;
  for (int64_t h = 0; g->dsink && h < p->heads; h++) {
    double sum = 0;
    for (int64_t row = 0; p->score.sink && row < p->batch * p->n_q; row++) {
      const int64_t i = row % p->n_q, batch = row / p->n_q;
      const softmax_tile tile = {.rows = &i, .row_count = 1};
      const softmax_task t = {.call = call, .tile = &tile, .batch = batch, .head = h, .heads = 1};
      const softmax_back b = {.of = g};
      const double lse = call->lse[(batch * p->heads + h) * p->n_q + i];
      sum -= exp(p->score.sink[h] - lse) * delta_of(&t, &b, 0, d_o_row(&t, &b, 0));
    }
    g->dsink[h] = sum;
  }
}

static int64_t items_of(const attn_problem *p, const softmax_shape *shape, int64_t tiles) {
  return attn_ceil_div(p->heads / p->kv_heads, shape->heads) * tiles;
}

/* Tiles of queries as the plan makes them: as many as their rows fill, or more where rows are grouped. */
static int64_t slices_of(const attn_problem *p, const softmax_shape *shape) {
  return attn_softmax_back_slices(p, items_of(p, shape, attn_ceil_div(p->n_q, shape->blocks.query)));
}

attn_status attn_softmax_back_check(const attn_context *c, attn_tiling tiling) {
  const char *name = c->variant->name;
  if (!(c->variant->caps & ATTN_CAP_LSE))
    return attn_fail(ATTN_EUNSUPPORTED,
                     "variant %s: no gradient without the log-sum-exp (ATTN_CAP_LSE), from which weights are "
                     "recomputed",
                     name);
  if (tiling.skip > 0)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "variant %s: no gradient where steps are passed over: which ones is not kept", name);
  return ATTN_OK;
}

size_t attn_softmax_back_size(const attn_context *c, const attn_pattern *pattern, attn_tiling tiling) {
  const attn_problem *p = c->problem;
  attn_pattern outline;
  pattern = attn_softmax_outline(p, pattern, &outline) ? &outline : NULL;
  const softmax_shape shape = attn_softmax_shape(c, pattern, tiling);
  attn_carver one = attn_carver_count(c), sums = {0};
  attn_softmax_carve(c, &shape, pattern ? pattern->max_runs : 1, &one);
  attn_softmax_back_carve(c, &shape, &one);
  attn_softmax_sums_carve(p, slices_of(p, &shape), &sums);
  attn_biases_carve(p, shape.heads, &sums);
  return attn_size_sum(attn_size_times(one.used, (size_t)c->threads), sums.used);
}

/* Item i of a kv head is a tile for a part of the heads that share it, from this one on. */
static int64_t first_head(const attn_softmax *s, const attn_problem *p, int64_t line, int64_t i) {
  return line % p->kv_heads * (p->heads / p->kv_heads) + i / s->tile_count * s->shape.heads;
}

static void run_item(const attn_softmax *s, const attn_call *call, int64_t line, int64_t i,
                     softmax_worker *w) {
  const attn_problem *p = call->context->problem;
  const softmax_task t =
      attn_softmax_task(s, call, line / p->kv_heads, first_head(s, p, line, i), i % s->tile_count);
  attn_softmax_begin(&t, w, w->tiles);
  attn_softmax_walk(&t, w, w->tiles, 0, INT64_MAX);
  attn_softmax_finish(&t, w, w->tiles);
}

/* Keys of an item, and one more for what a tile costs. */
static int64_t work_of(const attn_softmax *s, const attn_problem *p, int64_t line, int64_t i) {
  const int64_t list = s->pattern_heads > 1 ? first_head(s, p, line, i) : 0;
  return s->tiles[list * s->tile_count + i % s->tile_count].keys + 1;
}

/* Neighbours among the items of a kv head, so that a slice meets few keys where the pattern is narrow, and
 * about as much work as the other slices. */
static void run_slice(const attn_softmax *s, const attn_call *call, const softmax_sums *sums, int64_t unit,
                      softmax_worker *w) {
  const attn_problem *p = call->context->problem;
  const int64_t line = unit / sums->slices, slice = unit % sums->slices,
                items = items_of(p, &s->shape, s->tile_count);
  int64_t all = 0, before = 0;
  attn_softmax_sums_begin(sums, p, line, slice, w->back);
  for (int64_t i = 0; i < items; i++) all += work_of(s, p, line, i);
  for (int64_t i = 0, work; i < items; i++, before += work) {
    work = work_of(s, p, line, i);
    if ((before + work / 2) * sums->slices / all == slice) run_item(s, call, line, i, w);
  }
}

/* The gradients by biases, which heads and batch entries may share: of one part of the heads of a kv head
 * after the other. */
static void run_biases(const attn_softmax *s, const attn_call *call, const attn_bias_sums *sums,
                       softmax_worker *w) {
  const attn_problem *p = call->context->problem;
  const int64_t group = p->heads / p->kv_heads, parts = items_of(p, &s->shape, 1);
  w->back->biases = sums;
  attn_biases_begin(sums, p);
  for (int64_t at = 0; at < p->batch * p->kv_heads * parts; at++) {
    const int64_t line = at / parts, part = at % parts, first = part * s->tile_count,
                  before = part * s->shape.heads, head = line % p->kv_heads * group + before;
    w->back->first_head = head;
#pragma omp for schedule(dynamic, 1)
    for (int64_t slice = 0; slice < ATTN_BIAS_SLICES; slice++) {
      w->back->slice = slice;
      for (int64_t tile = slice; tile < s->tile_count; tile += ATTN_BIAS_SLICES)
        run_item(s, call, line, first + tile, w);
    }
    attn_biases_end(sums, p, w->back->of, head, attn_min(s->shape.heads, group - before));
  }
}

attn_status attn_softmax_backward(const void *state, const attn_call *call, const attn_gradients *g) {
  const attn_softmax *s = state;
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  attn_carver one = attn_carver_count(c);
  attn_softmax_carve(c, &s->shape, s->max_runs, &one);
  attn_softmax_back_carve(c, &s->shape, &one);
  attn_carver behind = {.base = (char *)call->work + (size_t)c->threads * one.used};
  const softmax_sums sums = attn_softmax_sums_carve(p, slices_of(p, &s->shape), &behind);
  const attn_bias_sums biases = attn_biases_carve(p, s->shape.heads, &behind);
#pragma omp parallel num_threads(c->threads)
  {
    fenv_t outer;
    attn_float_enter(&outer);
    attn_carver carver = attn_carver_at(call, (char *)call->work + (size_t)omp_get_thread_num() * one.used);
    softmax_worker w = attn_softmax_carve(c, &s->shape, s->max_runs, &carver);
    softmax_back b = attn_softmax_back_carve(c, &s->shape, &carver);
    b.of = g;
    w.back = &b;
#pragma omp for schedule(dynamic, 1)
    for (int64_t unit = 0; unit < p->batch * p->kv_heads * sums.slices; unit++)
      run_slice(s, call, &sums, unit, &w);
    attn_softmax_sums_end(&sums, call, g);
    if (attn_biases_wanted(g)) run_biases(s, call, &biases, &w);
    attn_float_leave(&outer);
  }
  attn_softmax_sink_back(call, g);
  return ATTN_OK;
}
