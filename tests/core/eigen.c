/* eigen.c - attn_eigen: orthonormal rows, A v = lambda v, descending, for matrices of every kind of spectrum;
 * what has no eigenvectors is refused. */
#include "tests/support/core.h"

#include <math.h>

enum { N = 61 };

/* A = sum_e value(e) u_e u_e^T of reflected unit vectors, n rows. */
static void make(double *a, int64_t n, double (*value)(int64_t, int64_t)) {
  double u[N], square = 0;
  attn_rng rng = rng_of(3, 0, (uint64_t)n);
  for (int64_t l = 0; l < n; l++) {
    u[l] = attn_rng_normal(&rng);
    square += u[l] * u[l];
  }
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n; j++) {
      a[i * n + j] = 0;
      for (int64_t e = 0; e < n; e++)
        a[i * n + j] +=
            value(e, n) * ((i == e) - 2 * u[i] * u[e] / square) * ((j == e) - 2 * u[j] * u[e] / square);
    }
}

static double distinct(int64_t e, int64_t n) { return (double)((7 * e) % n) - (double)n / 3; }
static double equal(int64_t e, int64_t n) {
  (void)n;
  return (double)(e % 3);
}
static double graded(int64_t e, int64_t n) {
  (void)n;
  return pow(10, (double)(-e) / 2);
}
static double none(int64_t e, int64_t n) {
  (void)e, (void)n;
  return 0;
}

static void expect_orthonormal(int64_t n, const double *vectors, const char *what) {
  for (int64_t e = 0; e < n; e++)
    for (int64_t f = 0; f <= e; f++) {
      double product = 0;
      for (int64_t l = 0; l < n; l++) product += vectors[e * n + l] * vectors[f * n + l];
      cr_assert(fabs(product - (e == f)) <= 64 * (double)n * 0x1p-53, "%s: %lld.%lld = %g", what,
                (long long)e, (long long)f, product);
    }
}

static void judge(int64_t n, double (*value)(int64_t, int64_t)) {
  static double a[N * N], kept[N * N], vectors[N * N], values[N], scratch[2 * N];
  const double most = value == none ? 1 : 64, room = 64 * (double)n * 0x1p-53 * most;
  make(a, n, value);
  for (int64_t i = 0; i < n * n; i++) kept[i] = a[i] = a[i / n < i % n ? i : i % n * n + i / n];
  cr_assert(attn_eigen(n, a, vectors, values, scratch));
  double sum = 0;
  expect_orthonormal(n, vectors, "a given spectrum");
  for (int64_t e = 0; e < n; e++) {
    sum += value(e, n) - values[e];
    cr_expect(!e || values[e] <= values[e - 1], "n = %lld: %g before %g", (long long)n, values[e - 1],
              values[e]);
    for (int64_t i = 0; i < n; i++) {
      double own = 0;
      for (int64_t l = 0; l < n; l++) own += kept[i * n + l] * vectors[e * n + l];
      cr_expect(fabs(own - values[e] * vectors[e * n + i]) <= room, "n = %lld, vector %lld: %g, not %g",
                (long long)n, (long long)e, own, values[e] * vectors[e * n + i]);
    }
  }
  cr_expect(fabs(sum) <= room * (double)n, "n = %lld: the trace is off by %g", (long long)n, sum);
}

Test(core_eigen, vectors_and_values) {
  static const int64_t sizes[] = {1, 2, 3, 8, 17, N};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    judge(sizes[s], distinct);
    judge(sizes[s], equal);
    judge(sizes[s], graded);
    judge(sizes[s], none);
  }
}

/* Gram matrices: of fewer directions than rows, of causal weights that sink, of equal rows, and of rows so
 * small that their squares are subnormal. */
static double drawn(int what, int64_t i, int64_t j, int64_t rank, attn_rng *rng) {
  const double x = attn_rng_normal(rng);
  switch (what) {
  case 0:
    return j < rank ? x : 0;
  case 1:
    return j <= i ? exp(-fabs(x) * (double)(j * rank)) : 0;
  case 2:
    return j % (1 + i % 3) == 0;
  case 3:
    return i % rank == j ? 1 + 0x1p-52 * x : 0;
  default:
    return x * 1e-160;
  }
}

Test(core_eigen, low_ranks_and_tiny_elements_converge) {
  enum { MOST = 100, DRAWS = 110 };
  static double x[MOST * MOST], a[MOST * MOST], vectors[MOST * MOST], values[MOST], scratch[2 * MOST];
  for (int draw = 0; draw < DRAWS; draw++)
    for (int what = 0; what < 5; what++) {
      attn_rng rng = rng_of(5, (uint64_t)what, (uint64_t)draw);
      const int64_t n = 1 + attn_rng_below(&rng, MOST), rank = 1 + attn_rng_below(&rng, n);
      const char *where = text_of("kind %d, draw %d, n = %lld", what, draw, (long long)n);
      for (int64_t i = 0; i < n * n; i++) x[i] = drawn(what, i / n, i % n, rank, &rng);
      for (int64_t i = 0; i < n * n; i++) {
        a[i] = 0;
        for (int64_t l = 0; l < n; l++) a[i] += x[i / n * n + l] * x[i % n * n + l];
      }
      cr_assert(attn_eigen(n, a, vectors, values, scratch), "%s: no vectors", where);
      expect_orthonormal(n, vectors, where);
    }
}

Test(core_eigen, scales_are_powers_of_two) {
  static const double x[] = {0, 3e-300, -0.75, 1, 1e308, -0x1p-1074, (double)INFINITY},
                      to[] = {1, 0x1p994, 1, 0.5, 0x1p-1000, 0x1p1000, 1};
  for (size_t i = 0; i < sizeof x / sizeof *x; i++)
    cr_expect(attn_unit_scale(1, x + i) == to[i], "of %g: %a", x[i], attn_unit_scale(1, x + i));
}

Test(core_eigen, what_is_not_finite_has_none) {
  double a[4] = {1, 0, 0, (double)NAN}, vectors[4], values[2], scratch[4];
  cr_expect(!attn_eigen(2, a, vectors, values, scratch));
  a[3] = (double)INFINITY;
  cr_expect(!attn_eigen(2, a, vectors, values, scratch));
}
