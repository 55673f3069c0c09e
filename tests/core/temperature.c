/* temperature.c - the two ends of the softmax's temperature, for exact variants on every instruction set.
 *
 * Scale 0: every key has the same weight, and a row is the mean of V. Scale b: the row is within t max|v_j -
 * v_*| of the value of its best key, t <= (n-1) e^{-b g} / (1 + (n-1) e^{-b g}), g the gap between its two
 * largest products. Rounding is that of the bound FP-1. */
#include "tests/support/core.h"

static const char *const specs[] = {"full", "tiled", "tiled:path=split", "tiled:block_k=16"};
enum { SPECS = sizeof specs / sizeof *specs, N = 90, D = 20, WIDTH = 7 };

static inputs inputs_at(double scale, attn_dtype dtype) {
  attn_problem p = shape_problem((case_shape){1, 2, 1, N, N, D, WIDTH, false, false}, dtype);
  p.scale = scale;
  return inputs_make(&p, false, 11, 1);
}

static double value(const inputs *in, int64_t j, int64_t l) { return inputs_get(in, TENSOR_V, 0, 0, j, l); }

static double mean_of(const inputs *in, int64_t l) {
  double sum = 0;
  for (int64_t j = 0; j < N; j++) sum += value(in, j, l);
  return sum / N;
}

/* The best key of a query, and the gap to the second. */
static int64_t best_key(const inputs *in, int64_t head, int64_t i, double *gap) {
  double first = -(double)INFINITY, second = first;
  int64_t best = 0;
  for (int64_t j = 0; j < N; j++) {
    double product = 0;
    for (int64_t l = 0; l < D; l++)
      product += inputs_get(in, TENSOR_Q, 0, head, i, l) * inputs_get(in, TENSOR_K, 0, 0, j, l);
    if (product > first) {
      second = first;
      first = product;
      best = j;
    } else {
      second = fmax(second, product);
    }
  }
  *gap = first - second;
  return best;
}

/* Rows of which the bound is below 1e-3 of what values differ by: a bound that is never small would say
 * nothing. */
static int64_t judge(const inputs *in, const void *o, const oracle *exact, int64_t head, int64_t i) {
  const attn_problem *p = &in->problem;
  double gap;
  int64_t best = best_key(in, head, i, &gap), sharp = 1;
  double others = (N - 1) * exp(-p->scale * gap), t = p->scale > 0 ? others / (1 + others) : 1;
  for (int64_t l = 0; l < WIDTH; l++) {
    size_t at = output_index(p, 0, head, i, l);
    double expected = p->scale > 0 ? value(in, best, l) : mean_of(in, l), range = 0;
    for (int64_t j = 0; j < N; j++) range = fmax(range, fabs(value(in, j, l) - expected));
    double got = p->dtype == ATTN_F64 ? ((const double *)o)[at] : (double)((const float *)o)[at];
    double bound = (p->scale > 0 ? t * range : 0) + exact->bound[at];
    if (!(fabs(got - expected) <= bound))
      note_failure("row %d: %g, expected %g +- %g", (int)i, got, expected, bound);
    sharp = sharp && bound <= 1e-3 * range;
  }
  return sharp;
}

static void judge_all(const char *spec, const char *isa, attn_dtype dtype, double scale) {
  inputs in = inputs_at(scale, dtype);
  attn_options options = {.isa = isa};
  attn_plan *plan = NULL;
  attn_status status = attn_plan_create(&plan, &in.problem, spec, &options);
  if (!status) {
    note_context("%s %s scale %g", spec, isa, scale);
    void *o = run_plain(plan, &in);
    oracle exact = oracle_of(plan, &in);
    int64_t sharp = 0;
    for (int64_t head = 0; head < 2; head++)
      for (int64_t i = 0; i < N; i++) sharp += judge(&in, o, &exact, head, i);
    EXPECT(sharp >= N);
    oracle_free(&exact);
    free(o);
  } else {
    EXPECT(status == ATTN_EUNSUPPORTED); /* path=split has no fp64 */
  }
  attn_plan_destroy(plan);
}

static void every_variant(double scale) {
  for (const char *const *isa = isas_under_test(); *isa; isa++)
    for (attn_dtype t = ATTN_F32; t <= ATTN_F64; t++)
      for (int s = 0; s < SPECS; s++) judge_all(specs[s], *isa, t, scale);
}

Test(core_temperature, without_scores_the_mean) { every_variant(0); }
Test(core_temperature, with_large_scores_the_best_key) { every_variant(20); }
