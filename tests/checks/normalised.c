/* normalised.c - FAV-4: exact moments of Performer rows, by Monte Carlo over seeds; bounds that hold, and
 * outputs that violate them. */
#include "tests/support/checks_fake.h"

#include "experiments/evidence/rows.h"
#include "experiments/mathematics/estimator.h"

#include <omp.h>

static attn_problem shape(int64_t n, bool causal) { return case_problem(1, 1, 1, n, 4, 3, causal, ATTN_F64); }

/* -- the exact moments -- */

typedef struct sampled {
  double mean, error; /* of `measured` over seeds, and its standard error */
  double small, tiny; /* shares of p-values <= 0.2 and <= 0.01 */
} sampled;

static sampled sample(const char *name, const char *parameters, attn_problem p, double std, int runs) {
  sampled out = {0, 0, 0, 0};
  double sum = 0, squares = 0;
  case_threads = 1;
  omp_set_num_threads(1); /* the problem is tiny */
  run_case *c = case_make(p, std, 100);
  for (int seed = 0; seed < runs; seed++) {
    const char *spec = text_of("performer:%s,seed=%d", parameters, seed);
    case_run(c, spec, NULL);
    c->e.seed = (uint64_t)seed;
    result_bound b = case_check(&c->e, name);
    cr_assert_eq(b.verdict, VERDICT_CONSISTENT, "%s: %s", spec, b.message);
    sum += b.measured;
    squares += b.measured * b.measured;
    out.small += (b.p_value <= 0.2) / (double)runs;
    out.tiny += (b.p_value <= 0.01) / (double)runs;
    case_forget(c);
  }
  case_free(c);
  out.mean = sum / runs;
  out.error = sqrt((squares / runs - out.mean * out.mean) / runs);
  return out;
}

static const char *const iid[] = {"features=8,orthogonal=no", "features=5,kernel=hyperbolic,orthogonal=no",
                                  "features=8,kernel=trig,orthogonal=no",
                                  "features=8,kernel=optimal,z=2,orthogonal=no"};

/* Independent vectors: m |W|^2 / (D^2 v^2) has mean 1, whatever the features and the mask; p-values are no
 * smaller than a uniform variable. */
Test(checks_normalised, exact_means_of_independent_vectors) {
  for (int i = 0; i < 4; i++) {
    sampled s = sample("FAV-4a", iid[i], shape(9, i % 2), 0.3, 60);
    cr_expect(fabs(s.mean - 1) <= 5 * s.error, "%s: mean %g, standard error %g", iid[i], s.mean, s.error);
    cr_expect(s.error < 0.15, "%s: the test would not notice", iid[i]);
    cr_expect(s.small <= 0.4 && s.tiny <= 0.1, "%s: %g, %g", iid[i], s.small, s.tiny);
  }
}

/* Orthogonal blocks, fewer vectors than d, a part of a block: at most 1. */
Test(checks_normalised, orthogonal_means_are_below) {
  static const char *const specs[] = {"features=3",
                                      "features=8",
                                      "features=10",
                                      "features=6,kernel=hyperbolic",
                                      "features=6,kernel=trig",
                                      "features=8,kernel=optimal,z=2"};
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
    sampled s = sample("FAV-4a", specs[i], shape(9, false), 0.4, 60);
    cr_expect(s.mean <= 1 + 5 * s.error && s.mean > 0.1, "%s: %g, %g", specs[i], s.mean, s.error);
    cr_expect(s.small <= 0.3 && s.tiny <= 0.04, "%s: %g, %g", specs[i], s.small, s.tiny);
  }
}

/* Draws of the law against the exact moments; orthogonal blocks are no more spread. */
Test(checks_normalised, moments_of_the_law) {
  static const attn_features_kind kinds[] = {ATTN_FEATURES_POSITIVE, ATTN_FEATURES_HYPERBOLIC,
                                             ATTN_FEATURES_TRIG};
  enum { DRAWS = 4000 };
  for (int i = 0; i < 16; i++) {
    const bool weighted = i >= 12;
    feature_law law = {.kind = weighted ? ATTN_FEATURES_POSITIVE : kinds[i % 3],
                       .d = i % 12 < 6 && i != 13 ? 5 : 20,
                       .a = weighted ? -0.05 : 0,
                       .orthogonal = weighted ? i / 2 % 2 : i % 2};
    feature_law_resize(&law, 12);
    attn_rng rng = rng_of((uint64_t)i, 1, 0);
    estimator *s = estimator_make(&law, i % 4 < 2, &rng);
    cr_assert_not_null(s);
    double sum = 0, squares = 0, sizes = 0, sizes_square = 0;
    for (int t = 0; t < DRAWS; t++) {
      estimate_error drawn;
      cr_assert_eq(estimator_draw(s, &rng, &drawn), ATTN_OK);
      double along = drawn.along / s->deviation;
      sum += along / DRAWS;
      squares += along * along / DRAWS;
      sizes += drawn.square / DRAWS;
      sizes_square += drawn.square * drawn.square / DRAWS;
    }
    double error = sqrt((sizes_square - sizes * sizes) / DRAWS);
    cr_expect(fabs(sum) <= 5 / sqrt(DRAWS), "%d: mean %g", i, sum);
    cr_expect(law.orthogonal ? squares < 1.15 : fabs(squares - 1) < 0.15, "%d: second moment %g", i, squares);
    cr_expect(law.orthogonal ? sizes <= 1 + 5 * error : fabs(sizes - 1) <= 5 * error, "%d: %g +- %g", i,
              sizes, error);
    estimator_free(s);
  }
}

/* (b) is judged where features suffice, and its p-values are not smaller than those of a uniform variable. */
Test(checks_normalised, coverage_of_the_error_bound) {
  static const char *const specs[] = {"features=300,orthogonal=no",
                                      "features=300,kernel=hyperbolic,orthogonal=no",
                                      "features=300,kernel=optimal,z=2,orthogonal=no", "features=3000"};
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
    sampled s = sample("FAV-4b", specs[i], shape(9, false), 0.3, i < 3 ? 150 : 20);
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
               {"performer:features=8", VERDICT_CONSISTENT, VERDICT_UNCERTIFIABLE}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    run_case *c = case_gaussian(cases[i].spec, shape(40, false), 0.5);
    expect_verdict(&c->e, "FAV-4a", cases[i].a, cases[i].spec);
    expect_verdict(&c->e, "FAV-4b", cases[i].b, cases[i].spec);
    case_free(c);
  }
  /* As many features as it asks for are enough, and fewer are not. */
  static const char *const kernels[] = {"positive", "trig"};
  for (int i = 0; i < 4; i++) {
    double most, needed;
    const char *spec = text_of("performer:features=8,kernel=%s", kernels[i / 2]);
    result_bound b = case_judge(spec, shape(40, false), 0.5, "FAV-4b");
    cr_assert_eq(sscanf(b.message, "rho up to %lf: the normaliser may collapse; %lf", &most, &needed), 2,
                 "%s", b.message);
    spec = text_of("performer:features=%d,orthogonal=no,kernel=%s", (int)(needed * (i % 2 ? 1.01 : 0.98)),
                   kernels[i / 2]);
    b = case_judge(spec, shape(40, false), 0.5, "FAV-4b");
    cr_expect_eq(b.verdict, i % 2 ? VERDICT_CONSISTENT : VERDICT_UNCERTIFIABLE, "%s: %s", spec, b.message);
  }
  run_case *c = case_gaussian("performer:features=8", shape(40, false), 30);
  expect_verdict(&c->e, "FAV-4a", VERDICT_CONSISTENT, "eight features");
  cr_expect_str_eq(case_check(&c->e, "FAV-4b").message, "the second moment of the features overflows");
  case_free(c);
  c = case_make(shape(40, false), 0.5, 100);
  case_set(c, c->v, 5, (double)INFINITY);
  case_run(c, "performer:features=2048,orthogonal=no", NULL);
  cr_expect_str_eq(case_check(&c->e, "FAV-4b").message, row_reason(ROW_INFINITE));
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
  cr_expect_eq(case_judge("fake", shape(20, false), 0.3, "FAV-4a").p_value, 0);
  /* Markov: an error k times the bound at alpha = 1e-3 has p = alpha / k^2. */
  fake_reset(NULL);
  fake.view.features = features->view.features;
  const result_bound b = case_judge("fake", shape(20, false), 0.3, "FAV-4b");
  cr_expect(b.p_value < 1 && fabs(b.p_value / 1e-3 * pow(b.measured / b.value, 2) - 1) < 1e-9, "%g, %g of %g",
            b.p_value, b.measured, b.value);
}
