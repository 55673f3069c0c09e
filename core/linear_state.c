/* linear_state.c - the running state of the linear engine: S = sum_j e^(c_j - M) f_j (v_j, 1)^T with its
 * reference M. */
#include "linear.h"

#include <math.h>
#include <string.h>

size_t linear_state_bytes(const linear_shape *s) {
  size_t elements = attn_size_times((size_t)s->columns + 1, (size_t)s->width);
  return attn_size_sum(attn_size_times(elements, attn_dtype_size(s->t)), 63) & ~(size_t)63;
}

void linear_clear(const linear_shape *s, linear_state x) {
  memset(x.sums, 0, linear_state_bytes(s));
  *x.reference = -(double)INFINITY;
}

double linear_rescale(double from, double to) { return from == to ? 1 : exp(from - to); }

static void scale_rows(const linear_shape *s, void *sums, double factor) {
  if (factor == 1) return;
  for (int64_t i = 0; i < s->columns * s->width; i++)
    attn_set(sums, i, s->t, attn_get(sums, i, s->t) * factor);
}

void linear_merge(const linear_shape *s, linear_state to, linear_state from) {
  double reference = *from.reference > *to.reference ? *from.reference : *to.reference;
  double a = linear_rescale(*to.reference, reference), b = linear_rescale(*from.reference, reference);
  for (int64_t i = 0; i < (s->columns + 1) * s->width; i++) {
    bool plain = i >= s->columns * s->width; /* the row of eps is not scaled */
    attn_set(to.sums, i, s->t,
             (plain ? 1 : a) * attn_get(to.sums, i, s->t) + (plain ? 1 : b) * attn_get(from.sums, i, s->t));
  }
  *to.reference = reference;
}

void linear_weigh_values(const linear_shape *s, const void *v, int64_t rows, const double *scale,
                         double reference, void *out) {
  for (int64_t j = 0; j < rows; j++) {
    double weight = scale ? linear_rescale(scale[j], reference) : 1;
    const void *row = attn_at(v, j * s->p->v.row, s->t);
    void *to = attn_at(out, j * s->width, s->t);
    for (int64_t l = 0; l < s->p->d_v; l++) attn_set(to, l, s->t, weight * attn_get(row, l, s->t));
    attn_set(to, s->p->d_v, s->t, weight);
  }
}

double linear_running_max(const double *scale, int64_t rows, double max) {
  for (int64_t j = 0; j < rows; j++) {
    double c = scale[j];
    if (c > max) max = c;
  }
  return max;
}

void linear_absorb(const linear_shape *s, linear_worker *w, const void *v, int64_t rows, linear_state x) {
  double reference = linear_running_max(w->scale_k, rows, *x.reference);
  scale_rows(s, x.sums, linear_rescale(*x.reference, reference));
  *x.reference = reference;
  linear_weigh_values(s, v, rows, w->scale_k, reference, w->values);
  attn_gemm(s->c->kernels, s->columns, s->width, rows, (attn_matrix){w->fk, 1, s->columns},
            (attn_matrix){w->values, s->width, 1}, true, x.sums, s->width, w->gemm);
  void *plain = attn_at(x.sums, s->columns * s->width, s->t);
  for (int64_t j = 0; s->map->eps > 0 && j < rows; j++) {
    const void *row = attn_at(v, j * s->p->v.row, s->t);
    for (int64_t l = 0; l < s->p->d_v; l++)
      attn_set(plain, l, s->t, attn_get(plain, l, s->t) + attn_get(row, l, s->t));
    attn_set(plain, s->p->d_v, s->t, attn_get(plain, s->p->d_v, s->t) + 1);
  }
}
