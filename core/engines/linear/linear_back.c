/* linear_back.c - the gradients of the linear engine. With upstream gradients g_i = d_o_i / Z_i by the
 * numerators and e_i = -(d_o_i . o_i) / Z_i by the denominators of o_i = N_i / Z_i,
 *
 *   df_i = sum_(j <= i) e^(c_j - M_i) (g_i.v_j + e_i) f_j = S_i g_i + e_i z_i            of a query
 *   df_j = sum_(i >= j) e^(c_j - M_i) (g_i.v_j + e_i) f_i = e^(c_j - m) (R_j v_j + r_j)  of a key
 *   dv_j = e^(c_j - m) R_j^T f_j,   dc_j = f_j.df_j
 *
 * with the states S, z of the forward pass and states of queries, R_j = sum_(i >= j) e^(m - M_i) f_i g_i^T
 * and r_j = sum_(i >= j) e^(m - M_i) e_i f_i. Their reference m is M at the key, which can only fall on the
 * way back, as every factor of theirs: nothing overflows. Segments and chunks are those of the forward pass,
 * each segment of queries summed from zero, backwards. All queries, or all keys, where it is not causal.
 *
 * eps > 0 adds the terms of sum_r f'_r, and makes the stabiliser part of the function: M_i is c of the first
 * key that attains it, whose dc_j gets -pull_i, pull_i = sum_(j <= i) e^(c_j - M_i) f'_i.f_j (g_i.v_j + e_i).
 * A state of queries holds, in place of the number of keys, the sum of pull_i of those with M_i = m: others
 * have met their key. With eps = 0 M cancels. */
#include "core/engines/linear/linear_engine.h"

#include <math.h>
#include <omp.h>
#include <string.h>

static linear_back carve_back(const linear_shape *s, attn_carver *carver) {
  const size_t e = attn_dtype_size(s->t);
  return (linear_back){.s = s,
                       .w = linear_carve(s, carver),
                       .g = attn_carve(carver, CHUNK, s->v_row, e),
                       .dz = attn_carve(carver, CHUNK, 1, e),
                       .value_columns = attn_carve(carver, s->p->d_v, s->p->causal ? CHUNK : 0, e),
                       .state_columns = attn_carve(carver, s->p->d_v, s->f_row, e),
                       .df = attn_carve(carver, CHUNK, s->f_row, e),
                       .sums = attn_carve(carver, CHUNK, 1, sizeof(double)),
                       .dscale = attn_carve(carver, CHUNK, 1, sizeof(double)),
                       .scratch = attn_carve(carver, 1, 1, attn_gemm_scratch(s->simd))};
}

static size_t back_bytes(const linear_shape *s) {
  attn_carver one = attn_carver_count(s->c);
  carve_back(s, &one);
  return one.used;
}

/* Segments of queries, and the first of those that are summed beforehand. */
static int64_t query_segments(const linear_shape *s) {
  return s->p->causal ? s->segments : attn_ceil_div(s->p->n_q, SEGMENT);
}
static int64_t first_summed(const linear_shape *s) { return s->p->causal ? linear_chain_first(s, 1) : 0; }

static linear_state suffix_at(const linear_back *b, int64_t head, int64_t segment) {
  const linear_shape *s = b->s;
  const int64_t first = first_summed(s), index = head * (query_segments(s) - first) + segment - first;
  return linear_state_at(s, (char *)b->suffixes + (size_t)index * linear_state_bytes(s));
}

/* What threads share. */
static void carve_shared(linear_shape *s, linear_back *b, attn_carver *carver) {
  const attn_problem *p = s->p;
  const int64_t heads = p->batch * p->kv_heads;
  s->states = attn_carve(carver, 1, 1, linear_states_bytes(s));
  s->peaks = attn_carve(carver, heads, attn_ceil_div(p->n_kv, CHUNK), sizeof *s->peaks);
  b->suffixes = attn_carve(carver, heads, query_segments(s) - first_summed(s), linear_state_bytes(s));
  b->rows = attn_carve(carver, p->batch * p->heads, p->n_q, sizeof *b->rows);
}

/* M of the first chunks of keys: where it is not causal, peaks are those of segments. */
static double peak_of(const linear_back *b, const linear_head *h, int64_t chunks) {
  const linear_shape *s = b->s;
  if (!chunks) return -(double)INFINITY;
  const double peak = *linear_peak(s, h, chunks - 1);
  if (s->p->causal) return peak;
  return linear_raise(
      peak,
      *linear_state_before(s, h->batch * s->p->kv_heads + h->head, (chunks - 1) * CHUNK / SEGMENT).reference);
}

/* A chunk of keys, with the queries at their positions if causal; without M. */
static linear_block keys_at(const linear_back *b, const linear_head *h, int64_t index) {
  const attn_problem *p = b->s->p;
  const int64_t key = index * CHUNK, rows = attn_min(CHUNK, p->n_kv - key),
                shift = attn_call_position(b->call, h->batch, 0), from = attn_max(key, shift),
                end = attn_min(key + rows, shift + p->n_q);
  return (linear_block){.h = h,
                        .key = key,
                        .keys = attn_max(0, attn_min(rows, h->keys - key)),
                        .query = from - shift,
                        .queries = p->causal ? attn_max(0, end - from) : 0,
                        .before = from - key};
}

/* A chunk of queries alone. */
static linear_block queries_at(const linear_back *b, const linear_head *h, int64_t index) {
  const int64_t first = index * CHUNK;
  return (linear_block){.h = h, .query = first, .queries = attn_min(CHUNK, b->s->p->n_q - first)};
}

/* -- queries -- */

static void chain_queries(linear_back *b, int64_t head, int64_t chain) {
  const linear_shape *s = b->s;
  linear_worker *w = &b->w;
  const linear_head h = linear_head_at(s, b->call, head);
  const int64_t first = linear_chain_first(s, chain);
  if (!h.keys) return;
  linear_copy(s, linear_state_before(s, head, first), w->total);
  for (int64_t g = first; g < linear_chain_first(s, chain + 1); g++) {
    const int64_t end = attn_ceil_div(attn_min((g + 1) * SEGMENT, s->p->n_kv), CHUNK);
    linear_clear(s, w->part);
    for (int64_t i = g * SEGMENT / CHUNK; i < end; i++) {
      const linear_block k = keys_at(b, &h, i);
      linear_merge(s, w->total, w->part, w->before);
      linear_back_queries(b, &k, w->before, NULL);
      if (k.keys) linear_add_keys(s, w, attn_row_behind(h.v, s->p->v, k.key, s->t), k.keys, w->part);
      *linear_peak(s, &h, i) = linear_raise(*w->total.reference, *w->part.reference);
    }
    linear_merge(s, w->total, w->part, w->total);
  }
}

/* -- states of queries -- */

static void clear_queries(const linear_shape *s, linear_state x, double reference) {
  linear_clear(s, x);
  *x.reference = reference;
}

/* sum <- a + b at this reference; sum may be a or b */
static void add_queries(const linear_shape *s, linear_state a, linear_state b, double reference,
                        linear_state sum) {
  const double pulls = (*a.reference == reference ? *a.keys : 0) + (*b.reference == reference ? *b.keys : 0);
  linear_combine(s, linear_rescale(s, reference, *a.reference), a, linear_rescale(s, reference, *b.reference),
                 b, sum);
  *sum.keys = pulls;
  *sum.reference = reference;
}

/* The queries of a segment, from zero. Where it is not causal, with their gradients: they are mapped once. */
static void sum_queries(linear_back *b, int64_t head, int64_t segment) {
  const linear_shape *s = b->s;
  const attn_problem *p = s->p;
  const linear_head h = linear_head_at(s, b->call, head);
  const linear_state x = suffix_at(b, head, segment);
  const int64_t rows = p->causal ? p->n_kv : p->n_q, first = segment * SEGMENT / CHUNK,
                end = attn_ceil_div(attn_min((segment + 1) * SEGMENT, rows), CHUNK);
  if (!h.keys) return;
  clear_queries(s, x, peak_of(b, &h, p->causal ? end : attn_ceil_div(h.keys, CHUNK)));
  for (int64_t i = end - 1; i >= first; i--) {
    linear_block k = p->causal ? keys_at(b, &h, i) : queries_at(b, &h, i);
    k.keys = 0;
    if (p->causal) {
      k.reference = peak_of(b, &h, i);
      linear_back_sum(b, &k, x);
    } else {
      linear_back_queries(b, &k, linear_state_before(s, head, linear_summed(s)), &x);
    }
  }
}

/* Segments of queries become the sums of those from there on. */
static void accumulate_queries(const linear_back *b, int64_t head) {
  const linear_shape *s = b->s;
  if (!linear_head_at(s, b->call, head).keys) return;
  for (int64_t g = query_segments(s) - 2; g >= first_summed(s); g--) {
    const linear_state x = suffix_at(b, head, g);
    add_queries(s, suffix_at(b, head, g + 1), x, *x.reference, x);
  }
}

/* -- keys -- */

/* Those of a segment, against the queries after it in w->total. */
static void segment_keys(linear_back *b, const linear_head *h, int64_t segment) {
  const linear_shape *s = b->s;
  linear_worker *w = &b->w;
  const bool causal = s->p->causal;
  const int64_t end = attn_ceil_div(attn_min((segment + 1) * SEGMENT, causal ? s->p->n_kv : h->keys), CHUNK);
  clear_queries(s, w->part, peak_of(b, h, end));
  for (int64_t i = end - 1; i >= segment * SEGMENT / CHUNK; i--) {
    linear_block k = keys_at(b, h, i);
    k.reference = peak_of(b, h, i);
    k.peak = peak_of(b, h, i + 1);
    if (causal) add_queries(s, w->total, w->part, k.peak, w->before);
    linear_back_keys(b, &k, causal ? w->before : w->total, w->part);
  }
  if (causal) add_queries(s, w->total, w->part, *w->part.reference, w->total);
}

/* Those of a chain, or of one segment. */
static void chain_keys(linear_back *b, int64_t head, int64_t chain) {
  const linear_shape *s = b->s;
  const bool causal = s->p->causal;
  const linear_head h = linear_head_at(s, b->call, head);
  const int64_t first = causal ? linear_chain_first(s, chain) : chain,
                end = causal ? linear_chain_first(s, chain + 1) : chain + 1;
  if (!h.keys) return;
  if (!causal || end < s->segments)
    linear_copy(s, suffix_at(b, head, causal ? end : 0), b->w.total);
  else
    clear_queries(s, b->w.total, peak_of(b, &h, attn_ceil_div(s->p->n_kv, CHUNK)));
  for (int64_t g = end - 1; g >= first; g--) segment_keys(b, &h, g);
}

/* -- all of them -- */

/* The threads of a team come here together. */
static void run(linear_back *b) {
  const linear_shape *s = b->s;
  const attn_problem *p = s->p;
  const int64_t heads = p->batch * p->kv_heads, of_queries = p->causal ? s->chains : 0,
                of_keys = p->causal ? s->chains : s->segments, first = first_summed(s),
                sums = query_segments(s) - first;
  linear_sum_before(s, &b->w, b->call);
#pragma omp for schedule(dynamic, 1)
  for (int64_t i = 0; i < heads * of_queries; i++) chain_queries(b, i / of_queries, i % of_queries);
#pragma omp for schedule(dynamic, 1)
  for (int64_t i = 0; i < heads * sums; i++) sum_queries(b, i / sums, first + i % sums);
#pragma omp for schedule(dynamic, 1)
  for (int64_t i = 0; i < heads; i++) accumulate_queries(b, i);
#pragma omp for schedule(dynamic, 1)
  for (int64_t i = 0; i < heads * of_keys; i++) chain_keys(b, i / of_keys, i % of_keys);
}

attn_status linear_back_size(const void *state, const attn_context *c, const attn_parts *parts,
                             size_t *bytes) {
  (void)state;
  if (!parts->features.vjp)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "variant %s: no gradient without features.vjp, the derivative of its map",
                     c->variant->name);
  linear_shape s = linear_shape_make(c, &parts->features);
  linear_back shared = {.s = &s};
  attn_carver all = attn_carver_count(c);
  carve_shared(&s, &shared, &all);
  *bytes = attn_size_sum(all.used, attn_size_times(back_bytes(&s), (size_t)c->threads));
  return ATTN_OK;
}

attn_status linear_backward(const void *state, const attn_call *call, const attn_gradients *g) {
  const attn_status status = linear_check(call);
  if (status) return status;
  linear_shape s = linear_shape_make(call->context, state);
  linear_back shared = {.s = &s};
  attn_carver all = attn_carver_at(call, call->work);
  carve_shared(&s, &shared, &all);
  const size_t bytes = back_bytes(&s), q = (size_t)(s.p->batch * s.p->heads * s.p->n_q),
               k = (size_t)(s.p->batch * s.p->kv_heads * s.p->n_kv);
  /* What no query or key has. */
  if (g->dq) memset(g->dq, 0, q * attn_row_bytes(s.p->d_qk, s.t));
  if (g->dk) memset(g->dk, 0, k * attn_row_bytes(s.p->d_qk, s.t));
  if (g->dv) memset(g->dv, 0, k * attn_row_bytes(s.p->d_v, s.t));
  for (int64_t h = 0; g->dsink && h < s.p->heads; h++) g->dsink[h] = 0;
#pragma omp parallel num_threads(s.c->threads)
  {
    fenv_t outer;
    attn_float_enter(&outer);
    char *own = (char *)call->work + all.used + (size_t)omp_get_thread_num() * bytes;
    memset(own, 0, bytes); /* padding is multiplied, and anything but numbers may be slow */
    attn_carver carver = attn_carver_at(call, own);
    linear_back b = carve_back(&s, &carver);
    b.call = call;
    b.of = g;
    b.rows = shared.rows;
    b.suffixes = shared.suffixes;
    run(&b);
    attn_float_leave(&outer);
  }
  return ATTN_OK;
}
