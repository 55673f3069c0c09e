/* vector.c - plain loops: vectors here have as many elements as a head is wide, and BLAS fixes no order. */
#include "experiments/mathematics/vector.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double vector_dot(const double *a, const double *b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
  return sum;
}

double vector_dot_fast(const double *a, const double *b, int64_t n) {
  double part[4] = {0};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int t = 0; t < 4; t++) part[t] += a[i + t] * b[i + t];
  for (; i < n; i++) part[0] += a[i] * b[i];
  return (part[0] + part[1]) + (part[2] + part[3]);
}

/* |a - b| (b NULL: |a|), whose sum of squares is given. Where that leaves the range of double, the squares of
 * the differences over the largest are added. */
static double norm_of(double squares, const double *a, const double *b, int64_t n) {
  double most = 0, sum = 0;
  if (isnan(squares) || (squares > 0x1p-900 && squares < (double)INFINITY)) return sqrt(squares);
  for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(a[i] - (b ? b[i] : 0)));
  if (most == 0 || isinf(most)) return most;
  for (int64_t i = 0; i < n; i++) {
    const double x = (a[i] - (b ? b[i] : 0)) / most;
    sum += x * x;
  }
  return most * sqrt(sum);
}

double vector_norm(const double *a, int64_t n) { return norm_of(vector_dot(a, a, n), a, NULL, n); }

double vector_distance(const double *a, const double *b, int64_t n) {
  double part[4] = {0};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int t = 0; t < 4; t++) part[t] += (a[i + t] - b[i + t]) * (a[i + t] - b[i + t]);
  for (; i < n; i++) part[0] += (a[i] - b[i]) * (a[i] - b[i]);
  return norm_of((part[0] + part[1]) + (part[2] + part[3]), a, b, n);
}

void matrix_product(const double *a, const double *b, int64_t rows, int64_t inner, int64_t columns,
                    double *to) {
  memset(to, 0, (size_t)(rows * columns) * sizeof *to);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t k = 0; k < inner; k++)
      for (int64_t j = 0; j < columns; j++) to[i * columns + j] += a[i * inner + k] * b[k * columns + j];
}

void matrix_of_dots(const double *a, const double *b, int64_t rows, int64_t columns, int64_t n, double *to) {
  for (int64_t i = 0; i < rows * columns; i++)
    to[i] = vector_dot(a + i / columns * n, b + i % columns * n, n);
}

static int descending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x < y) - (x > y);
}

void vector_descend(double *x, int64_t n) { qsort(x, (size_t)n, sizeof *x, descending); }
