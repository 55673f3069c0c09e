/* normalised.c - FAV-4: exact second moments of Performer rows, by Monte Carlo over seeds; bounds that hold,
 * and outputs that violate them. */
#include "tests/support/checks_fake.h"

#include <omp.h>

static attn_problem shape(int64_t n, bool causal) { return case_problem(1, 1, 1, n, 4, 3, causal, ATTN_F64); }

/* -- the exact means -- */

typedef struct sampled {
  double mean, error; /* of `measured` over seeds, and its standard error */
  double small;       /* share of p-values <= 0.2 */
} sampled;

static sampled sample(const char *name, const char *parameters, attn_problem p, double std, int runs) {
  double sum = 0, squares = 0, small = 0;
  case_threads = 1;
  omp_set_num_threads(1); /* the problem is tiny */
  run_case *c = case_make(p, std, 100);
  for (int seed = 0; seed < runs; seed++) {
    char spec[128];
    snprintf(spec, sizeof spec, "performer:%s,seed=%d", parameters, seed);
    case_run(c, spec, NULL);
    result_bound b = case_check(&c->e, name);
    cr_assert_eq(b.verdict, VERDICT_CONSISTENT, "%s: %s", spec, b.message);
    sum += b.measured;
    squares += b.measured * b.measured;
    small += b.p_value <= 0.2;
    case_forget(c);
  }
  case_free(c);
  double mean = sum / runs;
  return (sampled){mean, sqrt((squares / runs - mean * mean) / runs), small / runs};
}

/* Independent vectors: m |W|^2 / (D^2 v^2) has mean 1, whatever the features and the mask. */
static void expect_exact(const char *parameters, bool causal) {
  sampled s = sample("FAV-4a", parameters, shape(9, causal), 0.3, 1500);
  cr_expect(fabs(s.mean - 1) <= 5 * s.error, "%s: mean %g, standard error %g", parameters, s.mean, s.error);
  cr_expect(s.error < 0.1, "%s: the test would not notice", parameters);
}

Test(checks_normalised, positive_mean) { expect_exact("features=8,orthogonal=no", false); }
Test(checks_normalised, positive_causal_mean) { expect_exact("features=8,orthogonal=no", true); }
Test(checks_normalised, hyperbolic_mean) {
  expect_exact("features=5,kernel=hyperbolic,orthogonal=no", false);
}
Test(checks_normalised, trig_mean) { expect_exact("features=8,kernel=trig,orthogonal=no", false); }

/* Orthogonal blocks, fewer vectors than d, a part of a block: at most 1. */
Test(checks_normalised, orthogonal_means_are_below) {
  static const char *const specs[] = {"features=3", "features=8", "features=10",
                                      "features=6,kernel=hyperbolic", "features=6,kernel=trig"};
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
    sampled s = sample("FAV-4a", specs[i], shape(9, false), 0.4, 600);
    cr_expect(s.mean <= 1 + 5 * s.error && s.mean > 0.1, "%s: %g, %g", specs[i], s.mean, s.error);
  }
}

/* (b) is judged where features suffice, and its p-values are not smaller than those of a uniform variable. */
Test(checks_normalised, coverage_of_the_error_bound) {
  static const char *const specs[] = {"features=300,orthogonal=no",
                                      "features=300,kernel=hyperbolic,orthogonal=no", "features=3000"};
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
    sampled s = sample("FAV-4b", specs[i], shape(9, false), 0.3, i < 2 ? 150 : 20);
    cr_expect(s.small <= 0.2, "%s: %g", specs[i], s.small);
  }
}

/* -- verdicts -- */

Test(checks_normalised, hypotheses) {
  static const struct {
    const char *spec;
    check_verdict a, b;
  } cases[] = {{"tiled", VERDICT_NOT_APPLICABLE, VERDICT_NOT_APPLICABLE},
               {"performer:kernel=relu", VERDICT_NOT_APPLICABLE, VERDICT_NOT_APPLICABLE},
               {"performer:norm=sqrt_d", VERDICT_NOT_APPLICABLE, VERDICT_NOT_APPLICABLE},
               {"performer:eps=1e-4", VERDICT_NOT_APPLICABLE, VERDICT_NOT_APPLICABLE},
               {"performer:features=8", VERDICT_CONSISTENT, VERDICT_UNCERTIFIABLE},
               {"performer:features=2048,orthogonal=no", VERDICT_CONSISTENT, VERDICT_CONSISTENT}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    run_case *c = case_gaussian(cases[i].spec, shape(40, false), 0.5);
    expect_verdict(&c->e, "FAV-4a", cases[i].a, cases[i].spec);
    expect_verdict(&c->e, "FAV-4b", cases[i].b, cases[i].spec);
    case_free(c);
  }
  run_case *c = case_gaussian("performer:features=8", shape(40, false), 30);
  expect_verdict(&c->e, "FAV-4a", VERDICT_UNCERTIFIABLE, "moments that overflow");
  expect_verdict(&c->e, "FAV-4b", VERDICT_UNCERTIFIABLE, "moments that overflow");
  case_free(c);
}

/* The report: the plug-in error is that of the exact variance where features suffice, and is called
 * unreliable where they do not. */
Test(checks_normalised, standard_errors) {
  run_case *c = case_gaussian("performer:features=4096,orthogonal=no", shape(40, false), 0.5);
  result_bound report = case_check(&c->e, "FAV-4c"), bound = case_check(&c->e, "FAV-4b");
  cr_expect(report.kind == KIND_REPORT && report.measured > 0 && !strstr(report.message, "unreliable"));
  cr_expect(report.value > bound.value / 1000 && report.value < bound.value / 30, "%g %g", report.value,
            bound.value);
  cr_expect(report.measured < 4 * report.value, "%g %g", report.measured, report.value);
  case_free(c);
  c = case_gaussian("performer:features=64", shape(40, false), 4);
  cr_expect_not_null(strstr(case_check(&c->e, "FAV-4c").message, "unreliable"));
  case_free(c);
}

static void judge_row(const evidence *e, int null) {
  for (int part = 0; part < 2; part++) {
    result_bound b = case_check(e, part ? "FAV-4b" : "FAV-4a");
    cr_expect_eq(b.verdict, VERDICT_CONSISTENT, "%s", b.message);
    cr_expect(null ? b.p_value < 1e-3 : b.p_value > 0.2, "null %d, part %d: p %g, measured %g, value %g",
              null, part, b.p_value, b.measured, b.value);
  }
}

Test(checks_normalised, nulls_on_two_kinds_of_keys) {
  attn_problem p = attn_problem_make(1, 1, 24, 4);
  p.n_q = 1;
  fake_two_kinds("performer:features=262144,orthogonal=no", p, 4, 0.35, 2, judge_row);
}

/* A NaN in the output. */
static void nan_execute(const attn_call *c) {
  const attn_problem *p = c->context->problem;
  for (int64_t i = 0; i < p->n_q * p->d_v; i++) attn_set(c->o, i, p->dtype, (double)NAN);
}

Test(checks_normalised, a_nan_is_rejected) {
  run_case *features = case_gaussian("performer:features=64,orthogonal=no", shape(20, false), 0.3);
  fake_reset(NULL);
  fake.execute = nan_execute;
  fake.view.features = features->view.features;
  run_case *c = case_gaussian("fake", shape(20, false), 0.3);
  cr_expect_eq(case_check(&c->e, "FAV-4a").p_value, 0);
  case_free(c);
  case_free(features);
}
