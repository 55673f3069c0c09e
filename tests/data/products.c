/* products.c - products with weights where they are stored, in every format and under every instruction set,
 * against fp64 on the numbers of tensor_to_f32 (which blocks.c holds to the definitions). */
#include "tests/support/data_fixture.h"

#include "attn_variant.h"
#include "data/formats/quantised.h"
#include "data/weights/product.h"

enum { ROWS = 11, TEXTS = 9 };

static const tensor_format *const formats[] = {
    &tensor_f32,  &tensor_f16,    &tensor_bf16,  &tensor_f64,  &tensor_q8_0,   &tensor_q4_0,
    &tensor_q4_1, &tensor_q2_k,   &tensor_q3_k,  &tensor_q4_k, &tensor_q5_k,   &tensor_q6_k,
    &tensor_q5_0, &tensor_iq4_xs, &tensor_mxfp4, &tensor_e4m3, &tensor_iq2_xxs};

/* Random bytes whose numbers are finite and below 2^20; kept, as random numbers and matrices are. */
static uint8_t *random_rows(const tensor_format *f, int64_t count) {
  uint8_t *at = kept_memory(malloc((size_t)(count / f->block * f->bytes)));
  float x[256];
  attn_rng rng = rng_of(5, (uint64_t)f->name[1], 0);
  for (int64_t i = 0; i < count / f->block; i++)
    for (bool fits = false; !fits;) {
      for (int64_t b = 0; b < f->bytes; b++) at[i * f->bytes + b] = (uint8_t)attn_rng_below(&rng, 256);
      f->widen(at + i * f->bytes, 1, x);
      fits = true;
      for (int64_t e = 0; e < f->block; e++) fits = fits && fabsf(x[e]) < 0x1p20f;
    }
  return at;
}

static float *random_numbers(int64_t count) {
  float *x = kept_memory(malloc((size_t)count * sizeof *x));
  attn_rng rng = rng_of(6, 0, 0);
  for (int64_t i = 0; i < count; i++) x[i] = (float)attn_rng_normal(&rng);
  return x;
}

typedef struct matrix {
  tensor weight, bias, scale;
  product_rows rows;
  float *wide; /* [ROWS, columns] */
} matrix;

/* ROWS rows of some more, in pairs as GGUF files turn them, with a bias. */
static matrix matrix_make(const tensor_format *f, int64_t columns) {
  const int64_t stored = 2 * ROWS;
  matrix m = {.weight = {.name = "w", .file = "f", .format = f, .rank = 2, .shape = {stored, columns}},
              .bias = {.name = "b", .file = "f", .format = &tensor_f32, .rank = 1, .shape = {stored}}};
  m.weight.count = stored * columns, m.weight.at = random_rows(f, stored * columns);
  m.bias.count = stored, m.bias.at = (const uint8_t *)random_numbers(stored);
  m.rows = (product_rows){
      .rows = ROWS, .columns = columns, .first = 3, .run = 5, .stride = 6, .head = 8, .turned = 4};
  m.wide = kept_memory(malloc((size_t)(ROWS * columns) * sizeof *m.wide));
  return m;
}

static bool packed; /* and not where it is stored */
/* y [n, ROWS] of rows x [n, columns], on that number of threads, in place of y or added to it. */
static void multiply(const char *isa, const matrix *of, int threads, int64_t n, const float *x,
                     bool accumulate, float *y) {
  const attn_problem p = attn_problem_make(1, 1, 4, 4);
  attn_plan *plan = NULL;
  product_tools tools;
  product_matrix placed = {0};
  assert_ok(attn_plan_create(&plan, &p, "tiled", &(attn_options){.isa = isa}));
  assert_ok(product_tools_make(attn_plan_context(plan)->kernels, &tools));
  if (threads < tools.threads) tools.threads = threads;
  assert_ok((packed ? product_matrix_load : product_matrix_place)(&tools, &of->rows, &placed));
  cr_assert(!placed.at == !packed);
  product_multiply(&tools, &placed, n, x, accumulate, y);
  product_matrix_free(&placed);
  product_tools_free(&tools);
  attn_plan_destroy(plan);
}

static void check(const char *isa, const char *name, const matrix *m, const float *x) {
  const int64_t k = m->rows.columns;
  float before[TEXTS * ROWS], y[TEXTS * ROWS], other[TEXTS * ROWS], bias[ROWS];
  product_rows biases = m->rows;
  biases.weight = &m->bias, biases.bias = biases.scale = NULL, biases.columns = 1;
  assert_ok(product_rows_widen(&m->rows, m->wide));
  assert_ok(product_rows_widen(&biases, bias));
  for (int i = 0; i < TEXTS * ROWS; i++) before[i] = (float)i;
  memcpy(y, before, sizeof y);
  memcpy(other, before, sizeof other);
  multiply(isa, m, 3, TEXTS, x, true, y);
  for (int i = 0; i < TEXTS; i++) multiply(isa, m, 1, 1, x + i * k, true, other + i * ROWS);
  cr_assert_arr_eq(other, y, sizeof y, "%s %s: the bits depend on threads or on other rows", isa, name);
  matrix plain = *m;
  float sums[TEXTS * ROWS] = {0};
  plain.rows.bias = NULL;
  for (int i = 0; i < TEXTS * ROWS; i++) other[i] = (float)NAN;
  multiply(isa, &plain, 2, TEXTS, x, true, sums);
  multiply(isa, &plain, 2, TEXTS, x, false, other);
  cr_assert_arr_eq(other, sums, sizeof sums, "%s %s: they depend on what was there", isa, name);
  for (int i = 0; i < TEXTS; i++)
    for (int r = 0; r < ROWS; r++) {
      const int at = i * ROWS + r;
      double sum = (double)bias[r] + (double)before[at],
             size = fabs((double)bias[r]) + fabs((double)before[at]);
      for (int64_t c = 0; c < k; c++) {
        const double term = (double)m->wide[r * k + c] * (double)x[i * k + c];
        sum += term;
        size += fabs(term);
      }
      /* Any order of k + 2 terms. */
      const double u = (double)(k + 2) * 0x1p-24;
      cr_assert(fabs((double)y[at] - sum) <= 1.000001 * u / (1 - u) * size,
                "%s %s: y[%d][%d] = %.9g, not %.9g", isa, name, i, r, (double)y[at], sum);
    }
}

Test(data_products, rows_are_multiplied_where_they_are_stored) {
  for (const char *const *isa = attn_isa_list(); *isa; isa++)
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
      /* Of elements not whole vectors, and one less than aligned. */
      const int64_t k = formats[f]->block == 256 ? 768 : formats[f]->block == 32 ? 160 : 77;
      matrix m = matrix_make(formats[f], k);
      float *x = random_numbers(TEXTS * k);
      m.rows.weight = &m.weight;
      m.rows.bias = &m.bias;
      check(*isa, formats[f]->name, &m, x);
    }
}

/* In slices of four rows, and three. */
Test(data_products, wide_matrices_are_packed_in_slices) {
  enum { WIDE = 1 << 18 };
  matrix m = matrix_make(&tensor_f16, WIDE);
  float *x = random_numbers(TEXTS * WIDE);
  packed = true;
  m.rows.weight = &m.weight;
  m.rows.bias = &m.bias;
  check(attn_isa_list()[0], "F16, packed", &m, x);
}

/* The product with a unit vector is the number itself. */
Test(data_products, every_number_is_that_of_its_code) {
  for (const char *const *isa = attn_isa_list(); *isa; isa++)
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
      const int64_t k = 2 * (formats[f]->block > 32 ? formats[f]->block : 32);
      matrix m = matrix_make(formats[f], k);
      float *x = calloc((size_t)(k * k), sizeof *x), *y = kept_memory(calloc((size_t)(k * ROWS), sizeof *y));
      for (int64_t i = 0; i < k; i++) x[i * k + i] = 1;
      m.rows.weight = &m.weight;
      assert_ok(product_rows_widen(&m.rows, m.wide));
      multiply(*isa, &m, 2, k, x, true, y);
      for (int64_t i = 0; i < k * ROWS; i++) {
        const float wanted = m.wide[i % ROWS * k + i / ROWS];
        cr_assert(!(y[i] < wanted) && !(y[i] > wanted), "%s %s: column %d of row %d is %.9g, not %.9g", *isa,
                  formats[f]->name, (int)(i / ROWS), (int)(i % ROWS), (double)y[i], (double)wanted);
      }
      free(x);
    }
}

/* Elements of 16 bits at an odd address, and blocks with scales that a strip of a row ends in. */
Test(data_products, what_kernels_cannot_read_is_widened_first) {
  enum { WIDE = 5000, BLOCK_ROWS = 3, BLOCK_COLUMNS = 96, SCALES = 53 };
  const char *best = attn_isa_list()[0];
  matrix m = matrix_make(&tensor_e4m3, WIDE), odd = matrix_make(&tensor_f16, 40);
  float *x = random_numbers(TEXTS * WIDE);
  m.scale = (tensor){.name = "s",
                     .file = "f",
                     .format = &tensor_f32,
                     .count = 8 * SCALES,
                     .at = (const uint8_t *)random_numbers(8 * SCALES)};
  m.rows.weight = &m.weight;
  m.rows.bias = &m.bias;
  m.rows.scale = &m.scale;
  m.rows.scale_rows = BLOCK_ROWS;
  m.rows.scale_columns = BLOCK_COLUMNS;
  check(best, "F8_E4M3 with scales", &m, x);
  uint8_t *moved = kept_memory(malloc((size_t)odd.weight.count * 2 + 1));
  memcpy(moved + 1, odd.weight.at, (size_t)odd.weight.count * 2);
  tensor at_odd = odd.weight;
  at_odd.at = moved + 1;
  odd.rows.weight = &at_odd;
  odd.rows.bias = &odd.bias;
  check(best, "F16 at an odd address", &odd, x);
}
