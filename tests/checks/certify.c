/* certify.c - what a sample of rows certifies (RS-2, RS-3), by simulation, and that a hard bound on sampled
 * rows stays hard (RS-4). */
#include "tests/support/checks_case.h"

#include "experiments/evidence/certify.h"
#include "experiments/evidence/columns.h"

/* -- RS-2 -- */

/* Values of a skewed population in [0, 1]: 1 with probability `rare`, else below a tenth. */
static void population(double *x, int64_t n, double rare, uint64_t seed) {
  attn_rng rng = rng_of(seed, 1, 1);
  for (int64_t i = 0; i < n; i++) {
    double u = attn_rng_uniform(&rng);
    x[i] = attn_rng_uniform(&rng) < rare ? 1 : 0.1 * u * u;
  }
}

/* How often the mean of n values in H equal strata is missed, and the mean half width, over 1000 samples of s
 * each. */
typedef struct coverage {
  int missed;
  double width;
} coverage;

static coverage simulate(int64_t strata, int64_t n, int64_t s, double rare, double alpha) {
  enum { TRIALS = 1000 };
  coverage out = {0, 0};
  double *x = malloc((size_t)(strata * n) * sizeof *x), truth = 0;
  certify_stratum *h = malloc((size_t)strata * sizeof *h);
  population(x, strata * n, rare, (uint64_t)(strata + n + s));
  for (int64_t i = 0; i < strata * n; i++) truth += x[i] / (double)(strata * n);
  for (int t = 0; t < TRIALS; t++) {
    attn_rng rng = rng_of(3, (uint64_t)t, 3);
    double estimate = 0;
    for (int64_t k = 0; k < strata; k++) {
      double sum = 0, squares = 0;
      int64_t left = s;
      for (int64_t i = 0; i < n && left > 0; i++) {
        if (attn_rng_below(&rng, n - i) >= left) continue;
        left--;
        sum += x[k * n + i];
        squares += x[k * n + i] * x[k * n + i];
      }
      double mean = sum / (double)s;
      h[k] = (certify_stratum){(double)n, s, mean, sqrt(fmax(0, squares / (double)s - mean * mean)), 1};
      estimate += mean / (double)strata;
    }
    double half = certify_half_width(h, strata, alpha);
    out.missed += !(fabs(estimate - truth) <= half);
    out.width += half / TRIALS;
  }
  free(x);
  free(h);
  return out;
}

Test(checks_certify, the_mean_is_covered) {
  static const struct {
    int64_t strata, n, s;
  } designs[] = {{1, 2000, 50}, {1, 2000, 1500}, {16, 128, 4}, {4, 500, 100}, {2, 300, 299}};
  for (size_t d = 0; d < sizeof designs / sizeof *designs; d++)
    for (double rare = 0.001; rare < 0.6; rare *= 5) {
      /* Of 1000 at 5 %: 50 and four standard errors of 6.9. A tenth of 1 would do as a bound, and shows the
       * limit. */
      coverage c = simulate(designs[d].strata, designs[d].n, designs[d].s, rare, 0.05);
      cr_expect(c.missed <= 77, "design %zu, %g: %d of 1000", d, rare, c.missed);
      cr_expect(c.width < 1, "design %zu, %g: %g", d, rare, c.width);
    }
}

/* With many rows and little variance the Bernstein form is the narrower, and narrower than Hoeffding's by
 * far. */
Test(checks_certify, small_variances_help) {
  coverage c = simulate(1, 20000, 8000, 0, 0.05);
  cr_expect(c.missed == 0 && c.width < 0.5 * sqrt(log(80) / 2 / 8000), "%d, %g", c.missed, c.width);
}

Test(checks_certify, a_census_is_certain) {
  certify_stratum h[2] = {{10, 10, 0.5, 0.1, 1}, {10, 5, 0.5, 0.1, 1}};
  cr_expect_eq(certify_half_width(h, 1, 0.05), 0);
  cr_expect_lt(certify_half_width(h, 2, 0.05), certify_half_width(h + 1, 1, 0.05));
}

/* -- RS-3 -- */

/* A fraction of rows beyond the sampled maximum that is larger than certified is missed with probability
 * alpha. */
Test(checks_certify, the_tail_is_covered) {
  enum { N = 4199, TRIALS = 2000 }; /* strata of 262 and 263 rows */
  attn_problem p = attn_problem_make(1, 1, N, 1);
  p.n_kv = 1;
  run_case *c = case_make(p, 1, 1);
  double tail = 0;
  for (int spread = 1; spread <= 3; spread++) {
    int missed = 0;
    for (int t = 0; t < TRIALS; t++) {
      exact_rows *x;
      cr_assert_eq(exact_rows_compute(&p, c->q, c->k, c->v, NULL, (uint64_t)t, &x), ATTN_OK);
      tail = certify_tail(&p, x, x->count, 0.05);
      int64_t bad = (int64_t)(tail * N) + 1;
      bool seen = false; /* one of the bad rows: the first of them all, or every second, or every third */
      for (int64_t r = 0; r < x->count; r++)
        seen = seen || (x->rows[r].i % spread == 0 && x->rows[r].i / spread < bad);
      missed += !seen;
      exact_rows_free(x);
    }
    cr_expect(missed <= 0.05 * TRIALS + 4 * sqrt(0.0475 * TRIALS), "every %d: %d of %d", spread, missed,
              TRIALS);
  }
  cr_expect_float_eq(tail, 1 - pow(0.05, 1.0 / 64), 1e-3);
  case_free(c);
  p = attn_problem_make(1, 1, 100, 4);
  c = case_gaussian("full", p, 1);
  cr_expect_eq(certify_tail(&p, c->exact, c->exact->count, 0.05), 0);
}

/* -- a run -- */

static attn_problem long_problem(void) {
  attn_problem p = attn_problem_make(1, 1, 4200, 4);
  p.causal = true;
  return p;
}

/* The error of all rows by the textbook, after some were moved: to 3, or by 1 those that are not spared. */
static double move_rows(const run_case *c, int64_t every, int64_t from, const bool *spared) {
  const attn_problem *p = &c->problem;
  double above = 0, below = 0, *o = malloc((size_t)(p->d_v + p->n_kv) * sizeof *o);
  for (int64_t i = 0; i < p->n_q; i++) {
    attn_reference_row(p, NULL, c->q, c->k, c->v, NULL, 0, 0, i, NULL, o, o + p->d_v);
    for (int64_t l = 0; l < p->d_v; l++) {
      const int64_t at = i * p->d_v + l;
      if (i % every == from && !(spared && spared[i])) case_set(c, c->o, at, spared ? o[l] + 1 : 3);
      above += pow(case_get(c, c->o, at) - o[l], 2);
      below += o[l] * o[l];
    }
  }
  free(o);
  return sqrt(above / below);
}

/* A window on Gaussian inputs, where a few rows are made far worse than the others: the t-interval misses the
 * truth, as its normal theory allows it to; the certified one holds. */
Test(checks_certify, the_interval_of_a_run_holds) {
  enum { TRIALS = 60 };
  attn_problem p = long_problem();
  run_case *c = case_gaussian("longformer:window=64", p, 0.5);
  int t_missed = 0, missed = 0;
  const double truth = move_rows(c, 150, 77, NULL);
  for (int t = 0; t < TRIALS; t++) {
    evidence e = {.problem = c->e.problem, .o = c->o, .v = c->v};
    exact_rows *x;
    result_row row = row_empty();
    cr_assert_eq(exact_rows_compute(&p, c->q, c->k, c->v, NULL, (uint64_t)t, &x), ATTN_OK);
    e.exact = x;
    cr_assert_eq(evidence_errors(&e, &row), ATTN_OK);
    cr_assert(row.err_max_tail > 0.04 && row.err_max_tail < 0.05);
    cr_expect(row.err_rel_l2_mean_lo < row.err_rel_l2_mean && row.err_rel_l2_mean < row.err_rel_l2_mean_hi);
    t_missed += !(row.err_rel_fro_lo <= truth && truth <= row.err_rel_fro_hi);
    missed += !(row.err_rel_fro_cert_lo <= truth && truth <= row.err_rel_fro_cert_hi);
    exact_rows_free(x);
  }
  cr_expect(missed == 0 && t_missed > TRIALS / 4, "certified %d, t %d of %d", missed, t_missed, TRIALS);
}

/* A variant that claims to be exact, and is not in rows that no sample has: the certificate takes nothing on
 * trust, and covers the truth. */
Test(checks_certify, a_claim_to_be_exact_is_not_believed) {
  attn_problem p = long_problem();
  p.d_v = 16;
  run_case *c = case_gaussian("tiled", p, 0.5);
  bool *drawn = calloc((size_t)p.n_q, sizeof *drawn);
  for (int64_t r = 0; r < c->exact->judged; r++) drawn[c->exact->rows[r].i] = true;
  const double truth = move_rows(c, 10, 3, drawn);
  result_row row = row_empty();
  cr_assert_eq(evidence_errors(&c->e, &row), ATTN_OK);
  cr_expect_lt(row.err_rel_fro_hi, 1e-5, "%g", row.err_rel_fro_hi); /* of the sample alone */
  cr_expect_geq(row.err_rel_fro_cert_hi, truth, "%g, truth %g", row.err_rel_fro_cert_hi, truth);
  cr_expect_leq(row.err_rel_fro_cert_lo, row.err_rel_fro_lo);
  int64_t unseen = 0;
  while (drawn[unseen]) unseen++;
  case_set(c, c->o, unseen * p.d_v, (double)NAN);
  cr_assert_eq(evidence_errors(&c->e, &row), ATTN_OK);
  cr_expect(isnan(row.err_rel_fro_cert_hi) && !isnan(row.err_rel_fro));
  free(drawn);
}

/* Of an exact output, of values near 5 in each component: Hoeffding's bound for squares up to that of twice
 * the radius, to which a tenth is added, since the centre is the values' mean. */
Test(checks_certify, a_certificate_tells_something) {
  attn_problem p = long_problem();
  run_case *c = case_make(p, 0.5, 1);
  double far = 0, size = 0;
  for (int64_t j = 0; j < p.n_kv; j++) {
    double square = 0;
    for (int64_t i = j * p.d_v; i < (j + 1) * p.d_v; i++) {
      square += pow(case_get(c, c->v, i), 2);
      case_set(c, c->v, i, 5 + case_get(c, c->v, i));
    }
    far = fmax(far, 1.1 * sqrt(square));
  }
  case_run(c, "tiled", NULL);
  for (int64_t i = 0; i < case_count_o(&p); i++) size += pow(case_get(c, c->o, i), 2) / (double)p.n_q;
  result_row row = row_empty();
  cr_assert_eq(evidence_errors(&c->e, &row), ATTN_OK);
  const double most = 2 * far * pow(log(8 / CERTIFY_ALPHA) / 2 / (double)c->exact->count, 0.25),
               bound = most / (sqrt(size) - most);
  cr_expect(row.err_rel_fro_cert_lo <= 0 && row.err_rel_fro_cert_hi <= bound && bound < 1, "%g of %g",
            row.err_rel_fro_cert_hi, bound);
}

/* -- RS-4 -- */

Test(checks_certify, hard_checks_on_sampled_rows_stay_hard) {
  attn_problem p = long_problem();
  run_case *c = case_gaussian("longformer:window=64", p, 1);
  cr_assert(!c->exact->complete);
  static const char *const names[] = {"FP-2", "SP-1", "SP-2", "SP-3"};
  for (size_t n = 0; n < sizeof names / sizeof *names; n++)
    expect_verdict(&c->e, names[n], VERDICT_PASS, "sampled");
  case_set(c, c->o, c->exact->rows[33].i * p.d_v, 1e3);
  for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
    result_bound b = case_check(&c->e, names[n]);
    cr_expect(b.verdict == VERDICT_VIOLATED && b.kind == KIND_HARD && isnan(b.p_value), "%s", names[n]);
  }
}
