/* defined.c - see defined.h. The best approximation by the eigenvectors of X^T X (GSL), X W W^T; landmarks by
 * the means that the law names, A^+ by its singular values (GSL), and the iteration by its residual: with R =
 * I - A Z,
 *
 *   Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4 = Z (I + R + R^2 + R^3 / 4),
 *
 * 13 - 15 (1 - R) + 7 (1 - R)^2 - (1 - R)^3 = 4 + 4 R + 4 R^2 + R^3. None of it is the variants' code. */
#include "experiments/checks/lowrank/defined.h"

#include "experiments/checks/lowrank/picked.h"

#include <gsl/gsl_blas.h>
#include <gsl/gsl_eigen.h>
#include <gsl/gsl_linalg.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/mathematics/spectrum.h"
#include "experiments/mathematics/vector.h"

/* A row of scores, once multiplied, to weights; hidden keys have none. */
static void soften(double scale, double *x, int64_t n, const bool *seen) {
  double top = -(double)INFINITY, sum = 0;
  for (int64_t j = 0; j < n; j++) x[j] *= scale;
  for (int64_t j = 0; j < n; j++)
    if (!seen || seen[j]) top = fmax(top, x[j]);
  for (int64_t j = 0; j < n; j++) sum += x[j] = !seen || seen[j] ? exp(x[j] - top) : 0;
  for (int64_t j = 0; j < n && sum > 0; j++) x[j] /= sum;
}

void low_rank_softmax(double scale, const double *x, int64_t rows, const double *y, int64_t columns,
                      int64_t d, double *w) {
  matrix_of_dots(x, y, rows, columns, d, w);
  for (int64_t i = 0; i < rows; i++) soften(scale, w + i * columns, columns, NULL);
}

/* -- the best -- */

/* x [rows, columns] <- its best approximation of rank r. *choice: how far errors are amplified where the r-th
 * singular value is close to the next. */
static attn_status approximate(double *x, int64_t rows, int64_t columns, int64_t r, double *choice) {
  const size_t n = (size_t)columns;
  gsl_matrix_view of = gsl_matrix_view_array(x, (size_t)rows, n);
  gsl_matrix *gram = gsl_matrix_calloc(n, n), *vectors = gsl_matrix_alloc(n, n),
             *along = gsl_matrix_alloc((size_t)rows, (size_t)r);
  gsl_vector *values = gsl_vector_alloc(n);
  gsl_eigen_symmv_workspace *work = gsl_eigen_symmv_alloc(n);
  double size = vector_dot(x, x, rows * columns);
  attn_status status = gram && vectors && values && work && along
                           ? ATTN_OK
                           : attn_fail(ATTN_ENOMEM, "no memory for a singular value decomposition");
  if (!status && !isfinite(size)) status = attn_fail(ATTN_ENUMERIC, "a decomposition of what is not finite");
  if (status) goto out;
  gsl_blas_dsyrk(CblasLower, CblasTrans, 1, &of.matrix, 0, gram);
  size *= spectrum_scale(gram);
  if (gsl_eigen_symmv(gram, values, vectors, work)) {
    status = attn_fail(ATTN_EFOREIGN, "a singular value decomposition did not converge");
    goto out;
  }
  gsl_eigen_symmv_sort(values, vectors, GSL_EIGEN_SORT_VAL_DESC);
  *choice = size / (gsl_vector_get(values, (size_t)r - 1) - gsl_vector_get(values, (size_t)r));
  const gsl_matrix_view leading = gsl_matrix_submatrix(vectors, 0, 0, n, (size_t)r);
  gsl_blas_dgemm(CblasNoTrans, CblasNoTrans, 1, &of.matrix, &leading.matrix, 0, along);
  gsl_blas_dgemm(CblasNoTrans, CblasTrans, 1, along, &leading.matrix, 0, &of.matrix);
out:
  gsl_matrix_free(gram);
  gsl_matrix_free(vectors);
  gsl_matrix_free(along);
  gsl_vector_free(values);
  gsl_eigen_symmv_free(work);
  return status;
}

static attn_status best_output(region *memory, const attn_low_rank *x, const low_rank_head *h, double *o,
                               double *amplified) {
  const int64_t n = h->keys, least = h->n_q < n ? h->n_q : n;
  double *w = region_take(memory, h->n_q * n, sizeof *w), choice = 0;
  attn_status status = region_status(memory, "for weights");
  if (!status) matrix_of_dots(h->q, h->k, h->n_q, n, h->d_qk, w);
  for (int64_t i = 0; !status && x->best == ATTN_BEST_WEIGHTS && i < h->n_q; i++)
    soften(h->scale, w + i * n, n, h->seen + i * n);
  if (!status && x->rank < least) status = approximate(w, h->n_q, n, x->rank, &choice);
  for (int64_t i = 0; !status && i < h->n_q; i++) {
    if (x->best == ATTN_BEST_SCORES) soften(h->scale, w + i * n, n, h->seen + i * n);
    /* A decomposition in fp64, whatever the type of the run. */
    amplified[i] = 1 + (double)(h->n_q + n) * 0x1p-26 * choice;
  }
  if (!status) matrix_product(w, h->v, h->n_q, n, h->d_v, o);
  return status;
}

/* -- landmarks -- */

void low_rank_landmarks(const attn_low_rank *x, attn_side side, const double *from, int64_t n, int64_t d,
                        int64_t landmarks, double *to) {
  memset(to, 0, (size_t)(landmarks * d) * sizeof *to);
  for (int64_t m = 0; m < landmarks; m++) {
    int64_t first, count;
    x->segment(x->state, side, n, landmarks, m, &first, &count);
    for (int64_t i = first; i < first + count; i++)
      for (int64_t l = 0; l < d; l++) to[m * d + l] += from[i * d + l] / (double)count;
  }
}

static attn_status invert(const double *a, int64_t n, double rcond, double *z) {
  const size_t m = (size_t)n;
  gsl_matrix *u = gsl_matrix_alloc(m, m), *v = gsl_matrix_alloc(m, m);
  gsl_vector *s = gsl_vector_alloc(m), *work = gsl_vector_alloc(m);
  attn_status status =
      u && v && s && work ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for a pseudo-inverse");
  if (!status) memcpy(u->data, a, m * m * sizeof *a);
  if (!status && gsl_linalg_SV_decomp(u, v, s, work))
    status = attn_fail(ATTN_EFOREIGN, "a singular value decomposition did not converge");
  memset(z, 0, m * m * sizeof *z);
  gsl_matrix_view inverse = gsl_matrix_view_array(z, m, m);
  for (size_t e = 0; !status && e < m; e++) {
    const double value = gsl_vector_get(s, e);
    const gsl_vector_view left = gsl_matrix_column(u, e), right = gsl_matrix_column(v, e);
    if (value > rcond * gsl_vector_get(s, 0))
      gsl_blas_dger(1 / value, &right.vector, &left.vector, &inverse.matrix);
  }
  gsl_matrix_free(u);
  gsl_matrix_free(v);
  gsl_vector_free(s);
  gsl_vector_free(work);
  return status;
}

double low_rank_norms(const double *a, int64_t n) {
  double rows = 0, columns = 0;
  for (int64_t i = 0; i < n; i++) {
    double row = 0, column = 0;
    for (int64_t j = 0; j < n; j++) {
      row += fabs(a[i * n + j]);
      column += fabs(a[j * n + i]);
    }
    rows = fmax(rows, row);
    columns = fmax(columns, column);
  }
  return rows * columns;
}

static attn_status iterate(region *memory, const double *a, int64_t n, int64_t iterations, double *z) {
  const int64_t size = n * n;
  double *room = region_take(memory, 4 * size, sizeof *room);
  if (!room) return region_status(memory, "for an iterated inverse");
  double *r = room, *square = r + size, *sum = square + size, *next = sum + size;
  const double by = low_rank_norms(a, n);
  for (int64_t i = 0; i < size; i++) z[i] = a[i % n * n + i / n] / by;
  for (int64_t t = 0; t < iterations; t++) {
    matrix_product(a, z, n, n, n, r);
    for (int64_t i = 0; i < size; i++) r[i] = (i / n == i % n) - r[i];
    matrix_product(r, r, n, n, n, square);
    matrix_product(square, r, n, n, n, next);
    for (int64_t i = 0; i < size; i++) sum[i] = (i / n == i % n) + r[i] + square[i] + next[i] / 4;
    matrix_product(z, sum, n, n, n, next);
    memcpy(z, next, (size_t)size * sizeof *z);
  }
  return ATTN_OK;
}

/* Z of A [n, n] for n landmarks, by the descriptor's definition. */
static attn_status middle(region *memory, const attn_low_rank *x, const double *a, int64_t n, double *z) {
  if (x->middle == ATTN_MIDDLE_PINV) return invert(a, n, x->rcond, z);
  if (x->middle == ATTN_MIDDLE_NEWTON) return iterate(memory, a, n, x->iterations, z);
  for (int64_t i = 0; i < n * n; i++) z[i] = i / n == i % n;
  return ATTN_OK;
}

static attn_status landmark_output(region *memory, const attn_low_rank *x, const low_rank_head *h,
                                   double unit, double *o, double *amplified) {
  const int64_t least = h->n_q < h->keys ? h->n_q : h->keys, m = x->rank < least ? x->rank : least,
                d = h->d_qk, n = h->keys;
  double *room = region_take(memory, 2 * m * (d + m) + m * (n + h->d_v) + 3 * h->n_q * m, sizeof *room);
  if (!room) return region_status(memory, "for landmarks");
  double *ql = room, *kl = ql + m * d, *a = kl + m * d, *z = a + m * m, *b = z + m * m, *bv = b + m * n,
         *f = bv + m * h->d_v, *g = f + h->n_q * m, *size = g + h->n_q * m;
  low_rank_landmarks(x, ATTN_QUERY, h->q, h->n_q, d, m, ql);
  low_rank_landmarks(x, ATTN_KEY, h->k, n, d, m, kl);
  low_rank_softmax(h->scale, ql, m, kl, m, d, a);
  low_rank_softmax(h->scale, ql, m, h->k, n, d, b);
  low_rank_softmax(h->scale, h->q, h->n_q, x->middle == ATTN_MIDDLE_AGENTS ? ql : kl, m, d, f);
  const attn_status status = middle(memory, x, a, m, z);
  if (!status) {
    matrix_product(b, h->v, m, n, h->d_v, bv);
    matrix_product(f, z, h->n_q, m, m, g);
    matrix_product(g, bv, h->n_q, m, h->d_v, o);
    for (int64_t i = 0; i < m * m; i++) z[i] = fabs(z[i]);
    matrix_product(f, z, h->n_q, m, m, size);
    for (int64_t i = 0; i < h->n_q; i++) {
      double sum = 0;
      for (int64_t l = 0; l < m; l++) sum += size[i * m + l];
      amplified[i] = 1 + 64 * sqrt(unit) * sum;
    }
  }
  return status;
}

static attn_status picked_output(region *memory, const attn_low_rank *x, const low_rank_head *h, double unit,
                                 double *o, double *amplified) {
  double *w = region_take(memory, h->n_q * h->keys, sizeof *w);
  attn_status status = region_status(memory, "for the weights of picked rows");
  if (!status) status = picked_weights(memory, x, h, unit, w, amplified);
  if (!status) matrix_product(w, h->v, h->n_q, h->keys, h->d_v, o);
  return status;
}

attn_status low_rank_output(const attn_low_rank *x, const low_rank_head *h, double unit, double *o,
                            double *amplified) {
  memset(o, 0, (size_t)(h->n_q * h->d_v) * sizeof *o);
  for (int64_t i = 0; i < h->n_q; i++) amplified[i] = 1;
  if (h->keys < 1 || (x->segment && x->rank < 1)) return ATTN_OK;
  region memory = {.last = NULL};
  const attn_status status = x->pick      ? picked_output(&memory, x, h, unit, o, amplified)
                             : x->segment ? landmark_output(&memory, x, h, unit, o, amplified)
                                          : best_output(&memory, x, h, o, amplified);
  region_free(&memory);
  return status;
}
