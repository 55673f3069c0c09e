/* linear.c - the linear engine: o = phi(q)^T S / phi(q)^T z with S = sum_j phi(k_j) v_j^T, z = sum_j phi(k_j)
 * (Katharopoulos et al. 2020); causal: the sums run over j <= i, in chunks with a running state.
 *
 * A feature row is e^(c) f with f well scaled. A state carries its reference M = max c_j, as online softmax
 * does: S = sum_j e^(c_j - M) f_j (v_j, 1)^T,   and merging two states rescales the one of the smaller M. In
 * a causal chunk row i uses M_i = max over j <= i only, so that no later key touches it, not even by
 * rounding. Keys are cut into segments of fixed length: each is summed on its own, the sums are added in
 * order, and (causal) each segment then runs from the sum before it. Nothing depends on the number of
 * threads. With eps > 0 every stabilised feature is f + eps: sum_j (e^(c_j - M) f_j + eps) (v_j, 1) = S + eps
 * sum_j (v_j, 1), so one more row of S serves. */
#include "linear.h"

#include <math.h>
#include <omp.h>
#include <string.h>

struct attn_linear {
  attn_feature_map map;
};

static linear_shape make_shape(const attn_context *c, const attn_feature_map *map) {
  return (linear_shape){c,
                        c->problem,
                        map,
                        map->columns,
                        c->problem->d_v + 1,
                        attn_ceil_div(c->problem->n_kv, SEGMENT),
                        c->problem->dtype};
}

static linear_worker carve(const linear_shape *s, attn_carver *carver) {
  size_t e = attn_dtype_size(s->t);
  return (linear_worker){
      .fq = attn_carve(carver, CHUNK, s->columns, e),
      .fk = attn_carve(carver, CHUNK, s->columns, e),
      .scale_q = attn_carve(carver, CHUNK, 1, sizeof(double)),
      .scale_k = attn_carve(carver, CHUNK, 1, sizeof(double)),
      .scores = attn_carve(carver, CHUNK, CHUNK, e),
      .values = attn_carve(carver, CHUNK, s->width, e),
      .out = attn_carve(carver, CHUNK, s->width, e),
      .total = attn_carve(carver, s->columns + 1, s->width, e),
      .before = attn_carve(carver, s->columns + 1, s->width, e),
      .map = attn_carve(carver, 1, 1, s->map->scratch ? s->map->scratch(s->map->state, s->c, CHUNK) : 0),
      .gemm = attn_carve(carver, 1, 1, attn_gemm_scratch(s->c->kernels))};
}

static int64_t state_count(const linear_shape *s) { return s->p->batch * s->p->kv_heads * s->segments; }

static linear_state state_at(const linear_shape *s, const attn_call *call, int64_t index) {
  char *references = (char *)call->work + (size_t)state_count(s) * linear_state_bytes(s);
  return (linear_state){(char *)call->work + (size_t)index * linear_state_bytes(s),
                        (double *)references + index};
}

static size_t states_bytes(const linear_shape *s) {
  size_t count = attn_size_times((size_t)(s->p->batch * s->p->kv_heads), (size_t)s->segments);
  return attn_size_sum(attn_size_times(count, linear_state_bytes(s)),
                       attn_size_sum(attn_size_times(count, sizeof(double)), 63) & ~(size_t)63);
}

static void map_rows(const linear_shape *s, linear_worker *w, int64_t head, attn_side side, const void *x,
                     int64_t stride, int64_t rows) {
  bool query = side == ATTN_QUERY;
  s->map->map(s->map->state, s->c, head, side, x, stride, rows, query ? w->fq : w->fk,
              query ? w->scale_q : w->scale_k, w->map);
  for (int64_t i = 0; query && s->map->eps > 0 && i < rows * s->columns; i++)
    attn_set(w->fq, i, s->t, attn_get(w->fq, i, s->t) + s->map->eps);
}

/* out <- f_q S for mapped queries, eps included. */
static void read_state(const linear_shape *s, linear_worker *w, int64_t rows, linear_state x) {
  attn_gemm(s->c->kernels, rows, s->width, s->columns, (attn_matrix){w->fq, s->columns, 1},
            (attn_matrix){x.sums, s->width, 1}, false, w->out, s->width, w->gemm);
}

static void divide(const linear_shape *s, linear_worker *w, int64_t rows, void *o) {
  for (int64_t i = 0; i < rows; i++) {
    const void *row = attn_at(w->out, i * s->width, s->t);
    double sum = attn_get(row, s->p->d_v, s->t);
    for (int64_t l = 0; l < s->p->d_v; l++)
      attn_set(attn_at(o, i * s->p->o.row, s->t), l, s->t, attn_get(row, l, s->t) / sum);
  }
}

/* row i of out <- factor_i out + eps (sum of f_q) plain, the contribution of eps on the keys' side. */
static void add_plain(const linear_shape *s, linear_worker *w, int64_t i, const void *plain) {
  double features = 0;
  for (int64_t r = 0; r < s->columns; r++) features += attn_get(w->fq, i * s->columns + r, s->t);
  for (int64_t l = 0; l < s->width; l++) {
    int64_t at = i * s->width + l;
    attn_set(w->out, at, s->t,
             attn_get(w->out, at, s->t) + s->map->eps * features * attn_get(plain, l, s->t));
  }
}

/* One head's tensors. */
typedef struct head_view {
  int64_t head; /* of keys and values */
  int64_t keys;
  const void *k, *v;
} head_view;

static head_view view_of(const linear_shape *s, const attn_call *call, int64_t b, int64_t head) {
  return (head_view){head, attn_call_keys(call, b), attn_rows(call->k, s->p->k, b, head, s->t),
                     attn_rows(call->v, s->p->v, b, head, s->t)};
}

/* The whole sum of a segment's keys. */
static void sum_segment(const linear_shape *s, linear_worker *w, const head_view *h, int64_t segment,
                        linear_state x) {
  linear_clear(s, x);
  int64_t end = attn_min((segment + 1) * SEGMENT, h->keys);
  for (int64_t j = segment * SEGMENT; j < end; j += CHUNK) {
    int64_t rows = attn_min(CHUNK, end - j);
    map_rows(s, w, h->head, ATTN_KEY, attn_at(h->k, j * s->p->k.row, s->t), s->p->k.row, rows);
    linear_absorb(s, w, attn_at(h->v, j * s->p->v.row, s->t), rows, x);
  }
}

/* Non-causal: rows i0 ... of one query head against the sum of all keys. */
static void query_block(const linear_shape *s, linear_worker *w, const head_view *h, const void *q, void *o,
                        int64_t rows, linear_state x) {
  if (!h->keys) {
    for (int64_t i = 0; i < rows; i++)
      memset(attn_at(o, i * s->p->o.row, s->t), 0, (size_t)s->p->d_v * attn_dtype_size(s->t));
    return;
  }
  map_rows(s, w, h->head, ATTN_QUERY, q, s->p->q.row, rows);
  read_state(s, w, rows, x);
  for (int64_t i = 0; s->map->eps > 0 && i < rows; i++)
    add_plain(s, w, i, attn_at(x.sums, s->columns * s->width, s->t));
  divide(s, w, rows, o);
}

/* scores <- lower triangle of f_q f_k^T e^(c_j - M_i); out row <- e^(M - M_i) out: both now refer to M_i.
 * first: position of query 0 within the chunk. */
static void weigh_scores(const linear_shape *s, linear_worker *w, int64_t queries, int64_t first,
                         int64_t keys, double reference) {
  double max = reference;
  int64_t done = 0;
  for (int64_t i = 0; i < queries; i++) {
    int64_t seen = attn_min(first + i + 1, keys);
    max = linear_running_max(w->scale_k + done, seen - done, max);
    done = seen;
    double factor = linear_rescale(reference, max);
    for (int64_t l = 0; l < s->width; l++)
      attn_set(w->out, i * s->width + l, s->t, factor * attn_get(w->out, i * s->width + l, s->t));
    for (int64_t j = 0; j < keys; j++) {
      int64_t at = i * CHUNK + j;
      double weight = j < seen ? linear_rescale(w->scale_k[j], max) : 0;
      attn_set(w->scores, at, s->t, j < seen ? weight * attn_get(w->scores, at, s->t) : 0);
    }
  }
}

/* Causal: the queries at positions j ... j + queries of a chunk whose keys are mapped, against the state
 * before it. */
static void causal_block(const linear_shape *s, linear_worker *w, const head_view *h, const void *q, void *o,
                         int64_t j, int64_t keys, int64_t first, int64_t queries, linear_state x) {
  map_rows(s, w, h->head, ATTN_QUERY, q, s->p->q.row, queries);
  read_state(s, w, queries, x);
  attn_gemm(s->c->kernels, queries, keys, s->columns, (attn_matrix){w->fq, s->columns, 1},
            (attn_matrix){w->fk, 1, s->columns}, false, w->scores, CHUNK, w->gemm);
  weigh_scores(s, w, queries, first, keys, *x.reference);
  const void *v = attn_at(h->v, j * s->p->v.row, s->t);
  linear_weigh_values(s, v, keys, NULL, 0, w->values);
  /* A score of zero must not multiply a NaN that its row does not see. */
  bool whole = attn_all_finite(v, s->p->v.row, keys, s->p->d_v, s->t);
  for (int64_t i = 0; i < queries; i += whole ? queries : 1)
    attn_gemm(s->c->kernels, whole ? queries : 1, s->width, whole ? keys : attn_min(first + i + 1, keys),
              (attn_matrix){attn_at(w->scores, i * CHUNK, s->t), CHUNK, 1},
              (attn_matrix){w->values, s->width, 1}, true, attn_at(w->out, i * s->width, s->t), s->width,
              w->gemm);
  for (int64_t i = 0; s->map->eps > 0 && i < queries; i++) {
    add_plain(s, w, i, attn_at(x.sums, s->columns * s->width, s->t));
    for (int64_t l = 0; l < attn_min(first + i + 1, keys); l++)
      add_plain(s, w, i, attn_at(w->values, l * s->width, s->t));
  }
  divide(s, w, queries, o);
}

static void causal_segment(const linear_shape *s, linear_worker *w, const attn_call *call, int64_t b,
                           const head_view *h, int64_t segment, linear_state x) {
  int64_t group = s->p->heads / s->p->kv_heads, shift = s->p->n_kv - s->p->n_q;
  int64_t end = attn_min((segment + 1) * SEGMENT, s->p->n_kv);
  for (int64_t j = segment * SEGMENT; j < end; j += CHUNK) {
    int64_t rows = attn_min(CHUNK, end - j), keys = attn_max(0, attn_min(rows, h->keys - j));
    int64_t from = attn_max(j, shift), queries = j + rows - from; /* the queries of these positions */
    if (keys) map_rows(s, w, h->head, ATTN_KEY, attn_at(h->k, j * s->p->k.row, s->t), s->p->k.row, keys);
    for (int64_t g = 0; g < group && queries > 0; g++) {
      int64_t head = h->head * group + g, i = from - shift;
      void *o = attn_at(attn_rows(call->o, s->p->o, b, head, s->t), i * s->p->o.row, s->t);
      const void *q = attn_at(attn_rows(call->q, s->p->q, b, head, s->t), i * s->p->q.row, s->t);
      if (h->keys)
        causal_block(s, w, h, q, o, j, keys, from - j, queries, x);
      else
        query_block(s, w, h, q, o, queries, x);
    }
    if (keys) linear_absorb(s, w, attn_at(h->v, j * s->p->v.row, s->t), keys, x);
  }
}

/* Queries that precede every key see none. */
static void clear_early_rows(const linear_shape *s, const attn_call *call) {
  int64_t early = s->p->causal ? attn_max(0, s->p->n_q - s->p->n_kv) : 0;
  for (int64_t b = 0; b < s->p->batch; b++)
    for (int64_t h = 0; h < s->p->heads; h++)
      for (int64_t i = 0; i < early; i++)
        memset(attn_at(attn_rows(call->o, s->p->o, b, h, s->t), i * s->p->o.row, s->t), 0,
               (size_t)s->p->d_v * attn_dtype_size(s->t));
}

/* The sums of all segments of a head: into the first (all keys), or each replaced by the sum of those before
 * it. */
static void combine(const linear_shape *s, const attn_call *call, linear_worker *w, int64_t bh) {
  linear_state first = state_at(s, call, bh * s->segments), total = {w->total, &(double){0}};
  linear_clear(s, total);
  for (int64_t g = 0; g < s->segments; g++) {
    linear_state x = state_at(s, call, bh * s->segments + g);
    double reference = *total.reference;
    if (!s->p->causal) {
      linear_merge(s, total, x);
      continue;
    }
    /* Swap: the segment starts from the total before it. */
    memcpy(w->before, total.sums, linear_state_bytes(s));
    linear_merge(s, total, x);
    memcpy(x.sums, w->before, linear_state_bytes(s));
    *x.reference = reference;
  }
  if (!s->p->causal) {
    memcpy(first.sums, total.sums, linear_state_bytes(s));
    *first.reference = *total.reference;
  }
}

size_t attn_linear_work_size(const attn_context *c, const attn_feature_map *map) {
  linear_shape s = make_shape(c, map);
  attn_carver one = {0};
  carve(&s, &one);
  return attn_size_sum(states_bytes(&s), attn_size_times(one.used, (size_t)c->threads));
}

attn_status attn_linear_plan(attn_builder *b, const attn_feature_map *map, attn_linear **out) {
  attn_linear *engine = attn_builder_alloc(b, 1, sizeof *engine);
  if (!engine) return ATTN_ENOMEM;
  *engine = (attn_linear){*map};
  *out = engine;
  return ATTN_OK;
}

static void query_task(const linear_shape *s, linear_worker *w, const attn_call *call, int64_t task) {
  const attn_problem *p = s->p;
  int64_t blocks = attn_ceil_div(p->n_q, CHUNK), i = task % blocks * CHUNK, head = task / blocks % p->heads;
  int64_t b = task / blocks / p->heads, kv_head = head / (p->heads / p->kv_heads);
  head_view h = view_of(s, call, b, kv_head);
  query_block(s, w, &h, attn_at(attn_rows(call->q, p->q, b, head, s->t), i * p->q.row, s->t),
              attn_at(attn_rows(call->o, p->o, b, head, s->t), i * p->o.row, s->t),
              attn_min(CHUNK, p->n_q - i), state_at(s, call, (b * p->kv_heads + kv_head) * s->segments));
}

attn_status attn_linear_execute(const attn_linear *engine, const attn_call *call) {
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  linear_shape s = make_shape(c, &engine->map);
  attn_carver one = {0};
  carve(&s, &one);
  int64_t heads = p->batch * p->kv_heads, blocks = attn_ceil_div(p->n_q, CHUNK);
  clear_early_rows(&s, call);
#pragma omp parallel num_threads(c->threads)
  {
    fenv_t outer;
    attn_float_enter(&outer);
    attn_carver carver = {.base = (char *)call->work + states_bytes(&s) +
                                  (size_t)omp_get_thread_num() * one.used};
    linear_worker w = carve(&s, &carver);
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < heads * s.segments; i++) {
      head_view h = view_of(&s, call, i / s.segments / p->kv_heads, i / s.segments % p->kv_heads);
      sum_segment(&s, &w, &h, i % s.segments, state_at(&s, call, i));
    }
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < heads; i++) combine(&s, call, &w, i);
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < (p->causal ? heads * s.segments : p->batch * p->heads * blocks); i++) {
      if (!p->causal) {
        query_task(&s, &w, call, i);
        continue;
      }
      int64_t b = i / s.segments / p->kv_heads;
      head_view h = view_of(&s, call, b, i / s.segments % p->kv_heads);
      causal_segment(&s, &w, call, b, &h, i % s.segments, state_at(&s, call, i));
    }
    attn_float_leave(&outer);
  }
  return ATTN_OK;
}

attn_cost attn_linear_cost(const attn_context *c, int64_t columns, double map_mul_add_per_row) {
  const attn_problem *p = c->problem;
  double q = (double)(p->batch * p->heads * p->n_q), kv = (double)(p->batch * p->kv_heads * p->n_kv);
  double m = (double)columns, width = (double)(p->d_v + 1);
  /* Keys are mapped and summed, queries mapped and read; causal adds the triangle of each chunk, and maps
   * keys twice. */
  attn_cost cost = {.mul_add = (q + kv) * (map_mul_add_per_row + m * width),
                    .exp = (q + kv) * m,
                    .bytes = (double)attn_dtype_size(p->dtype) * (q + kv) * (double)(p->d_qk + p->d_v)};
  if (p->causal) {
    cost.mul_add += kv * (map_mul_add_per_row + m * width) + q * (double)CHUNK * (m + width);
    cost.exp += kv * m;
  }
  return cost;
}
