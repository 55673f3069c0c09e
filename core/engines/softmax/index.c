/* index.c - ranking by an index (attn_index): what is multiplied, how products become scores, and the law. A
 * column of several keys has the mean of their vectors. */
#include "core/engines/softmax/ranking.h"

#include <math.h>
#include <string.h>

/* The tensors of a call; NULL: it has none of the name. */
typedef struct source {
  const attn_call *call;
  const attn_problem *p;
  int64_t batch;
  const attn_extra *q, *k, *w;
} source;

static source source_of(const attn_call *call, int64_t batch) {
  return (source){call,
                  call->context->problem,
                  batch,
                  attn_call_extra(call, "index_q"),
                  attn_call_extra(call, "index_k"),
                  attn_call_extra(call, "index_w")};
}

/* Row i of a line. */
static const void *row_of(const source *s, const attn_extra *x, int64_t head, int64_t i) {
  const int64_t line = (x->batch == 1 ? 0 : s->batch) * x->heads + head;
  return attn_at(x->at, (line * x->n + i) * x->columns, x->dtype);
}

/* The law: element l of the vector of an index head; without tensors that of a query head, 0 where that
 * ends. */
static double query_element(const source *s, int64_t head, int64_t i, int64_t l) {
  const attn_problem *p = s->p;
  if (s->q) return attn_get(row_of(s, s->q, head, i), l, s->q->dtype);
  if (l >= p->d_qk) return 0;
  return attn_get(attn_row(s->call->q, p->q, s->batch, head % p->heads, i, p->dtype), l,
                  attn_stored(p->q, p->dtype));
}

/* The same of a key, without tensors the mean over kv heads; *size that of magnitudes. */
static double key_element(const source *s, int64_t key, int64_t l, double *size) {
  const attn_problem *p = s->p;
  double sum = s->k ? attn_get(row_of(s, s->k, 0, key), l, s->k->dtype) : 0;
  *size = fabs(sum);
  for (int64_t h = 0; h < p->kv_heads && l < p->d_qk && !s->k; h++) {
    const void *k = attn_row(s->call->k, p->k, s->batch, h, key, p->dtype);
    const double own = attn_get(k, l, attn_stored(p->k, p->dtype)) / (double)p->kv_heads;
    sum += own;
    *size += fabs(own);
  }
  return sum;
}

static double weight_of(const source *s, int64_t head, int64_t i) {
  return s->w ? attn_get(row_of(s, s->w, head, i), 0, s->w->dtype) : 1;
}

static double element_of_mean(const source *s, int64_t first, int64_t keys, int64_t l, double *size) {
  double sum = 0;
  *size = 0;
  for (int64_t j = 0; j < keys; j++) {
    double own;
    sum += key_element(s, first + j, l, &own) / (double)keys;
    *size += own / (double)keys;
  }
  return sum;
}

/* Apart from the law's. */
static double mean_element(const source *s, int64_t first, int64_t keys, int64_t l) {
  const attn_problem *p = s->p;
  const int64_t heads = s->k ? 1 : p->kv_heads;
  double sum = 0;
  for (int64_t line = 0; line < heads * keys && (s->k || l < p->d_qk); line++) {
    const int64_t key = first + line / heads;
    sum += s->k ? attn_get(row_of(s, s->k, 0, key), l, s->k->dtype)
                : attn_get(attn_row(s->call->k, p->k, s->batch, line % heads, key, p->dtype), l,
                           attn_stored(p->k, p->dtype));
  }
  return sum / (double)(heads * keys);
}

void attn_index_columns(const attn_ranker *x, const attn_call *call, int64_t batch, int64_t first,
                        int64_t count, void *to) {
  const source s = source_of(call, batch);
  const attn_dtype t = s.p->dtype;
  for (int64_t c = 0; c < count; c++) {
    const int64_t key = (first + c) * x->unit, keys = attn_min(x->unit, attn_call_keys(call, batch) - key);
    if (s.k && x->unit == 1)
      attn_convert(row_of(&s, s.k, 0, key), s.k->dtype, x->depth, t, attn_at(to, c * x->depth, t));
    for (int64_t l = 0; l < x->depth && !(s.k && x->unit == 1); l++)
      attn_set(to, c * x->depth + l, t, mean_element(&s, key, keys, l));
  }
}

void attn_index_query(const attn_ranker *x, const attn_call *call, int64_t batch, int64_t head, int64_t i,
                      void *to) {
  const source s = source_of(call, batch);
  const attn_problem *p = s.p;
  const int64_t own = s.q ? x->depth : attn_min(x->depth, p->d_qk);
  if (s.q)
    attn_convert(row_of(&s, s.q, head, i), s.q->dtype, own, p->dtype, to);
  else
    attn_convert(attn_row(call->q, p->q, batch, head % p->heads, i, p->dtype), attn_stored(p->q, p->dtype),
                 own, p->dtype, to);
  for (int64_t l = own; l < x->depth; l++) attn_set(to, l, p->dtype, 0);
}

/* NaN stays NaN. */
static void add_f32(int64_t count, float w, const float *x, float *sums) {
  for (int64_t j = 0; j < count; j++) sums[j] += w * (x[j] < 0 ? 0.0f : x[j]);
}
static void add_f64(int64_t count, double w, const double *x, double *sums) {
  for (int64_t j = 0; j < count; j++) sums[j] += w * (x[j] < 0 ? 0 : x[j]);
}

void attn_index_join(const attn_ranker *x, const attn_rank_chunk *c) {
  const source s = source_of(c->call, c->block->batch);
  const attn_dtype t = s.p->dtype;
  const int64_t heads = x->index.heads;
  for (int64_t r = 0; r < c->rows; r += heads) {
    memset(c->spare, 0, (size_t)c->count * attn_dtype_size(t));
    for (int64_t h = 0; h < heads; h++) {
      const double w = weight_of(&s, h, c->block->first + r / heads);
      const void *own = attn_at(c->x, (r + h) * c->x_row, t);
      if (t == ATTN_F32)
        add_f32(c->count, (float)w, own, c->spare);
      else
        add_f64(c->count, w, own, c->spare);
    }
    memcpy(attn_at(c->x, r * c->x_row, t), c->spare, (size_t)c->count * attn_dtype_size(t));
  }
}

/* Vectors, products, weights and sums are rounded, and max(x, 0) takes no two numbers further apart; of a
 * product that no rounding makes positive it is 0. */
double attn_index_score(const attn_index *x, const attn_query *query, int64_t key, int64_t keys,
                        double *error) {
  enum { HEADS = 64 };
  if (!x || !query || !error) return (double)NAN;
  const source s = source_of(query->call, query->batch);
  const int64_t terms = x->width + x->heads + keys + s.p->kv_heads + 8;
  double sum = 0, size = 0, weights = 0, most = 0;
  for (int64_t first = 0; first < x->heads; first += HEADS) {
    const int64_t count = attn_min(HEADS, x->heads - first);
    double product[HEADS] = {0}, magnitude[HEADS] = {0}, of_key;
    for (int64_t l = 0; l < x->width; l++) {
      const double k = element_of_mean(&s, key, keys, l, &of_key);
      for (int64_t h = 0; h < count; h++) {
        const double q = query_element(&s, first + h, query->i, l);
        product[h] += q * k;
        magnitude[h] += fabs(q) * of_key;
      }
    }
    for (int64_t h = 0; h < count; h++) {
      const double w = weight_of(&s, first + h, query->i);
      most = fmax(most, magnitude[h]);
      if (product[h] < -attn_rank_error(s.p, terms, magnitude[h]) && isfinite(w)) continue;
      sum += w * (product[h] < 0 ? 0 : product[h]);
      size += fabs(w) * magnitude[h];
      weights += fabs(w);
    }
  }
  *error = weights == 0 ? 0 : attn_rank_error(s.p, terms, size) + weights * attn_rank_error(s.p, terms, 0);
  if (!(fmax(size, most) < attn_numbers[s.p->dtype].largest / 4)) *error = (double)INFINITY;
  return sum;
}
