/* inverse.c - approximate inverses of a small square matrix, in fp64: an iteration towards the inverse, and
 * the pseudo-inverse.
 *
 * Xiong et al. 2021, Nystroemformer (arXiv:2102.03902), eq. 13: Z <- Z (13 I - A Z (15 I - A Z (7 I - A Z)))
 * / 4 from A^T / (|A|_1 |A|_inf), which leaves of R = I - A Z in each step (3 R^3 + R^4) / 4. */
#include "core/engines/lowrank/landmark_head.h"

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

/* t = 13 I - x (15 I - x (7 I - x)) */
static void polynomial(const attn_kernels *kernels, int64_t m, int64_t row, const double *x, double *t,
                       double *room) {
  subtract(7, x, m, row, t);
  multiply(kernels, m, row, x, t, room);
  subtract(15, room, m, row, t);
  multiply(kernels, m, row, x, t, room);
  subtract(13, room, m, row, t);
}

/* The largest sums of magnitudes of a row and of a column, and where they are. */
typedef struct norms {
  double rows, columns;
  int64_t row, column;
} norms;

static norms norms_of(int64_t m, int64_t row, const double *a) {
  norms n = {0};
  for (int64_t i = 0; i < m; i++) {
    double of_row = 0, of_column = 0;
    for (int64_t j = 0; j < m; j++) {
      of_row += fabs(a[i * row + j]);
      of_column += fabs(a[j * row + i]);
    }
    if (!(of_row <= n.rows)) n.rows = of_row, n.row = i;
    if (!(of_column <= n.columns)) n.columns = of_column, n.column = i;
  }
  return n;
}

/* From z to the next; scratch: 3 m row, zeros behind the rows' m elements. */
static void advance(const attn_kernels *kernels, int64_t m, int64_t row, const double *a, const double *z,
                    double *to, double *scratch) {
  double *x = scratch, *t = x + m * row, *room = t + m * row;
  multiply(kernels, m, row, a, z, x);
  polynomial(kernels, m, row, x, t, room);
  multiply(kernels, m, row, z, t, room);
  for (int64_t i = 0; i < m * row; i++) to[i] = room[i] / 4;
}

static void transpose(int64_t m, int64_t row, const double *x, double *to) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < m; j++) to[j * row + i] = x[i * row + j];
}

/* z = a^T / (|a|_1 |a|_inf) */
static void begin(int64_t m, int64_t row, const double *a, double *z) {
  const norms n = norms_of(m, row, a);
  transpose(m, row, a, z);
  for (int64_t i = 0; i < m * row; i++) z[i] /= n.rows * n.columns;
}

void iterated_inverse(const attn_kernels *kernels, int64_t iterations, int64_t m, int64_t row,
                      const double *a, double *z, double *scratch) {
  if (!kernels || !a || !z || !scratch) return;
  memset(scratch, 0, (size_t)(3 * m * row) * sizeof *scratch); /* rows are read to their ends */
  memset(z, 0, (size_t)(m * row) * sizeof *z);
  begin(m, row, a, z);
  for (int64_t step = 0; step < iterations; step++) advance(kernels, m, row, a, z, z, scratch);
}

/* From dz by a step's result to dz by what it began with; adds to da. With Y = (A Z)^T and C = Z^T dZ,
 *   d(A Z) = (-15 C + 7 (Y C + C Y) - Y (Y C + C Y) - C Y Y) / 4. */
static void step_back(const attn_kernels *kernels, int64_t m, int64_t row, const double *a, const double *z,
                      double *dz, double *da, double *scratch) {
  const int64_t size = m * row;
  double *x = scratch, *y = x + size, *c = y + size, *cy = c + size, *both = cy + size, *t = both + size,
         *dx = t + size, *room = dx + size;
  multiply(kernels, m, row, a, z, x);
  transpose(m, row, x, y);
  attn_product(kernels, m, m, m, (attn_matrix){z, 1, row}, dz, row, false, c, row);
  multiply(kernels, m, row, c, y, cy);
  multiply(kernels, m, row, y, c, both);
  for (int64_t i = 0; i < size; i++) both[i] += cy[i], dx[i] = (7 * both[i] - 15 * c[i]) / 4;
  multiply(kernels, m, row, y, both, t);
  multiply(kernels, m, row, cy, y, room);
  for (int64_t i = 0; i < size; i++) dx[i] -= (t[i] + room[i]) / 4;
  polynomial(kernels, m, row, y, t, room);
  multiply(kernels, m, row, dz, t, room);
  attn_product(kernels, m, m, m, (attn_matrix){a, 1, row}, dx, row, false, dz, row);
  for (int64_t i = 0; i < size; i++) dz[i] += room[i] / 4;
  transpose(m, row, z, t);
  attn_product(kernels, m, m, m, (attn_matrix){dx, row, 1}, t, row, true, da, row);
}

void iterated_inverse_back(const attn_kernels *kernels, int64_t iterations, int64_t m, int64_t row,
                           const double *a, double *dz, double *da, double *scratch) {
  if (!kernels || !a || !dz || !da || !scratch) return;
  const norms n = norms_of(m, row, a);
  double *z = scratch + 8 * m * row, along = 0;
  memset(scratch, 0, (size_t)((iterations + 8) * m * row) * sizeof *scratch);
  memset(da, 0, (size_t)(m * row) * sizeof *da);
  for (int64_t step = 0; step < iterations; step++, z += m * row)
    if (step)
      advance(kernels, m, row, a, z - m * row, z, scratch);
    else
      begin(m, row, a, z);
  for (int64_t step = 0; step < iterations; step++)
    step_back(kernels, m, row, a, z -= m * row, dz, da, scratch);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < m; j++) {
      da[i * row + j] += dz[j * row + i] / (n.rows * n.columns);
      along += dz[j * row + i] * a[i * row + j] / (n.rows * n.columns);
    }
  for (int64_t j = 0; j < m; j++) {
    da[n.row * row + j] -= (a[n.row * row + j] < 0 ? -along : along) / n.rows;
    da[j * row + n.column] -= (a[j * row + n.column] < 0 ? -along : along) / n.columns;
  }
}

/* By the eigenvectors (u; v) / sqrt 2 of [0 A; A^T 0], whose values are the singular ones: A^T A would lose
 * those below 1e-8 of the largest. */
bool pseudo_inverse(double rcond, int64_t m, int64_t row, const double *a, double *z, double *scratch) {
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

/* With w = (u; v) the eigenvectors of the same matrix, a function g of it changes by what the matrix does
 * between w and w', times (g(l) - g(l')) / (l - l') (Daleckii and Krein 1951); g = 1 / l, or 0. */
bool pseudo_inverse_back(double rcond, int64_t m, int64_t row, const double *a, const double *dz, double *da,
                         double *scratch) {
  if (!a || !dz || !da || !scratch) return false;
  const int64_t n = 2 * m;
  double *pair = scratch, *w = pair + n * n, *values = w + n * n, *c = values + 3 * n, *half = c + n * n;
  memset(pair, 0, (size_t)(n * n) * sizeof *pair);
  memset(da, 0, (size_t)(m * row) * sizeof *da);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < m; j++) pair[i * n + m + j] = pair[(m + j) * n + i] = a[i * row + j];
  if (!attn_eigen(n, pair, w, values, values + n)) return false;
  memset(half, 0, (size_t)(n * m) * sizeof *half); /* v^T dz */
  for (int64_t e = 0; e < n; e++)
    for (int64_t i = 0; i < m; i++) attn_add_times(w[e * n + m + i], dz + i * row, half + e * m, m);
  for (int64_t e = 0; e < n; e++)
    for (int64_t f = 0; f < n; f++) c[e * n + f] = attn_inner(half + e * m, w + f * n, m);
  memset(half, 0, (size_t)(n * m) * sizeof *half);
  for (int64_t e = 0; e < n; e++)
    for (int64_t f = 0; f < n; f++) {
      const double x = values[e], y = values[f], least = rcond * values[0];
      const bool kept = fabs(x) > least, other = fabs(y) > least;
      if (!kept && !other) continue;
      const double slope = kept && other ? -1 / (x * y) : kept ? 1 / (x * (x - y)) : 1 / (y * (y - x));
      attn_add_times(slope * (c[e * n + f] + c[f * n + e]), w + f * n + m, half + e * m, m);
    }
  for (int64_t e = 0; e < n; e++)
    for (int64_t i = 0; i < m; i++) attn_add_times(w[e * n + i], half + e * m, da + i * row, m);
  return true;
}
