/* fav_draws.c - FAV-3: the random vectors w_r of FAVOR+ are orthogonal within blocks of d, have the right
 * lengths and uniform directions.
 *
 * It judges the draws and never sees an output: blind to zeros, the mean of V and random keys. */
#include "experiments/checks/check_table.h"

#include "experiments/evidence/feature_draws.h"
#include "experiments/evidence/rows.h"
#include "experiments/mathematics/statistics.h"
#include "experiments/mathematics/vector.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <stdlib.h>

static const double repeat_work = 0x1p24; /* multiply-adds */

/* Largest |cos| between two vectors of a block. */
static double worst_angle(const draws *w) {
  double worst = 0;
  for (int64_t r = 0; r < w->m; r++)
    for (int64_t s = r / w->d * w->d; s < r; s++) {
      const double *x = w->w + r * w->d, *y = w->w + s * w->d;
      double cosine = fabs(vector_dot(x, y, w->d)) / sqrt(vector_dot(x, x, w->d) * vector_dot(y, y, w->d));
      if (!(cosine <= worst)) worst = cosine;
    }
  return worst;
}

/* Lengths of count vectors: |w|^2 ~ chi^2_d one by one, and their sum ~ chi^2_(count d). */
static attn_status length_p_value(const double *w, int64_t count, int64_t d, double *p_value) {
  double *levels = malloc((size_t)count * sizeof *levels), sum = 0, freedom = (double)count * (double)d;
  if (!levels) return attn_fail(ATTN_ENOMEM, "no memory for the lengths of random vectors");
  for (int64_t r = 0; r < count; r++) {
    double square = vector_dot(w + r * d, w + r * d, d);
    levels[r] = gsl_cdf_chisq_P(square, (double)d);
    sum += square;
  }
  *p_value = BONFERRONI(dkw_p_value(levels, count),
                        two_sided(gsl_cdf_chisq_P(sum, freedom), gsl_cdf_chisq_Q(sum, freedom)));
  free(levels);
  return ATTN_OK;
}

/* Distribution function of w.v, |v| = 1: a normal one, or sqrt(d) times a component of a unit vector, whose
 * square is Beta(1/2, (d-1)/2). */
static double component_level(const feature_law *law, double t) {
  double d = (double)law->d;
  if (!law->constant) return gsl_cdf_ugaussian_P(t);
  return 0.5 + copysign(0.5, t) * gsl_cdf_beta_P(fmin(1, t * t / d), 0.5, (d - 1) / 2);
}

enum { DIRECTIONS = 4 };

/* v: the first axis, the last, all components equal, and one at random; of norm 1. */
static void direction_make(int64_t d, int which, uint64_t seed, double *v) {
  attn_rng rng;
  attn_rng_init(&rng, seed, 0xfa3, 0);
  for (int64_t l = 0; l < d; l++)
    v[l] = which == 2 ? 1 : which == 3 ? attn_rng_normal(&rng) : l == (which ? d - 1 : 0);
  const double norm = vector_norm(v, d);
  for (int64_t l = 0; l < d; l++) v[l] /= norm;
}

/* The least of the p-values of fresh draws, times their number. Of w.v in each direction: its distribution,
 * of the first vector of each block, since those are independent; its mean, of all vectors, whose signs are
 * independent coins given the rest, for a block with one vector reversed is as likely. The sign of the first
 * component as a fair coin, which sees what is too even as well. Lengths. Vectors that other plans have. */
static attn_status fresh_p_value(const fresh_draws *g, uint64_t seed, double *p_value) {
  int64_t d = g->law.d, m = g->law.m, step = g->law.orthogonal ? d : 1, each = (m + step - 1) / step;
  int64_t count = g->plans * each, positive = 0;
  double *levels = malloc((size_t)count * sizeof *levels), *v = malloc((size_t)d * sizeof *v);
  surprise found = {0};
  attn_status status = levels && v ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for fresh random vectors");
  for (int which = 0; which < DIRECTIONS && !status; which++) {
    double sum = 0, squares = 0;
    direction_make(d, which, seed, v);
    for (int64_t i = 0; i < count; i++) {
      const double *w = g->w + (i / each * m + i % each * step) * d;
      levels[i] = component_level(&g->law, vector_dot(w, v, d));
      positive += which == 0 && w[0] > 0;
    }
    for (int64_t r = 0; r < g->plans * m; r++) {
      double along = vector_dot_fast(g->w + r * d, v, d);
      sum += along;
      squares += along * along;
    }
    surprise_add(&found, signs_p_value(sum, squares));
    /* A component of length 1 is one of two numbers: its sign is all there is. */
    if (d > 1 || !g->law.constant) surprise_add(&found, dkw_p_value(levels, count));
  }
  if (!status && !g->law.constant) {
    double length = 1;
    status = length_p_value(g->w, g->plans * m, d, &length);
    surprise_add(&found, length);
  }
  surprise_add(&found, hits_p_value(positive, count, 0.5, 0.5));
  /* Plans of other seeds: vector by vector. */
  double largest = 0;
  surprise_add(&found, directions_p_value(g->w, g->plans * m, d, m, repeat_work, &largest));
  free(levels);
  free(v);
  if (!status) *p_value = surprise_p(&found);
  return status;
}

/* HARD: angles of a block, and lengths where they are fixed. */
static outcome orthogonality(const draws *w, const feature_law *law) {
  /* Components are stored in fp32 (u each, so 2 u in a cosine, u in a length), QR in fp64 is off by sqrt(d)
   * gamma of a modest multiple of d^2 (Higham 2002, Thm 19.4), and reading them by a few ulps of a
   * logarithm. */
  double d = (double)w->d, u = 0x1p-24, reading = sqrt(d) * 0x1p-46;
  double tolerance = 2.01 * u + sqrt(d) * gamma_of(10 * w->d * w->d, 0x1p-53) + reading;
  outcome worst = {0, tolerance, NULL};
  if (law->orthogonal) worst.measured = worst_angle(w);
  for (int64_t r = 0; r < w->m && law->constant; r++)
    outcome_worsen(&worst, (outcome){fabs(sqrt(vector_dot(w->w + r * w->d, w->w + r * w->d, w->d) / d) - 1),
                                     tolerance, NULL});
  return worst;
}

static attn_status draws_judge(const evidence *e, probe *p, const feature_law *law, const draws *w,
                               result_bound *bound) {
  outcome worst = orthogonality(w, law);
  outcome_to_verdict(&worst, bound);
  if (bound->verdict != VERDICT_PASS) return ATTN_OK;
  double fresh = 1, length = 1, largest = 0;
  const fresh_draws *g;
  attn_status status = fresh_draws_get(e, p, law, &g);
  if (status == ATTN_EUNSUPPORTED) return bound_uncertifiable(bound, attn_last_error());
  if (!status) status = fresh_p_value(g, e->seed, &fresh);
  if (!status && !law->constant) status = length_p_value(w->w, w->m, w->d, &length);
  if (status) return status;
  const double repeat =
      directions_p_value(w->w, w->m, w->d, law->orthogonal ? w->d : 1, repeat_work, &largest);
  bound_prob(bound, worst.measured, worst.value, BONFERRONI(fresh, length, repeat));
  if (repeat < 1e-3) bound_say(bound, "two of the run's vectors have |cos| = %.9g", largest);
  return ATTN_OK;
}

static attn_status draws_evaluate(const evidence *e, result_bound *bound) {
  feature_law law;
  const char *why = feature_law_of(e->view->features, e->problem->d_qk, &law);
  if (!why && law.kind == ATTN_FEATURES_OTHER) why = "random vectors cannot be read off these features";
  if (why) return bound_not_applicable(bound, why);
  probe *p;
  attn_status status = probe_get(e, &p);
  if (status) return status;
  draws w = {.m = law.m, .d = law.d};
  status = draws_read(p, &law, &w);
  if (!status) status = draws_judge(e, p, &law, &w, bound);
  if (status == ATTN_EUNSUPPORTED) status = bound_uncertifiable(bound, attn_last_error());
  free(w.w);
  return status;
}

const check check_fav3 = {
    .name = "FAV-3",
    .of = &of_random_features,
    .kind = KIND_HARD,
    .statement = "random vectors of a block are orthogonal, of length sqrt(d) or chi_d draws, and have "
                 "uniform directions",
    .source = "Choromanski et al. 2021, generator of the authors' code; Mezzadri 2007 on signs; Massart 1990",
    .formula = "HARD: |cos(w_r, w_s)| <= tolerance within blocks of d vectors; | |w_r|/sqrt(d) - 1 | <= "
               "tolerance for norm=sqrt_d. PROB, of the run and of plans with fresh seeds: |w_r|^2 one by "
               "one against chi^2_d, and their sum against chi^2 (unless norm=sqrt_d); w.v for v the first "
               "and last axis, all components equal and a random v: against N(0,1) (norm=sqrt_d: sqrt(d) "
               "times a component of a unit vector) by sup |F_N - F|, P(> x) <= 2 exp(-2 N x^2), over the "
               "first vectors of blocks, and their sum S over all, P(|S| > s) <= 2 exp(-s^2 / 2 sum "
               "(w.v)^2), since signs are coins; the sign of the first component; the largest |cos| between "
               "vectors of different blocks and of different seeds, P(> c) that of a component of a unit "
               "vector, times the pairs. p = the least, times their number. QR without its sign step makes "
               "the first sign always negative. Power: 31 plans at d = 64 show lengths off by 1 %.",
    .assumes = "Vectors read off the feature map in fp64 at +-a e_l. The tolerance is the rounding of fp32 "
               "components, of the QR factorisation and of reading. At most 128 components. Of one component "
               "directions are signs alone.",
    .nulls = CHECK_BLIND("the draws are the feature map's; no output is looked at"),
    .evaluate = draws_evaluate,
};
