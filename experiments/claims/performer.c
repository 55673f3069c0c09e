/* performer.c - claims about random features: Choromanski et al., Rethinking Attention with Performers (ICLR
 * 2021, arXiv:2009.14794), and what users of an implementation reported. */
#include "experiments/claims/claim.h"

#include <math.h>
#include <stdio.h>

/* Lemma 2: the variance of an entry is that of one feature over m. The figures said are those of another
 * implementation, one draw each. */
static attn_status law(claim_report *r) {
  static const double features[] = {16, 64, 256, 1024, 4096}, said[] = {0.249, 0.131, 0.072, 0.031, 0.016};
  const claim_run run = {"gaussian:std_q=0.25,std_k=0.25", 512, 64, 1, NULL};
  double means[5];
  for (int i = 0; i < 5; i++) {
    char spec[80];
    double errors[CLAIM_SEEDS];
    snprintf(spec, sizeof spec, "performer:features=%.0f,orthogonal=no,seed=", features[i]);
    attn_status status = claim_errors(&run, spec, NORM_FROBENIUS, errors);
    if (status) return status;
    means[i] = claim_mean(r, errors, CLAIM_SEEDS, said[i], "relative error, m = %.0f", features[i])->value;
  }
  const double slope = claim_slope(features, means, 5);
  claim_value(r, slope, -0.5, "exponent of m");
  r->telling = r->count - 1;
  r->reproduced = fabs(slope + 0.5) <= 0.05;
  return ATTN_OK;
}
const claim claim_performer_law = {
    "performer-law", "with small queries and keys (std 0.25) the error falls as 1 / sqrt(features)",
    "Choromanski et al. 2021, Lemma 2", law};

/* Inputs of unit variance: |x + y|^2 is about 2 sqrt(d), so an entry's relative deviation exp(sqrt(d)) /
 * sqrt(m). */
static attn_status unit(claim_report *r) {
  const claim_run run = {"gaussian", 512, 64, 1, NULL};
  r->reproduced = true;
  for (int m = 256; m <= 4096; m *= 16) {
    char spec[80];
    double errors[CLAIM_SEEDS];
    snprintf(spec, sizeof spec, "performer:features=%d,seed=", m);
    attn_status status = claim_errors(&run, spec, NORM_FROBENIUS, errors);
    if (status) return status;
    const claim_figure *f = claim_mean(r, errors, CLAIM_SEEDS, (double)NAN, "relative error, m = %d", m);
    r->reproduced = r->reproduced && f->low > 1;
  }
  r->telling = r->count - 1;
  claim_value(r, 1, (double)NAN, "relative error of zeros");
  return ATTN_OK;
}
const claim claim_performer_std1 = {
    "performer-unit-variance", "on standard normal inputs, d = 64, even 4096 features err more than zeros do",
    "follows from Choromanski et al. 2021, Lemma 2: an entry deviates by exp(sqrt(d)) / sqrt(m) of itself",
    unit};

/* Section 2.3: positive features err least where the kernel is small, trigonometric ones most. */
static attn_status trig(claim_report *r) {
  static const char *const deviations[] = {"0.25", "0.5", "0.75"};
  double low = 0;
  for (int i = 0; i < 3; i++) {
    char data[64];
    double positive[CLAIM_SEEDS], other[CLAIM_SEEDS], ratio[CLAIM_SEEDS];
    snprintf(data, sizeof data, "gaussian:std_q=%s,std_k=%s", deviations[i], deviations[i]);
    const claim_run run = {data, 512, 64, 1, NULL};
    attn_status status = claim_errors(&run, "performer:kernel=positive,seed=", NORM_FROBENIUS, positive);
    if (!status)
      status = claim_errors(&run, "performer:features=128,kernel=trig,seed=", NORM_FROBENIUS, other);
    if (status) return status;
    for (int s = 0; s < CLAIM_SEEDS; s++) ratio[s] = log(other[s] / positive[s]);
    const claim_figure *f = claim_mean(r, ratio, CLAIM_SEEDS, (double)NAN,
                                       "log of trig's error over positive's, std %s", deviations[i]);
    low = f->low;
  }
  r->telling = r->count - 1;
  r->reproduced = low > 0;
  return ATTN_OK;
}
const claim claim_performer_trig = {
    "performer-positive",
    "256 positive features err less than 256 trigonometric ones where the kernel varies (std 0.75)",
    "Choromanski et al. 2021, section 2.3 and figure 2", trig};

/* Five runs, 73.28 % with a deviation of 1.99 %. The implementation adds 1e-4 to features that hold
 * exp(-|x|^2 / 2), from which this one's are free: at |x|^2 = sqrt(128) the same as 1e-4 exp(sqrt(128) / 2) =
 * 0.0287. */
static attn_status issue69(claim_report *r) {
  const claim_run run = {"gaussian", 24, 128, 1, NULL};
  const double said = 73.28, error = 1.99 / sqrt(5);
  double errors[CLAIM_SEEDS];
  attn_status status = claim_errors(&run, "performer:features=1024,eps=0.0287,seed=", NORM_L1, errors);
  if (status) return status;
  for (int s = 0; s < CLAIM_SEEDS; s++) errors[s] *= 100;
  const claim_figure *f =
      claim_mean(r, errors, CLAIM_SEEDS, said, "L1 error in %%, n = 24, d = 128, m = 1024");
  const double half = (f->high - f->low) / 2;
  r->reproduced = fabs(f->value - said) <= sqrt(half * half + 2.776 * 2.776 * error * error);
  return ATTN_OK;
}
const claim claim_performer_issue69 = {
    "performer-pytorch-69", "on standard normal inputs 1024 features leave an L1 error of 73.28 +- 1.99 %",
    "performer-pytorch, issue 69", issue69};
