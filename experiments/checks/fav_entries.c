/* fav_entries.c - FAV-1 and FAV-8: single entries of the kernel as random features estimate them,
 * against their exact moments (entries.h). They judge the generator and the features and never see an output:
 * blind to zeros, the mean of V and random keys. */
#include "experiments/checks/check_table.h"

#include "experiments/evidence/feature_draws.h"
#include "experiments/results/bound.h"
#include "experiments/mathematics/entries.h"
#include "experiments/mathematics/statistics.h"

#include <math.h>

static const double alpha = 1e-3;
/* fp32 components of w, u each, in an exponent of a few units. */
static const double reading = 1e-6;

/* -- FAV-1 -- */

/* The test with the least p-value among `tests`. */
typedef struct finding {
  double p, measured, value;
  double tests;
} finding;

/* count independent values of this mean and at most this variance. */
static void find_mean(finding *f, const double *values, int64_t count, double mean, double variance) {
  double sigma = sqrt(fmax(variance, 0)), slack = reading * fabs(mean), sum = 0;
  double p = mean_p_value(values, count, mean, sigma, slack);
  if (f->value > 0 && p >= f->p) return; /* the first of equal ones */
  for (int64_t i = 0; i < count; i++) sum += values[i] - mean;
  f->p = p;
  f->measured = fabs(sum / (double)count);
  f->value = mean_critical_value(alpha / f->tests, sigma, count) + slack;
}

static void finding_to_bound(const finding *f, result_bound *bound) {
  bound_prob(bound, f->measured, f->value, fmin(1, f->tests * f->p));
}

static void entries_judge(const fresh_draws *g, result_bound *bound) {
  const feature_law *law = &g->law;
  bool pairs = law->pairs > 0;
  finding found = {.p = 1, .tests = pairs ? 4 : 3};
  double s = entry_exponent(law, g->far.x_square + g->far.y_square, g->far.inner),
         mean = entry_single(law, s);
  find_mean(&found, g->mean, g->plans, mean, entry_mean_spread(law, s, g->turns));
  find_mean(&found, g->along, g->plans, mean, entry_spread(law, s));
  s = entry_exponent(law, g->near.x_square + g->near.y_square, g->near.inner);
  find_mean(&found, g->square, g->plans, entry_square(law, s), entry_square_spread(law, s, g->turns));
  if (pairs) {
    /* A mean over pairs, blocks and turns is no more spread than one pair. */
    double pair = entry_pair(law, s);
    find_mean(&found, g->pair, g->plans, pair, entry_pair_square(law, s) - pair * pair);
  }
  finding_to_bound(&found, bound);
}

/* -- FAV-8, features of other kernels, and their moments for one random vector -- */

static void kernel_judge(const attn_feature_map *map, const fresh_draws *g, result_bound *bound) {
  const entry_point *at = &g->far;
  double mean, square;
  if (g->law.kind == ATTN_FEATURES_RELU) {
    entry_rectified(&g->law, at->x_square, at->y_square, at->inner, &mean, &square);
  } else {
    mean = map->law.mean(map->state, at->x_square, at->y_square, at->inner);
    square = map->law.square(map->state, at->x_square, at->y_square, at->inner);
  }
  finding found = {.p = 1, .tests = 1};
  find_mean(&found, g->mean, g->plans, mean, (square - mean * mean) / g->law.independent);
  finding_to_bound(&found, bound);
}

static attn_status fresh_evaluate(const evidence *e, bool softmax, result_bound *bound) {
  feature_law law;
  const char *why = feature_law_of(e->view->features, e->problem->d_qk, &law);
  if (!why && softmax && !feature_law_is_favor(&law)) why = "no random features of the softmax kernel";
  if (!why && law.kind == ATTN_FEATURES_OTHER &&
      !(e->view->features->law.mean && e->view->features->law.square))
    why = "the variant states no mean and mean square of its features' products";
  if (why) return bound_not_applicable(bound, why);
  probe *p;
  const fresh_draws *g;
  attn_status status = probe_get(e, &p);
  if (!status) status = fresh_draws_get(e, p, &law, &g);
  if (status == ATTN_EUNSUPPORTED) return bound_uncertifiable(bound, attn_last_error());
  if (status) return status;
  if (softmax)
    entries_judge(g, bound);
  else
    kernel_judge(e->view->features, g, bound);
  return ATTN_OK;
}

static attn_status entries_evaluate(const evidence *e, result_bound *bound) {
  return fresh_evaluate(e, true, bound);
}

static attn_status kernel_evaluate(const evidence *e, result_bound *bound) {
  return fresh_evaluate(e, false, bound);
}

const check check_fav1 = {
    .name = "FAV-1",
    .of = &of_random_features,
    .kind = KIND_PROB,
    .statement = "fresh draws of the features estimate single entries of the kernel with the exact mean, "
                 "square and covariance",
    .source =
        "Choromanski et al. 2021, Lemma 2 and Theorem 1 (independent vectors); orthogonal blocks derived",
    .formula =
        "G(s) = E exp(w.b), |b|^2 = s: exp(s/2), or 0F1(;d/2;ds/4) for vectors of length sqrt(d). C(s) = E "
        "exp((w_r + w_s).b) in a block: 1F1(d;d/2;s/2), or 0F1(;d/2;ds/2). At |x+y|^2 = 1: mean product of m "
        "vectors, G(s), of variance (S - G^2) / m + N_s (C - G^2) / m^2, and its mean over d turns of x and "
        "y, orthogonal to one another, of some 1/d of that; at 1/4: mean square S = G(4s) (positive; with "
        "weights of a (1-4a)^d (1-8a)^(-d/2) G(4s (1-4a) / (1-8a))) or (G(4s) + 1) / 2 (hyperbolic, trig), "
        "and product of two vectors of a block, C(s). s = |x+y|^2, for trig -|x-y|^2. The means of plans "
        "with fresh seeds against these moments by Catoni's product (no normality is assumed), the least p "
        "of the tests times their number. value: the limit at alpha = 1e-3. Power: from 31 plans of 2 d "
        "vectors on, a bias of 2 % in the mean over turns is 7 standard errors, as vectors 2 % too long make "
        "it; along a single direction 15 % (d = 64).",
    .assumes = "At most 128 components; up to 2 d features in each fresh plan.",
    .nulls = CHECK_BLIND("the entries are the feature map's; no output is looked at"),
    .evaluate = entries_evaluate,
};

const check check_fav8 = {
    .name = "FAV-8",
    .of = &of_other_features,
    .kind = KIND_PROB,
    .statement = "features of another kernel, rectified ones among them, estimate it without bias",
    .source = "Cho and Saul 2009, kernel of degree 1 (and 2 for the variance); or the variant's own law",
    .formula =
        "The mean over vectors of phi_r(x).phi_r(y) has the mean and the variance of its law. Rectified: E "
        "max(w.x, 0) max(w.y, 0) = |x| |y| (sin t + (pi - t) cos t) / 2 pi, t the angle between x and y, "
        "here 60 degrees; mean square |x|^2 |y|^2 (3 sin t cos t + (pi - t)(1 + 2 cos^2 t)) / 2 pi. Plans "
        "with fresh seeds as in FAV-1. That the linear evaluation equals the quadratic one is FAV-6.",
    .assumes = "At most 128 components; of features that are not rectified, the variant states mean and mean "
               "square.",
    .nulls = CHECK_BLIND("the entries are the feature map's; no output is looked at"),
    .evaluate = kernel_evaluate,
};
