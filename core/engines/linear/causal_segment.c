/* causal_segment.c - a causal segment: every chunk of queries reads the state of the keys before it, and its
 * own chunk's keys by the lower triangle of f_q f_k^T (Hua et al. 2022, the form of Katharopoulos et al. 2020
 * in chunks). */
#include "core/engines/linear/linear_engine.h"

#include <string.h>

/* Keys of a chunk, and queries at positions within it. */
typedef struct linear_chunk {
  int64_t first, keys;    /* that exist */
  const void *transposed; /* [columns] rows of CHUNK, their features */
  int64_t before;         /* keys of the chunk before the first query's */
  const linear_queries *x;
} linear_chunk;

/* Row i of the scores <- e^(c_j - M_i) (f_q f_k^T)_ij for the keys j that query i sees, and eps; what the
 * state before the chunk gave it, in terms of M, is brought to M_i = max(M, c_j <= i): no later key touches
 * row i, not even by rounding. */
static void weigh_scores(const linear_shape *s, linear_worker *w, const linear_chunk *c, double reference,
                         linear_rows out) {
  double max = reference;
  int64_t done = 0; /* keys whose weights refer to max */
  for (int64_t i = 0; i < c->x->count; i++) {
    int64_t seen = attn_min(c->before + i + 1, c->keys),
            read = attn_min(c->before + (i / STEP + 1) * STEP, c->keys);
    double before = max;
    for (int64_t j = i ? attn_min(c->before + i, c->keys) : 0; j < seen; j++)
      max = linear_raise(max, w->scale_k[j]);
    for (int64_t j = before == max ? done : 0; j < seen; j++)
      attn_set(w->weights, j, s->t, linear_rescale(s, w->scale_k[j], max));
    done = seen;
    void *row = attn_at(w->scores, i * CHUNK, s->t), *to = attn_at(out.at, i * out.row, s->t);
    const void *weights = s->residual ? linear_residual_weights(s, w, i, c->first, seen) : w->weights;
    double eps_term = s->map->eps > 0 ? attn_get(w->eps_term, i, s->t) : 0;
    double sum = weights ? s->simd->weigh_row(seen, row, weights, eps_term) : 0,
           factor = linear_rescale(s, reference, max);
    if (factor != 1) s->simd->scale_row(s->p->d_v, factor, to, to);
    w->sums[i] = factor * w->sums[i] + sum;
    if (s->residual) linear_residual_rescale(s, w, i, seen, factor, sum, max);
    int64_t kept = weights ? seen : 0;
    memset(attn_at(row, kept, s->t), 0, (size_t)attn_max(0, read - kept) * attn_dtype_size(s->t));
  }
}

/* Do some of the queries i ... i + count - 1 take keys of the chunk? */
static bool takes_any(const linear_shape *s, const linear_worker *w, int64_t i, int64_t count) {
  for (int64_t end = i + count; s->residual && i < end; i++)
    if (w->residual.left[i]) return true;
  return !s->residual;
}

/* Queries against `before`, the state of the keys before the chunk, and the keys of the chunk, which are
 * mapped. */
static void chunk_queries(const linear_shape *s, linear_worker *w, const linear_chunk *c) {
  const linear_queries *x = c->x;
  const void *v = attn_row_behind(x->h->v, s->p->v, c->first, s->t);
  const linear_rows out = linear_numerators(s, w, x);
  linear_map(s, w,
             &(attn_feature_rows){x->h->head, ATTN_QUERY, x->q, s->p->q.row, c->first + c->before, x->count});
  linear_read(s, w, x->count, w->before, out);
  if (s->residual) {
    linear_residual_find(s, w, x);
    linear_residual_subtract(s, w, x, c->first, &w->before);
  }
  for (int64_t i = 0; i < x->count; i += STEP)
    if (takes_any(s, w, i, attn_min(STEP, x->count - i)))
      attn_product(s->simd, attn_min(STEP, x->count - i), attn_min(c->before + i + STEP, c->keys), s->columns,
                   (attn_matrix){attn_at(w->fq, i * s->f_row, s->t), s->f_row, 1}, c->transposed, CHUNK,
                   false, attn_at(w->scores, i * CHUNK, s->t), CHUNK);
  weigh_scores(s, w, c, *w->before.reference, out);
  linear_read_eps(s, w, x->count, w->before, out);
  for (int64_t l = 0; l < c->keys; l++)
    attn_load_row(s->simd, attn_stored(s->p->v, s->t), s->p->d_v, attn_row_behind(v, s->p->v, l, s->t),
                  attn_at(w->values, l * s->v_row, s->t));
  /* A score of zero must not multiply a NaN that its row does not see. */
  int64_t step = attn_all_finite(v, s->p->v.row, c->keys, s->p->d_v, attn_stored(s->p->v, s->t)) ? STEP : 1;
  for (int64_t i = 0; i < x->count; i += step)
    if (takes_any(s, w, i, attn_min(step, x->count - i)))
      attn_product(s->simd, attn_min(step, x->count - i), s->p->d_v, attn_min(c->before + i + step, c->keys),
                   (attn_matrix){attn_at(w->scores, i * CHUNK, s->t), CHUNK, 1}, w->values, s->v_row, true,
                   attn_at(out.at, i * out.row, s->t), out.row);
  linear_finish(s, w, x);
}

void linear_causal_segment(const linear_shape *s, linear_worker *w, const attn_call *call,
                           const linear_head *h, int64_t segment) {
  const attn_problem *p = s->p;
  int64_t group = p->heads / p->kv_heads, shift = attn_call_position(call, h->batch, 0);
  int64_t end = attn_min((segment + 1) * SEGMENT, p->n_kv);
  linear_clear(s, w->part);
  for (int64_t j = segment * SEGMENT; j < end; j += CHUNK) {
    int64_t rows = attn_min(CHUNK, end - j), keys = attn_max(0, attn_min(rows, h->keys - j));
    /* The queries of these positions. */
    int64_t from = attn_max(j, shift), queries = attn_min(j + rows, shift + p->n_q) - from;
    if (keys)
      linear_map(
          s, w,
          &(attn_feature_rows){h->head, ATTN_KEY, attn_row_behind(h->k, p->k, j, s->t), p->k.row, j, keys});
    void *transposed = w->fk_transposed;
    if (queries > 0) {
      if (s->residual) transposed = linear_residual_keep(s, w, h, j / CHUNK, keys);
      s->simd->transpose(keys, s->columns, w->fk, s->f_row, transposed, CHUNK);
      linear_merge(s, w->total, w->part, w->before);
    }
    for (int64_t g = 0; g < group && queries > 0; g++) {
      const int64_t head = h->head * group + g, i = from - shift;
      const linear_queries x = {.call = call,
                                .h = h,
                                .head = head,
                                .first = i,
                                .count = queries,
                                .q = attn_row(call->q, p->q, h->batch, head, i, s->t),
                                .o = attn_row(call->o, p->o, h->batch, head, i, s->t)};
      chunk_queries(
          s, w,
          &(linear_chunk){.first = j, .keys = keys, .transposed = transposed, .before = from - j, .x = &x});
    }
    if (keys) linear_add_keys(s, w, attn_row_behind(h->v, p->v, j, s->t), keys, w->part);
  }
}
