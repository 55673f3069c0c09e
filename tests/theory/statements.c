/* statements.c - each statement of attnlab theory holds, is seen to fail where its assumption does not, and
 * is the same at every run; the judge refuses false numbers. */
#include <criterion/criterion.h>
#include <string.h>

#include "experiments/theory/theory.h"

TestSuite(theory_statements, .timeout = 240);

static theory_report report;

static void run(const theory *t, uint64_t seed) {
  cr_assert_eq(theory_run(t, seed, &report), ATTN_OK, "%s: %s", t->name, attn_last_error());
}

static void expect_holding(uint64_t seed) {
  for (const theory *const *t = theories; *t; t++) {
    int kept = 0, broken = 0, points = 0;
    run(*t, seed);
    for (int i = 0; i < report.count; i++) {
      const theory_figure *f = &report.figures[i];
      cr_expect(theory_figure_holds(f), "%s, seed %d: %s: %.17g (%.17g ... %.17g), promised %.17g +- %g",
                (*t)->name, (int)seed, f->figure.what, f->figure.value, f->figure.low, f->figure.high,
                f->figure.said, f->tolerance);
      kept += f->relation && !f->breaks;
      broken += f->breaks;
      points += f->curve != NULL;
    }
    cr_expect(kept && broken && points, "%s: %d promises, %d broken ones, %d points", (*t)->name, kept,
              broken, points);
    cr_expect_lt(report.count, THEORY_FIGURES, "%s", (*t)->name);
  }
}

Test(theory_statements, hold) {
  for (uint64_t seed = 0; seed < 4; seed++) expect_holding(seed);
}

Test(theory_statements, repeat) {
  static theory_report first;
  for (const theory *const *t = theories; *t; t++) {
    if (!strcmp((*t)->name, "complexity")) continue; /* it has times */
    run(*t, 5);
    first = report;
    run(*t, 5);
    cr_expect_eq(report.count, first.count);
    for (int i = 0; i < report.count; i++)
      cr_expect_eq(memcmp(&report.figures[i].figure.value, &first.figures[i].figure.value, sizeof(double)), 0,
                   "%s: %s", (*t)->name, first.figures[i].figure.what);
  }
}

/* value in low ... high, promised 1 with a tolerance of 0.1 */
static bool judged(theory_relation relation, bool breaks, double low, double high) {
  return theory_figure_holds(&(theory_figure){.figure = {.value = low, .low = low, .high = high, .said = 1},
                                              .relation = relation,
                                              .tolerance = 0.1,
                                              .breaks = breaks});
}

Test(theory_statements, judge) {
  static const struct {
    theory_relation relation;
    double low, high;
    bool kept, broken;
  } cases[] = {
      {THEORY_EQUAL, 0.5, 1.5, true, false},     {THEORY_EQUAL, 1.05, 1.5, true, false},
      {THEORY_EQUAL, 1.2, 1.5, false, true},     {THEORY_EQUAL, 0.5, 0.8, false, true},
      {THEORY_AT_MOST, 0.5, 1.05, true, false},  {THEORY_AT_MOST, 0.5, 1.2, false, false},
      {THEORY_AT_MOST, 1.2, 1.5, false, true},   {THEORY_AT_LEAST, 0.95, 1.5, true, false},
      {THEORY_AT_LEAST, 0.5, 1.5, false, false}, {THEORY_AT_LEAST, 0.5, 0.8, false, true},
      {THEORY_EQUAL, NAN, NAN, false, false},    {THEORY_AT_MOST, NAN, NAN, false, false},
      {THEORY_AT_LEAST, NAN, NAN, false, false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    cr_expect_eq(judged(cases[i].relation, false, cases[i].low, cases[i].high), cases[i].kept, "case %zu", i);
    cr_expect_eq(judged(cases[i].relation, true, cases[i].low, cases[i].high), cases[i].broken,
                 "case %zu, broken", i);
  }
}

/* What tolerances are made of. */
Test(theory_statements, distances) {
  const double a[] = {1, -3, 2}, b[] = {1, 1, NAN}, k[] = {1, 2, 0};
  cr_expect_eq(theory_largest(a, 3), 3);
  cr_expect_eq(theory_distance(a, b, 2), 4);
  cr_expect(isnan(theory_distance(a, b, 3)));
  cr_expect_eq(theory_score_size(1, 1, 3, -0.5, a, k), 3.5);
}
