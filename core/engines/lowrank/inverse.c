/* inverse.c - approximate inverses of a small square matrix, in fp64: an iteration towards the inverse, and
 * the pseudo-inverse.
 *
 * Xiong et al. 2021, Nystroemformer (arXiv:2102.03902), eq. 13: Z <- Z (13 I - A Z (15 I - A Z (7 I - A Z)))
 * / 4 from A^T / (|A|_1 |A|_inf), which leaves of R = I - A Z in each step (3 R^3 + R^4) / 4. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

const attn_kernels *attn_kernels_f64(const attn_kernels *of) {
  const attn_kernels *found = NULL;
  return of && !attn_kernels_select(of->isa, ATTN_F64, &found) ? found : NULL;
}

/* to = by I - x */
static void subtract(double by, const double *x, int64_t m, int64_t row, double *to) {
  for (int64_t i = 0; i < m; i++) {
    for (int64_t j = 0; j < m; j++) to[i * row + j] = -x[i * row + j];
    to[i * row + i] += by;
  }
}

static void multiply(const attn_kernels *kernels, int64_t m, int64_t row, const double *a, const double *b,
                     double *to) {
  attn_product(kernels, m, m, m, (attn_matrix){a, row, 1}, b, row, false, to, row);
}

void attn_iterated_inverse(const attn_kernels *kernels, int64_t iterations, int64_t m, int64_t row,
                           const double *a, double *z, double *scratch) {
  if (!kernels || !a || !z || !scratch) return;
  double *x = scratch, *t = x + m * row, *next = t + m * row, rows = 0, columns = 0;
  memset(scratch, 0, (size_t)(3 * m * row) * sizeof *scratch); /* rows are read to their ends */
  memset(z, 0, (size_t)(m * row) * sizeof *z);
  for (int64_t i = 0; i < m; i++) {
    double of_row = 0, of_column = 0;
    for (int64_t j = 0; j < m; j++) {
      of_row += fabs(a[i * row + j]);
      of_column += fabs(a[j * row + i]);
    }
    rows = of_row <= rows ? rows : of_row;
    columns = of_column <= columns ? columns : of_column;
  }
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < m; j++) z[i * row + j] = a[j * row + i] / (rows * columns);
  for (int64_t step = 0; step < iterations; step++) {
    multiply(kernels, m, row, a, z, x);
    subtract(7, x, m, row, t);
    multiply(kernels, m, row, x, t, next);
    subtract(15, next, m, row, t);
    multiply(kernels, m, row, x, t, next);
    subtract(13, next, m, row, t);
    multiply(kernels, m, row, z, t, next);
    for (int64_t i = 0; i < m * row; i++) z[i] = next[i] / 4;
  }
}

/* By the eigenvectors (u; v) / sqrt 2 of [0 A; A^T 0], whose values are the singular ones: A^T A would lose
 * those below 1e-8 of the largest. */
bool attn_pseudo_inverse(double rcond, int64_t m, int64_t row, const double *a, double *z, double *scratch) {
  if (!a || !z || !scratch) return false;
  const int64_t n = 2 * m;
  double *pair = scratch, *vectors = pair + n * n, *singular = vectors + n * n, *rest = singular + n;
  memset(pair, 0, (size_t)(n * n) * sizeof *pair);
  memset(z, 0, (size_t)(m * row) * sizeof *z);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < m; j++) pair[i * n + m + j] = pair[(m + j) * n + i] = a[i * row + j];
  if (!attn_eigen(n, pair, vectors, singular, rest)) return false;
  for (int64_t e = 0; e < m; e++) {
    const double *u = vectors + e * n, *v = u + m;
    if (!(singular[e] > rcond * singular[0])) continue;
    for (int64_t i = 0; i < m; i++)
      for (int64_t j = 0; j < m; j++) z[i * row + j] += 2 * v[i] / singular[e] * u[j];
  }
  return true;
}
