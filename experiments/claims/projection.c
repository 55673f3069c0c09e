/* projection.c - lemmas and steps of proof of Linformer (Wang et al. 2020, arXiv:2006.04768) about a Gaussian
 * R [k, n], entries N(0, 1/k). */
#include "experiments/claims/claim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "attn_variant.h"
#include "experiments/mathematics/vector.h"
#include "experiments/support/region.h"

enum { K = 256, PURPOSE = 0x11f0 };

/* The right side of (9), (11) and (12). */
static double tail(double eps) { return exp(-(eps * eps - eps * eps * eps) * K / 4); }

/* Lemma 1. R enters by its products with x and y alone, which lie in a plane: two coordinates a row. */
static attn_status lemma(const claim_options *options, claim_report *r) {
  enum { DRAWS = 4000, ANGLES = 3, EPS = 2 };
  static const double cosine[ANGLES] = {0, 0.5, 1}, eps[EPS] = {0.25, 0.4};
  int off[EPS][ANGLES] = {{0}}, longer[EPS] = {0}, printed = 0;
  for (int draw = 0; draw < DRAWS; draw++) {
    attn_rng rng;
    double xx = 0, xy = 0;
    attn_rng_init(&rng, claim_seed(options, 0), PURPOSE, (uint64_t)draw);
    for (int i = 0; i < K; i++) {
      const double a = attn_rng_normal(&rng), b = attn_rng_normal(&rng);
      xx += a * a / K;
      xy += a * b / K;
    }
    for (int e = 0; e < EPS; e++) {
      longer[e] += sqrt(xx) > 1 + eps[e];
      for (int t = 0; t < ANGLES; t++) {
        const double product = cosine[t] * xx + sqrt(1 - cosine[t] * cosine[t]) * xy;
        off[e][t] += fabs(product - cosine[t]) > eps[e];
      }
    }
    printed += fabs(xy) > 0.4 * 0;
  }
  bool held = true;
  for (int e = 0; e < EPS; e++) {
    const claim_figure *f =
        figure_share(claim_add(r, tail(eps[e]), "share of |R x| > (1 + %g) |x|, k = 256", eps[e]), longer[e],
                     DRAWS, "draws");
    held = held && f->high <= f->said;
    for (int t = 0; t < ANGLES; t++) {
      f = figure_share(
          claim_add(r, 2 * tail(eps[e]), "share of errors of x.y > %g |x| |y|, cosine %g", eps[e], cosine[t]),
          off[e][t], DRAWS, "draws");
      held = held && f->high <= f->said;
    }
  }
  figure_share(claim_add(r, CLAIM_UNSAID, "share of errors > 0.4 |x.y|, x orthogonal to y"), printed, DRAWS,
               "draws");
  r->telling = 3;
  if (held) claim_holds_under(r, "eps |x| |y| for the printed eps |x y| of (12)");
  return ATTN_OK;
}
const claim claim_linformer_lemma1 = {"linformer-lemma-1",
                                      "a Gaussian projection keeps |x| and x.y except in a share of draws of "
                                      "exp(-(eps^2 - eps^3) k / 4), and twice that",
                                      "Wang et al. 2020, Lemma 1 (after Arriaga and Vempala 2006)", lemma};

static double *normals(region *memory, attn_rng *rng, int64_t count, double deviation) {
  double *x = region_take(memory, count, sizeof *x);
  for (int64_t i = 0; x && i < count; i++) x[i] = deviation * attn_rng_normal(rng);
  return x;
}

/* |exp(delta x R^T) exp(-delta) R y - exp(x).y| over |exp(x).y|. */
static double relative(const double *projection, const double *x, const double *y, int64_t n, double delta) {
  double sum = 0, exact = 0;
  for (int64_t j = 0; j < n; j++) exact += exp(x[j]) * y[j];
  for (int64_t i = 0; i < K; i++) {
    const double *row = projection + i * n;
    sum += exp(delta * vector_dot_fast(row, x, n)) * exp(-delta) * vector_dot_fast(row, y, n);
  }
  return fabs(sum - exact) / fabs(exact);
}

static attn_status equation9(const claim_options *options, claim_report *r) {
  enum { N = 512, DRAWS = 200, DELTAS = 3 };
  const double eps = 0.5, delta[DELTAS] = {1.0 / 16, 1.0 / N, ldexp(1, -N)};
  static const char *const names[DELTAS] = {"1/16", "1/n", "2^-n"};
  int within[DELTAS] = {0};
  for (int draw = 0; draw < DRAWS; draw++) {
    attn_rng rng;
    attn_rng_init(&rng, claim_seed(options, 0), PURPOSE + 1, (uint64_t)draw);
    region memory = {.last = NULL};
    double *projection = normals(&memory, &rng, (int64_t)K * N, 1 / sqrt(K)),
           *x = normals(&memory, &rng, N, 1), *y = normals(&memory, &rng, N, 1);
    const attn_status status = region_status(&memory, "for a projection");
    for (int t = 0; !status && t < DELTAS; t++) within[t] += relative(projection, x, y, N, delta[t]) <= eps;
    region_free(&memory);
    if (status) return status;
  }
  bool fails = true;
  for (int t = 0; t < DELTAS; t++) {
    const claim_figure *f =
        figure_share(claim_add(r, 1 - 2 * tail(eps),
                               "share of draws within eps = 0.5, delta = %s, x, y ~ N(0, 1)", names[t]),
                     within[t], DRAWS, "draws");
    fails = fails && f->high < f->said;
  }
  r->telling = DELTAS - 1;
  if (fails) r->word = CLAIM_REFUTED;
  return ATTN_OK;
}
const claim claim_linformer_equation9 = {
    "linformer-lemma",
    "|exp(x E^T) F y - exp(x).y| <= eps |exp(x).y|, E = delta R, F = exp(-delta) R, except in a share of "
    "2 exp(-(eps^2 - eps^3) k / 4) of the draws (k = 256)",
    "Wang et al. 2020, equation (9), proof of Theorem 2", equation9};

/* |exp(delta x R) - exp(delta x) R| / |exp(x)|, R here [n, k]: the step (23) has it that this vanishes. As
 * delta falls it becomes |1 - 1 R| / |exp(x)|, about sqrt(n + k) / (e sqrt(n)). */
static attn_status step(const claim_options *options, int64_t n, int s, const double *delta, int count,
                        double *ratio) {
  attn_rng rng;
  attn_rng_init(&rng, claim_seed(options, s), PURPOSE + 2, (uint64_t)n);
  region memory = {.last = NULL};
  double *x = normals(&memory, &rng, n, 1), *weights = region_take(&memory, n * count, sizeof *weights),
         bottom = 0;
  attn_status status = region_status(&memory, "for a projection");
  for (int64_t j = 0; !status && j < n; j++) {
    bottom += exp(2 * x[j]);
    for (int t = 0; t < count; t++) weights[t * n + j] = exp(delta[t] * x[j]);
  }
  for (int t = 0; t < count; t++) ratio[t] = 0;
  for (int64_t i = 0; i < K && !status; i++) {
    region of_row = {.last = NULL};
    const double *row = normals(&of_row, &rng, n, 1 / sqrt(K));
    status = region_status(&of_row, "for a projection");
    for (int t = 0; t < count && !status; t++) {
      const double gap =
          exp(delta[t] * vector_dot_fast(row, x, n)) - vector_dot_fast(row, weights + t * n, n);
      ratio[t] += gap * gap;
    }
    region_free(&of_row);
  }
  for (int t = 0; t < count; t++) ratio[t] = sqrt(ratio[t] / bottom);
  region_free(&memory);
  return status;
}

/* The largest relative difference of two rows, |o_i - o_0| / |o_0|. */
static double spread(const double *o, int64_t n, int64_t d) {
  double most = 0;
  for (int64_t i = 1; i < n; i++) most = fmax(most, vector_distance(o + i * d, o, d));
  return most / vector_norm(o, d);
}

enum { SEEDS = 12, DELTAS = 3 };
static const char *const delta_names[DELTAS] = {"1/16", "1/n", "2^-n"};

static void deltas(int64_t n, double delta[DELTAS]) {
  delta[0] = 1.0 / 16;
  delta[1] = 1 / (double)n;
  delta[2] = ldexp(1, -(int)n);
}

/* Outputs of E = delta R equal those of queries times delta, up to a factor that spread() does not see. */
static attn_status spreads(const claim_options *options, claim_report *r) {
  const int64_t n = 512, d = 64;
  const claim_run run = {"gaussian", n, n, d, NULL};
  double left[DELTAS + 1][SEEDS], delta[DELTAS];
  deltas(n, delta);
  for (int s = 0; s < SEEDS; s++)
    for (int t = 0; t <= DELTAS; t++) {
      data_qkv in = {0};
      void *o = NULL;
      char spec[64];
      snprintf(spec, sizeof spec, "linformer:k=256,seed=%llu", (unsigned long long)claim_seed(options, s));
      attn_status status = claim_inputs(&run, claim_seed(options, s), &in);
      for (int64_t i = 0; t < DELTAS && !status && i < n * d; i++) ((double *)in.q)[i] *= delta[t];
      if (!status) status = claim_output(&in, t < DELTAS ? spec : "full", &o);
      data_qkv_free(&in);
      if (status) return status;
      left[t][s] = spread(o, n, d);
      free(o);
    }
  for (int t = 0; t <= DELTAS; t++)
    figure_mean(t < DELTAS ? claim_add(r, CLAIM_UNSAID,
                                       "spread of the outputs over queries, E = delta R, delta = %s, n = 512",
                                       delta_names[t])
                           : claim_add(r, CLAIM_UNSAID, "... of exact attention's"),
                left[t], SEEDS, "seeds");
  return ATTN_OK;
}

static attn_status limit(const claim_options *options, claim_report *r) {
  enum { LENGTHS = 4 };
  double length[LENGTHS], ratio[DELTAS][SEEDS][LENGTHS], last[SEEDS];
  bool stays[DELTAS];
  for (int i = 0; i < LENGTHS; i++)
    for (int s = 0; s < SEEDS; s++) {
      const int64_t n = (int64_t)512 << i;
      double delta[DELTAS], at[DELTAS];
      deltas(n, delta);
      attn_status status = step(options, n, s, delta, DELTAS, at);
      if (status) return status;
      length[i] = (double)n;
      for (int t = 0; t < DELTAS; t++) ratio[t][s][i] = at[t];
    }
  for (int t = 0; t < DELTAS; t++) {
    for (int s = 0; s < SEEDS; s++) last[s] = ratio[t][s][LENGTHS - 1];
    const claim_figure *f = figure_mean(
        claim_add(r, CLAIM_UNSAID, "left side of (23) over |exp(x)|, delta = %s, n = 4096", delta_names[t]),
        last, SEEDS, "seeds");
    const bool large = f->low > 0.1;
    f = figure_slope(claim_add(r, CLAIM_UNSAID, "... its exponent of n, n = 512 ... 4096"), length, LENGTHS,
                     &ratio[t][0][0], SEEDS, "seeds");
    stays[t] = large && f->low > -0.25;
  }
  r->telling = 4;
  /* The proof takes the last, 2^-n, and names 1/n in the step. */
  if (stays[1] && stays[2]) r->word = CLAIM_REFUTED;
  return spreads(options, r);
}
const claim claim_linformer_limit = {
    "linformer-limit", "|exp(delta x R) - exp(delta x) R| is o(|exp(x)|) for small delta (1/n, 2^-n)",
    "Wang et al. 2020, equation (23), proof of Theorem 2", limit};
