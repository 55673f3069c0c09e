/* regimes.c - local against low-rank by the temperature of the softmax: Chen et al., Scatterbrain (2021,
 * arXiv:2110.15343). */
#include "experiments/claims/claim.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A walk whose steps are the rows of K: neighbours look for one another, correlation 0.97 a position. */
static void walk(double *q, double *k, int64_t n, int64_t d) {
  const double kept = 0.97, fresh = sqrt(1 - kept * kept);
  for (int64_t i = 0; i < n; i++)
    for (int64_t l = 0; l < d; l++) {
      double *at = k + i * d + l;
      if (i) *at = kept * at[-d] + fresh * *at;
      q[i * d + l] = *at;
    }
}

/* The same peaks anywhere: the query of key i stands at stride * i. */
static void scattered(double *q, double *k, int64_t n, int64_t d) {
  const int64_t stride = 149; /* odd, so that every place is taken where n is a power of two */
  walk(q, k, n, d);
  for (int64_t i = 0; i < n; i++) memcpy(q + (stride * i % n) * d, k + i * d, (size_t)d * sizeof *q);
}

/* At equal budget: 128 keys, features or rows. */
static attn_status regimes(const claim_options *options, claim_report *r) {
  enum { DEVIATIONS = 4, METHODS = 3, SEEDS = 6 };
  static const char *const deviations[DEVIATIONS] = {"0.25", "0.5", "1", "2"};
  static const char *const specs[METHODS] = {
      "longformer:window=128", "performer:features=128,seed=", "linformer:k=128,projection=pool"};
  static const char *const names[METHODS] = {"longformer", "performer", "linformer pool"};
  bool local[2][DEVIATIONS], flat = false;
  for (int place = 0; place < 2; place++)
    for (int t = 0; t < DEVIATIONS; t++) {
      char data[64];
      double errors[METHODS][SEEDS], ratio[SEEDS];
      snprintf(data, sizeof data, "gaussian:std_k=%s", deviations[t]);
      const claim_run run = {data, 512, 512, 64, place ? scattered : walk};
      attn_status status = claim_errors(options, &run, specs, METHODS, NORM_FROBENIUS, SEEDS, &errors[0][0]);
      if (status) return status;
      for (int v = 0; v < METHODS; v++)
        figure_mean(claim_add(r, CLAIM_UNSAID, "relative error, %s, %s peaks, std %s", names[v],
                              place ? "scattered" : "local", deviations[t]),
                    errors[v], SEEDS, "seeds");
      for (int s = 0; s < SEEDS; s++) ratio[s] = log(errors[0][s] / fmin(errors[1][s], errors[2][s]));
      const claim_figure *f = figure_mean(
          claim_add(r, CLAIM_UNSAID, "log of longformer's over the lesser other, %s peaks, std %s",
                    place ? "scattered" : "local", deviations[t]),
          ratio, SEEDS, "seeds");
      local[place][t] = f->high < 0;
      if (!place && !t) flat = f->low > 0;
    }
  r->telling = (METHODS + 1) * DEVIATIONS - 1;
  if (flat && local[1][DEVIATIONS - 1])
    r->word = CLAIM_REPRODUCED;
  else if (flat && local[0][DEVIATIONS - 1])
    claim_holds_under(r, "peaks that are local");
  return ATTN_OK;
}
const claim claim_regimes = {
    "regimes",
    "low-rank methods win where the softmax is flat (std 0.25), a local window where it is peaked (std 2)",
    "Chen et al. 2021, abstract (sparse and low-rank excel at different temperatures; their sparse part is "
    "not local)",
    regimes};

/* The heaviest keys, features, and both: a budget of 32 keys and of 64 features. The source: its combination
 * has a lower error than either of its parts; it is so where it is at every temperature. Where the softmax is
 * so peaked that the heaviest keys are nearly all of it, what features add is their noise. */
static attn_status scatterbrain(const claim_options *options, claim_report *r) {
  enum { DEVIATIONS = 5, METHODS = 3 };
  static const char *const deviations[DEVIATIONS] = {"0.3", "0.6", "1", "1.5", "2"};
  static const char *const specs[METHODS] = {
      "topk:k=32", "performer:features=64,seed=", "topk:k=32 + performer:features=64,seed="};
  static const char *const names[METHODS] = {"topk", "performer", "both"};
  int below = 0;
  bool above = false;
  for (int t = 0; t < DEVIATIONS; t++) {
    char data[64];
    double errors[METHODS][CLAIM_SEEDS], ratio[CLAIM_SEEDS];
    snprintf(data, sizeof data, "gaussian:std_q=%s,std_k=%s", deviations[t], deviations[t]);
    const claim_run run = {data, 256, 256, 32, NULL};
    attn_status status =
        claim_errors(options, &run, specs, METHODS, NORM_FROBENIUS, CLAIM_SEEDS, &errors[0][0]);
    if (status) return status;
    for (int v = 0; v < METHODS; v++)
      figure_mean(claim_add(r, CLAIM_UNSAID, "relative error, %s, std %s", names[v], deviations[t]),
                  errors[v], CLAIM_SEEDS, "seeds");
    for (int s = 0; s < CLAIM_SEEDS; s++) ratio[s] = log(errors[2][s] / fmin(errors[0][s], errors[1][s]));
    const claim_figure *f = figure_mean(
        claim_add(r, CLAIM_UNSAID, "log of both over the lesser of its parts, std %s", deviations[t]), ratio,
        CLAIM_SEEDS, "seeds");
    below += f->high < 0;
    above |= f->low > 0;
  }
  r->telling = (METHODS + 1) * DEVIATIONS - 1;
  if (below == DEVIATIONS)
    r->word = CLAIM_REPRODUCED;
  else if (below && above)
    claim_holds_under(r, "a softmax that is not peaked");
  return ATTN_OK;
}
const claim claim_scatterbrain_regimes = {
    "scatterbrain-regimes", "exact keys and features of the rest have a lower error than either alone",
    "Chen et al. 2021, abstract (lower error than sparse or low-rank attention alone; as recalled)",
    scatterbrain};
