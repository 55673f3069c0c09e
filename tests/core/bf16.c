/* bf16.c - products of bf16, of tiles and of pairs: every instruction set's against a model in integers, bit
 * by bit, and the guarantees of the paths that use them. */

#include "tests/support/core.h"
#include "core/kernels/kernels.h"

#include <float.h>

enum { SIDE = 16, WORDS = SIDE * SIDE };

static uint32_t bits_of(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}
static float float_of(uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

/* -- the model: x = mantissa 2^exponent in integers, one rounding, exponents without a lower end -- */

typedef struct number {
  int64_t mantissa;
  int exponent;
} number;

static number number_of(float x) {
  int exponent;
  if (fabsf(x) < FLT_MIN) return (number){0, 0}; /* subnormals are zeros */
  float fraction = frexpf(x, &exponent);
  number n = {(int64_t)ldexpf(fraction, 24), exponent - 24};
  for (; n.mantissa % 2 == 0; n.exponent++) n.mantissa /= 2;
  return n;
}

/* Of two zeros the sign: a sum's is negative iff both are. */
static float zero_sum(bool a_negative, bool b_negative) { return a_negative && b_negative ? -0.0f : 0.0f; }

static float rounded_sum(number a, number b, bool a_negative, bool b_negative) {
  if (!a.mantissa && !b.mantissa) return zero_sum(a_negative, b_negative);
  if (!a.mantissa || (b.mantissa && b.exponent > a.exponent)) {
    number swap = a;
    a = b;
    b = swap;
  }
  /* a has the higher unit, and is moved up by at most 31 bits, which is more than rounding to 24 looks at;
   * the part of b below the unit becomes a sign in the last place. */
  int gap = b.mantissa ? a.exponent - b.exponent : 0, up = gap < 31 ? gap : 31, down = gap - up;
  int64_t above = down < 62 ? b.mantissa / (INT64_C(1) << down) : 0;
  bool all = down < 62 && above * (INT64_C(1) << down) == b.mantissa;
  int64_t sum = 2 * (a.mantissa * (INT64_C(1) << up) + above) + (all ? 0 : b.mantissa < 0 ? -1 : 1);
  int unit = a.exponent - up - 1;
  if (!sum) return 0.0f;
  bool negative = sum < 0;
  uint64_t m = (uint64_t)(negative ? -sum : sum);
  int drop = 0;
  while (m >> drop >= UINT64_C(1) << 24) drop++;
  uint64_t kept = m >> drop, rest = m - (kept << drop), half = drop ? UINT64_C(1) << (drop - 1) : 0;
  if (drop && (rest > half || (rest == half && kept & 1))) kept++;
  double value = ldexp((double)kept, unit + drop); /* exact */
  if (value < (double)FLT_MIN) value = 0;
  float result = value > (double)FLT_MAX ? INFINITY : (float)value;
  return negative ? -result : result;
}

static float model_multiply_add(float a, float b, float c) {
  if (!isfinite(a) || !isfinite(b) || !isfinite(c)) {
    double x = fabsf(a) < FLT_MIN ? 0 : (double)a, y = fabsf(b) < FLT_MIN ? 0 : (double)b;
    return (float)(x * y + (double)c);
  }
  number x = number_of(a), y = number_of(b);
  return rounded_sum((number){x.mantissa * y.mantissa, x.exponent + y.exponent}, number_of(c),
                     !!signbit(a) != !!signbit(b), !!signbit(c));
}

static float model_sum(float a, float b) { return model_multiply_add(a, 1, b); }

static float element(const uint32_t *words, int row, int column, int half) {
  uint32_t word = words[row * SIDE + column];
  return float_of(half ? word & 0xffff0000 : word << 16);
}

/* Tiles sum the lower and the upper products apart; pairs are added to C, the upper one first. */
static void model_product(const attn_kernels *of, float *c, const uint32_t *a, const uint32_t *b) {
  const bool pairs = strcmp(of->isa, "avx512_bf16") == 0;
  for (int m = 0; m < SIDE; m++)
    for (int n = 0; n < SIDE; n++) {
      float *at = c + m * SIDE + n;
      for (int k = 0; pairs && k < SIDE; k++)
        for (int h = 1; h >= 0; h--) *at = model_multiply_add(element(a, m, k, h), element(b, k, n, h), *at);
      if (pairs) continue;
      float sum[2] = {0, 0};
      for (int k = 0; k < SIDE; k++)
        for (int h = 0; h < 2; h++)
          sum[h] = model_multiply_add(element(a, m, k, h), element(b, k, n, h), sum[h]);
      *at = model_sum(*at, model_sum(sum[0], sum[1]));
    }
}

/* -- products -- */

/* bf16 with exponents in a range, now and then a zero or a subnormal; specials: NaN or an infinity too. */
static uint32_t draw_half(uint64_t *state, int low, int high, bool specials) {
  uint32_t fraction = (uint32_t)(uniform_draw(state) * 128), sign = uniform_draw(state) < 0.5 ? 0 : 0x8000;
  double kind = uniform_draw(state);
  if (kind < 0.03) return sign | (kind < 0.015 ? 0 : fraction);
  if (specials && kind > 0.99) return sign | 0x7f80 | (kind > 0.995 ? 0 : 0x40);
  return sign | (uint32_t)(low + (int)(uniform_draw(state) * (high - low + 1))) << 7 | fraction;
}

static void compare(const attn_kernels *kernels, int low, int high, bool specials, uint64_t seed) {
  static float c[WORDS], model[WORDS];
  static uint32_t a[WORDS], b[WORDS];
  uint64_t state = seed;
  for (int i = 0; i < WORDS; i++) {
    a[i] = draw_half(&state, low, high, specials) | draw_half(&state, low, high, specials) << 16;
    b[i] = draw_half(&state, low, high, specials) | draw_half(&state, low, high, specials) << 16;
    c[i] = model[i] =
        float_of(draw_half(&state, low, high, specials) << 16 | (uint32_t)(seed * 7919 + (uint64_t)i));
  }
  model_product(kernels, model, a, b);
  if (kernels->products->split.enter) kernels->products->split.enter();
  kernels->products->one(c, a, b);
  if (kernels->products->split.leave) kernels->products->split.leave();
  for (int i = 0; i < WORDS; i++)
    if (isnan(model[i]) ? !isnan(c[i]) : bits_of(c[i]) != bits_of(model[i])) {
      note_failure("element %d of seed %d is %a, expected %a", i, (int)seed, (double)c[i], (double)model[i]);
      return;
    }
}

static void every_isa(void (*act)(const attn_kernels *)) {
  for (const char *const *isa = isas_under_test(); *isa; isa++) {
    attn_problem problem = attn_problem_make(1, 1, 4, 4);
    attn_options options = {.isa = *isa};
    attn_plan *plan = plan_or_note(&problem, "tiled", &options);
    note_context("%s", *isa);
    if (plan) act(attn_plan_context(plan)->kernels);
    attn_plan_destroy(plan);
  }
}

static void ordinary_products(const attn_kernels *k) {
  for (uint64_t seed = 0; seed < 6; seed++) compare(k, 120, 134, false, seed);
}
static void wide_products(const attn_kernels *k) {
  for (uint64_t seed = 0; seed < 6; seed++) compare(k, 1, 190, false, seed);
}
/* Sums round the least normal number: exponents of products, and of C, round 2^-126. */
static void tiny_products(const attn_kernels *k) {
  for (uint64_t seed = 0; seed < 20; seed++) compare(k, 56 + (int)seed % 6, 66, false, seed);
}
static void huge_products(const attn_kernels *k) {
  for (uint64_t seed = 0; seed < 6; seed++) compare(k, 185, 191, false, seed);
}
static void special_products(const attn_kernels *k) {
  for (uint64_t seed = 0; seed < 10; seed++) compare(k, 100, 150, true, seed);
}

Test(core_bf16, products_are_those_of_the_manual) {
  every_isa(ordinary_products);
  every_isa(wide_products);
  every_isa(tiny_products);
  every_isa(huge_products);
  every_isa(special_products);
}

/* Below 2^-126 the numbers of 24 bits are 2^-150 apart: 2^-126 - 2^-151 is half way and rounds up, to even; a
 * little less rounds down and is flushed, although as a subnormal it would round to 2^-126. */
static void boundary(const attn_kernels *kernels) {
  static const struct {
    float a, b;
    bool tiny;
  } cases[] = {{0x1p-75f, -0x1.8p-76f, true}, {0x1p-75f, -0x1p-76f, false}, {0x1p-75f, -0x1.02p-76f, true}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    float c[WORDS] = {0}, model[WORDS] = {0};
    uint32_t a[WORDS] = {0}, b[WORDS] = {0};
    a[0] = bits_of(0x1p-63f) >> 16; /* FLT_MIN in the first product of the lower sum ... */
    b[0] = bits_of(0x1p-63f) >> 16;
    a[1] = bits_of(cases[k].a) >> 16; /* ... then a little less */
    b[SIDE] = bits_of(cases[k].b) >> 16;
    model_product(kernels, model, a, b);
    if (kernels->products->split.enter) kernels->products->split.enter();
    kernels->products->one(c, a, b);
    if (kernels->products->split.leave) kernels->products->split.leave();
    if (bits_of(c[0]) != bits_of(model[0]) || (model[0] == 0) != cases[k].tiny)
      note_failure("case %d: %a, model %a", (int)k, (double)c[0], (double)model[0]);
  }
}
Test(core_bf16, tininess_is_judged_after_rounding) { every_isa(boundary); }

static void keeps_subnormals(const attn_kernels *kernels) {
  compare(kernels, 120, 134, false, 1);
  volatile float small = FLT_MIN;
  EXPECT(small / 2 > 0);
}
Test(core_bf16, the_environment_is_restored) { every_isa(keeps_subnormals); }

/* -- paths -- */

static inputs mixed_inputs(uint64_t seed) {
  attn_problem problem = shape_problem((case_shape){1, 2, 1, 90, 150, 21, 19, false, false}, ATTN_F32);
  return inputs_make(&problem, false, seed, 1);
}

static void expect_bound(const char *spec, const inputs *in, const char *what) {
  for (const char *const *isa = isas_under_test(); *isa; isa++) {
    note_context("%s %s %s", spec, *isa, what);
    expect_spec_within(spec, &(attn_options){.isa = *isa}, in, what);
  }
}

static void both_paths(const inputs *in, const char *what) {
  expect_bound("tiled:path=split", in, what);
  expect_bound("tiled:precision=bf16", in, what);
}

/* Rows that tile products cannot keep stand among those that they can. */
Test(core_bf16, rows_at_the_ends_of_the_range) {
  inputs in = mixed_inputs(1);
  for (int64_t j = 5; j < 150; j += 29)
    for (int64_t l = 0; l < 19; l++) inputs_set(&in, TENSOR_V, 0, 0, j, l, ldexp(l % 2 ? 1.9 : -1.5, 118));
  both_paths(&in, "huge values");
  for (int64_t l = 0; l < 21; l++) {
    inputs_set(&in, TENSOR_Q, 0, 0, 40, l, ldexp(1.7, 127 - (int)(l % 3)));
    inputs_set(&in, TENSOR_Q, 0, 1, 3, l, ldexp(1.7, -140));
    for (int64_t j = 0; j < 150; j++)
      inputs_set(&in, TENSOR_K, 0, 0, j, l, ldexp(inputs_get(&in, TENSOR_K, 0, 0, j, l), -126));
  }
  both_paths(&in, "subnormal keys, and a huge query");
  for (int64_t j = 0; j < 150; j++)
    for (int64_t l = 0; l < 19; l++) inputs_set(&in, TENSOR_V, 0, 0, j, l, ldexp((double)(j + l), -149));
  both_paths(&in, "subnormal values");
}

/* On rows that fp32 alone can hold the split path is as good as fp32: bound and all. */
Test(core_bf16, subnormal_rows_keep_their_digits) {
  inputs in = mixed_inputs(2);
  for (int64_t j = 0; j < 150; j++)
    for (int64_t l = 0; l < 19; l++) inputs_set(&in, TENSOR_V, 0, 0, j, l, ldexp((double)(j * l), -145));
  for (const char *const *isa = isas_under_test(); *isa; isa++) {
    attn_options options = {.isa = *isa};
    note_context("%s", *isa);
    expect_same_outputs(&in.problem, run_spec("tiled:path=fma,block_k=64", &options, &in),
                        run_spec("tiled:path=split,block_k=64", &options, &in),
                        "every key goes through fp32");
  }
}

/* A query's row depends only on the keys that it sees, whichever path its neighbours take. */
Test(core_bf16, odd_rows_leave_the_others_alone) {
  static const double values[] = {1e-30, 3e38, (double)INFINITY, (double)NAN};
  static const char *const specs[] = {"tiled:path=split", "tiled:precision=bf16"};
  for (size_t s = 0; s < 2; s++)
    for (size_t k = 0; k < 4; k++) {
      inputs in = mixed_inputs(3), odd = inputs_copy(&in);
      note_context("%s with %g", specs[s], values[k]);
      inputs_set(&odd, TENSOR_Q, 0, 0, 33, 4, values[k]);
      void *a = run_spec(specs[s], NULL, &in), *b = run_spec(specs[s], NULL, &odd);
      expect_same_rows(&in.problem, a, b, 0, 0, 33, "rows before");
      expect_same_rows(&in.problem, a, b, 0, 34, 90, "rows behind");
      free(a), free(b);
      inputs_free(&in), inputs_free(&odd);
    }
}

/* Errors as of fp32: within the sum of both bounds, and no larger than a few roundings of the values'
 * range. */
Test(core_bf16, split_and_fma_agree) {
  for (double std = 0.1; std < 20; std *= 4) {
    inputs in = inputs_shaped((case_shape){1, 2, 1, 100, 300, 64, 33, true, false}, ATTN_F32, 4, std);
    attn_plan *split = plan_or_note(&in.problem, "tiled:path=split", NULL),
              *fma = plan_or_note(&in.problem, "tiled:path=fma", NULL);
    oracle a = oracle_of(split, &in), b = oracle_of(fma, &in);
    void *x = run_plain(split, &in), *y = run_plain(fma, &in);
    double worst[2] = {0, 0};
    for (size_t i = 0; i < output_count(&in.problem); i++) {
      double split_o = (double)((float *)x)[i], fma_o = (double)((float *)y)[i];
      if (!(fabs(split_o - fma_o) <= a.bound[i] + b.bound[i])) note_failure("element %d differs", (int)i);
      worst[0] = fmax(worst[0], fabs(split_o - a.o[i]));
      worst[1] = fmax(worst[1], fabs(fma_o - a.o[i]));
    }
    note_context("std %g: split %.3g fma %.3g", std, worst[0], worst[1]);
    EXPECT(worst[0] <= 2 * worst[1]);
    free(x), free(y);
    oracle_free(&a);
    oracle_free(&b);
    attn_plan_destroy(split), attn_plan_destroy(fma);
    inputs_free(&in);
  }
}

Test(core_bf16, refusals) {
  attn_problem problem = attn_problem_make(1, 1, 8, 8);
  attn_plan *plan = NULL;
  expect_no_plan(&problem, "tiled:precision=bf16,path=fma", ATTN_EINVAL, "");
  problem.dtype = ATTN_F64;
  expect_no_plan(&problem, "tiled:precision=bf16", ATTN_EUNSUPPORTED, "");
  expect_no_plan(&problem, "tiled:path=split", ATTN_EUNSUPPORTED, "");
  EXPECT_STATUS(attn_plan_create(&plan, &problem, "tiled:path=fma", NULL), ATTN_OK);
  attn_plan_destroy(plan);
}
