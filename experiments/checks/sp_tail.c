/* sp_tail.c - SP-1, SP-2, SP-3: what attention on a pattern S of keys leaves out, T the others.
 *
 *   o_S - o = t (o_S - o_T),  t = sum of exact weights on T
 *
 * A selection is what attn_plan_select gives for the run's Q and K.
 *
 * SP-1 compares the output with the identity: it rejects zeros, the mean of V and random keys wherever they
 * differ from o_S by more than rounding. SP-2 is a bound on the error: when t is not small it is wide, and
 * blind to all three (on Gaussian inputs none of them violates it); where the pattern holds nearly all the
 * mass (keys that match their own query only) it rejects all three. SP-3 bounds t without the scores of T:
 * for a block b of keys with centroid k_b and radius r_b, q.k_j <= q.k_b + |q| r_b, so that
 *   Z_T = sum over T of e^s_j <= Z = sum over blocks of |b in T| e^(c q.k_b + |c||q| r_b),  t <= Z / (Z_S +
 *     Z);
 * the error is at most that times Delta_V. */
#include "experiments/checks/check_table.h"

#include "experiments/evidence/rows.h"
#include "experiments/reference/transform.h"

#include <math.h>

/* Why nothing is known of a row, or NULL. */
static const char *unknown(const row_facts *f) {
  row_verdict verdict = f->bounded != ROW_OK ? f->bounded : f->reference;
  return verdict == ROW_OK ? NULL : row_reason(verdict);
}

static outcome judge_identity(const evidence *e, const row_facts *f, const double *given) {
  const char *why = unknown(f);
  outcome worst = OUTCOME_NONE;
  if (why) return (outcome){.why = why};
  /* Four fp64 results enter: o, o_S, t o_S and t o_T. */
  for (int64_t l = 0; l < e->problem->d_v; l++)
    outcome_worsen(&worst, (outcome){.measured = fabs(given[l] - f->identity[l]),
                                     .value = f->bound[l] + 4 * f->exact_error[l]});
  return worst;
}

/* |o^ - o|, and its rounding, squares that underflow included. */
typedef struct distance {
  double error, rounding;
} distance;

static distance distance_of(const evidence *e, const row_facts *f, const double *given) {
  distance x = {0, 0};
  int64_t d_v = e->problem->d_v;
  for (int64_t l = 0; l < d_v; l++) {
    double diff = given[l] - f->exact[l], slack = f->bound[l] + f->exact_error[l];
    x.error += diff * diff;
    x.rounding += slack * slack;
  }
  return (distance){sqrt(x.error), sqrt(x.rounding) + 4 * sqrt((double)d_v) * 0x1p-537};
}

/* An error against its bound; where squares of the values overflow there is none. */
static outcome judge_distance(const distance *x, double bound, const double *given, int64_t d_v) {
  bool finite = true;
  for (int64_t l = 0; l < d_v; l++) finite = finite && isfinite(given[l]);
  if (finite && !(isfinite(x->error) && isfinite(bound))) return (outcome){.why = row_reason(ROW_OVERFLOW)};
  return (outcome){.measured = x->error, .value = bound + x->rounding};
}

static outcome judge_tail(const evidence *e, const row_facts *f, const double *given) {
  const char *why = unknown(f);
  if (why) return (outcome){.why = why};
  distance x = distance_of(e, f, given);
  return judge_distance(&x, f->mass * f->far, given, e->problem->d_v);
}

/* A row that keeps no key is 0, and no convex combination. */
static outcome judge_certified(const evidence *e, const row_facts *f, const double *given) {
  const char *why = unknown(f);
  if (f->support == 0) return (outcome)OUTCOME_NONE;
  if (why) return (outcome){.why = why};
  distance x = distance_of(e, f, given);
  outcome worst = {.measured = f->mass, .value = f->certified};
  outcome_worsen(&worst, judge_distance(&x, f->certified * f->diameter, given, e->problem->d_v));
  return worst;
}

static attn_status identity_evaluate(const evidence *e, result_bound *bound) {
  return facts_check(e, judge_identity, bound);
}

/* Why SP-2 and SP-3 say nothing. */
static const char weighted_keys[] = "the selector weights keys: LAW-1 ... LAW-5 or LN-1 judge it";
static bool weights_keys(const evidence *e) { return e->view->selector && e->view->selector->weighted; }

static attn_status tail_evaluate(const evidence *e, result_bound *bound) {
  if (weights_keys(e)) return bound_not_applicable(bound, weighted_keys);
  return facts_check(e, judge_tail, bound);
}

static attn_status certified_evaluate(const evidence *e, result_bound *bound) {
  if (weights_keys(e)) return bound_not_applicable(bound, weighted_keys);
  if (transform_any(e->problem))
    return bound_not_applicable(bound, "the scores are transformed: centroids of keys do not bound them");
  return facts_check(e, judge_certified, bound);
}

const check check_sp1 = {
    .name = "SP-1",
    .of = &of_kept,
    .kind = KIND_HARD,
    .statement = "the output is o + t (o_S - o_T), t the exact mass left out, to within rounding",
    .source = "derived: law of total expectation under the exact weights",
    .formula = "S the keys of a row's pattern or selection, T the others, p exact weights, t = sum of p over "
               "T: o = (1 - t) o_S + t o_T, hence o_S = o + t (o_S - o_T). |o^_l - o_Sl| <= FP-1's bound on "
               "S plus four fp64 errors. Where a selection gives its keys weights w_j, o_S = sum w_j p_j v_j "
               "/ sum w_j p_j over S takes the place of the right side.",
    .assumes = "The variant has a pattern or a selector, and FP-1's hypotheses hold on it. An equality, so "
               "that it is as sharp for large t as for small.",
    .nulls = CHECK_REJECTS_ALL("Gaussian inputs of std 1, a window of 9 of 96 keys"),
    .evaluate = identity_evaluate,
};

const check check_sp2 = {
    .name = "SP-2",
    .of = &of_kept,
    .kind = KIND_HARD,
    .statement = "the error of a row is at most t max |v_j - o_S| over the keys left out, plus rounding",
    .source = "derived from SP-1",
    .formula =
        "S the keys of a row's pattern or selection, T the others, p exact weights, t = sum of p over T: |o^ "
        "- o| <= t max over j in T of |v_j - o_S| + rounding; attained where V is constant on S and on T.",
    .assumes = "As SP-1. Wide where t is large: on Gaussian inputs blind to all three nulls (no row violates "
               "it), so that a pass is evidence only where the printed bound is far below the size of the "
               "values; SP-1 has no such slack.",
    .nulls = CHECK_REJECTS_ALL("keys that match their own query alone (norm 16), a window of 9 of 96 keys: "
                               "the window holds all the mass"),
    .evaluate = tail_evaluate,
};

const check check_sp3 = {
    .name = "SP-3",
    .of = &of_kept,
    .kind = KIND_HARD,
    .statement = "the mass left out, and the error over Delta_V, are at most what block centroids certify "
                 "without the scores left out",
    .source = "derived: Cauchy-Schwarz on each block, monotonicity of Z / (Z_S + Z)",
    .formula = "t <= Z / (Z_S + Z), |o^ - o| <= Delta_V Z / (Z_S + Z) + rounding, Z_S = sum of e^s_j over "
               "the kept keys, Z = sum over blocks b of the number of keys of b left out times e^(c q.k_b + "
               "|c| |q| r_b), k_b the mean of the block's keys, r_b the largest distance from it, Delta_V = "
               "2 max_j |v_j - mean V|.",
    .assumes = "As SP-1. Blocks are the pattern's, or of 64 keys. Of use where keys of a block are alike; "
               "else the bound on t is near 1 and a pass is no evidence.",
    .nulls = CHECK_REJECTS_ALL("keys of blocks of 16 that match their own block's queries alone (norm 16), a "
                               "window of three blocks"),
    .evaluate = certified_evaluate,
};
