/* fixed.c - features that are not drawn: PHI-1 holds the output against their kernel, TAY-1 and AS-1 say what
 * a polynomial in the place of the exponential costs. */
#include "tests/support/checks_fake.h"

static attn_problem shape(bool causal, attn_dtype type) {
  return case_problem(1, 2, 2, 150, 16, 9, causal, type);
}

static const char *const specs[] = {"linear",
                                    "linear:normalise=no",
                                    "linear:feature=taylor,normalise=no",
                                    "linear:feature=relu2,eps=1e-3",
                                    "linear:feature=dpfp",
                                    "linear:feature=exp",
                                    "linear:feature=taylor,degree=1",
                                    "linear:feature=taylor",
                                    "linear:feature=cos",
                                    "linear:feature=relu,eps=1",
                                    "linear:feature=identity,normalise=no",
                                    "linear:feature=hedgehog"};

Test(checks_fixed, correct_features_pass) {
  const int64_t keys = 131;
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
    for (int causal = 0; causal < 2; causal++)
      for (int type = 0; type < 2; type++) {
        run_case *c =
            case_lengths(specs[s], shape(causal, type ? ATTN_F64 : ATTN_F32), 0.7, type ? &keys : NULL);
        expect_verdict(&c->e, "PHI-1", VERDICT_PASS, specs[s]);
        expect_verdict(&c->e, "FP-6", VERDICT_PASS, specs[s]);
        expect_verdict(&c->e, "FAV-6", VERDICT_PASS, specs[s]);
        expect_verdict(&c->e, "FAV-9", VERDICT_NOT_APPLICABLE, specs[s]);
        for (int64_t i = 0; i < case_count_o(&c->problem); i++) /* off by a hundredth */
          case_set(c, c->o, i, case_get(c, c->o, i) + 1e-2 * (1 + fabs(case_get(c, c->o, i))));
        expect_verdict(&c->e, "FP-6", VERDICT_VIOLATED, specs[s]);
        case_free(c);
      }
}

static double value_of(const char *spec, const char *name, double std, double *measured) {
  const result_bound b = case_judge(spec, shape(false, ATTN_F64), std, name);
  cr_expect(b.verdict == VERDICT_PASS || b.verdict == VERDICT_NOT_APPLICABLE,
            "%s of %s at std %g: %g of %g, %s", name, spec, std, b.measured, b.value, b.message);
  *measured = b.measured;
  return b.value;
}

/* The bound follows the scores: tight where they are small, the diameter of V where they are large. */
Test(checks_fixed, polynomials_err_as_their_bound_says) {
  double measured, small = value_of("linear:feature=taylor", "TAY-1", 0.3, &measured);
  cr_expect(measured > 0 && measured < small && small < 0.1, "%g of %g", measured, small);
  const double large = value_of("linear:feature=taylor", "TAY-1", 3, &measured);
  cr_expect(large > 5 && measured < large, "%g of %g", measured, large);
  const double linear = value_of("linear:feature=taylor,degree=1", "TAY-1", 0.3, &measured);
  cr_expect(linear > 2 * small && linear < 1, "%g", linear);
  expect_gaussian("linear:feature=taylor,degree=1", shape(false, ATTN_F64), 2, "TAY-1", VERDICT_UNCERTIFIABLE,
                  "scores below -1");
}

/* Features for scores up to B in 64 dimensions, of which the largest score is made B: of degree 3, 7 and
 * 17. */
Test(checks_fixed, features_that_a_polynomial_needs) {
  static const struct {
    double b, columns;
  } known[] = {{1, 47905}, {2, 1329890705.0}, {5, 1.2844799479829762e17}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    attn_problem p = attn_problem_make(1, 1, 8, 64);
    p.dtype = ATTN_F64;
    run_case *c = case_make(p, 0, 100);
    case_set(c, c->q, 0, known[i].b);
    case_set(c, c->k, 0, 8);
    case_run(c, "linear:feature=taylor", NULL);
    const result_bound b = case_check(&c->e, "AS-1");
    cr_expect(fabs(b.measured / known[i].columns - 1) < 1e-9 && b.value == 1 + 64 + 64 * 65 / 2,
              "B = %g: %.17g features, %s", known[i].b, b.measured, b.message);
    case_free(c);
  }
}
