/* row_gradients.c - the gradients of weights that are a function of a row's scores, by the definition and in
 * fp64: the scores, weights and their derivative once more, a row at a time. With ds the gradient by the
 * scores q.k and w the weights, dq_i = sum_j ds_ij k_j, dk_j = sum_i ds_ij q_i, dv_j = sum_i w_ij d_o_i.
 *
 * A unit of work is a slice of the queries of a kv head, which has separate sums for keys and values; slices
 * are added in order, so that threads do not matter. */
#include "core/engines/normaliser/normaliser.h"

#include <omp.h>
#include <string.h>

enum { UNITS = 16 }; /* wanted over all kv heads */

/* Of a thread, for a row of at most n_kv keys and a sink. */
typedef struct row_room {
  double *q, *d_o, *dq;
  double *x, *ds, *slope, *room;
  int64_t *keys;
  attn_run *runs;
} row_room;

typedef struct layout {
  int64_t slices;
  double *k, *v;   /* in fp64, [batch, kv_heads, n_kv, d] */
  double *dk, *dv; /* [batch, kv_heads, slice, n_kv, d] */
  double *gates;   /* [batch, heads, n_kv] */
  double *sinks;   /* [batch, heads, n_q] */
  attn_bias_sums biases;
  double *d_gates; /* of a head, [ATTN_BIAS_SLICES, n_kv] */
  attn_slices rows;
} layout;

static row_room room_at(const attn_context *c, attn_carver *carver) {
  const attn_problem *p = c->problem;
  const attn_pattern *graph = p->mask.kind == ATTN_MASK_PATTERN ? p->mask.pattern : NULL;
  const size_t size = sizeof(double);
  return (row_room){.q = attn_carve(carver, 1, p->d_qk, size),
                    .d_o = attn_carve(carver, 1, p->d_v, size),
                    .dq = attn_carve(carver, 1, p->d_qk, size),
                    .x = attn_carve(carver, 1, p->n_kv + 1, size),
                    .ds = attn_carve(carver, 1, p->n_kv + 1, size),
                    .slope = attn_carve(carver, 1, p->n_kv + 1, size),
                    .room = attn_carve(carver, 1, p->n_kv + 2, size),
                    .keys = attn_carve(carver, 1, p->n_kv, sizeof(int64_t)),
                    .runs = attn_carve(carver, graph ? graph->max_runs : 1, 1, sizeof(attn_run))};
}

static layout lay_out(const attn_context *c, const attn_normaliser *by, attn_carver *carver) {
  const attn_problem *p = c->problem;
  const int64_t lines = p->batch * p->kv_heads, slices = attn_min(attn_ceil_div(UNITS, lines), p->n_q),
                rows = p->batch * p->heads;
  const size_t size = sizeof(double);
  attn_carver one = attn_carver_count(c);
  room_at(c, &one);
  return (layout){.slices = slices,
                  .k = attn_carve(carver, lines * p->n_kv, p->d_qk, size),
                  .v = attn_carve(carver, lines * p->n_kv, p->d_v, size),
                  .dk = attn_carve(carver, lines * slices * p->n_kv, p->d_qk, size),
                  .dv = attn_carve(carver, lines * slices * p->n_kv, p->d_v, size),
                  .gates = attn_carve(carver, by->gates ? rows : 0, p->n_kv, size),
                  .sinks = attn_carve(carver, p->score.sink ? rows : 0, p->n_q, size),
                  .biases = attn_biases_carve(p, 1, carver),
                  .d_gates = by->gates_back ? attn_carve(carver, ATTN_BIAS_SLICES, p->n_kv, size) : NULL,
                  .rows = attn_carve_slices(carver, c->threads, one.used)};
}

attn_status attn_normaliser_back_size(const attn_normaliser *by, const attn_context *c, size_t *bytes) {
  if (!by) return attn_null("backward", "normaliser");
  if (!c) return attn_null("backward", "context");
  if (!bytes) return attn_null("backward", "bytes");
  attn_carver counter = attn_carver_count(c);
  if (!by->differentiate)
    return attn_fail(ATTN_EUNSUPPORTED, "variant %s: no gradient without normaliser.differentiate",
                     c->variant->name);
  lay_out(c, by, &counter);
  *bytes = counter.used;
  return ATTN_OK;
}

/* Adds to the gradients by biases and by gates, of which a score has those behind its key, what the scores of
 * row i give. */
static void add_pairs(const attn_call *call, const attn_gradients *g, const layout *l, const attn_problem *p,
                      int64_t batch, int64_t head, int64_t i, int64_t slice, int64_t count,
                      const row_room *room) {
  const int64_t *keys = room->keys,
                last = attn_min(attn_problem_position(p, i), attn_call_keys(call, batch) - 1);
  double *d_gates = l->d_gates ? l->d_gates + slice * p->n_kv : NULL, sum = 0;
  int64_t at = count && l->d_gates ? keys[0] + 1 : last + 1;
  for (int64_t j = 0; j < count; j++) {
    const double dy = room->x[j] == 0 ? 0 : room->ds[j];
    for (; at <= last && at <= keys[j]; at++) d_gates[at] += sum;
    sum += dy;
    attn_biases_add(&l->biases, p, g, slice, batch, head, head, i, keys[j], dy);
  }
  for (; at <= last; at++) d_gates[at] += sum;
}

/* Row i of a query head; dk, dv: sums of its slice. NULL: what it gives to biases and gates, in their place.
 * Values that have no weight are not met. */
static void take_row(const attn_normaliser *by, const attn_call *call, const attn_gradients *g,
                     const layout *l, const attn_problem *p, int64_t batch, int64_t head, int64_t i,
                     int64_t slice, double *dk, double *dv, const row_room *room) {
  const int64_t kv_line = batch * p->kv_heads + head / (p->heads / p->kv_heads),
                line = batch * p->heads + head, exist = attn_call_keys(call, batch),
                count = attn_seen_keys(p, batch, head, i, exist, room->runs, room->keys),
                depth = normaliser_depth(p, by), from = by->columns ? by->first : 0;
  const double scale = p->scale * (by->columns ? by->gain : 1), *k = l->k + kv_line * p->n_kv * p->d_qk,
               *v = l->v + kv_line * p->n_kv * p->d_v;
  double *x = room->x, *ds = room->ds;
  attn_numbers[attn_stored(p->q, p->dtype)].load(attn_row(call->q, p->q, batch, head, i, p->dtype), p->d_qk,
                                                 room->q);
  attn_numbers[p->dtype].load(attn_row(g->d_o, g->d_o_at, batch, head, i, p->dtype), p->d_v, room->d_o);
  memset(room->dq, 0, (size_t)p->d_qk * sizeof *room->dq);
  for (int64_t j = 0; j < count; j++) {
    const double t = scale * attn_inner(room->q + from, k + room->keys[j] * p->d_qk + from, depth);
    x[j] = attn_score_of(p, batch, head, i, room->keys[j], t);
    room->slope[j] = scale * attn_score_slope(p, t);
  }
  if (by->gates) normaliser_add_gates(p, i, exist, l->gates + line * p->n_kv, count, room->keys, x);
  if (p->score.sink) x[count] = p->score.sink[head];
  const int64_t scores = count ? count + (p->score.sink ? 1 : 0) : 0;
  if (scores) by->normalise(by->state, call->context, scores, x, room->room);
  for (int64_t j = 0; j < scores; j++)
    ds[j] = j < count && x[j] != 0 ? attn_inner(room->d_o, v + room->keys[j] * p->d_v, p->d_v) : 0;
  if (scores) by->differentiate(by->state, scores, x, ds);
  if (p->score.sink) l->sinks[line * p->n_q + i] = scores ? ds[count] : 0;
  if (!dk) {
    add_pairs(call, g, l, p, batch, head, i, slice, count, room);
    return;
  }
  for (int64_t j = 0; j < count; j++) {
    const int64_t key = room->keys[j];
    if (x[j] == 0) continue;
    attn_add_times(x[j], room->d_o, dv + key * p->d_v, p->d_v);
    attn_add_times(room->slope[j] * ds[j], k + key * p->d_qk + from, room->dq + from, depth);
    attn_add_times(room->slope[j] * ds[j], room->q + from, dk + key * p->d_qk + from, depth);
  }
  if (g->dq)
    attn_numbers[p->dtype].store(room->dq, p->d_qk, attn_at(g->dq, (line * p->n_q + i) * p->d_qk, p->dtype));
}

/* Every `slices`-th query of the heads of a kv head. */
static void take_slice(const attn_normaliser *by, const attn_call *call, const attn_gradients *g,
                       const layout *l, int64_t unit, const row_room *room) {
  const attn_problem *p = call->context->problem;
  const int64_t line = unit / l->slices, group = p->heads / p->kv_heads, batch = line / p->kv_heads,
                head = line % p->kv_heads * group;
  double *dk = l->dk + unit * p->n_kv * p->d_qk, *dv = l->dv + unit * p->n_kv * p->d_v;
  memset(dk, 0, (size_t)(p->n_kv * p->d_qk) * sizeof *dk);
  memset(dv, 0, (size_t)(p->n_kv * p->d_v) * sizeof *dv);
  for (int64_t h = head; h < head + group; h++) {
    const attn_problem of_head = attn_call_problem(call, batch, h);
    for (int64_t i = unit % l->slices; i < p->n_q; i += l->slices)
      take_row(by, call, g, l, &of_head, batch, h, i, 0, dk, dv, room);
  }
}

/* One head after the other: they may share biases and gates. */
static void run_biases(const attn_normaliser *by, const attn_call *call, const attn_gradients *g,
                       const layout *l, const row_room *room) {
  const attn_problem *p = call->context->problem;
  attn_biases_begin(&l->biases, p);
  for (int64_t at = 0; at < p->batch * p->heads; at++) {
    const int64_t batch = at / p->heads, head = at % p->heads;
    const attn_problem of_head = attn_call_problem(call, batch, head);
#pragma omp single
    if (l->d_gates) memset(l->d_gates, 0, (size_t)(ATTN_BIAS_SLICES * p->n_kv) * sizeof *l->d_gates);
#pragma omp for schedule(dynamic, 1)
    for (int64_t slice = 0; slice < ATTN_BIAS_SLICES; slice++)
      for (int64_t i = slice; i < p->n_q; i += ATTN_BIAS_SLICES)
        take_row(by, call, g, l, &of_head, batch, head, i, slice, NULL, NULL, room);
    attn_biases_end(&l->biases, p, g, head, 1);
#pragma omp single
    if (l->d_gates && g->dextra) {
      for (int64_t slice = 1; slice < ATTN_BIAS_SLICES; slice++)
        attn_add_times(1, l->d_gates + slice * p->n_kv, l->d_gates, p->n_kv);
      by->gates_back(by->state, call, batch, head, 0, attn_call_keys(call, batch), l->d_gates, g->dextra);
    }
  }
}

/* Row `at` of keys or values of all kv heads, in fp64. */
static void widen(const attn_call *call, const void *x, attn_stride stride, int64_t d, int64_t at,
                  double *to) {
  const attn_problem *p = call->context->problem;
  const int64_t line = at / p->n_kv, batch = line / p->kv_heads;
  if (at % p->n_kv >= attn_call_keys(call, batch)) return;
  attn_numbers[attn_stored(stride, p->dtype)].load(
      attn_row(x, stride, batch, line % p->kv_heads, at % p->n_kv, p->dtype), d, to + at * d);
}

/* Row `at` of a gradient: the slices' sums, which are added up in the first. */
static void add_slices(const attn_problem *p, int64_t slices, int64_t d, int64_t at, double *sums, void *to) {
  double *first = sums + (at / p->n_kv * slices * p->n_kv + at % p->n_kv) * d;
  if (!to) return;
  for (int64_t i = 1; i < slices; i++) attn_add_times(1, first + i * p->n_kv * d, first, d);
  attn_numbers[p->dtype].store(first, d, attn_at(to, at * d, p->dtype));
}

attn_status attn_normaliser_backward(const attn_normaliser *by, const attn_call *call,
                                     const attn_gradients *g) {
  if (!by) return attn_null("backward", "normaliser");
  if (!call) return attn_null("backward", "call");
  if (!g) return attn_null("backward", "gradients");
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  const int64_t keys = p->batch * p->kv_heads * p->n_kv;
  attn_carver carver = attn_carver_at(call, call->work);
  const layout l = lay_out(c, by, &carver);
  const attn_status status = by->gates ? normaliser_fill_gates(by, call, l.gates) : ATTN_OK;
  if (status) return status;
#pragma omp parallel num_threads(c->threads)
  {
    fenv_t outer;
    attn_float_enter(&outer);
    attn_carver own = attn_carver_at(call, attn_slice(l.rows, omp_get_thread_num()));
    const row_room room = room_at(c, &own);
#pragma omp for schedule(static)
    for (int64_t at = 0; at < keys; at++) {
      widen(call, call->k, p->k, p->d_qk, at, l.k);
      widen(call, call->v, p->v, p->d_v, at, l.v);
    }
#pragma omp for schedule(dynamic, 1)
    for (int64_t unit = 0; unit < p->batch * p->kv_heads * l.slices; unit++)
      take_slice(by, call, g, &l, unit, &room);
#pragma omp for schedule(static)
    for (int64_t at = 0; at < keys; at++) {
      add_slices(p, l.slices, p->d_qk, at, l.dk, g->dk);
      add_slices(p, l.slices, p->d_v, at, l.dv, g->dv);
    }
    if (attn_biases_wanted(g) || (g->dextra && by->gates_back)) run_biases(by, call, g, &l, &room);
    attn_float_leave(&outer);
  }
  for (int64_t h = 0; g->dsink && h < p->heads; h++) {
    g->dsink[h] = 0;
    for (int64_t at = 0; p->score.sink && at < p->batch * p->n_q; at++)
      g->dsink[h] += l.sinks[(at / p->n_q * p->heads + h) * p->n_q + at % p->n_q];
  }
  return ATTN_OK;
}
