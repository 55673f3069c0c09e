/* features.c - what feature maps are made of, under every instruction set: products in place, and the
 * functions of a row. */
#include "tests/support/core.h"

typedef struct bench {
  const attn_kernels *kernels;
  attn_dtype dtype;
  double unit;
} bench;

static void for_every_kernel(void (*test)(const bench *)) {
  for (const char *const *isa = isas_under_test(); *isa; isa++)
    for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F64; dtype++) {
      attn_problem p = shape_problem((case_shape){1, 1, 1, 4, 4, 4, 4, false, false}, dtype);
      attn_plan *plan = plan_made(&p, "tiled", &(attn_options){.isa = *isa});
      bench b = {attn_plan_context(plan)->kernels, dtype, dtype == ATTN_F64 ? 0x1p-53 : 0x1p-24};
      note_context("%s %s", *isa, dtype == ATTN_F64 ? "f64" : "f32");
      test(&b);
      attn_plan_destroy(plan);
    }
}

static void *random_block(attn_dtype dtype, int64_t count, uint64_t seed) {
  void *x = aligned_alloc(64, ((size_t)count * 8 + 64) / 64 * 64);
  cr_assert_not_null(x);
  for (int64_t i = 0; i < count; i++) attn_set(x, i, dtype, normal_draw(&seed));
  return x;
}

/* -- C (+)= A B in place -- */

typedef struct product {
  int64_t m, n, k;
  bool turned, accumulate; /* turned: A is stored by columns */
} product;

/* Against gemm, which has its own tests: the two differ by the rounding of both. */
static void check_product(const bench *t, product x) {
  int64_t b_row = attn_padded(x.n, t->dtype), c_row = x.n + 3;
  size_t size = attn_dtype_size(t->dtype);
  void *a = random_block(t->dtype, x.m * x.k + 1, 1), *b = random_block(t->dtype, x.k * b_row, 2);
  void *c = random_block(t->dtype, x.m * c_row, 3), *other = random_block(t->dtype, x.m * c_row, 3);
  void *row = random_block(t->dtype, c_row, 3);
  void *scratch = aligned_alloc(64, attn_gemm_scratch(t->kernels) / 64 * 64 + 64);
  /* One element beyond alignment: A and C may lie anywhere. */
  attn_matrix ma = {attn_at(a, 1, t->dtype), x.turned ? 1 : x.k, x.turned ? x.m : 1};
  for (int64_t l = 0; l < x.k; l++) /* what fills a row up must not enter */
    for (int64_t j = x.n; j < b_row; j++) attn_set(b, l * b_row + j, t->dtype, (double)NAN);
  attn_product(t->kernels, x.m, x.n, x.k, ma, b, b_row, x.accumulate, c, c_row);
  attn_gemm(t->kernels, x.m, x.n, x.k, ma, (attn_matrix){b, b_row, 1}, x.accumulate, other, c_row, scratch);
  for (int64_t i = 0; i < x.m; i++)
    for (int64_t j = 0; j < c_row; j++) {
      double got = attn_get(c, i * c_row + j, t->dtype), want = attn_get(other, i * c_row + j, t->dtype);
      double bound = 0;
      for (int64_t l = 0; l < x.k && j < x.n; l++)
        bound += fabs(attn_get(ma.at, i * ma.row + l * ma.column, t->dtype) *
                      attn_get(b, l * b_row + j, t->dtype));
      bound = (bound + 4) * 2 * ((double)x.k + 1) * t->unit * (j < x.n);
      if (!(fabs(got - want) <= bound))
        note_failure("%dx%dx%d: c[%d][%d] = %.9g, expected %.9g", (int)x.m, (int)x.n, (int)x.k, (int)i,
                     (int)j, got, want);
    }
  /* Row i depends on row i of A alone, bitwise. */
  int64_t i = x.m / 2;
  uint64_t seed = 3;
  for (int64_t l = 0; l < x.m * c_row; l++) {
    double value = normal_draw(&seed);
    if (l / c_row == i) attn_set(row, l % c_row, t->dtype, value);
  }
  attn_product(t->kernels, 1, x.n, x.k, (attn_matrix){attn_at(ma.at, i * ma.row, t->dtype), 7, ma.column}, b,
               b_row, x.accumulate, row, 0);
  if (memcmp(row, attn_at(c, i * c_row, t->dtype), (size_t)c_row * size) != 0)
    note_failure("%dx%dx%d: row %d alone differs", (int)x.m, (int)x.n, (int)x.k, (int)i);
  free(a), free(b), free(c), free(other), free(row), free(scratch);
}

static void products(const bench *t) {
  static const int64_t sizes[] = {1, 2, 3, 5, 6, 7, 8, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 81};
  enum { SIZES = sizeof sizes / sizeof *sizes };
  for (int i = 0; i < SIZES; i++)
    for (int j = 0; j < SIZES; j++)
      check_product(t, (product){sizes[i], sizes[j], sizes[(i * 7 + j) % SIZES], i % 2, (i + j) % 3 == 0});
  check_product(t, (product){3, 5, 0, false, false});
  check_product(t, (product){3, 5, 0, false, true});
  check_product(t, (product){13, 70, 300, true, false});
}
Test(variants_features, product) { for_every_kernel(products); }

/* -- functions of a row -- */

enum { ROW = 67 };

/* Reduced range, its border, beyond it, and what is not a number; any length. */
static void trig_rows(const bench *t) {
  static const double reach[] = {1e-20, 1e-3, 1, 10, 300, 12e3, 13e3, 3.1e6, 3.3e6, 1e12};
  static const double odd[] = {0.0, -0.0, (double)INFINITY, -(double)INFINITY, (double)NAN};
  double worst = 0;
  uint64_t seed = 11;
  for (size_t k = 0; k < sizeof reach / sizeof *reach; k++)
    for (int draw = 0; draw < 400; draw++) {
      unsigned char *x = random_block(t->dtype, ROW + 1, seed), *c = random_block(t->dtype, ROW + 1, 2);
      void *s = random_block(t->dtype, ROW + 1, 3);
      int64_t n = draw % ROW;
      for (int64_t i = 0; i < n; i++) attn_set(x, i, t->dtype, reach[k] * (2 * uniform_draw(&seed) - 1));
      if (n > 20 && draw % 4 == 0) attn_set(x, draw % n, t->dtype, odd[draw / 4 % 5]);
      attn_trig_row(t->kernels, n, x, c, s);
      for (int64_t i = 0; i < n; i++) {
        double angle = attn_get(x, i, t->dtype);
        double off = fabs(attn_get(c, i, t->dtype) - cos(angle)) / t->unit,
               other = fabs(attn_get(s, i, t->dtype) - sin(angle)) / t->unit;
        if (isfinite(angle) ? !(off <= 4 && other <= 4) : !(isnan(off) && isnan(other)))
          note_failure("of %.9g: off by %.3g u and %.3g u", angle, off, other);
        if (isfinite(angle)) worst = fmax(worst, fmax(off, other));
      }
      double beyond = attn_get(s, n, t->dtype);
      attn_trig_row(t->kernels, n, x, x, s); /* in place */
      if (memcmp(x, c, (size_t)n * attn_dtype_size(t->dtype)) != 0) note_failure("in place differs");
      cr_assert(attn_get(s, n, t->dtype) <= beyond && attn_get(s, n, t->dtype) >= beyond);
      free(x), free(c), free(s);
    }
  cr_expect_gt(worst, 0.25, "never off: it was not measured");
}
Test(variants_features, cosines_and_sines) { for_every_kernel(trig_rows); }

static void simple_rows(const bench *t) {
  for (int64_t n = 0; n < ROW; n++) {
    void *x = random_block(t->dtype, ROW, 5), *y = random_block(t->dtype, ROW, 6);
    long double square = 0;
    if (n > 3) attn_set(x, n / 2, t->dtype, (double)NAN);
    attn_scale_row(t->kernels, n, -2, x, y);
    for (int64_t i = 0; i < n; i++) {
      double a = attn_get(x, i, t->dtype), b = attn_get(y, i, t->dtype);
      if (isnan(a) ? !isnan(b) : !(fabs(b + 2 * a) <= 0)) note_failure("-2 x[%d]: %g of %g", (int)i, b, a);
    }
    attn_relu_row(t->kernels, n, y);
    for (int64_t i = 0; i < n; i++) {
      double a = -2 * attn_get(x, i, t->dtype), b = attn_get(y, i, t->dtype);
      if (isnan(a) ? !isnan(b) : !(fabs(b - fmax(a, 0)) <= 0))
        note_failure("max(y[%d], 0): %g of %g", (int)i, b, a);
    }
    if (n > 3) {
      cr_expect(isnan(attn_square_row(t->kernels, n, x)));
      attn_set(x, n / 2, t->dtype, 1e10);
    }
    for (int64_t i = 0; i < n; i++) square += powl((long double)attn_get(x, i, t->dtype), 2);
    double got = attn_square_row(t->kernels, n, x);
    if (!(fabsl((long double)got - square) <= square * ROW * 0x1p-53L)) note_failure("x.x = %.17g", got);
    free(x), free(y);
  }
}
Test(variants_features, rows) { for_every_kernel(simple_rows); }

static void expect_near(const bench *t, const char *what, int64_t at, double got, double want) {
  if (isnan(want) ? !isnan(got) : !(fabs(got - want) <= 8 * t->unit * fmax(fabs(want), 1e-300)))
    note_failure("%s[%d] is %.17g, not %.17g", what, (int)at, got, want);
}

/* With a NaN among them from some length on. What lies behind a row stays as it was. */
static void fixed_rows(const bench *t) {
  enum { MOST = 45, PAIRS = MOST * (MOST + 1) / 2 };
  for (int64_t n = 0; n < MOST; n++) {
    void *x = random_block(t->dtype, MOST, 7), *y = random_block(t->dtype, MOST, 8);
    void *elu = random_block(t->dtype, MOST, 7), *pairs = random_block(t->dtype, PAIRS + 1, 9);
    void *sum = random_block(t->dtype, MOST, 8);
    if (n > 30) attn_set(x, n / 2, t->dtype, (double)NAN), attn_set(elu, n / 2, t->dtype, (double)NAN);
    const double behind = attn_get(y, n, t->dtype), after = attn_get(pairs, n * (n + 1) / 2, t->dtype);
    attn_elu_row(t->kernels, n, elu);
    expect_near(t, "behind elu", n, attn_get(elu, n, t->dtype), attn_get(x, n, t->dtype));
    attn_add_row(t->kernels, n, 3, x, sum);
    for (int64_t i = 0; i <= n; i++) {
      const double a = attn_get(y, i, t->dtype), b = i < n ? 3 * attn_get(x, i, t->dtype) : 0;
      if (isnan(b) ? !isnan(attn_get(sum, i, t->dtype))
                   : !(fabs(attn_get(sum, i, t->dtype) - (a + b)) <= 8 * t->unit * (fabs(a) + fabs(b))))
        note_failure("sum[%d] of %d is %.17g, not %.17g", (int)i, (int)n, attn_get(sum, i, t->dtype), a + b);
    }
    attn_pairs_row(t->kernels, n, x, pairs);
    expect_near(t, "behind pairs", n, attn_get(pairs, n * (n + 1) / 2, t->dtype), after);
    for (int64_t i = 0, at = 0; i < n; i++) {
      const double a = attn_get(x, i, t->dtype);
      expect_near(t, "elu", i, attn_get(elu, i, t->dtype), a < 0 ? exp(a) : a + 1);
      for (int64_t j = i; j < n; j++, at++)
        expect_near(t, "pair", at, attn_get(pairs, at, t->dtype),
                    (i == j ? sqrt(0.5) : 1) * a * attn_get(x, j, t->dtype));
    }
    /* Onto the first of the two, of which the other begins one further: as dpfp has it. */
    if (n > 0) attn_multiply_row(t->kernels, n - 1, x, attn_at(x, 1, t->dtype), y);
    if (n > 0) attn_multiply_row(t->kernels, n - 1, x, attn_at(x, 1, t->dtype), x);
    for (int64_t i = 0; i + 1 < n; i++)
      expect_near(t, "product", i, attn_get(x, i, t->dtype), attn_get(y, i, t->dtype));
    expect_near(t, "behind products", n, attn_get(y, n, t->dtype), behind);
    free(x), free(y), free(elu), free(pairs), free(sum);
  }
}
Test(variants_features, rows_of_fixed_features) { for_every_kernel(fixed_rows); }
