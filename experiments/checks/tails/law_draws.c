/* law_draws.c - LAW-1, LAW-2, VA-1: keys that are drawn, under many seeds, against the law of their weights.
 *
 * Key j has the weight w_j (0 where it is not kept), E w_j = 1: numerator and denominator of the softmax are
 * unbiased. With the exact output o, W = numerator - D~ o has mean 0 exactly, whatever keys are always taken,
 * since sum_j A_j (v_j - o) = 0, and E |W|^2 = sum_jl A_j A_l (M_jl - 1)(v_j - o).(v_l - o), M_jl = E w_j
 * w_l.
 *
 * Draws are made on a small problem of the run's own rows (evidence/weights/selector_draws.h). Each is
 * independent of the others, less its mean and over its standard deviation, so that Catoni's test of a mean
 * holds whatever the distribution. */
#include "experiments/checks/tails/run_law.h"

#include "experiments/evidence/weights/selector_draws.h"
#include "experiments/mathematics/statistics.h"

#include <inttypes.h>
#include <math.h>

static const double level = 1e-6; /* at which the power is stated */

/* NULL: the bound says why. */
static attn_status draws_of(const evidence *e, result_bound *bound, const weight_draws **out) {
  *out = NULL;
  const char *missing = law_missing(e);
  if (missing) return bound_not_applicable(bound, missing);
  const attn_status status = weight_draws_get(e, out);
  if (status || !(*out)->why) return status;
  const char *why = (*out)->why;
  *out = NULL;
  return bound_not_applicable(bound, why);
}

static double mean_of(const weight_draws *d, const weight_test *t) {
  double sum = 0;
  for (int64_t i = 0; i < d->draws; i++) sum += t->off[i];
  return t->mean + t->deviation * sum / (double)d->draws;
}

static const char no_variance[] =
    "no row has sums of finite variance: a key can never be drawn, or an input is not finite";

/* -- LAW-1 -- */

static attn_status inclusion_evaluate(const evidence *e, result_bound *bound) {
  static const bool kinds[] = {[WEIGHT_KEPT] = true, [WEIGHT_BOTH] = true, [WEIGHT_VALUES] = false};
  const weight_draws *d;
  double p;
  int64_t tests;
  const attn_status status = draws_of(e, bound, &d);
  if (status || !d) return status;
  const weight_test *t = weight_draws_worst(d, kinds, &p, &tests);
  if (!t) return bound_not_applicable(bound, "no key is drawn that might be left out");
  bound_prob(bound, mean_of(d, t), t->mean, p);
  if (t->kind == WEIGHT_KEPT)
    bound_say(bound,
              "key %" PRId64 " of query %" PRId64 ", of %" PRId64 " keys, %" PRId64
              " draws; worst of %" PRId64,
              t->a, d->row[t->row], d->keys, d->draws, tests);
  else
    bound_say(bound,
              "keys %" PRId64 " and %" PRId64 " of query %" PRId64 ", of %" PRId64 " keys, %" PRId64
              " draws; worst of %" PRId64,
              t->a, t->b, d->row[t->row], d->keys, d->draws, tests);
  return ATTN_OK;
}

#define LAW_SOURCE "derived: the estimator of Horvitz and Thompson 1952, and its second moments"
#define SMALL_PROBLEM                                                                              \
  "The selector states its weights' law (attn_selector.moments, log_weight) and the variant its "  \
  "seed. Draws under other seeds (128 ... 4096, as their cost allows) on the run's first keys of " \
  "one head, the fewest from 64 on of which some are drawn. "

const check check_law1 = {
    .name = "LAW-1",
    .of = &of_weighted,
    .kind = KIND_PROB,
    .statement = "a key is kept, and two keys are, as often as the law of their weights says",
    .source = LAW_SOURCE,
    .formula = "u_j = e^-log_weight the probability of key j, J_jl = M_jl u_j u_l that of both. With n draws "
               "of one key (repeats; M_jl = 1 - 1/n): u_j = 1 - (1 - pi_j)^n, J_jl = 1 - (1 - pi_j)^n - (1 - "
               "pi_l)^n + (1 - pi_j - pi_l)^n, pi_j = e^-log_weight / n. Up to 4 queries, 8 keys of each "
               "with 0.1 <= u <= 0.9 where there are such, from the first to the last, and 8 pairs of "
               "neighbours and of keys far apart. measured: how often, of the worst; value: the law; p: of "
               "Catoni's test of a mean with known variance, times the number of tests.",
    .assumes = SMALL_PROBLEM "Given what is drawn first (a budget, a head) each draw is held to its own law. "
                             "Blind to weights that are another than the probabilities' inverse in the run "
                             "(LAW-4), and to what is then done with them (FP-2).",
    .cause = "keys at an edge are never drawn, keys are drawn together, or draws do not depend on the seed",
    .nulls = CHECK_BLIND("it judges what is drawn, and looks at no output: LAW-2, SP-1 and FP-2 do"),
    .evaluate = inclusion_evaluate,
};

/* -- LAW-2 -- */

/* Markov's p-value of the run's own draw, of the worst row times their number; 1: there is none. */
static attn_status markov(const evidence *e, double *p) {
  run_law row[RUN_LAW_ROWS];
  int64_t count;
  const attn_status status = run_laws(e, row, &count);
  *p = 1;
  for (int64_t r = 0; !status && r < count; r++)
    if (!row[r].why && row[r].w > 0) *p = fmin(*p, (double)count * row[r].square / (row[r].w * row[r].w));
  return status;
}

static attn_status mean_evaluate(const evidence *e, result_bound *bound) {
  static const bool kinds[] = {[WEIGHT_SUM] = true, [WEIGHT_VALUES] = true};
  const weight_draws *d;
  double fresh, own;
  int64_t tests;
  attn_status status = draws_of(e, bound, &d);
  if (status || !d) return status;
  const weight_test *t = weight_draws_worst(d, kinds, &fresh, &tests);
  if (!t) return bound_not_applicable(bound, no_variance);
  status = markov(e, &own);
  if (status) return status;
  double deviation = 0;
  for (int64_t at = 0; at < d->count; at++)
    if (d->test[at].kind == WEIGHT_SUM) deviation = fmax(deviation, d->test[at].deviation);
  bound_prob(bound, fabs(mean_of(d, t) - t->mean),
             mean_critical_value(level / (double)tests, t->deviation, d->draws),
             fmin(1, 2 * fmin(fresh, own)));
  bound_say(bound,
            "%s of query %" PRId64 ", of %" PRId64 " keys, %" PRId64
            " draws, which show a relative bias of D~ above %.2g; the run's draw: p %.2g",
            t->kind == WEIGHT_SUM ? "D~/D" : "W/D", d->row[t->row], d->keys, d->draws,
            mean_critical_value(level / (double)tests, deviation, d->draws), own);
  return ATTN_OK;
}

const check check_law2 = {
    .name = "LAW-2",
    .of = &of_weighted,
    .kind = KIND_PROB,
    .statement =
        "the denominator D~ has mean D, and the numerator less D~ o mean 0, with the variances of the law",
    .source = LAW_SOURCE,
    .formula =
        "A_j = e^s_j, D = sum_j A_j, o the exact row, w_j the weight of a key (0: not kept), W = sum_j w_j "
        "A_j (v_j - o) = D~ (o~ - o): E W = 0, E |W|^2 = v^2 = sum_jl A_j A_l (M_jl - 1)(v_j - o).(v_l - o), "
        "Var D~ the same with 1 for the last factor. (a) the run's output: |W|^2 <= v^2 / alpha (Markov), up "
        "to 8 rows; (b) fresh draws: the means of D~/D and of W/D along four vectors of random signs, each "
        "over its standard deviation. measured: the worst of (b); value: what would be a violation at 1e-6; "
        "p: twice the least of (a), times its rows, and (b), times its tests.",
    .assumes = SMALL_PROBLEM
    "(a) of runs of at most 1024 keys. (b) sees a relative bias of D~ above sd(D~/D) sqrt(2 ln(6 / alpha) / "
    "draws), which the message states; (a) only outputs that are off by some hundred standard deviations.",
    .cause = "weights are left out, are those of other keys or of another number of draws, or keys that are "
             "always taken are drawn as well",
    .nulls[CHECK_ZEROS].rejected_on =
        "Gaussian inputs of std 0.02, a window of 88 of 96 keys, 7 of the 8 others drawn",
    .nulls[CHECK_MEAN_V].rejected_on = "Gaussian inputs of std 1",
    .nulls[CHECK_RANDOM_KEYS].rejected_on = "Gaussian inputs of std 1",
    .evaluate = mean_evaluate,
};

/* -- VA-1 -- */

static attn_status promise_evaluate(const evidence *e, result_bound *bound) {
  static const bool kinds[] = {[WEIGHT_SUM] = true, [WEIGHT_VALUES] = false};
  const weight_draws *d;
  const attn_selector *x = e->view->selector;
  double unused;
  int64_t worst = 0, sums;
  const attn_status status = draws_of(e, bound, &d);
  if (status || !d) return status;
  if (!weight_draws_worst(d, kinds, &unused, &sums)) return bound_not_applicable(bound, no_variance);
  for (int64_t r = 1; r < d->rows; r++)
    if (d->missed[r] > d->missed[worst]) worst = r;
  const double draws = (double)d->draws, share = (double)d->missed[worst] / draws,
               p = fmin(1, (double)d->rows * hits_p_value(d->missed[worst], d->draws, 0, x->delta));
  if (x->claimed) {
    int64_t most = d->missed[worst];
    while (most > 0 && (double)d->rows * hits_p_value(most, d->draws, 0, x->delta) < level) most--;
    bound_model(bound, share, fmax(x->delta, (double)most / draws));
    bound_say(bound,
              "%squery %" PRId64 ", of %" PRId64 " keys, %" PRId64 " draws; delta %g is claimed, not proven",
              bound->verdict == VERDICT_UNCERTIFIABLE ? "warning: more often than claimed: " : "",
              d->row[worst], d->keys, d->draws, x->delta);
    return ATTN_OK;
  }
  bound_prob(bound, share, x->delta, p);
  bound_say(bound, "query %" PRId64 ", of %" PRId64 " keys, %" PRId64 " draws", d->row[worst], d->keys,
            d->draws);
  return ATTN_OK;
}

const check check_va1 = {
    .name = "VA-1",
    .of = &of_promises,
    .kind = KIND_PROB,
    .statement = "the denominator is off by more than the promised share no more often than promised",
    .source = "the variant's own promise: attn_selector.epsilon, delta",
    .formula = "P(|D~ - D| > epsilon D) <= delta, D~ = sum of w_j e^s_j over the kept keys. measured: how "
               "often it was, in the worst of up to 4 queries; value: delta; p: the binomial tail, times "
               "twice the number of queries.",
    .assumes =
        SMALL_PROBLEM "A promise that is published without a proof for every input (attn_selector.claimed) "
                      "is a model: that it is broken is a warning (uncertifiable). Says nothing of other "
                      "inputs, nor of the output, which may be far off where the denominator is near.",
    .cause = "a quantile of one side for an event of two, or a variance without the number of its degrees of "
             "freedom",
    .nulls = CHECK_BLIND("it judges what is drawn, and looks at no output: LAW-2, SP-1 and FP-2 do"),
    .evaluate = promise_evaluate,
};
