/* vector.c - plain loops: vectors here have as many elements as a head is wide, and BLAS fixes no order. */
#include "experiments/mathematics/vector.h"

#include <math.h>
#include <stdlib.h>

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

double vector_norm(const double *a, int64_t n) { return sqrt(vector_dot(a, a, n)); }

double vector_distance(const double *a, const double *b, int64_t n) {
  double part[4] = {0};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int t = 0; t < 4; t++) part[t] += (a[i + t] - b[i + t]) * (a[i + t] - b[i + t]);
  for (; i < n; i++) part[0] += (a[i] - b[i]) * (a[i] - b[i]);
  return sqrt((part[0] + part[1]) + (part[2] + part[3]));
}

static int descending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x < y) - (x > y);
}

void vector_descend(double *x, int64_t n) { qsort(x, (size_t)n, sizeof *x, descending); }
