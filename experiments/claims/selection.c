/* selection.c - claims about keys that are chosen by their scores. */
#include "experiments/claims/claim.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/mathematics/vector.h"
#include "experiments/reference/exact.h"

enum { FEWEST = 256 }; /* keys of a row, for shares of them to be known */

/* For the rows of a problem: log of the share of keys by the rule over the least share that leaves out at
 * most eps of the mass; and the two. The deviation of the scores is that of the logarithms of the weights. */
typedef struct rule_rows {
  int count;
  double *log_ratio, *by_rule, *needed;
} rule_rows;

static void rule_row(const double *weights, int64_t keys, double eps, double *scratch, rule_rows *out) {
  double sum = 0, deviation;
  int64_t least = 0;
  for (int64_t j = 0; j < keys; j++) scratch[j] = log(fmax(weights[j], 1e-300));
  deviation = gsl_stats_sd(scratch, 1, (size_t)keys);
  memcpy(scratch, weights, (size_t)keys * sizeof *scratch);
  vector_descend(scratch, keys);
  while (least < keys && sum < 1 - eps) sum += scratch[least++];
  out->by_rule[out->count] = gsl_cdf_ugaussian_Q(deviation + gsl_cdf_ugaussian_Pinv(eps));
  out->needed[out->count] = (double)least / (double)keys;
  out->log_ratio[out->count] = log(out->by_rule[out->count] / out->needed[out->count]);
  out->count++;
}

/* Every row of the sample that sees enough keys. */
static attn_status rule_on(const data_qkv *in, bool causal, double eps, uint64_t seed, rule_rows *out) {
  attn_problem p = data_qkv_problem(in);
  exact_rows *x = NULL;
  p.causal = causal;
  attn_status status = exact_rows_compute(&p, in->q, in->k, in->v, NULL, seed, &x);
  double *room = status ? NULL : calloc((size_t)(3 * x->count + p.n_kv), sizeof *room);
  if (!status && !room) status = attn_fail(ATTN_ENOMEM, "no memory for the shares of keys");
  if (!status) {
    *out = (rule_rows){0, room, room + x->count, room + 2 * x->count};
    for (int64_t r = 0; r < x->count; r++)
      if (x->keys[r] >= FEWEST) rule_row(x->p + r * p.n_kv, x->keys[r], eps, room + 3 * x->count, out);
  }
  exact_rows_free(x);
  return status;
}

static attn_status rule_figures(const char *what, const data_qkv *in, bool causal, double eps, uint64_t seed,
                                claim_report *r, const claim_figure **ratio) {
  rule_rows rows = {0, NULL, NULL, NULL};
  const attn_status status = rule_on(in, causal, eps, seed, &rows);
  if (!status) {
    figure_mean(claim_add(r, CLAIM_UNSAID, "share of keys by the rule, eps = %g, %s", eps, what),
                rows.by_rule, rows.count, "rows");
    figure_mean(claim_add(r, CLAIM_UNSAID, "... that is needed"), rows.needed, rows.count, "rows");
    *ratio = figure_mean(
        claim_add(r, CLAIM_UNSAID, "log of the rule's share over the needed one, eps = %g, %s", eps, what),
        rows.log_ratio, rows.count, "rows");
  }
  free(rows.log_ratio);
  return status;
}

static bool near_one(const claim_figure *f) { return f->low > -log(1.1) && f->high < log(1.1); }

/* Scores N(0, sigma^2): e^s has the share Q(t - sigma) of its mass above t deviations, and Q(t) of the keys
 * lie there, so that eps is left out at t = sigma + Phi^-1(eps). Exact as n grows; within a tenth is as the
 * source says. */
static attn_status gaussian_rule(const claim_options *options, claim_report *r) {
  static const double shares[] = {0.1, 0.01};
  static const char *const sources[] = {"gaussian", "peaked:std=2"};
  bool holds[2] = {true, true};
  attn_status status = ATTN_OK;
  for (int s = 0; s < 2 && !status; s++) {
    const claim_run shape = {sources[s], 256, 4096, 64, NULL};
    data_qkv in = {0};
    const claim_figure *ratio = NULL;
    status = claim_inputs(&shape, claim_seed(options, 0), &in);
    for (int e = 0; e < 2 && !status; e++) {
      status = rule_figures(s ? "exponential scores" : "normal scores", &in, false, shares[e], options->seed,
                            r, &ratio);
      holds[s] = holds[s] && !status && near_one(ratio);
    }
    data_qkv_free(&in);
  }
  if (!status && options->captured) {
    data_qkv in = {0};
    const claim_figure *ratio = NULL;
    status = claim_tensors(options, 1024, &in);
    for (int e = 0; e < 2 && !status; e++) {
      status = rule_figures("captured Q, K, V, causal", &in, true, shares[e], options->seed, r, &ratio);
      holds[1] = holds[1] && !status && near_one(ratio);
    }
    data_qkv_free(&in);
  }
  if (status) return status;
  r->telling = r->count - 1;
  if (holds[0] && holds[1])
    r->word = CLAIM_REPRODUCED;
  else if (holds[0])
    claim_holds_under(r, "scores that are normal");
  return ATTN_OK;
}
const claim claim_gaussian_rule = {"gaussian-rule",
                                   "all but eps of the softmax's mass is on the share Q(sigma + Phi^-1(eps)) "
                                   "of the keys, sigma the scores' deviation",
                                   "Tzachristas et al. 2025, as recalled", gaussian_rule};
