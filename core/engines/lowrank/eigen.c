/* eigen.c - eigenvectors of a symmetric matrix: Householder's reflections to a tridiagonal matrix, then its
 * QR iteration with Wilkinson's shifts (Golub and Van Loan, Matrix Computations, 8.3). In the order of its
 * loops, without a library: the same bits on every machine. Vectors are rows, so that reflections and
 * rotations run along memory.
 *
 * Error: each eigenvalue within a modest multiple of n u |A| of the true one, the vectors orthonormal to as
 * much. */
#include "core/internal.h"

#include <float.h>
#include <math.h>

enum { TURNS = 60 }; /* of the iteration for one eigenvalue; two or three are usual */

static double inner(const double *x, const double *y, int64_t n) {
  double s[8] = {0};
  int64_t l = 0;
  for (; l + 8 <= n; l += 8)
    for (int i = 0; i < 8; i++) s[i] += x[l + i] * y[l + i];
  for (; l < n; l++) s[0] += x[l] * y[l];
  return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

/* The reflection I - 2 v v^T / v.v that takes x to (alpha, 0, ...), v in place of x with v.v = 2; returns
 * alpha. */
static double reflection(double *x, int64_t n) {
  double most = 0;
  for (int64_t l = 0; l < n; l++) most = fmax(most, fabs(x[l]));
  if (!(most > 0)) return 0;
  for (int64_t l = 0; l < n; l++) x[l] /= most;
  const double length = sqrt(inner(x, x, n)), alpha = -copysign(length, x[0]);
  const double size = sqrt(length * (length + fabs(x[0])));
  x[0] -= alpha;
  for (int64_t l = 0; l < n; l++) x[l] /= size;
  return alpha * most;
}

/* a = Q T Q^T: T's diagonal to d, what is beside it to e[1 ...]; row k of a from k + 1 on keeps the
 * reflection of step k. p: [n]. */
static void tridiagonal(int64_t n, double *a, double *d, double *e, double *p) {
  for (int64_t k = 0; k < n; k++) {
    const int64_t first = k + 1, rest = n - first;
    double *v = a + k * n + first;
    d[k] = a[k * n + k];
    if (!rest) break;
    e[first] = reflection(v, rest);
    if (e[first] == 0) continue;
    for (int64_t i = 0; i < rest; i++) p[i] = inner(a + (first + i) * n + first, v, rest);
    attn_add_times(-inner(p, v, rest) / 2, v, p, rest);
    for (int64_t i = 0; i < rest; i++) {
      double *row = a + (first + i) * n + first;
      attn_add_times(-p[i], v, row, rest);
      attn_add_times(-v[i], p, row, rest);
    }
  }
}

/* The rows of z: Q^T. */
static void accumulate(int64_t n, const double *a, const double *e, double *z) {
  for (int64_t i = 0; i < n * n; i++) z[i] = i / n == i % n;
  for (int64_t k = n - 2; k >= 0; k--) {
    const int64_t first = k + 1, rest = n - first;
    const double *v = a + k * n + first;
    if (e[first] == 0) continue;
    for (int64_t i = first; i < n; i++) {
      double *row = z + i * n + first;
      attn_add_times(-inner(row, v, rest), v, row, rest);
    }
  }
}

static void rotate(double c, double s, double *x, double *y, int64_t n) {
  for (int64_t l = 0; l < n; l++) {
    const double before = x[l];
    x[l] = c * before - s * y[l];
    y[l] = s * before + c * y[l];
  }
}

/* One sweep of rotations over rows from ... to of the tridiagonal matrix, from its end. */
static void sweep(int64_t n, int64_t from, int64_t to, double *d, double *e, double *z) {
  const double half = (d[from + 1] - d[from]) / (2 * e[from + 1]);
  double g = d[to] - d[from] + e[from + 1] / (half + copysign(hypot(half, 1), half)), s = 1, c = 1, lost = 0;
  for (int64_t i = to - 1; i >= from; i--) {
    const double f = s * e[i + 1], b = c * e[i + 1], r = hypot(f, g);
    if (i + 1 < to) e[i + 2] = r;
    if (r == 0) { /* the matrix has come apart here */
      d[i + 1] -= lost;
      return;
    }
    s = f / r;
    c = g / r;
    g = d[i + 1] - lost;
    const double t = (d[i] - g) * s + 2 * c * b;
    lost = s * t;
    d[i + 1] = g + lost;
    g = c * t - b;
    rotate(c, s, z + i * n, z + (i + 1) * n, n);
  }
  d[from] -= lost;
  e[from + 1] = g;
}

/* An element beside the diagonal is zero where it is below the rounding of the whole matrix. Compared with
 * the two next to it on the diagonal it would never be where these are rounding errors themselves: of a
 * matrix of low rank. */
static bool iterate(int64_t n, double *d, double *e, double *z) {
  double norm = 0;
  for (int64_t i = 0; i < n; i++)
    norm = fmax(norm, fabs(d[i]) + (i > 0 ? fabs(e[i]) : 0) + (i + 1 < n ? fabs(e[i + 1]) : 0));
  for (int64_t from = 0; from < n; from++)
    for (int turn = 0;; turn++) {
      int64_t to = from;
      while (to + 1 < n && !(fabs(e[to + 1]) <= DBL_EPSILON / 2 * norm)) to++;
      if (to == from) break;
      if (turn == TURNS) return false;
      if (to + 1 < n) e[to + 1] = 0;
      sweep(n, from, to, d, e, z);
    }
  return true;
}

static void sort(int64_t n, double *values, double *z) {
  for (int64_t i = 0; i < n; i++) {
    int64_t largest = i;
    for (int64_t j = i + 1; j < n; j++)
      if (values[j] > values[largest]) largest = j;
    if (largest == i) continue;
    const double value = values[i];
    values[i] = values[largest];
    values[largest] = value;
    for (int64_t l = 0; l < n; l++) {
      const double x = z[i * n + l];
      z[i * n + l] = z[largest * n + l];
      z[largest * n + l] = x;
    }
  }
}

double attn_unit_scale(int64_t count, const double *x) {
  enum { FARTHEST = 1000 };
  double most = 0;
  int exponent = 0;
  for (int64_t i = 0; x && i < count; i++) most = fmax(most, fabs(x[i]));
  if (isfinite(most)) (void)frexp(most, &exponent);
  if (exponent > FARTHEST) exponent = FARTHEST;
  if (exponent < -FARTHEST) exponent = -FARTHEST;
  return ldexp(1, -exponent);
}

bool attn_eigen(int64_t n, double *a, double *vectors, double *values, double *scratch) {
  if (!a || !vectors || !values || !scratch) return false;
  double *e = scratch, *p = scratch + n;
  const double scale = attn_unit_scale(n * n, a);
  for (int64_t i = 0; i < n * n; i++) {
    if (!isfinite(a[i])) return false;
    a[i] *= scale; /* squares of tiny elements would vanish, and rotations by them not be orthonormal */
  }
  tridiagonal(n, a, values, e, p);
  accumulate(n, a, e, vectors);
  if (!iterate(n, values, e, vectors)) return false;
  sort(n, values, vectors);
  for (int64_t i = 0; i < n; i++) values[i] /= scale;
  return true;
}
