/* bf16.c - FP-4: the bound of rounded operands holds, is attained, and fails where it should. */
#include "tests/support/checks_case.h"

static const char *const specs[] = {"tiled:precision=bf16", "tiled:precision=bf16,block_q=40,block_k=24"};

static attn_problem small(bool causal) {
  attn_problem p = case_problem(2, 4, 2, 65, 24, 17, causal, ATTN_F32);
  p.n_kv = 129;
  return p;
}

Test(checks_bf16, correct_outputs_pass) {
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
    for (int causal = 0; causal < 2; causal++)
      for (double std = 0.01; std < 20; std *= 10) {
        run_case *c = case_gaussian(specs[s], small(causal), std);
        if (std < 0.1) expect_verdict(&c->e, "FP-4", VERDICT_PASS, specs[s]);
        expect_holds(&c->e, "FP-4", specs[s]);
        expect_holds(&c->e, "FP-3", specs[s]);
        expect_verdict(&c->e, "FP-2", VERDICT_NOT_APPLICABLE, specs[s]);
        case_free(c);
      }
}

Test(checks_bf16, properties_pass) {
  static const char *const names[] = {"PROP-ONES", "PROP-HULL", "PROP-PERM", "PROP-SHIFT"};
  run_case *c = case_gaussian(specs[0], small(false), 1);
  for (size_t k = 0; k < sizeof names / sizeof *names; k++)
    expect_verdict(&c->e, names[k], VERDICT_PASS, names[k]);
}

/* A bound that holds, and would hold of an output that is 1 % off. */
Test(checks_bf16, a_bound_that_says_nothing_is_vacuous) {
  run_case *c = case_gaussian(specs[0], small(false), 1);
  result_bound b = case_check(&c->e, "FP-4");
  cr_expect_eq(b.verdict, VERDICT_UNCERTIFIABLE);
  cr_expect(strncmp(b.message, "vacuous: ", 9) == 0 && b.measured <= b.value && b.value > 0.01,
            "%s, %g of %g", b.message, b.measured, b.value);
  case_set(c, c->o, 5, case_get(c, c->o, 5) + 1);
  expect_verdict(&c->e, "FP-4", VERDICT_VIOLATED, "a component off by 1");
  case_set(c, c->o, 5, (double)NAN);
  expect_verdict(&c->e, "FP-4", VERDICT_VIOLATED, "a NaN");
}

/* Scores whose rounding outgrows every exponential. */
Test(checks_bf16, hopeless_scores_are_uncertifiable) {
  run_case *c = case_gaussian(specs[0], small(false), 300);
  expect_verdict(&c->e, "FP-4", VERDICT_UNCERTIFIABLE, "scores of 1e5");
  expect_verdict(&c->e, "FP-3", VERDICT_UNCERTIFIABLE, "scores of 1e5");
}

/* The terms of bf16 are needed: without them the bound fails, also on a run of small scores. */
Test(checks_bf16, another_descriptor_fails) {
  for (double std = 0.1; std < 4; std *= 3) {
    run_case *c = case_gaussian(specs[0], small(false), std),
             *f32 = case_gaussian("tiled", small(false), std);
    attn_rounding own = c->view.rounding;
    c->view.rounding = f32->view.rounding;
    expect_verdict(&c->e, "FP-2", VERDICT_VIOLATED, "the descriptor of fp32");
    c->view.rounding = own;
    c->view.rounding.operand = 0x1p-12;
    c->view.rounding.weight = 0x1p-12;
    expect_verdict(&c->e, "FP-4", VERDICT_VIOLATED, "operands of 12 bits");
    expect_verdict(&f32->e, "FP-4", VERDICT_NOT_APPLICABLE, "fp32");
    case_free(c);
    case_free(f32);
  }
}

/* Two keys of equal scores, q = (1, 1), k = +-(1, -1), v = +-1, so that o = 0, and every rounding as bad as
 * it may be: operands that grow by 1 + u where it hurts and shrink by 1 - u where that does, and weights and
 * values that do the same. Simulated in fp64, it comes near the bound. */
Test(checks_bf16, the_bound_is_attained) {
  const double u = 0x1p-8;
  attn_problem p = attn_problem_make(1, 1, 2, 2);
  p.n_q = 1;
  p.d_v = 1;
  p.scale = 1;
  run_case *c = case_make(p, 1, 1);
  const double q[] = {1, 1}, k[] = {1, -1, -1, 1}, v[] = {1, -1};
  for (int i = 0; i < 4; i++) {
    case_set(c, c->k, i, k[i]);
    if (i < 2) case_set(c, c->q, i, q[i]);
    if (i < 2) case_set(c, c->v, i, v[i]);
  }
  case_run(c, specs[0], NULL);
  double q0 = 1 + u, q1 = 1 - u, score = q0 * (1 + u) - q1 * (1 - u);
  double p0 = exp(score) * (1 + u), p1 = exp(-score) * (1 - u);
  double o = (p0 * (1 + u) - p1 * (1 - u)) / (p0 + p1);
  case_set(c, c->o, 0, o);
  result_bound b = case_check(&c->e, "FP-4");
  expect_holds(&c->e, "FP-4", "as bad as may be");
  cr_expect_gt(b.measured / b.value, 0.9, "measured %g, value %g", b.measured, b.value);
  case_set(c, c->o, 0, 1.1 * o);
  expect_verdict(&c->e, "FP-4", VERDICT_VIOLATED, "a tenth more");
}
