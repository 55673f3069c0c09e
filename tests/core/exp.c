/* exp.c - the error of the kernels' exponential, for every argument that fp32 has after its reduction.
 *
 * 2^x = 2^n (1 + f g(f)), n = floor(x), f = x - n: for x <= 0 in fp32, f is a multiple of 2^-24 in [0, 1), so
 * that the numbers -j 2^-24, j = 1 ... 2^24, meet every f; every 31st of the floats in [-1/2, -1/8), which
 * are no such multiples as a rule, meets the rounding of f as well. A row's softmax shows an exponential
 * exactly where its sum is a power of two: of x, y with 2^x + 2^y = 1 and fifteen zeros the sum is 16, since
 * what the pair lacks (less than 2^-21) is less than half of what the neighbours of 16 are away, and a
 * sixteenth is exact. */
#include "tests/support/core.h"

#ifdef EMULATED
enum { STRIDE = 61 };
#else
enum { STRIDE = 1 };
#endif

static const double ln2 = 0.6931471805599453; /* the kernel's scale is this times log2(e): 1 in fp32 */

static attn_plan *plan_of(const char *isa) {
  attn_problem p = attn_problem_make(1, 1, 4, 4);
  attn_options options = {.isa = isa};
  attn_plan *plan;
  cr_assert_eq(attn_plan_create(&plan, &p, "tiled", &options), ATTN_OK, "%s", attn_last_error());
  return plan;
}

/* |2^x as computed / 2^x - 1|; infinite if the sum was not 16. */
static double error_at(const attn_kernels *k, float x) {
  double exact = exp2((double)x);
  float row[17] = {x, exact < 1 ? (float)log2(1 - exact) : -126};
  attn_softmax_row(k, 17, row, ln2);
  return row[16] == 0x1p-4F ? fabs(16 * (double)row[0] / exact - 1) : (double)INFINITY;
}

static double worst_of(const attn_kernels *k, float (*argument)(int64_t), int64_t count, int64_t step) {
  double worst = 0;
#pragma omp parallel for schedule(static) reduction(max : worst)
  for (int64_t j = 0; j < count; j += step * STRIDE) {
    double error = error_at(k, argument(j));
    worst = error <= worst ? worst : error; /* a NaN stays */
  }
  return worst;
}

static float multiple(int64_t j) { return -(float)(j + 1) * 0x1p-24F; }

/* The floats from -1/2 up to -1/8. */
static float finer(int64_t j) {
  union {
    uint32_t bits;
    float value;
  } x = {.value = -0.5F};
  x.bits -= (uint32_t)j;
  return x.value;
}

Test(core_exp, every_reduced_argument) {
  for (const char *const *isa = isas_under_test(); *isa; isa++) {
    attn_plan *plan = plan_of(*isa);
    const attn_kernels *k = attn_plan_context(plan)->kernels;
    double declared = attn_softmax_row_rounding(attn_plan_context(plan)).exp_error;
    double all = worst_of(k, multiple, INT64_C(1) << 24, 1),
           rounded = worst_of(k, finer, INT64_C(1) << 24, 31);
    double worst = fmax(all, rounded);
    printf("%s: the exponential's relative error is at most %.4g = %.3f 2^-24; declared: %.4g\n", *isa, worst,
           worst * 0x1p24, declared);
    cr_expect(worst <= declared, "%s: %g", *isa, worst);
    attn_plan_destroy(plan);
  }
  fflush(stdout);
}

/* Powers of two scale exactly: the error is the same where n is far from 0, up to the smallest normal
 * weights. */
Test(core_exp, the_whole_range) {
  enum { COUNT = 1 << 20, ROW = 256 };
  const float log2e = 1.4426950408889634F;
  for (const char *const *isa = isas_under_test(); *isa; isa++) {
    attn_plan *plan = plan_of(*isa);
    const attn_kernels *k = attn_plan_context(plan)->kernels;
    double declared = attn_softmax_row_rounding(attn_plan_context(plan)).exp_error;
    double worst = 0;
    for (int64_t first = 0; first + ROW <= COUNT / STRIDE; first += ROW) {
      float x[ROW + 1] = {0}, e[ROW + 1] = {0};
      for (int64_t i = 1; i <= ROW; i++) e[i] = x[i] = -87.0F * (float)(first + i) / (COUNT / STRIDE);
      attn_exp_rows(k, 1, ROW + 1, e, ROW + 1, NULL);
      for (int64_t i = 0; i <= ROW; i++) {
        float t = x[i] * log2e;
        double error = fabs((double)e[i] / exp2((double)t) - 1);
        worst = error <= worst ? worst : error;
      }
    }
    cr_expect(worst <= declared, "%s: %g", *isa, worst);
    attn_plan_destroy(plan);
  }
}
