/* causal.c - a causal segment: every chunk of queries reads the state of the keys before it, and the
 * keys of its own chunk by the lower triangle of f_q f_k^T (Hua et al. 2022, the form of Katharopoulos et al.
 * 2020 in chunks). */
#include "core/engines/linear/linear.h"

#include <string.h>

/* Queries that share the number of keys they are multiplied with, a multiple of every register tile. */
enum { STEP = 24 };

/* Row i of the scores <- e^(c_j - M_i) (f_q f_k^T)_ij for the keys j that query i sees, and eps; what the
 * state before the chunk gave it, in terms of M, is brought to M_i = max(M, c_j <= i): no later key touches
 * row i, not even by rounding. first: position of query 0 within the chunk. */
static void weigh_scores(const linear_shape *s, linear_worker *w, int64_t queries, int64_t first,
                         int64_t keys, double reference, void *o) {
  double max = reference;
  int64_t done = 0; /* keys whose weights refer to max */
  for (int64_t i = 0; i < queries; i++) {
    int64_t seen = attn_min(first + i + 1, keys), read = attn_min(first + (i / STEP + 1) * STEP, keys);
    double before = max;
    for (int64_t j = i ? attn_min(first + i, keys) : 0; j < seen; j++) max = linear_raise(max, w->scale_k[j]);
    for (int64_t j = before == max ? done : 0; j < seen; j++)
      attn_set(w->weights, j, s->t, linear_rescale(s, w->scale_k[j], max));
    done = seen;
    void *row = attn_at(w->scores, i * CHUNK, s->t), *out = attn_at(o, i * s->p->o.row, s->t);
    double eps_term = s->map->eps > 0 ? attn_get(w->eps_term, i, s->t) : 0;
    double sum = s->simd->weigh_row(seen, row, w->weights, eps_term),
           factor = linear_rescale(s, reference, max);
    if (factor != 1) s->simd->scale_row(s->p->d_v, factor, out, out);
    w->sums[i] = factor * w->sums[i] + sum;
    memset(attn_at(row, seen, s->t), 0, (size_t)attn_max(0, read - seen) * attn_dtype_size(s->t));
  }
}

/* The queries at the positions j + first ... of a chunk whose keys are mapped, against `before`, the state of
 * the keys before it, and the keys of the chunk. */
static void chunk_queries(const linear_shape *s, linear_worker *w, const linear_head *h, const void *q,
                          void *o, int64_t j, int64_t keys, int64_t first, int64_t queries) {
  const void *v = attn_at(h->v, j * s->p->v.row, s->t);
  linear_map(s, w, &(attn_feature_rows){h->head, ATTN_QUERY, q, s->p->q.row, j + first, queries});
  linear_read(s, w, queries, w->before, o);
  for (int64_t i = 0; i < queries; i += STEP)
    attn_product(s->simd, attn_min(STEP, queries - i), attn_min(first + i + STEP, keys), s->columns,
                 (attn_matrix){attn_at(w->fq, i * s->f_row, s->t), s->f_row, 1}, w->fk_transposed, CHUNK,
                 false, attn_at(w->scores, i * CHUNK, s->t), CHUNK);
  weigh_scores(s, w, queries, first, keys, *w->before.reference, o);
  linear_read_eps(s, w, queries, w->before, o);
  for (int64_t l = 0; l < keys; l++)
    memcpy(attn_at(w->values, l * s->v_row, s->t), attn_at(v, l * s->p->v.row, s->t),
           (size_t)s->p->d_v * attn_dtype_size(s->t));
  /* A score of zero must not multiply a NaN that its row does not see. */
  int64_t step = attn_all_finite(v, s->p->v.row, keys, s->p->d_v, s->t) ? STEP : 1;
  for (int64_t i = 0; i < queries; i += step)
    attn_product(s->simd, attn_min(step, queries - i), s->p->d_v, attn_min(first + i + step, keys),
                 (attn_matrix){attn_at(w->scores, i * CHUNK, s->t), CHUNK, 1}, w->values, s->v_row, true,
                 attn_at(o, i * s->p->o.row, s->t), s->p->o.row);
  linear_divide(s, w, queries, o);
}

void linear_causal_segment(const linear_shape *s, linear_worker *w, const attn_call *call,
                           const linear_head *h, int64_t segment) {
  const attn_problem *p = s->p;
  int64_t group = p->heads / p->kv_heads, shift = p->n_kv - p->n_q;
  int64_t end = attn_min((segment + 1) * SEGMENT, p->n_kv);
  linear_clear(s, w->part);
  for (int64_t j = segment * SEGMENT; j < end; j += CHUNK) {
    int64_t rows = attn_min(CHUNK, end - j), keys = attn_max(0, attn_min(rows, h->keys - j));
    int64_t from = attn_max(j, shift), queries = j + rows - from; /* the queries of these positions */
    if (keys)
      linear_map(
          s, w,
          &(attn_feature_rows){h->head, ATTN_KEY, attn_at(h->k, j * p->k.row, s->t), p->k.row, j, keys});
    if (queries > 0) {
      s->simd->transpose(keys, s->columns, w->fk, s->f_row, w->fk_transposed, CHUNK);
      linear_merge(s, w->total, w->part, w->before);
    }
    for (int64_t g = 0; g < group && queries > 0; g++) {
      int64_t head = h->head * group + g, i = from - shift;
      chunk_queries(s, w, h, attn_at(attn_rows(call->q, p->q, h->batch, head, s->t), i * p->q.row, s->t),
                    attn_at(attn_rows(call->o, p->o, h->batch, head, s->t), i * p->o.row, s->t), j, keys,
                    from - j, queries);
    }
    if (keys) linear_add_keys(s, w, attn_at(h->v, j * p->v.row, s->t), keys, w->part);
  }
}
