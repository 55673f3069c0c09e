/* statements.c - each statement of attnlab theory holds, is seen to fail where its assumption does not, and
 * is the same at every run; the judge refuses false numbers. */
#include <criterion/criterion.h>
#include <hdf5.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/theory/theory.h"

TestSuite(theory_statements, .timeout = 240);

static theory_report report, again;

static void run(const theory *t, uint64_t seed, theory_report *r) {
  cr_assert_eq(theory_run(t, seed, r), ATTN_OK, "%s: %s", t->name, attn_last_error());
}

/* What a statement promises, on which inputs it breaks, and the points of its curves: how many. */
static const struct {
  const char *name;
  int kept, broken, points;
  double most; /* of tolerances, mostly of rounding */
} sizes[] = {
    {"variance", 6, 2, 16, 1e-14},      {"gradient-step", 3, 1, 10, 5e-12}, {"delta-rule", 4, 1, 20, 1e-14},
    {"recall", 4, 2, 20, 6e-11},        {"drift", 3, 1, 40, 1e-14},         {"low-rank", 5, 2, 19, 2e-5},
    {"rank-collapse", 6, 3, 11, 2e-12}, {"smoothing", 3, 1, 10, 8e-12},     {"lookup", 3, 1, 12, 8e-12},
    {"distance", 3, 2, 40, 8e-12},      {"order", 1, 3, 24, 1e-12},         {"complexity", 7, 1, 20, 1. / 7},
    {"heads", 1, 1, 8, 3e-12}};

/* Where points lie: of 16 normal scores of variance 1 by 2 10^5 draws, shares and relative errors. */
static const struct {
  const char *curve;
  double least, most;
} ranges[] = {{"entropy, 1/", 2.3, 2.42}, {"|J|, 1/", 0.296, 0.312}, {"recalled by", 0.97, 1},
              {"means of", 0, 1},         {"latent ", 0, 1},         {"|P - P_r|", 0, 1}};

/* Behind the measured point of a curve stands the promised one; some points are 0, or a number that is
 * known. */
static void expect_point(const theory_figure *f) {
  const double value = f->figure.value, x = f->x, exact = 1e-11;
  const char *c = f->curve;
  const bool most = strstr(c, "at most") || strstr(c, "bound, "),
             two = strstr(c, " heads") || strstr(c, "latent ");
  if (most || strncmp(c, "promised (", 10) == 0)
    cr_expect(f[-1].x == x && f[-1].figure.low <= value + exact &&
                  (most || value <= f[-1].figure.high + exact),
              "%s: %g", c, x);
  if (strcmp(c, "no positions") == 0 || strcmp(c, "with weights of keys") == 0)
    cr_expect(value < exact, "%s: %g", c, value);
  if (two) cr_expect_eq(value < exact, x == 256, "%s: %g", c, x);
  if (strcmp(c, "full") == 0) cr_expect_eq(value, 64 * x * (x + 1));
  if (strcmp(c, "ALiBi") == 0 && x > 0 && fmod(x, 7) == 0)
    cr_expect(fabs(f[-1].figure.value - 7. / 2 - value) < exact, "%g", x);
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
    if (strncmp(c, ranges[i].curve, strlen(ranges[i].curve)) == 0)
      cr_expect(value >= ranges[i].least && value <= ranges[i].most, "%s: %g", c, value);
  /* e G / (1 - e G), and a tenth for the newest pair; without a decay each key errs by e. */
  const double g = (1 - pow(0.99, x)) / 0.01, e = strstr(c, "bf16") ? 0x1p-8 : 0x1p-22;
  if (strcmp(c, "bound, fp32") == 0 || strcmp(c, "bound, bf16") == 0)
    cr_expect(fabs(value * (1 / (e * g) - 1) - 1.1) < 0.1, "%s: %g at %g", c, value, x);
  if (strcmp(c, "a = 1, fp32") == 0 || strcmp(c, "delta rule, fp32") == 0) cr_expect(value < e * x, "%g", x);
  /* C e^(-b D) of C = 2 (n - 1): from the bounds at 8 and at 16. */
  if (strcmp(c, "promised at most") == 0 && x == 16)
    cr_expect(fabs(pow(f[-3].figure.value, 2) / value - 126) < 1e-9, "%g", value);
}

/* Counts: of 8 heads of 16 with x numbers a token in a cache, and of a cache of 8192 tokens. */
static void expect_count(const theory_figure *f) {
  const char *what = f->figure.what;
  if (strstr(what, ": parameters"))
    cr_expect_eq(f->figure.value, 2 * 128 * 128 + (*what == 'M' && what[1] == 'L' ? 384 : 128) * f[-1].x);
  if (strstr(what, "a token in")) cr_expect_eq(f->figure.value, f[-2].x);
  if (strstr(what, "cache of keys")) cr_expect_eq(f->figure.value, 2 * 64 * 8192);
}

/* Of four seeds; and the first again, whose figures without times are the same. */
static void expect_holding(const theory *t) {
  int size = 0;
  while (strcmp(sizes[size].name, t->name) != 0) size++;
  for (uint64_t seed = 4; seed-- > 0;) {
    int kept = 0, broken = 0, points = 0;
    run(t, seed, &report);
    for (int i = 0; i < report.count; i++) {
      const theory_figure *f = &report.figures[i];
      cr_expect(theory_figure_holds(f), "%s, seed %d: %s: %.17g (%.17g ... %.17g), promised %.17g +- %g",
                t->name, (int)seed, f->figure.what, f->figure.value, f->figure.low, f->figure.high,
                f->figure.said, f->tolerance);
      cr_expect(f->tolerance <= sizes[size].most && !(f->relation == THEORY_AT_LEAST && f->figure.said <= 0),
                "%s: %g, said %g", f->figure.what, f->tolerance, f->figure.said);
      kept += f->relation && !f->breaks;
      broken += f->breaks;
      points += f->curve != NULL;
      if (f->curve) expect_point(f);
      expect_count(f);
    }
    cr_expect(kept == sizes[size].kept && broken == sizes[size].broken && points == sizes[size].points,
              "%d promises, %d broken ones, %d points", kept, broken, points);
  }
  run(t, 0, &again);
  cr_expect_eq(again.count, report.count);
  for (int i = 0; i < again.count; i++)
    cr_expect(strstr(again.figures[i].figure.what, "time") ||
                  !memcmp(&again.figures[i].figure.value, &report.figures[i].figure.value, sizeof(double)),
              "%s", again.figures[i].figure.what);
}

#define THEORY(name) \
  Test(theory_statements, name) { expect_holding(&theory_##name); }
#include "experiments/theory/theory.def"

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
  };
  const double none = (double)NAN;
  for (int breaks = 0; breaks < 2; breaks++) {
    for (theory_relation any = THEORY_EQUAL; any <= THEORY_AT_LEAST; any++)
      cr_expect(!judged(any, breaks, none, none));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
      cr_expect_eq(judged(cases[i].relation, breaks, cases[i].low, cases[i].high),
                   breaks ? cases[i].broken : cases[i].kept, "case %zu, breaks %d", i, breaks);
  }
}

/* What tolerances are made of. */
Test(theory_statements, distances) {
  const double a[] = {1, -3, 2, 0}, b[] = {1, 1, (double)NAN, 0}, k[] = {1, 2, 0};
  cr_expect(theory_largest(a, 3) == 3 && theory_distance(a, b, 2) == 4);
  cr_expect(isnan(theory_distance(a, b, 4)) && isnan(theory_largest(b, 4)) && theory_larger(1, 2) == 2);
  cr_expect_eq(theory_score_size(1, 1, 3, -0.5, a, k), 3.5);
}

/* At 95 %, by the tables of Student's t and of chi^2; and where there were no hits, 1 - 0.025^(1/10). */
Test(theory_statements, figures) {
  const double x[] = {1, 2, 3}, y[] = {1, 2, 3, 4, 16, 36}, t = 4.302652729749464,
               chi[] = {7.377758908227871, 0.05063561596857975};
  claim_figure f[4] = {{.level = 0.95}, {.level = 0.95}, {.level = 0.95}, {.level = 0.95}};
  figure_mean(&f[0], x, 3, "of x");
  figure_deviation(&f[1], x, 3, "of x");
  figure_slope(&f[2], x, 3, y, 2, "curves"); /* x and (2 x)^2 */
  figure_share(&f[3], 0, 10, "draws");
  const double want[][3] = {{2, 2 - t / sqrt(3), 2 + t / sqrt(3)},
                            {1, sqrt(2 / chi[0]), sqrt(2 / chi[1])},
                            {1.5, 1.5 - 12.706204736174698 / 2, 1.5 + 12.706204736174698 / 2},
                            {0, 0, 1 - pow(0.025, 0.1)}};
  for (int i = 0; i < 4; i++)
    cr_expect(fabs(f[i].value - want[i][0]) + fabs(f[i].low - want[i][1]) + fabs(f[i].high - want[i][2]) <
                  1e-9,
              "%s: %.12g, %.12g ... %.12g", f[i].interval, f[i].value, f[i].low, f[i].high);
}

/* A row a figure. */
Test(theory_statements, file) {
  const theory *const both[] = {&theory_order, &theory_lookup};
  static theory_report reports[2];
  char path[] = "theory-XXXXXX";
  hsize_t rows = 0;
  for (int i = 0; i < 2; i++) run(both[i], 0, &reports[i]);
  close(mkstemp(path));
  cr_assert_eq(theory_write(path, NULL, both, reports, 2), ATTN_OK, "%s", attn_last_error());
  const hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT), set = H5Dopen2(file, "verdict", H5P_DEFAULT),
              space = H5Dget_space(set);
  cr_expect(H5Sget_simple_extent_dims(space, &rows, NULL) == 1 &&
            (int)rows == reports[0].count + reports[1].count);
  H5Fclose(file), unlink(path);
}
