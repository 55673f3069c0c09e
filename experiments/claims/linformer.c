/* linformer.c - claims of Wang et al., Linformer: Self-Attention with Linear Complexity (2020,
 * arXiv:2006.04768), and two steps of the proof of its Theorem 2. */
#include "experiments/claims/claim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "attn_variant.h"
#include "experiments/mathematics/vector.h"

enum { LENGTHS = 4, PURPOSE = 0x11f0 };

static attn_status growth(claim_report *r, const char *data, const char *name, double *slope) {
  double length[LENGTHS], mean[LENGTHS];
  for (int i = 0; i < LENGTHS; i++) {
    const claim_run run = {data, (int64_t)512 << i, 64, 1, NULL};
    double errors[CLAIM_SEEDS];
    attn_status status = claim_errors(&run, "linformer:k=256,seed=", NORM_FROBENIUS, errors);
    if (status) return status;
    length[i] = (double)run.n;
    mean[i] = claim_mean(r, errors, CLAIM_SEEDS, (double)NAN, "relative error, %s, n = %d", name, (int)run.n)
                  ->value;
  }
  *slope = claim_slope(length, mean, LENGTHS);
  claim_value(r, *slope, 0, "exponent of n, %s", name);
  return ATTN_OK;
}

static attn_status flat(claim_report *r) {
  double low, high;
  attn_status status = growth(r, "lowrank:rank=8", "rank 8", &low);
  r->telling = LENGTHS;
  if (!status) status = growth(r, "gaussian", "rank 64", &high);
  if (!status) r->reproduced = fabs(low) <= 0.1;
  return status;
}
const claim claim_linformer_flat = {
    "linformer-flat",
    "at fixed k (256) the error does not grow with n where queries and keys have a low rank (8)",
    "Wang et al. 2020, Theorem 2 (k does not depend on n), with the Gaussian projections of its proof", flat};

/* Equation 12 of the appendix: |x R^T R y - x.y| <= eps |x.y| with high probability. Of orthogonal x, y the
 * right side is 0; what holds has eps |x| |y| there. */
static attn_status lemma(claim_report *r) {
  enum { N = 1024, K = 256, DRAWS = 200 };
  const double eps = 0.5;
  int relative = 0, absolute = 0;
  for (int draw = 0; draw < DRAWS; draw++) {
    attn_rng rng;
    double product = 0;
    attn_rng_init(&rng, 0, PURPOSE, (uint64_t)draw);
    for (int i = 0; i < K;
         i++) { /* a row of R, N(0, 1/K), against x = e_1 ... and y = e_2: two of its entries */
      const double x = attn_rng_normal(&rng), y = attn_rng_normal(&rng);
      product += x * y / K;
    }
    relative += fabs(product) <= eps * 0;
    absolute += fabs(product) <= eps;
  }
  claim_value(r, (double)relative / DRAWS, 1, "share of draws within eps |x.y|, x orthogonal to y");
  claim_value(r, (double)absolute / DRAWS, (double)NAN, "share of draws within eps |x| |y|");
  r->reproduced = relative == DRAWS;
  return ATTN_OK;
}
const claim claim_linformer_lemma = {
    "linformer-lemma", "a Gaussian projection keeps x.y to within eps |x.y| (eps = 0.5, k = 256)",
    "Wang et al. 2020, appendix, equation 12", lemma};

/* The largest relative difference of two rows, |o_i - o_0| / |o_0|. */
static double spread(const double *o, int64_t n, int64_t d) {
  double most = 0;
  for (int64_t i = 1; i < n; i++) most = fmax(most, vector_distance(o + i * d, o, d));
  return most / vector_norm(o, d);
}

/* The proof takes E = delta R with delta = 2^-n: scores go to 0, here by queries scaled by as much as fp64
 * can tell. */
static attn_status limit(claim_report *r) {
  const claim_run run = {"gaussian", 512, 64, 1, NULL}, scaled = {"gaussian:std_q=1e-12", 512, 64, 1, NULL};
  double *projected = NULL, *exact = NULL;
  attn_status status = claim_output(&scaled, "linformer:k=256", &projected);
  if (!status) status = claim_output(&run, "full", &exact);
  if (!status) {
    const double left = spread(projected, 512, 64);
    claim_value(r, left, (double)NAN, "spread of the outputs over queries, E = delta R");
    claim_value(r, spread(exact, 512, 64), (double)NAN, "spread of exact attention's");
    r->reproduced = left > 1e-3;
  }
  free(projected);
  free(exact);
  return status;
}
const claim claim_linformer_limit = {
    "linformer-limit",
    "the projections of the proof (E = delta R, delta -> 0) leave an output that depends on the query",
    "Wang et al. 2020, proof of Theorem 2", limit};
