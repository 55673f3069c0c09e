/* entries.c - FAV-1, FAV-3 and FAV-8: moments of entries by simulation, draws of the performer that
 * pass, generators that are wrong. */
#include "tests/support/checks_generator.h"

#include "experiments/mathematics/entries.h"
#include "experiments/mathematics/pair_moments.h"
#include "experiments/mathematics/statistics.h"

static const generator_fault none = {.gain = 1};

/* -- the formulas, against Haar blocks of the test's own -- */

/* Mean and spread of (1/m) sum_r of exp (with weights of a), cosh or cos of w_r.b, |b|^2 = s, within 5
 * standard errors. */
static void expect_moments(attn_features_kind kind, double a, bool constant, int64_t d, int64_t m, double s) {
  enum { RUNS = 100000 };
  feature_law law = {.kind = kind, .d = d, .a = a, .orthogonal = true, .constant = constant};
  feature_law_resize(&law, m);
  double w[64], sums[4] = {0}, pairs = 0, square = 0;
  attn_rng rng = rng_of(1, 2, 3);
  fault = (generator_fault){.gain = 1, .length = constant ? sqrt((double)d) : 0};
  /* x = b / 2 = +-y: the factor is exp(-+s/4). */
  bool trig = kind == ATTN_FEATURES_TRIG;
  entry_moments want = entry_of(&law, s / 4, s / 4, (trig ? -1 : 1) * s / 4);
  double factor = exp((trig ? 1 : -1) * s / 4), want_pair = entry_pair(&law, trig ? -s : s);
  for (int run = 0; run < RUNS; run++) {
    double mean = 0, x[64];
    generator_draw(&rng, m, d, w);
    for (int64_t r = 0; r < m; r++) {
      double t = sqrt(s * (1 - 4 * a)) * w[r * d];
      double weight = pow(1 - 4 * a, (double)d / 2) * exp(2 * a * generator_dot(w + r * d, w + r * d, d));
      x[r] = kind == ATTN_FEATURES_POSITIVE ? weight * exp(t) : trig ? cos(t) : cosh(t);
      mean += factor * x[r] / (double)m;
    }
    pairs += x[0] * x[1] / RUNS;
    square += x[0] * x[0] * x[1] * x[1] / RUNS;
    double off = (mean - want.mean) * (mean - want.mean);
    sums[0] += mean / RUNS;
    sums[1] += off / RUNS;
    sums[2] += off * off / RUNS;
  }
  double error = sqrt(want.error / RUNS), spread = sqrt((sums[2] - sums[1] * sums[1]) / RUNS);
  double pair = sqrt((square - pairs * pairs) / RUNS);
  cr_expect(fabs(sums[0] - want.mean) <= 5 * error, "mean %g, want %g +- %g", sums[0], want.mean, error);
  cr_expect(fabs(sums[1] - want.error) <= 5 * spread, "kind %d constant %d d %d m %d: %g, want %g +- %g",
            (int)kind, constant, (int)d, (int)m, sums[1], want.error, spread);
  cr_expect(fabs(pairs - want_pair) <= 5 * pair, "pairs %g, want %g +- %g", pairs, want_pair, pair);
  feature_law apart = law;
  apart.pairs = 0;
  double other = entry_of(&apart, s / 4, s / 4, (trig ? -1 : 1) * s / 4).error;
  cr_expect(!trig || fabs(other - want.error) > 10 * spread, "the test would not see the blocks");
}

/* Fewer vectors than d, as many, and a block with a part of another. */
Test(checks_entries, block_orthogonal_moments) {
  for (int64_t m = 2; m <= 5; m++)
    for (int constant = 0; constant < 2; constant++) {
      expect_moments(ATTN_FEATURES_POSITIVE, 0, constant, 3, m, 0.5);
      expect_moments(ATTN_FEATURES_POSITIVE, -0.1, constant, 3, m, 0.5);
      expect_moments(ATTN_FEATURES_HYPERBOLIC, 0, constant, 3, m, 0.5);
      expect_moments(ATTN_FEATURES_TRIG, 0, constant, 3, m, 2);
    }
}

/* Second and fourth powers of one vector's weighted product, alone, across turns, and of two of a block, with
 * the spreads that follow from them. */
Test(checks_entries, powers_of_weighted_products) {
  enum { RUNS = 400000, D = 3 };
  const double a = -0.1, s = 0.25;
  feature_law law = {.kind = ATTN_FEATURES_POSITIVE, .d = D, .a = a, .orthogonal = true};
  double w[2 * D], want[4], sum[4] = {0}, squares[4] = {0};
  attn_rng rng = rng_of(6, 7, 8);
  feature_law_resize(&law, 1);
  fault = none;
  want[0] = entry_square(&law, s);
  want[1] = entry_fourth(&law, s);
  want[2] = entry_pair_square(&law, s);
  /* Over two turns: (S - G^2 + across) / 2. */
  want[3] = 2 * entry_mean_spread(&law, s, 2) - (want[0] - exp(s)) + exp(s);
  for (int run = 0; run < RUNS; run++) {
    double x[2], other;
    generator_draw(&rng, 2, D, w);
    for (int r = 0; r < 2; r++)
      x[r] = pow(1 - 4 * a, D / 2.0) *
             exp(2 * a * generator_dot(w + r * D, w + r * D, D) + sqrt(s * (1 - 4 * a)) * w[r * D]);
    other = x[0] * exp(sqrt(s * (1 - 4 * a)) * (w[1] - w[0]));
    const double found[4] = {x[0] * x[0], pow(x[0], 4), pow(x[0] * x[1], 2), x[0] * other};
    for (int i = 0; i < 4; i++) {
      sum[i] += found[i] / RUNS;
      squares[i] += found[i] * found[i] / RUNS;
    }
  }
  for (int i = 0; i < 4; i++) {
    double error = sqrt((squares[i] - sum[i] * sum[i]) / RUNS);
    cr_expect(fabs(sum[i] - want[i]) <= 5 * error, "%d: %g, want %g +- %g", i, sum[i], want[i], error);
    cr_expect(error < 0.02 * want[i], "%d: the test would not notice", i);
  }
  law.a = 1 / 16.0;
  cr_expect(isinf(entry_fourth(&law, s)) && isfinite(entry_square(&law, s)));
}

/* E phi(x)^2 phi(y_i) phi(y_j) over the product of the two entries. */
Test(checks_entries, joint_moments_of_two_entries) {
  enum { RUNS = 400000, D = 4 };
  static const double x[D] = {0.7, -0.3, 0, 0.2}, y[2][D] = {{0.3, 0.1, -0.6, 0}, {0.1, 0.5, -0.4, 0.1}};
  static const attn_features_kind kinds[] = {ATTN_FEATURES_POSITIVE, ATTN_FEATURES_POSITIVE,
                                             ATTN_FEATURES_HYPERBOLIC, ATTN_FEATURES_TRIG};
  for (int k = 0; k < 4; k++) {
    const double a = k == 1 ? -0.2 : 0, b = sqrt(1 - 4 * a), *points[3] = {x, y[0], y[1]};
    const feature_law law = {.kind = kinds[k], .d = D, .a = a};
    double sum = 0, squares = 0, want = moment_of_pair(&law, x, y[0], y[1]);
    attn_rng rng = rng_of(9, (uint64_t)k, 1);
    for (int run = 0; run < RUNS; run++) {
      double w[D], t[3], half[3], entry[2];
      for (int l = 0; l < D; l++) w[l] = attn_rng_normal(&rng);
      for (int i = 0; i < 3; i++) {
        t[i] = b * generator_dot(w, points[i], D);
        half[i] = generator_dot(points[i], points[i], D) / 2;
      }
      for (int i = 0; i < 2; i++) {
        const double norms = half[0] + half[i + 1];
        entry[i] = kinds[k] == ATTN_FEATURES_TRIG ? exp(norms) * cos(t[0] - t[i + 1])
                   : kinds[k] == ATTN_FEATURES_HYPERBOLIC
                       ? exp(-norms) * cosh(t[0] + t[i + 1])
                       : pow(b, D) * exp(2 * a * generator_dot(w, w, D) + t[0] + t[i + 1] - norms);
        entry[i] /= exp(generator_dot(x, y[i], D));
      }
      sum += entry[0] * entry[1] / RUNS;
      squares += pow(entry[0] * entry[1], 2) / RUNS;
    }
    double error = sqrt((squares - sum * sum) / RUNS);
    cr_expect(fabs(sum - want) <= 5 * error, "%d: %g, want %g +- %g", k, sum, want, error);
    cr_expect(error < 0.02 * want && fabs(want - 1) > 0.1, "%d: the test would not notice", k);
  }
}

/* What performer takes for z makes the mean square of a product least there. */
Test(checks_entries, optimal_weights) {
  static const int64_t widths[] = {4, 64};
  for (int i = 0; i < 2; i++)
    for (double z = 0.25; z < 300; z *= 8) {
      feature_law law;
      run_case *c = case_gaussian(text_of("performer:kernel=optimal,features=4,z=%g", z),
                                  attn_problem_make(1, 1, 8, widths[i]), 1);
      cr_assert_null(feature_law_of(c->view.features, widths[i], &law));
      const double a = law.a, least = entry_square(&law, z);
      cr_expect(a < 0);
      for (int sign = -1; sign <= 1; sign += 2) {
        law.a = a * (1 + 0.02 * sign);
        cr_expect(entry_square(&law, z) > least, "d %d, z %g: a = %g is no better than %g", (int)widths[i], z,
                  a, law.a);
      }
      case_free(c);
    }
}

/* The claims of feature_law.h about two orthogonal directions: harmonics of degree 4 correlate by 3 / (d^2 -
 * 1), those of degree 2 by -1 / (d - 1), and so 8 vectors in blocks of d have means as spread as
 * `independent` ones. */
Test(checks_entries, blocks_against_independent_vectors) {
  enum { RUNS = 200000 };
  fault = none;
  for (int64_t d = 2; d <= 5; d++) {
    double w[10 * 8], pair[2] = {0}, square[2] = {0}, spread = 0, width = (double)d;
    feature_law law = {.kind = ATTN_FEATURES_POSITIVE, .d = d, .orthogonal = true};
    attn_rng rng = rng_of(5, 6, (uint64_t)d);
    feature_law_resize(&law, 8);
    for (int run = 0; run < RUNS; run++) {
      double f[8][2], sum = 0;
      generator_draw(&rng, 8, d, w);
      for (int r = 0; r < 8; r++) {
        double t = w[r * d] * w[r * d] / generator_dot(w + r * d, w + r * d, d);
        f[r][0] = (width * t - 1) / (width - 1);
        f[r][1] = ((width + 2) * (width + 4) * t * t - 6 * (width + 2) * t + 3) / (width * width - 1);
        sum += f[r][1];
      }
      for (int l = 0; l < 2; l++) {
        pair[l] += f[0][l] * f[1][l] / RUNS;
        square[l] += f[0][l] * f[0][l] / RUNS;
      }
      spread += sum * sum / 64 / RUNS;
    }
    cr_expect_float_eq(pair[0] / square[0], -1 / (width - 1), 0.02, "d %d: %g", (int)d, pair[0] / square[0]);
    cr_expect_float_eq(pair[1] / square[1], 3 / (width * width - 1), 0.02, "d %d: %g", (int)d,
                       pair[1] / square[1]);
    cr_expect_float_eq(spread / square[1] * law.independent, 1, 0.03, "d %d: %g", (int)d,
                       spread / square[1] * law.independent);
  }
}

/* The normaliser of one key, a mean of exp(w.b - |b|^2/2) with second moment exp(|b|^2), falls below a half
 * no more often than its bound says; which is no empty bound. */
Test(checks_entries, collapse_of_normalisers) {
  enum { RUNS = 20000 };
  bool useful = false;
  for (int orthogonal = 0; orthogonal < 2; orthogonal++)
    for (int64_t m = 4; m <= 64; m *= 4)
      for (double s = 0.05; s < 3; s *= 3) {
        feature_law law = {.kind = ATTN_FEATURES_POSITIVE, .d = 3, .orthogonal = orthogonal};
        double w[64 * 3], below = 0;
        attn_rng rng = rng_of(8, (uint64_t)m, (uint64_t)orthogonal);
        feature_law_resize(&law, m);
        fault = none;
        fault.independent = !orthogonal;
        double bound = moment_collapse(&law, &(row_moment){.rho = exp(s)});
        for (int run = 0; run < RUNS; run++) {
          double sum = 0;
          generator_draw(&rng, m, 3, w);
          for (int64_t r = 0; r < m; r++) sum += exp(sqrt(s) * w[3 * r] - s / 2) / (double)m;
          below += sum < 0.5;
        }
        double error = sqrt(bound * fmax(0, 1 - bound) / RUNS);
        cr_expect(bound >= 1 || below / RUNS <= bound + 5 * error, "m %d, s %g: %g of %g", (int)m, s,
                  below / RUNS, bound);
        useful = useful || (below > 0 && below / RUNS > bound / 100);
      }
  cr_expect(useful);
}

/* The published errors of independent vectors (Choromanski et al. 2021, Lemma 2). */
Test(checks_entries, lemma_2) {
  feature_law law = {.kind = ATTN_FEATURES_POSITIVE, .d = 8};
  feature_law_resize(&law, 16);
  double x = 0.3, y = 0.7, inner = 0.2, z = x + y + 2 * inner, delta = x + y - 2 * inner, norms = exp(x + y);
  cr_expect_float_eq(entry_of(&law, x, y, inner).mean, exp(inner), 1e-14);
  cr_expect_float_eq(entry_of(&law, x, y, inner).error, (exp(2 * z) - exp(z)) / norms / 16, 1e-14);
  law.kind = ATTN_FEATURES_HYPERBOLIC;
  cr_expect_float_eq(entry_of(&law, x, y, inner).error, pow(exp(z) - 1, 2) / norms / 32, 1e-14);
  law.kind = ATTN_FEATURES_TRIG;
  cr_expect_float_eq(entry_of(&law, x, y, inner).mean, exp(inner), 1e-14);
  cr_expect_float_eq(entry_of(&law, x, y, inner).error, norms * pow(1 - exp(-delta), 2) / 32, 1e-14);
}

/* -- Theorem 2 of Choromanski et al. -- */

/* Orthogonal vectors take at least (2/(d+2)) (exp(Z/2) - 1)^2 off the spread of an entry (arXiv, eq. 10). */
Test(checks_entries, theorem_2_holds_as_in_the_preprint) {
  for (int64_t d = 2; d <= 128; d *= 2)
    for (double z = 0.01; z < 300; z *= 3) {
      feature_law law = {.kind = ATTN_FEATURES_POSITIVE, .d = d, .orthogonal = true};
      double promised = 2 / ((double)d + 2) * pow(expm1(z / 2), 2);
      cr_expect_leq(promised, (exp(z) - entry_pair(&law, z)) * (1 + 1e-9), "d %d, z %g", (int)d, z);
    }
}

/* -- the performer's draws pass, for every law -- */

Test(checks_entries, correct_generators_pass) {
  static const char *const kernels[] = {"positive", "hyperbolic", "trig", "optimal", "relu"};
  static const char *const laws[] = {"orthogonal=yes", "orthogonal=yes,norm=sqrt_d", "orthogonal=no"};
  for (int k = 0; k < 5; k++)
    for (int l = 0; l < 3; l++)
      for (int64_t d = 3; d < 9; d += 5) {
        const char *spec = text_of("performer:features=5,kernel=%s,%s", kernels[k], laws[l]);
        run_case *c = case_gaussian(spec, attn_problem_make(1, 2, 20, d), 0.5);
        static const char *const names[] = {"FAV-1", "FAV-3", "FAV-8"};
        for (int n = 0; n < 3; n++) {
          result_bound b = case_check(&c->e, names[n]);
          check_verdict want = n == 1 || (n == 0) == (k < 4) ? VERDICT_CONSISTENT : VERDICT_NOT_APPLICABLE;
          cr_expect(b.verdict == want && (want == VERDICT_NOT_APPLICABLE || b.p_value > 1e-3),
                    "%s d %d %s: verdict %d p %g: %g %g %s", spec, (int)d, names[n], (int)b.verdict,
                    b.p_value, b.measured, b.value, b.message);
        }
        case_free(c);
      }
}

Test(checks_entries, wide_vectors_are_not_judged) {
  run_case *c = case_gaussian("performer:features=4", attn_problem_make(1, 1, 20, 130), 0.1);
  expect_verdict(&c->e, "FAV-1", VERDICT_UNCERTIFIABLE, "wide vectors");
  expect_verdict(&c->e, "FAV-3", VERDICT_UNCERTIFIABLE, "wide vectors");
}

/* -- wrong generators -- */

static void expect_p(const char *name, attn_feature_law law, generator_fault wrong, bool small,
                     const char *what) {
  result_bound b = generator_check(name, law, 4, wrong);
  cr_expect_eq(b.verdict, VERDICT_CONSISTENT, "%s, %s: verdict %d %s", name, what, (int)b.verdict, b.message);
  cr_expect(small ? b.p_value < 1e-4 : b.p_value > 1e-3, "%s, %s: p %g, %g of %g", name, what, b.p_value,
            b.measured, b.value);
}

Test(checks_entries, vectors_of_a_wrong_length) {
  generator_fault longer = {.gain = 1.4}, shorter = {.gain = 0.5};
  static const attn_features_kind kinds[] = {ATTN_FEATURES_POSITIVE, ATTN_FEATURES_TRIG, ATTN_FEATURES_RELU};
  for (int k = 0; k < 3; k++) {
    const char *name = k < 2 ? "FAV-1" : "FAV-8";
    expect_p(name, generator_law(kinds[k], 8), none, false, "correct");
    expect_p(name, generator_law(kinds[k], 8), longer, true, "longer");
    expect_p(name, generator_law(kinds[k], 8), shorter, true, "shorter");
  }
}

Test(checks_entries, wrong_draws) {
  generator_fault independent = {.gain = 1, .independent = true}, constant = {.gain = 1, .length = 2};
  generator_fault longer = {.gain = 1, .length = 2.001},
                  scattered = {.gain = 1, .independent = true, .length = 2};
  attn_feature_law chi = generator_law(ATTN_FEATURES_POSITIVE, 8), fixed = chi, apart = chi, many = chi;
  fixed.fixed_length = true;
  apart.orthogonal = false;
  many.vectors = 256;
  cr_expect_eq(generator_check("FAV-3", chi, 4, independent).verdict, VERDICT_VIOLATED);
  cr_expect_eq(generator_check("FAV-3", fixed, 4, longer).verdict, VERDICT_VIOLATED);
  cr_expect_eq(generator_check("FAV-3", fixed, 4, scattered).verdict, VERDICT_VIOLATED);
  expect_p("FAV-3", fixed, constant, false, "constant length");
  expect_p("FAV-3", apart, independent, false, "independent");
  expect_p("FAV-3", chi, none, false, "correct");
  expect_p("FAV-3", chi, (generator_fault){.gain = 1, .leaning = true}, true, "no sign step");
  expect_p("FAV-3", many, constant, true, "constant, chi declared");
  expect_p("FAV-1", apart, (generator_fault){.gain = 1, .independent = true, .uneven = true}, true,
           "squares");
  expect_p("FAV-3", chi, (generator_fault){.gain = 1, .few = true}, true, "draws of other seeds");
}

/* -- the statistics -- */

/* Heavy tails: exp of a normal, mean e^0.5, variance e^2 - e. */
Test(checks_entries, means_of_any_distribution) {
  enum { COUNT = 310, RUNS = 4000 };
  double values[COUNT], sigma = sqrt(exp(2) - exp(1)), mean = exp(0.5), rejected[2] = {0}, found = 0;
  attn_rng rng = rng_of(4, 4, 4);
  for (int run = 0; run < RUNS; run++) {
    for (int i = 0; i < COUNT; i++) values[i] = exp(attn_rng_normal(&rng));
    double p = mean_p_value(values, COUNT, mean, sigma, 0);
    rejected[0] += p <= 0.1;
    rejected[1] += p <= 0.01;
    for (int i = 0; i < COUNT; i++) values[i] += 7.5 * sigma / sqrt(COUNT);
    found += mean_p_value(values, COUNT, mean, sigma, 0) < 1e-6;
  }
  cr_expect(rejected[0] <= 0.1 * RUNS && rejected[1] <= 0.01 * RUNS, "%g %g", rejected[0], rejected[1]);
  cr_expect_geq(found, 0.9 * RUNS, "%g", found);
  for (int i = 0; i < COUNT; i++) values[i] = 2;
  cr_expect_eq(mean_p_value(values, COUNT, 2, 0, 0), 1);
  cr_expect_eq(mean_p_value(values, COUNT, 2.1, 0, 0), 0);
  values[7] = (double)NAN;
  cr_expect_eq(mean_p_value(values, COUNT, 2, 1, 0), 0);
  values[7] = (double)INFINITY;
  cr_expect_eq(mean_p_value(values, COUNT, 2, 1, 0), 0);
}

Test(checks_entries, coins_and_levels) {
  cr_expect_float_eq(hits_p_value(0, 10, 0.5, 0.5), 2 * pow(0.5, 10), 1e-15);
  cr_expect_float_eq(hits_p_value(10, 10, 0.5, 0.5), 2 * pow(0.5, 10), 1e-15);
  cr_expect_float_eq(hits_p_value(2, 10, 0.5, 0.5), 2 * 56 * pow(0.5, 10), 1e-15);
  cr_expect_eq(hits_p_value(5, 10, 0.5, 0.5), 1);
  cr_expect(two_sided(0.3, 0.1) == 0.2 && two_sided(0.9, 0.6) == 1 && two_sided(0.1, (double)NAN) == 0);
  cr_expect(BONFERRONI(0.3, 0.0625, 0.1) == 3 * 0.0625 && BONFERRONI(0.6, 0.7) == 1);
  cr_expect(BONFERRONI(0.1, (double)NAN, 0.2) == 0 && surprise_p(&(surprise){0}) == 1);
  double even[100], low[100];
  for (int i = 0; i < 100; i++) {
    even[i] = (i + 0.5) / 100;
    low[i] = (i + 0.5) / 200;
  }
  cr_expect_eq(dkw_p_value(even, 100), 1);
  cr_expect_float_eq(dkw_p_value(low, 100), 2 * exp(-200 * 0.5025 * 0.5025), 1e-12);
}
