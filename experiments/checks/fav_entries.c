/* fav_entries.c - FAV-1, FAV-2 and FAV-8: single entries of the kernel as random features estimate them,
 * against their exact moments (entries.h). They judge the generator and the features and never see an output:
 * blind to zeros, the mean of V and random keys. */
#include "experiments/checks/table.h"

#include "experiments/evidence/draws.h"
#include "experiments/evidence/rows.h"
#include "experiments/mathematics/entries.h"
#include "experiments/mathematics/statistics.h"

#include <math.h>
#include <stdlib.h>

static const double alpha = 1e-3;
/* fp32 components of w, u each, in an exponent of a few units. */
static const double reading = 1e-6;

/* -- FAV-1 -- */

/* The test with the least p-value among `tests`. */
typedef struct finding {
  double p, measured, value;
  double tests;
} finding;

/* count independent values of known mean and variance; the values are overwritten. */
static void find_mean(finding *f, double *values, int64_t count, double mean, double variance) {
  double deviation = fabs(median_of_means(values, count) - mean), sigma = sqrt(fmax(variance, 0));
  double slack = reading * fabs(mean),
         p = median_p_value(isnan(deviation) ? deviation : deviation - slack, sigma, count);
  if (f->value > 0 && p >= f->p) return; /* the first of equal ones */
  f->p = p;
  f->measured = deviation;
  f->value = median_limit(alpha / f->tests, sigma, count) + slack;
}

static void settle(const finding *f, result_bound *bound) {
  bound_prob(bound, f->measured, f->value, fmin(1, f->tests * f->p));
}

/* Mean product of a plan's vectors, in each of `plans`; their square; the product of neighbours within a
 * block. */
typedef enum { FIRST, SECOND, NEIGHBOURS } power;

static void plan_means(const fresh_draws *g, int point, power which, double *out) {
  int64_t m = g->law.m, step = which == NEIGHBOURS ? 2 : 1;
  for (int64_t t = 0; t < g->plans; t++) {
    const double *x = g->product[point] + t * m;
    double sum = 0, count = 0;
    for (int64_t r = 0; r < m; r += step) {
      if (which == NEIGHBOURS && r % g->law.d + 1 >= g->law.d) r = (r / g->law.d + 1) * g->law.d;
      if (r + step > m) break;
      sum += which == FIRST ? x[r] : which == SECOND ? x[r] * x[r] : x[r] * x[r + 1];
      count++;
    }
    out[t] = sum / count;
  }
}

static void entries_judge(const fresh_draws *g, double *values, result_bound *bound) {
  const feature_law *law = &g->law;
  const fresh_point *far = &g->point[0], *near = &g->point[1];
  bool pairs = law->pairs > 0;
  finding found = {.p = 1, .tests = pairs ? 3 : 2};
  double s = entry_exponent(law, far->x_square + far->y_square, far->inner);
  plan_means(g, 0, FIRST, values);
  find_mean(&found, values, g->plans, entry_single(law, s), entry_spread(law, s));
  s = entry_exponent(law, near->x_square + near->y_square, near->inner);
  double square = entry_square(law, s), pair = entry_pair(law, s);
  plan_means(g, 1, SECOND, values);
  find_mean(&found, values, g->plans, square, (entry_fourth(law, s) - square * square) / law->independent);
  if (pairs) {
    /* A mean over some pairs of some blocks is no more spread than one pair. */
    plan_means(g, 1, NEIGHBOURS, values);
    find_mean(&found, values, g->plans, pair, entry_pair_square(law, s) - pair * pair);
  }
  settle(&found, bound);
}

/* -- FAV-8, features of other kernels, and their moments for one random vector -- */

static void kernel_judge(const attn_feature_map *map, const fresh_draws *g, double *values,
                         result_bound *bound) {
  const fresh_point *at = &g->point[0];
  double mean, square;
  if (g->law.kind == ATTN_FEATURES_RELU) {
    entry_rectified(&g->law, at->x_square, at->y_square, at->inner, &mean, &square);
  } else {
    mean = map->law.mean(map->state, at->x_square, at->y_square, at->inner);
    square = map->law.square(map->state, at->x_square, at->y_square, at->inner);
  }
  finding found = {.p = 1, .tests = 1};
  plan_means(g, 0, FIRST, values);
  find_mean(&found, values, g->plans, mean, (square - mean * mean) / g->law.independent);
  settle(&found, bound);
}

static attn_status fresh_evaluate(const evidence *e, bool softmax, result_bound *bound) {
  feature_law law;
  const char *why = feature_law_of(e->view->features, e->problem->d_qk, &law);
  if (!why && softmax && !feature_law_is_favor(&law)) why = "no random features of the softmax kernel";
  if (!why && !softmax && feature_law_is_favor(&law)) why = "no random features of another kernel: FAV-1";
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
  double *values = malloc((size_t)g->plans * sizeof *values);
  if (!values) return attn_fail(ATTN_ENOMEM, "no memory for fresh entries of the kernel");
  if (softmax)
    entries_judge(g, values, bound);
  else
    kernel_judge(e->view->features, g, values, bound);
  free(values);
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
    .of = &of_features,
    .kind = KIND_PROB,
    .statement =
        "fresh draws of the features estimate single entries of the kernel with the exact mean, square and "
        "covariance",
    .source =
        "Choromanski et al. 2021, Lemma 2 and Theorem 1 (independent vectors); orthogonal blocks derived",
    .formula =
        "G(s) = E exp(w.b), |b|^2 = s: exp(s/2), or 0F1(;d/2;ds/4) for vectors of length sqrt(d). C(s) = E "
        "exp((w_r + w_s).b) in a block: 1F1(d;d/2;s/2), or 0F1(;d/2;ds/2). At |x+y|^2 = 1: mean product of "
        "m vectors, G(s), of variance (S - G^2) / m + N_s (C - G^2) / m^2; at 1/4: mean square S = G(4s) "
        "(positive) or (G(4s) + 1) / 2 (hyperbolic, trig), and product of two vectors of a block, C(s). s "
        "= |x+y|^2, for trig -|x-y|^2. Median of 31 means over plans with fresh seeds; p = P(half of 31 "
        "groups err by as much), Chebyshev for each, the least of the tests times their number. value: the "
        "limit at alpha = 1e-3.",
    .assumes = "At most 128 components; up to 2 d features in each fresh plan.",
    .nulls = CHECK_BLIND("the entries are the feature map's; no output is looked at"),
    .evaluate = entries_evaluate,
};

const check check_fav8 = {
    .name = "FAV-8",
    .of = &of_features,
    .kind = KIND_PROB,
    .statement = "features of another kernel, rectified ones among them, estimate it without bias",
    .source = "Cho and Saul 2009, kernel of degree 1 (and 2 for the variance); or the variant's own law",
    .formula =
        "The mean over vectors of phi_r(x).phi_r(y) has the mean and the variance of its law. Rectified: E "
        "max(w.x, 0) max(w.y, 0) = |x| |y| (sin t + (pi - t) cos t) / 2 pi, t the angle between x and y, "
        "here 60 degrees; mean square |x|^2 |y|^2 (3 sin t cos t + (pi - t)(1 + 2 cos^2 t)) / 2 pi. Median "
        "of 31 means over plans with fresh seeds as in FAV-1. That the linear evaluation equals the "
        "quadratic one is FAV-6.",
    .assumes = "At most 128 components; of features that are not rectified, the variant states mean and mean "
               "square. Not an approximation of softmax.",
    .nulls = CHECK_BLIND("the entries are the feature map's; no output is looked at"),
    .evaluate = kernel_evaluate,
};

/* -- FAV-2 -- */

enum { GAIN_ROWS = 4, GAIN_KEYS = 64, GAIN_MAX = 700 };

static attn_status gain_evaluate(const evidence *e, result_bound *bound) {
  feature_law law = {.kind = ATTN_FEATURES_UNKNOWN};
  const char *why = feature_law_of(e->view->features, e->problem->d_qk, &law);
  bool positive = law.kind == ATTN_FEATURES_POSITIVE || law.kind == ATTN_FEATURES_HYPERBOLIC;
  if (!why && (law.pairs == 0 || law.constant || !positive))
    why = "no positive features of orthogonal vectors with chi norms";
  if (why) return bound_not_applicable(bound, why);
  probe *p;
  attn_status status = probe_get(e, &p);
  if (status) return status;
  int64_t d = law.d, rows = p->problem.n_q < GAIN_ROWS ? p->problem.n_q : GAIN_ROWS;
  int64_t keys = p->head.keys < GAIN_KEYS ? p->head.keys : GAIN_KEYS;
  outcome worst = {.why = "no pair with |x+y|^2 below 700"};
  bool found = false;
  for (int64_t i = 0; i < rows * keys; i++) {
    const double *q = (const double *)p->q + i / keys * p->problem.n_q / rows * d;
    const double *k = p->head.k + i % keys * p->head.keys / keys * d;
    double z = 0;
    for (int64_t l = 0; l < d; l++) z += p->problem.scale * (q[l] + k[l]) * (q[l] + k[l]);
    if (!(z < GAIN_MAX)) continue;
    outcome pair = {entry_gain_promised(d, z), entry_gain(d, z), NULL};
    if (!found) worst = pair;
    found = true;
    outcome_worsen(&worst, pair);
  }
  return outcome_settle(&worst, bound);
}

const check check_fav2 = {
    .name = "FAV-2",
    .of = &of_features,
    .kind = KIND_HARD,
    .statement = "orthogonal vectors take at least (2/(d+2)) (exp(Z/2) - 1)^2 off the spread of an entry of "
                 "the kernel",
    .source = "Choromanski et al. 2021, Theorem 2 as in arXiv:2009.14794 eq. (10); by coefficients",
    .formula =
        "exp(Z) - 1F1(d;d/2;Z/2) >= (2/(d+2)) (exp(Z/2) - 1)^2, Z = |x+y|^2 of the run's pairs, both over "
        "exp(Z): the coefficient of Z^k/k! is 1 - prod_{i<k} (d+i)/(d+2i) on the left and (2/(d+2)) (1 - "
        "2^(1-k)) on the right. The camera-ready form, a gap of (1 - 1/m) (2/(d+2)) SM^2, is false: at x = "
        "-y the error is 0 already. For rows and outputs no gain is proved.",
    .assumes = "Positive or hyperbolic features, orthogonal blocks of more than one vector with chi_d "
               "norms; pairs with Z < 700.",
    .nulls = CHECK_BLIND("arithmetic on d and |x+y|; no output is looked at"),
    .evaluate = gain_evaluate,
};
