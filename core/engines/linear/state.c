/* state.c - the running state of the linear engine, what goes into it (keys) and what is read from it
 * (queries). */
#include "core/engines/linear/linear_engine.h"

#include <math.h>
#include <string.h>

static int64_t sums_count(const linear_shape *s) { return (s->columns + 1) * s->v_row; }

size_t linear_state_bytes(const linear_shape *s) {
  size_t rows = attn_size_times((size_t)s->columns + 1, (size_t)s->v_row);
  return attn_size_sum(attn_size_times(attn_size_sum(rows, (size_t)s->f_row), attn_dtype_size(s->t)),
                       3 * sizeof(double));
}

linear_state linear_state_at(const linear_shape *s, void *block) {
  void *z = attn_at(block, sums_count(s), s->t);
  double *scalars = attn_at(z, s->f_row, s->t);
  return (linear_state){block, z, scalars, scalars + 1, scalars + 2};
}

void linear_clear(const linear_shape *s, linear_state x) {
  memset(x.sums, 0, linear_state_bytes(s));
  *x.reference = -(double)INFINITY;
}

void linear_copy(const linear_shape *s, linear_state from, linear_state to) {
  memcpy(to.sums, from.sums, linear_state_bytes(s));
}

double linear_rescale(const linear_shape *s, double from, double to) {
  double factor = from == to ? 1 : exp(from - to), least = attn_numbers[s->t].normal;
  return factor > 0 && factor < least ? least : factor;
}

void linear_combine(const linear_shape *s, double of_a, linear_state a, double of_b, linear_state b,
                    linear_state sum) {
  int64_t scaled = s->columns * s->v_row;
  s->simd->combine_rows(scaled, of_a, a.sums, of_b, b.sums, sum.sums);
  s->simd->combine_rows(s->columns, of_a, a.z, of_b, b.z, sum.z);
  /* What eps multiplies is not scaled. */
  s->simd->combine_rows(s->v_row, 1, attn_at(a.sums, scaled, s->t), 1, attn_at(b.sums, scaled, s->t),
                        attn_at(sum.sums, scaled, s->t));
  *sum.norms = of_a * *a.norms + of_b * *b.norms;
}

void linear_merge(const linear_shape *s, linear_state a, linear_state b, linear_state sum) {
  double reference = linear_raise(*a.reference, *b.reference);
  double of_a = linear_rescale(s, *a.reference, reference), of_b = linear_rescale(s, *b.reference, reference);
  linear_combine(s, of_a, a, of_b, b, sum);
  *sum.keys = *a.keys + *b.keys;
  *sum.reference = reference;
}

void linear_refer(const linear_shape *s, linear_state x, double reference, double factor) {
  *x.reference = reference;
  if (factor == 1) return;
  *x.norms *= factor;
  s->simd->scale_row(s->columns * s->v_row, factor, x.sums, x.sums);
  s->simd->scale_row(s->columns, factor, x.z, x.z);
}

void linear_add_keys(const linear_shape *s, linear_worker *w, const void *v_, int64_t rows, linear_state x) {
  const attn_kernels *simd = s->simd;
  const attn_matrix loaded =
      attn_load_rows(simd, attn_stored(s->p->v, s->t), v_, s->p->v.row, rows, s->p->d_v, w->rows);
  const void *v = loaded.at;
  double reference = *x.reference;
  for (int64_t j = 0; j < rows; j++) reference = linear_raise(reference, w->scale_k[j]);
  linear_refer(s, x, reference, linear_rescale(s, *x.reference, reference));
  bool plain = s->p->d_v * (int64_t)attn_dtype_size(s->t) % 64 == 0;
  for (int64_t j = 0; j < rows; j++) {
    double weight = linear_rescale(s, w->scale_k[j], reference);
    attn_set(w->weights, j, s->t, weight);
    plain &= weight == 1;
  }
  /* Values of weight 1 are read where they are, if they end where vectors do. */
  for (int64_t j = 0; j < rows && !plain; j++)
    simd->scale_row(s->p->d_v, attn_get(w->weights, j, s->t), attn_at(v, j * loaded.row, s->t),
                    attn_at(w->values, j * s->v_row, s->t));
  attn_product(simd, s->columns, s->p->d_v, rows, (attn_matrix){w->fk, 1, s->f_row}, plain ? v : w->values,
               plain ? loaded.row : s->v_row, true, x.sums, s->v_row);
  attn_product(simd, 1, s->columns, rows, (attn_matrix){w->weights, 0, 1}, w->fk, s->f_row, true, x.z, 0);
  for (int64_t j = 0; s->residual && s->residual->norms && j < rows; j++)
    *x.norms += attn_get(w->weights, j, s->t) *
                sqrt(attn_square_row(simd, s->columns, attn_at(w->fk, j * s->f_row, s->t)));
  if (!(s->map->eps > 0)) return;
  void *values = attn_at(x.sums, s->columns * s->v_row, s->t);
  for (int64_t j = 0; j < rows; j++)
    simd->combine_rows(s->p->d_v, 1, values, 1, attn_at(v, j * loaded.row, s->t), values);
  *x.keys += (double)rows;
}

void linear_map(const linear_shape *s, linear_worker *w, const attn_feature_rows *x) {
  bool query = x->side == ATTN_QUERY;
  const attn_matrix loaded = attn_load_rows(s->simd, attn_stored(query ? s->p->q : s->p->k, s->t), x->x,
                                            x->stride, x->rows, s->p->d_qk, w->rows);
  attn_feature_rows own = *x;
  own.x = loaded.at;
  own.stride = loaded.row;
  void *to = query ? w->fq : w->fk;
  double *scale = !query ? w->scale_k : s->residual ? w->residual.scale_q : NULL;
  if (s->guards)
    linear_map_watched(s, &own, to, scale);
  else
    s->map->map(s->map->state, s->c, &own, to, s->f_row, scale);
  for (int64_t i = 0; query && s->map->eps > 0 && i < x->rows; i++) {
    void *f = attn_at(w->fq, i * s->f_row, s->t);
    attn_set(w->eps_term, i, s->t, s->map->eps * s->simd->weigh_row(s->columns, f, NULL, s->map->eps));
  }
}

void linear_read(const linear_shape *s, linear_worker *w, int64_t rows, linear_state x, linear_rows o) {
  attn_product(s->simd, rows, s->p->d_v, s->columns, (attn_matrix){w->fq, s->f_row, 1}, x.sums, s->v_row,
               false, o.at, o.row);
  for (int64_t i = 0; i < rows; i++)
    w->sums[i] = s->simd->dot_row(s->columns, attn_at(w->fq, i * s->f_row, s->t), x.z);
}

void linear_read_eps(const linear_shape *s, linear_worker *w, int64_t rows, linear_state x, linear_rows o) {
  if (!(s->map->eps > 0)) return;
  attn_product(s->simd, rows, s->p->d_v, 1, (attn_matrix){w->eps_term, 1, 0},
               attn_at(x.sums, s->columns * s->v_row, s->t), s->v_row, true, o.at, o.row);
  for (int64_t i = 0; i < rows; i++) w->sums[i] += attn_get(w->eps_term, i, s->t) * *x.keys;
}

void linear_divide(const linear_shape *s, const linear_worker *w, int64_t rows, linear_rows o) {
  for (int64_t i = 0; i < rows; i++) {
    void *row = attn_at(o.at, i * o.row, s->t);
    s->simd->divide_row(s->p->d_v, row, w->sums[i], row);
  }
}

void linear_sum_segment(const linear_shape *s, linear_worker *w, const linear_head *h, int64_t segment,
                        linear_state part) {
  int64_t end = attn_min((segment + 1) * SEGMENT, h->keys);
  linear_clear(s, part);
  for (int64_t j = segment * SEGMENT; j < end; j += CHUNK) {
    int64_t rows = attn_min(CHUNK, end - j);
    linear_map(s, w,
               &(attn_feature_rows){h->head, ATTN_KEY, attn_row_behind(h->k, s->p->k, j, s->t), s->p->k.row,
                                    j, rows});
    linear_add_keys(s, w, attn_row_behind(h->v, s->p->v, j, s->t), rows, part);
    if (s->peaks) *linear_peak(s, h, j / CHUNK) = *part.reference;
  }
}
