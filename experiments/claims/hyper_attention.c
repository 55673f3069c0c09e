/* hyper_attention.c - claims about HyperAttention: what counting the drawn keys of the own block twice does
 * to the denominator, and what sorting by hashes gains over drawing alone. Han et al. 2023
 * (arXiv:2310.05869). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "attn_variant.h"
#include "experiments/claims/estimators.h"
#include "experiments/mathematics/vector.h"
#include "experiments/support/region.h"

/* ---- the double count -------------------------------------------------------------------------------- */

enum { N = 512, D = 32, SEEDS = 200 };
/* 1 / (m pi) = 32 / 3 is no whole number: a log-weight of 0 is the block's. */
#define BLOCKS "hyper:exact_below=0,block=64,sample=48,"

/* The mean over rows of the exact mass of a query's own block. */
static attn_status block_share(const data_qkv *in, const estimate *exact, double *share) {
  attn_problem p = data_qkv_problem(in);
  attn_plan *plan = NULL;
  attn_view view;
  attn_picks x = {.runs = NULL};
  region memory = {.last = NULL};
  const double *q = in->q, *k = in->k;
  attn_status status = attn_plan_create(&plan, &p, BLOCKS "seed=0", NULL);
  if (!status) status = attn_plan_inspect(plan, &view);
  if (status) goto out;
  const int64_t runs = view.selector->max_runs;
  int64_t *all = region_take(&memory, N, sizeof *all);
  x = (attn_picks){.max_runs = runs,
                   .runs = region_take(&memory, N * runs, sizeof(attn_run)),
                   .counts = region_take(&memory, N, sizeof(int64_t)),
                   .log_weights = region_take(&memory, N * runs, sizeof(double))};
  if ((status = region_status(&memory, "for the keys of a claim"))) goto out;
  for (int64_t i = 0; i < N; i++) all[i] = i;
  status = attn_plan_select(plan, &(attn_tensors){.q = in->q, .k = in->k, .v = in->v},
                            &(attn_row_set){0, 0, N, all}, &x);
  *share = 0;
  for (int64_t i = 0; i < N && !status; i++)
    for (int64_t r = i * x.max_runs; r < i * x.max_runs + x.counts[i]; r++)
      for (int64_t j = x.runs[r].first;
           fabs(x.log_weights[r]) < 1e-9 && j < x.runs[r].first + x.runs[r].count; j++)
        *share += exp(vector_dot(q + i * D, k + j * D, D) / sqrt(D) - exact->lse[i]) / N;
out:
  region_free(&memory);
  attn_plan_destroy(plan);
  return status;
}

/* Of each draw: the mean over rows of D~/D - 1. */
static attn_status excesses(const claim_options *options, const data_qkv *in, const estimate *exact,
                            const char *exclude, double *out) {
  attn_status status = ATTN_OK;
  for (int s = 0; s < SEEDS && !status; s++) {
    char spec[120];
    estimate own;
    snprintf(spec, sizeof spec, BLOCKS "exclude=%s,seed=%llu", exclude,
             (unsigned long long)options->seed * SEEDS + (unsigned long long)s);
    status = estimate_make(in, false, spec, &own);
    out[s] = 0;
    for (int64_t i = 0; i < N && !status; i++) out[s] += expm1(own.lse[i] - exact->lse[i]) / N;
    estimate_free(&own);
  }
  return status;
}

/* A drawn key is weighted 1 / (m pi), also if it lies in the query's block: E D~ = D + the block's sum,
 * unless the block is left out. 200 draws at a level of 0.9999: the outcome must not depend on the seed. */
static attn_status double_count(const claim_options *options, claim_report *r) {
  const claim_run run = {"gaussian", N, N, D, NULL};
  static const char *const names[] = {"excess D~/D - 1, drawn keys of the own block left out",
                                      "the same, counted twice"};
  const claim_figure *f[2];
  double excess[2][SEEDS], share = 0;
  data_qkv in = {0};
  estimate exact = {NULL, NULL};
  attn_status status = claim_inputs(&run, claim_seed(options, 0), &in);
  if (!status) status = estimate_make(&in, false, "tiled", &exact);
  if (!status) status = block_share(&in, &exact, &share);
  for (int i = 0; i < 2 && !status; i++) status = excesses(options, &in, &exact, i ? "no" : "yes", excess[i]);
  estimate_free(&exact);
  data_qkv_free(&in);
  if (status) return status;
  r->level = 0.9999;
  for (int i = 0; i < 2; i++)
    f[i] = figure_mean(claim_add(r, CLAIM_UNSAID, "%s", names[i]), excess[i], SEEDS, "draws");
  figure_exact(claim_add(r, CLAIM_UNSAID, "share of the exact mass that the own block has"), share);
  r->telling = 1;
  if (figure_holds(f[0], 0) && figure_holds(f[1], share) && f[1]->low > 0) r->word = CLAIM_DERIVED;
  return ATTN_OK;
}
const claim claim_hyper_double = {
    "hyper-double-count",
    "where drawn keys of the query's own block are counted again, the denominator is too large by the "
    "block's share of the mass: E D~/D = 1 + share; where they are left out, it is unbiased",
    "ours, of the code of Han et al. 2023 (arXiv:2310.05869) for GPUs, which leaves none out; as recalled",
    double_count};

/* ---- sorting ----------------------------------------------------------------------------------------- */

enum { KEYS = 1024 };

static attn_status error_of(const data_qkv *in, const estimate *exact, const char *spec, double *error) {
  const int64_t count = in->heads * in->n_q * in->d_v;
  estimate own;
  double moved = 0, size = 0;
  const attn_status status = estimate_make(in, false, spec, &own);
  for (int64_t i = 0; i < count && !status; i++) {
    const double x = attn_get(exact->o, i, in->dtype);
    moved += pow(attn_get(own.o, i, in->dtype) - x, 2);
    size += x * x;
  }
  estimate_free(&own);
  *error = sqrt(moved / size);
  return status;
}

/* Of each draw: the logarithm of the error of 128 drawn keys over that of 64 sorted and 64 drawn ones. */
static attn_status gains(const claim_options *options, const data_qkv *in, double *out) {
  estimate exact;
  attn_status status = estimate_make(in, false, "tiled", &exact);
  for (int s = 0; s < CLAIM_SEEDS && !status; s++) {
    const unsigned long long seed = claim_seed(options, s);
    char spec[120];
    double drawn = 0, sorted = 0;
    snprintf(spec, sizeof spec, "sample:count=128,seed=%llu", seed);
    status = error_of(in, &exact, spec, &drawn);
    snprintf(spec, sizeof spec, "hyper:exact_below=0,block=64,sample=64,hash_seed=%llu,seed=%llu", seed,
             seed);
    if (!status) status = error_of(in, &exact, spec, &sorted);
    out[s] = log(drawn / sorted);
  }
  estimate_free(&exact);
  return status;
}

/* Reproduced where it helps on both kinds of tensors; on one alone it holds there. */
static attn_status sorting(const claim_options *options, claim_report *r) {
  const claim_run run = {"gaussian", KEYS, KEYS, 64, NULL};
  bool helps[2] = {false, false};
  const int kinds = options->captured ? 2 : 1;
  attn_status status = ATTN_OK;
  for (int i = 0; i < kinds && !status; i++) {
    double gain[CLAIM_SEEDS];
    data_qkv in = {0};
    status = i ? claim_tensors(options, KEYS, &in) : claim_inputs(&run, claim_seed(options, 0), &in);
    if (!status) status = gains(options, &in, gain);
    if (!status)
      helps[i] =
          figure_mean(claim_add(r, CLAIM_UNSAID,
                                "log of the error of 128 drawn keys over that of 64 sorted and 64 drawn, %s",
                                i ? claim_tensors_name(options) : "normal Q, K, V"),
                      gain, CLAIM_SEEDS, "draws")
              ->low > 0;
    data_qkv_free(&in);
  }
  if (status) return status;
  r->telling = kinds - 1;
  if (helps[0] && (helps[1] || kinds == 1))
    r->word = CLAIM_REPRODUCED;
  else if (helps[0] || helps[1])
    claim_holds_under(r, helps[1] ? "the captured tensors" : "normal Q, K, V");
  return ATTN_OK;
}
const claim claim_hyper_sort = {
    "hyper-sort-helps",
    "of 128 keys a query, 64 that sorting by hashes finds and 64 drawn ones estimate the output better than "
    "128 drawn ones",
    "Han et al. 2023 (arXiv:2310.05869), whose sortLSH is to find the large entries; as recalled", sorting};
