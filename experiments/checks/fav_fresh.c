/* fav_fresh.c - FAV-4a: outputs of fresh draws against the moments and the distribution of their law.
 *
 * The squared error of one draw is heavy-tailed wherever scores are large, and says nothing there. So many
 * draws are taken, on a small problem of moderate scores (mathematics/estimator.h), by plans of the same
 * variant and parameters. The signed error has mean 0 and a known second moment; squared errors and as many
 * of the law's own draws are two samples of one distribution, whatever it is. All of it runs in fp64. */
#include "experiments/checks/check_table.h"

#include "experiments/evidence/feature_draws.h"
#include "experiments/mathematics/statistics.h"

#include <math.h>

enum { PURPOSE = 0xfa4a };
/* Vectors are stored in fp32; errors are no larger than values, of size 1. */
static const double reading = 1e-6;

static attn_status outputs_judge(const evidence *e, const fresh_draws *g, result_bound *bound) {
  int64_t count = g->outputs;
  double *along = region_take(e->memory, 3 * count, sizeof *along), *own = along + count, *law = own + count;
  double mean = 0, signed_mean = 0;
  attn_rng rng;
  attn_status status = region_status(e->memory, "for errors of fresh draws");
  /* A repetition has another seed in its spec, and the same one here. */
  attn_rng_init(&rng, e->seed, PURPOSE,
                (uint64_t)attn_spec_number(attn_plan_parsed_spec(e->plan), e->view->seed));
  for (int64_t i = 0; i < count && !status; i++) {
    estimate_error drawn;
    status = estimator_draw(g->small, &rng, &drawn);
    if (status) break;
    along[i] = g->errors[i].along;
    own[i] = g->errors[i].square;
    law[i] = drawn.square;
    mean += own[i] / (double)count;
    signed_mean += along[i] / (double)count;
  }
  if (!status) {
    double p_mean = mean_p_value(along, count, 0, g->small->deviation, reading);
    double p_size = samples_p_value(own, law, count);
    bound_prob(bound, mean, 1, BONFERRONI(p_mean, p_size));
    if (bound->p_value < 1e-3)
      bound_say(bound, "%lld draws; mean signed error %.3g standard errors, p %.3g; size, p %.3g",
                (long long)count, signed_mean / g->small->deviation * sqrt((double)count), p_mean, p_size);
  }
  return status;
}

static attn_status evaluate(const evidence *e, result_bound *bound) {
  feature_law law;
  const char *why = feature_law_of(e->view->features, e->problem->d_qk, &law);
  if (!why && !feature_law_is_favor(&law)) why = "no random features of the softmax kernel";
  if (!why && law.constant) why = "vectors of length sqrt(d) are not Gaussian: the features are biased";
  if (!why && e->view->features->eps > 0) why = "eps > 0 mixes in an average: FAV-6";
  if (why) return bound_not_applicable(bound, why);
  probe *p;
  const fresh_draws *g;
  attn_status status = probe_get(e, &p);
  if (!status) status = fresh_draws_get(e, p, &law, &g);
  if (!status) status = outputs_judge(e, g, bound);
  return status == ATTN_EUNSUPPORTED ? bound_uncertifiable(bound, attn_last_error()) : status;
}

const check check_fav4a = {
    .name = "FAV-4a",
    .of = &of_random_features,
    .kind = KIND_PROB,
    .statement = "over fresh draws the error of a row's numerator has mean 0, mean square v^2 / m, and the "
                 "distribution of the law",
    .source = "derived: Gaussian moment at 2x + y_i + y_j; Catoni 2012; Gnedenko and Korolyuk 1951",
    .formula =
        "W = (Y/D) (o~ - o), Y/D the estimate of the normaliser by the plan's features over the exact one: E "
        "W = 0, E |W|^2 = v^2 / m, v^2 = sum_ij p_i p_j (h(a_i, a_j) - 1) (v_i - o).(v_j - o) with x = "
        "sqrt(c) q, y = sqrt(c) k and h = exp a_i.a_j, a_j = x + y_j (positive), cosh a_i.a_j, a_j = x + y_j "
        "(hyperbolic), cosh a_i.a_j, a_j = x - y_j (trig); of positive features with weights of a (1-4a)^d "
        "(1-8a)^(-d/2) exp(a_i.a_j + 2a / (1-8a) |a_i + a_j|^2). Orthogonal blocks of s_b vectors: at most "
        "that with m^2 / sum s_b (1 + 3 (s_b - 1) / (d^2 - 1)) in place of m, since two directions that are "
        "orthogonal and uniform correlate functions of mean 0 by at most 3 / (d^2 - 1) (Funk and Hecke: "
        "harmonics of degree 4; those of degree 2 anticorrelate). Plans with fresh seeds are executed on 32 "
        "tokens with |x|^2 = 1/2, |y|^2 = 1/4 and 1 in turn, told apart by the first component of their "
        "values. measured = mean over plans and 8 rows of m |W|^2 / v^2, of mean 1 (iid) or at most 1. p = "
        "twice the less of two: of the mean of W's first component over rows against 0, given its second "
        "moment, by Catoni's product (no normality is assumed); and two-sided, of the largest distance "
        "between the distributions of |W|^2 and of as many draws by the law itself, exact whatever the "
        "distribution is.",
    .assumes = "Softmax features, eps = 0, vectors that are Gaussian one by one (iid, or norm=chi), at most "
               "128 components, a named seed; up to 2 d features in each of 31 to 64 fresh plans, the mask "
               "of the run. It says nothing about the norms and values of the run (FAV-9, FAV-10). Power, in "
               "a sweep of 120 cells and three seeds at d = 64: vectors 5 % too long are a violation; a "
               "single cell has 31 draws at the least, of which the signed mean shows a bias of 1.2 standard "
               "deviations of one draw, and the sizes a factor of about 2.",
    .nulls = CHECK_REJECTS_ALL(
        "any: outputs of fresh plans are compared, here Gaussian inputs of std 0.7, 64 features"),
    .evaluate = evaluate,
};
