/* lowrank.c - LOW-1 and LOW-2 on what is the best of its rank and on what is not. */
#include "tests/support/checks_case.h"

#include "experiments/mathematics/spectrum.h"

static attn_problem shape(bool causal, attn_dtype type) {
  return case_problem(1, 2, 2, 150, 16, 9, causal, type);
}

static result_bound judge(const char *spec, const char *name, bool causal, attn_dtype type, double std) {
  return case_judge(spec, shape(causal, type), std, name);
}

Test(checks_lowrank, the_best_is_as_good_as_it_says) {
  static const struct {
    const char *spec, *check;
    bool causal;
  } table[] = {{"svd:r=1", "LOW-1", false},
               {"svd:r=40", "LOW-1", false},
               {"svd:r=40", "LOW-1", true},
               {"svd:r=40", "LIN-3", false},
               {"svd:r=1,of=scores", "LOW-2", false},
               {"svd:r=15,of=scores", "LOW-2", false},
               /* ranks that leave nothing out */
               {"svd:r=150", "FP-1", false},
               {"svd:r=150", "FP-1", true},
               {"svd:r=16,of=scores", "FP-1", false},
               {"svd:r=16,of=scores", "FP-1", true}};
  for (size_t t = 0; t < sizeof table / sizeof *table; t++)
    for (int type = 0; type < 2; type++)
      for (int strong = 0; strong < 2; strong++) {
        const result_bound b = judge(table[t].spec, table[t].check, table[t].causal,
                                     type ? ATTN_F64 : ATTN_F32, strong ? 1.5 : 0.3);
        cr_expect_eq(b.verdict, VERDICT_PASS, "%s, %s: %d, %g of %g %s", table[t].spec, table[t].check,
                     (int)b.verdict, b.measured, b.value, b.message);
        /* LOW-1: equality */
        if (*table[t].check == 'L' && table[t].check[4] == '1')
          cr_expect(b.value - b.measured <= 1e-4 * b.value, "%s: %g, not %g", table[t].spec, b.value,
                    b.measured);
      }
}

/* Of the same rank: nothing is closer than svd, which says how far. */
Test(checks_lowrank, others_are_further) {
  const result_bound best = judge("svd:r=16", "LOW-1", false, ATTN_F64, 1);
  static const char *const specs[] = {"linformer:k=16", "linformer:k=16,projection=pool",
                                      "performer:features=16", "linear"};
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
    const result_bound b = judge(specs[s], "LOW-1", false, ATTN_F64, 1);
    cr_expect_eq(b.verdict, VERDICT_PASS, "%s: %g of %g %s", specs[s], b.measured, b.value, b.message);
    cr_expect(b.value > 1.1 * best.value, "%s: %g, the best %g", specs[s], b.value, best.value);
    cr_expect(strstr(b.message, "times as far"), "%s: '%s'", specs[s], b.message);
  }
}

/* Where nothing can be said, it is said why. */
Test(checks_lowrank, runs_that_are_not_judged) {
  static const struct {
    const char *check, *spec;
    bool causal;
    double std;
    int64_t n, keys;
    const char *why;
  } table[] = {
      {"LOW-1", "linformer:k=20", false, 1, 20, 20, "the rank is not below the length"},
      {"LOW-1", "performer:features=16", true, 1, 20, 20, "a causal mask breaks the rank"},
      {"LOW-1", "svd:r=4", false, 1e200, 20, 20, "the exact weights are not finite"},
      {"LOW-2", "svd:r=8,of=scores", true, 1, 20, 20, "keys that are hidden"},
      {"LOW-2", "svd:r=4,of=scores", false, 1e200, 20, 20, "weights of 0 or that are not finite"},
      {"LOW-3", "coreset:keys=9", false, 1e6, 20, 20, "rounding of the scores is too large"},
      {"NYS-1", "nystrom:landmarks=257", false, 0.3, 257, 257, "more than 256 landmarks"},
      {"NYS-1", "nystrom:landmarks=8,iterations=30", false, 1e6, 20, 20, "rounding is amplified"},
      {"NYS-2", "nystrom:landmarks=8,middle=pinv,rcond=1e-12", false, 1, 20, 20, "rcond lets rounding"},
      {"NYS-3", "nystrom:landmarks=9,middle=agents", false, 1e200, 20, 20, "the weights are not finite"},
      {"COR-1", "coreset:keys=20,rcond=1e-13", false, 0.03, 20, 20, "rounding decides over every row"},
      {"SKY-1", "skyformer:landmarks=20,rcond=1e-13", false, 0.01, 20, 20, "rounding is amplified"},
      {"NYS-1", "nystrom:landmarks=8", false, 1, 20, 0, "no keys"},
      {"NYS-3", "nystrom:landmarks=8,middle=agents", false, 1, 20, 0, "no keys"},
      {"CL-1", "cluster:clusters=4,topk=0", false, 1, 20, 0, "no keys"},
      {"MLA-2", "latent:rank=4", false, 1, 20, 0, "no keys"}};
  for (size_t t = 0; t < sizeof table / sizeof *table; t++) {
    const attn_problem p = case_problem(1, 2, 2, table[t].n, 16, 9, table[t].causal, ATTN_F64);
    run_case *c = case_lengths(table[t].spec, p, table[t].std, &table[t].keys);
    const result_bound b = case_check(&c->e, table[t].check);
    cr_expect((b.verdict == VERDICT_NOT_APPLICABLE || b.verdict == VERDICT_UNCERTIFIABLE) &&
                  strstr(b.message, table[t].why),
              "%s of %s: %d, %g of %g, %s", table[t].check, table[t].spec, (int)b.verdict, b.measured,
              b.value, b.message);
    case_free(c);
  }
}

Test(checks_lowrank, long_sequences_are_refused) {
  attn_problem p = attn_problem_make(1, 1, 1025, 8);
  attn_plan *plan = NULL;
  cr_expect_eq(attn_plan_create(&plan, &p, "svd", NULL), ATTN_EUNSUPPORTED);
  cr_expect(strstr(attn_last_error(), "1024"), "%s", attn_last_error());
}

/* Squares of what stands beside a sink are subnormal: the solver would not end. */
Test(checks_lowrank, spectra_of_tiny_rows, .timeout = 60) {
  enum { ROWS = 95, DRAWS = 20 };
  static double x[ROWS * ROWS], squares[ROWS];
  const double *rows[ROWS];
  for (int draw = 0; draw < DRAWS; draw++) {
    attn_rng rng = rng_of(6, 0, (uint64_t)draw);
    for (int i = 0; i < ROWS * ROWS; i++) x[i] = attn_rng_normal(&rng) * 1e-160;
    for (int i = 0; i < ROWS; i++) rows[i] = x + i * ROWS;
    cr_assert_eq(spectrum_squares(rows, ROWS, ROWS, squares), ATTN_OK, "%s", attn_last_error());
    cr_expect(squares[0] > 0 && squares[0] < 1e-316);
  }
}
