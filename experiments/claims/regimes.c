/* regimes.c - local against low-rank by the temperature of the softmax: Chen et al., Scatterbrain (2021,
 * arXiv:2110.15343). */
#include "experiments/claims/claim.h"

#include <math.h>
#include <stdio.h>

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

/* At equal budget: 128 keys, features or rows. */
static attn_status regimes(claim_report *r) {
  static const char *const deviations[] = {"0.25", "0.5", "1", "2"};
  static const char *const specs[] = {"longformer:window=128",
                                      "performer:features=128,seed=", "linformer:k=128,projection=pool"};
  static const char *const names[] = {"longformer", "performer", "linformer pool"};
  bool local[4];
  for (int t = 0; t < 4; t++) {
    char data[64];
    double mean[3];
    snprintf(data, sizeof data, "gaussian:std_k=%s", deviations[t]);
    for (int v = 0; v < 3; v++) {
      const claim_run run = {data, 512, 64, 1, walk};
      double errors[CLAIM_SEEDS];
      attn_status status = claim_errors(&run, specs[v], NORM_FROBENIUS, errors);
      if (status) return status;
      mean[v] = claim_mean(r, errors, CLAIM_SEEDS, (double)NAN, "relative error, %s, std %s", names[v],
                           deviations[t])
                    ->value;
    }
    local[t] = mean[0] < fmin(mean[1], mean[2]);
  }
  r->telling = 9;
  r->reproduced = !local[0] && local[3];
  return ATTN_OK;
}
const claim claim_regimes = {
    "regimes",
    "low-rank methods win where the softmax is flat (std 0.25), local ones where it is peaked (std 2)",
    "Chen et al. 2021, section 3", regimes};
