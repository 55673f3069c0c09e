/* kernels.c - the kernels that variants build on, under every instruction set: matrix product, softmax of a
 * row, transforms. Bounds: gamma of the chain lengths that attn_variant.h promises (any order of a sum of k
 * terms). */

#include "tests/support/core.h"
#include <float.h>

typedef struct bench {
  attn_plan *plan;
  const attn_kernels *kernels;
  attn_dtype dtype;
  double unit;
} bench;

static bench open_bench(const char *isa, attn_dtype dtype) {
  attn_problem p = shape_problem((case_shape){1, 1, 1, 4, 4, 4, 4, false, false}, dtype);
  attn_options options = {.isa = isa};
  bench b = {.plan = plan_or_note(&p, "tiled", &options),
             .dtype = dtype,
             .unit = dtype == ATTN_F64 ? 0x1p-53 : 0x1p-24};
  cr_assert_not_null(b.plan);
  b.kernels = attn_plan_context(b.plan)->kernels;
  return b;
}

static void for_every_kernel(void (*test)(const bench *)) {
  for (const char *const *isa = isas_under_test(); *isa; isa++)
    for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F64; dtype++) {
      bench b = open_bench(*isa, dtype);
      note_context("%s %s", *isa, dtype == ATTN_F64 ? "f64" : "f32");
      test(&b);
      attn_plan_destroy(b.plan);
    }
}

static void *random_block(attn_dtype dtype, size_t count, uint64_t seed) {
  void *x = aligned_alloc(64, (count * 8 + 64) / 64 * 64);
  cr_assert_not_null(x);
  for (size_t i = 0; i < count; i++) attn_set(x, (int64_t)i, dtype, normal_draw(&seed));
  return x;
}

/* -- C (+)= A B -- */

typedef struct product {
  int64_t m, n, k;
  bool a_transposed, b_transposed, accumulate;
} product;

static void check_product(const bench *t, product x) {
  int64_t c_row = x.n + 3;
  size_t size = attn_dtype_size(t->dtype), c_bytes = (size_t)(x.m * c_row) * size;
  void *a = random_block(t->dtype, (size_t)(x.m * x.k) + 1, 1),
       *b = random_block(t->dtype, (size_t)(x.k * x.n) + 1, 2);
  void *before = random_block(t->dtype, (size_t)(x.m * c_row), 3),
       *c = random_block(t->dtype, (size_t)(x.m * c_row), 3);
  void *scratch = kept_memory(aligned_alloc(64, attn_gemm_scratch(t->kernels) / 64 * 64 + 64));
  /* One element beyond alignment: operands may lie anywhere. */
  attn_matrix ma = {attn_at(a, 1, t->dtype), x.a_transposed ? 1 : x.k, x.a_transposed ? x.m : 1};
  attn_matrix mb = {attn_at(b, 1, t->dtype), x.b_transposed ? 1 : x.n, x.b_transposed ? x.k : 1};
  attn_gemm(t->kernels, x.m, x.n, x.k, ma, mb, x.accumulate, c, c_row, scratch);
  for (int64_t i = 0; i < x.m; i++)
    for (int64_t j = 0; j < c_row; j++) {
      double got = attn_get(c, i * c_row + j, t->dtype), old = attn_get(before, i * c_row + j, t->dtype);
      if (j >= x.n) {
        if (!(got <= old && got >= old))
          note_failure("%dx%dx%d wrote beside row %d", (int)x.m, (int)x.n, (int)x.k, (int)i);
        continue;
      }
      long double want = x.accumulate ? (long double)old : 0;
      double absolute = x.accumulate ? fabs(old) : 0;
      for (int64_t l = 0; l < x.k; l++) {
        double p = attn_get(ma.at, i * ma.row + l * ma.column, t->dtype),
               q = attn_get(mb.at, l * mb.row + j * mb.column, t->dtype);
        want += (long double)p * (long double)q;
        absolute += fabs(p * q);
      }
      double k = (double)x.k + 1, bound = k * t->unit / (1 - k * t->unit) * absolute;
      if (!(fabsl((long double)got - want) <= (long double)bound * 1.000001L))
        note_failure("%dx%dx%d: c[%d][%d] = %.9g, expected %.9Lg", (int)x.m, (int)x.n, (int)x.k, (int)i,
                     (int)j, got, want);
    }
  /* Row i depends on row i of A alone, bitwise. */
  void *row = kept_memory(aligned_alloc(64, c_bytes / 64 * 64 + 64));
  for (int64_t i = 0; row && i<x.m; i += x.m> 4 ? x.m / 4 : 1) {
    memcpy(row, attn_at(before, i * c_row, t->dtype), (size_t)c_row * size);
    attn_matrix mi = {attn_at(ma.at, i * ma.row, t->dtype), ma.row, ma.column};
    attn_gemm(t->kernels, 1, x.n, x.k, mi, mb, x.accumulate, row, c_row, scratch);
    if (memcmp(row, attn_at(c, i * c_row, t->dtype), (size_t)x.n * size) != 0)
      note_failure("%dx%dx%d: row %d alone differs", (int)x.m, (int)x.n, (int)x.k, (int)i);
  }
  free(a);
  free(b);
  free(c);
  free(before);
}

/* A packed B, and its first columns and rows alone, give the bits of attn_gemm. */
static void check_packed(const bench *t, product x) {
  size_t bytes = attn_gemm_packed_bytes(t->kernels, x.k, x.n), size = attn_dtype_size(t->dtype);
  void *a = random_block(t->dtype, (size_t)(x.m * x.k), 4),
       *b = random_block(t->dtype, (size_t)(x.k * x.n), 5);
  void *want = random_block(t->dtype, (size_t)(x.m * x.n), 6),
       *got = random_block(t->dtype, (size_t)(x.m * x.n), 6);
  unsigned char *packed = kept_memory(aligned_alloc(64, (bytes + 128) / 64 * 64));
  void *scratch = aligned_alloc(64, attn_gemm_scratch(t->kernels) / 64 * 64 + 64);
  cr_assert(packed && scratch);
  packed[bytes] = 0xa5;
  attn_matrix ma = {a, x.a_transposed ? 1 : x.k, x.a_transposed ? x.m : 1};
  attn_matrix mb = {b, x.b_transposed ? 1 : x.n, x.b_transposed ? x.k : 1};
  attn_packed whole = attn_gemm_pack(t->kernels, x.k, x.n, mb, packed);
  if (packed[bytes] != 0xa5) note_failure("packing %dx%d wrote beyond its bytes", (int)x.k, (int)x.n);
  const int64_t part[][2] = {{x.n, x.k}, {x.n - x.n / 3, x.k}, {x.n, x.k - x.k / 3}, {1, 1}};
  for (int i = 0; i < 4; i++) {
    attn_gemm(t->kernels, x.m, part[i][0], part[i][1], ma, mb, x.accumulate, want, x.n, scratch);
    attn_gemm_packed(t->kernels, x.m, part[i][0], part[i][1], ma, whole, x.accumulate, got, x.n, scratch);
    if (memcmp(want, got, (size_t)(x.m * x.n) * size) != 0)
      note_failure("%dx%dx%d of a packed %dx%d differs", (int)x.m, (int)part[i][0], (int)part[i][1], (int)x.k,
                   (int)x.n);
  }
  free(a);
  free(b);
  free(want);
  free(got);
  free(scratch);
}

static void packed_products(const bench *t) {
  static const int64_t rows[] = {1, 5, 6, 7, 13, 48, 49},
                       columns[] = {1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 200},
                       depths[] = {1, 3, 255, 256, 257, 511, 512, 513};
  enum { ROWS = sizeof rows / sizeof *rows, COLUMNS = sizeof columns / sizeof *columns };
  for (size_t k = 0; k < sizeof depths / sizeof *depths; k++)
    for (size_t j = 0; j < COLUMNS; j++)
      check_packed(t, (product){rows[(j + k) % ROWS], columns[j], depths[k], j % 2, (j + k) % 3 == 0, k % 2});
}
Test(core_kernels, gemm_packed) { for_every_kernel(packed_products); }

static void products(const bench *t) {
  static const int64_t sizes[] = {1, 2, 5, 7, 8, 15, 16, 17, 31, 33, 64, 65};
  enum { SIZES = sizeof sizes / sizeof *sizes };
  for (int i = 0; i < SIZES; i++)
    for (int j = 0; j < SIZES; j++)
      check_product(
          t, (product){sizes[i], sizes[j], sizes[(i * 5 + j) % SIZES], i % 2, j % 2, (i + j) % 3 == 0});
  check_product(t, (product){3, 5, 0, false, false, false});
  check_product(t, (product){3, 5, 0, false, false, true});
  check_product(t, (product){3, 5, 700, false, true, false});
  check_product(t, (product){300, 3, 20, true, false, true});
  check_product(t, (product){3, 300, 257, false, false, false});
  check_product(t, (product){13, 65, 513, false, true, true});
}
Test(core_kernels, gemm) { for_every_kernel(products); }

/* -- softmax of a row -- */

static void softmax_rows(const bench *t) {
  static const int64_t counts[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 100, 129};
  static const double scales[] = {1, -2.5, 0, 40};
  attn_rounding r = attn_softmax_row_rounding(attn_plan_context(t->plan));
  for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
    for (size_t k = 0; k < sizeof scales / sizeof *scales; k++) {
      int64_t n = counts[c];
      double scale = t->dtype == ATTN_F64 ? scales[k] : (double)(float)scales[k];
      unsigned char *x = random_block(t->dtype, (size_t)n + 2, (uint64_t)n),
                    *y = random_block(t->dtype, (size_t)n + 2, (uint64_t)n);
      attn_softmax_row(t->kernels, n, attn_at(y, 1, t->dtype), scale);
      long double max = -(long double)INFINITY, sum = 0;
      for (int64_t i = 1; i <= n; i++)
        max = fmaxl(max, (long double)scale * (long double)attn_get(x, i, t->dtype));
      for (int64_t i = 1; i <= n; i++)
        sum += expl((long double)scale * (long double)attn_get(x, i, t->dtype) - max);
      for (int64_t i = 1; i <= n; i++) {
        long double s = (long double)scale * (long double)attn_get(x, i, t->dtype);
        double want = (double)(expl(s - max) / sum), got = attn_get(y, i, t->dtype);
        /* FP-1 for one weight: its own exponent, that of every other, and the sum. */
        double e = 3 * t->unit * (double)(fabsl(s) + fabsl(max)),
               spread = r.kappa_s * t->unit * 1.01 * (double)(max - s);
        double widest = 6 * t->unit * fabs(scale) * 8 + r.kappa_s * t->unit * 1.01 * fabs(scale) * 8;
        double bound = want * (expm1(e + spread + widest + 2 * r.exp_error) + 2 * ((double)n + 4) * t->unit);
        bound += t->dtype == ATTN_F64 ? DBL_MIN : (double)FLT_MIN; /* weights below the normal range */
        if (!(fabs(got - want) <= bound))
          note_failure("softmax of %d: %.9g, expected %.9g within %g", (int)n, got, want, bound);
      }
      if (memcmp(x, y, attn_dtype_size(t->dtype)) != 0 ||
          memcmp(attn_at(x, n + 1, t->dtype), attn_at(y, n + 1, t->dtype), attn_dtype_size(t->dtype)) != 0)
        note_failure("softmax of %d wrote beside its row", (int)n);
      free(x), free(y);
    }
}
Test(core_kernels, softmax_row) { for_every_kernel(softmax_rows); }

/* -- transforms: log2 n stages of additions; the bound of n + 16 roundings of sum |x| is far from tight -- */

static bool odd_bits(int64_t x) {
  bool odd = false;
  for (; x; x &= x - 1) odd = !odd;
  return odd;
}

/* Entry (i, j) of the orthonormal transform. */
static double transform_entry(attn_transform_kind kind, int64_t n, int64_t i, int64_t j) {
  if (kind == ATTN_WALSH) return (odd_bits(i & j) ? -1 : 1) / sqrt((double)n);
  return sqrt((i ? 2.0 : 1.0) / (double)n) *
         cos(3.141592653589793 * (double)(2 * j + 1) * (double)i / (2.0 * (double)n));
}

/* Every other row, from the last, of the first x_rows columns. */
static void check_transform(const bench *t, attn_transform_kind kind, int64_t n, int64_t x_rows,
                            int64_t columns) {
  int64_t x_row = columns + 3, y_row = columns + 2, count = (n + 1) / 2,
          *rows = kept_memory(calloc((size_t)n, sizeof *rows));
  void *x = random_block(t->dtype, (size_t)(x_rows * x_row), 5);
  void *y = random_block(t->dtype, (size_t)(count * y_row), 6),
       *before = random_block(t->dtype, (size_t)(count * y_row), 6);
  double *sign = kept_memory(calloc((size_t)n, sizeof *sign)), gain = 1.5;
  void *scratch = aligned_alloc(64, attn_transform_scratch(kind, n, count, t->dtype) + 64);
  attn_transform *transform = NULL;
  cr_assert(rows && sign && scratch);
  cr_assert_eq(attn_transform_create(&transform, kind, n, t->dtype), ATTN_OK);
  for (int64_t i = 0; i < count; i++) rows[i] = n - 1 - 2 * i;
  for (int64_t j = 0; j < x_rows; j++) sign[j] = j % 3 ? 1 : -1;
  attn_transform_job job = {x, x_row, x_rows, columns, sign, rows, count, gain, y, y_row};
  attn_transform_rows(transform, t->kernels, &job, scratch);
  for (int64_t i = 0; i < count; i++)
    for (int64_t l = 0; l < y_row; l++) {
      double want = 0, absolute = 0, got = attn_get(y, i * y_row + l, t->dtype);
      for (int64_t j = 0; j < x_rows && l < columns; j++) {
        double term =
            gain * transform_entry(kind, n, rows[i], j) * sign[j] * attn_get(x, j * x_row + l, t->dtype);
        want += term;
        absolute += gain * sqrt(2 / (double)n) * fabs(attn_get(x, j * x_row + l, t->dtype));
      }
      if (l >= columns) want = attn_get(before, i * y_row + l, t->dtype); /* untouched */
      if (!(fabs(got - want) <= ((double)n + 16) * 2 * t->unit * absolute))
        note_failure("transform %d of %d: row %d is %g, expected %g", (int)kind, (int)n, (int)rows[i], got,
                     want);
    }
  attn_transform_destroy(transform);
  free(x);
  free(y);
  free(before);
  free(scratch);
}

static void transforms(const bench *t) {
  static const int64_t columns[] = {1, 5, 15, 16, 17, 33};
  for (size_t c = 0; c < sizeof columns / sizeof *columns; c++) {
    for (int64_t n = 1; n <= 256; n *= 2) {
      check_transform(t, ATTN_WALSH, n, n, columns[c]);
      check_transform(t, ATTN_WALSH, n, (n + 1) / 2, columns[c]);
    }
    static const int64_t lengths[] = {1, 2, 3, 7, 16, 30, 37, 128, 129, 258, 300};
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
      check_transform(t, ATTN_DCT, lengths[k], lengths[k], columns[c]);
      check_transform(t, ATTN_DCT, lengths[k], (lengths[k] + 2) / 3, columns[c]);
    }
  }
}
Test(core_kernels, transforms) {
  for_every_kernel(transforms);
  attn_transform_destroy(NULL);
}

Test(core_kernels, finiteness) {
  for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F64; dtype++) {
    unsigned char *x = random_block(dtype, 60, 9);
    static const double bad[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    EXPECT(attn_all_finite(x, 10, 6, 7, dtype));
    for (int k = 0; k < 3; k++) {
      double old = attn_get(x, 26, dtype);
      attn_set(x, 26, dtype, bad[k]); /* row 2, column 6: seen */
      EXPECT(!attn_all_finite(x, 10, 6, 7, dtype));
      attn_set(x, 26, dtype, old);
      old = attn_get(x, 27, dtype);
      attn_set(x, 27, dtype, bad[k]); /* in the gap: not seen */
      EXPECT(attn_all_finite(x, 10, 6, 7, dtype));
      attn_set(x, 27, dtype, old);
    }
    attn_set(x, 3, dtype, dtype == ATTN_F64 ? 1.7e308 : 3.4e38);
    attn_set(x, 4, dtype, dtype == ATTN_F64 ? 1.7e308 : 3.4e38);
    EXPECT(attn_all_finite(x, 10, 6, 7, dtype)); /* large is not infinite */
    EXPECT(attn_all_finite(x, 10, 0, 7, dtype));
    free(x);
  }
}

/* -- rows of weights as they are stored -- */

enum { CODES = 512 };

/* The numbers of a row's codes: its products with unit vectors. */
static void read_codes(const char *isa, attn_weight_format format, const uint8_t *row, float *numbers) {
  bench b = open_bench(isa, ATTN_F32);
  float *units = kept_memory(calloc((size_t)CODES * CODES, sizeof *units));
  cr_assert_not_null(units);
  for (int i = 0; i < CODES; i++) units[i * CODES + i] = 1;
  attn_weight_product(b.kernels, format, 1, CODES, CODES, (const void *[]){row}, units, CODES, false, numbers,
                      1);
  attn_plan_destroy(b.plan);
}

Test(core_kernels, codes_of_weights_are_the_same_numbers_under_every_instruction_set) {
  static float row[CODES], wanted[CODES], numbers[CODES];
  uint8_t *bytes = (uint8_t *)row;
  uint64_t state = 1;
  for (int format = ATTN_WEIGHT_F32; format < ATTN_WEIGHT_FORMATS; format++)
    for (int clear = 0x20; clear <= 0x40; clear *= 2) { /* a bit of all exponents: every number is finite */
      for (size_t i = 0; i < sizeof row; i++)
        bytes[i] = (uint8_t)((uint32_t)(int32_t)(normal_draw(&state) * 1e6) & ~(uint32_t)clear);
      read_codes("scalar", (attn_weight_format)format, bytes, wanted);
      for (const char *const *isa = isas_under_test(); *isa; isa++) {
        read_codes(*isa, (attn_weight_format)format, bytes, numbers);
        for (int i = 0; i < CODES; i++)
          if (!(numbers[i] >= wanted[i] && numbers[i] <= wanted[i]))
            note_failure("%s, format %d: number %d is %.9g, expected %.9g", *isa, format, i,
                         (double)numbers[i], (double)wanted[i]);
      }
    }
}
