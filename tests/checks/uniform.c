/* uniform.c - FAV-7: trigonometric features hold uniformly as often as they must, and wrong ones do not. */
#include "tests/support/checks_generator.h"

static attn_problem shape(int64_t n, int64_t d) {
  attn_problem p = attn_problem_make(1, 1, n, d);
  p.d_v = 3;
  return p;
}

/* The share of p-values up to 0.3, over seeds, for independent vectors and for blocks. */
Test(checks_uniform, coverage) {
  static const char *const laws[] = {"features=40,orthogonal=no", "features=40", "features=3"};
  enum { RUNS = 150 };
  for (int l = 0; l < 3; l++) {
    int small = 0;
    run_case *c = case_make(shape(12, 4), 0.5, 100);
    for (int seed = 0; seed < RUNS; seed++) {
      case_run(c, text_of("performer:kernel=trig,%s,seed=%d", laws[l], seed), NULL);
      result_bound b = case_check(&c->e, "FAV-7");
      cr_assert(b.verdict == VERDICT_CONSISTENT || (l == 2 && b.verdict == VERDICT_UNCERTIFIABLE), "%s",
                b.message);
      small += b.p_value <= 0.3;
      case_forget(c);
    }
    cr_expect_leq(small, 0.3 * RUNS, "%s: %d", laws[l], small);
    case_free(c);
  }
}

Test(checks_uniform, hypotheses) {
  static const char *const others[] = {"tiled", "performer:features=8", "performer:kernel=trig,norm=sqrt_d"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    expect_gaussian(others[i], shape(20, 4), 0.5, "FAV-7", VERDICT_NOT_APPLICABLE, others[i]);
}

/* The certificate needs scores that are small against the number of features, holds then, and is the largest
 * t S_v / (D - t S) of the 8 rows, t the limit of 8 * 20 pairs. */
Test(checks_uniform, certificates) {
  run_case *c = case_gaussian("performer:kernel=trig,features=8192,orthogonal=no", shape(20, 4), 0.3);
  result_bound b = case_check(&c->e, "FAV-7");
  double bound = 0, most = 0, limit = sqrt(2 * log(2 * 160 / 1e-3) / 8192);
  cr_assert_eq(sscanf(b.message, "certifies |o~ - o| <= %lf", &bound), 1, "%s", b.message);
  for (int64_t i = 0; i < 20; i++) {
    double error = 0, sum = 0, all = 0, far = 0;
    const double *o = c->exact->o + i * 3;
    for (int64_t l = 0; l < 3; l++) error += pow(case_get(c, c->o, i * 3 + l) - o[l], 2);
    cr_expect_lt(sqrt(error), bound);
    for (int64_t j = 0; j < 20; j++) {
      double norms = 0, square = 0;
      for (int64_t l = 0; l < 4; l++)
        norms += (pow(case_get(c, c->q, 4 * i + l), 2) + pow(case_get(c, c->k, 4 * j + l), 2)) / 4;
      for (int64_t l = 0; l < 3; l++) square += pow(case_get(c, c->v, 3 * j + l) - o[l], 2);
      sum += exp(case_score(c, i, j));
      all += exp(norms);
      far += exp(norms) * sqrt(square);
    }
    if (i % 5 == 1 || i % 5 == 3)
      most = fmax(most, limit * far / (sum - limit * all)); /* (2 r + 1) 20 / 16 */
  }
  cr_expect(fabs(b.value / limit - 1) < 1e-12 && fabs(bound / most - 1) < 5e-3, "%g, not %g", bound, most);
  case_free(c);
  b = case_judge("performer:kernel=trig,features=64", shape(20, 4), 1, "FAV-7");
  cr_expect_not_null(strstr(b.message, "no output"));
}

Test(checks_uniform, vectors_of_a_wrong_length) {
  generator_fault right = {.gain = 1}, longer = {.gain = 1.5}, shorter = {.gain = 0.5};
  attn_feature_law law = generator_law(ATTN_FEATURES_TRIG, 4096);
  law.orthogonal = false;
  right.independent = longer.independent = shorter.independent = true;
  result_bound b = generator_check("FAV-7", law, 4, right);
  /* The fake's output is exact attention. */
  cr_expect(b.verdict == VERDICT_CONSISTENT && b.p_value > 1e-2, "%g %s", b.p_value, b.message);
  b = generator_check("FAV-7", law, 4, longer);
  cr_expect_lt(b.p_value, 1e-6);
  cr_expect_float_eq(b.p_value / (320 * exp(-4096 * b.measured * b.measured / 2)), 1, 1e-9, "%g", b.p_value);
  cr_expect_lt(generator_check("FAV-7", law, 4, shorter).p_value, 1e-6);
}
