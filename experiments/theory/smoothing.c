/* smoothing.c - softmax attention as a kernel smoother of the values, and at low temperature as a look-up.
 *
 * c q.k = c |q|^2 / 2 + c |k|^2 / 2 - c |q - k|^2 / 2, and the first term is the same for all keys of a
 * query: o = sum_j w_j v_j / sum_j w_j, w_j = e^(c |k_j|^2 / 2) e^(-c |q - k_j|^2 / 2), the estimator of
 * Nadaraya (1964) and Watson (1964) with a Gaussian kernel of variance 1/c whose points have weights; those
 * are equal where |k| is.
 *
 * Keys that are their values, x_1 ... x_n, |x_j| <= M, and separations D_i = x_i.x_i - max_(j != i) x_i.x_j:
 * of a query q at a distance r of x_i the scores of all others are b (D_i - 2 M r) lower, so that their
 * weights are at most (n - 1) e^(-b (D_i - 2 M r)), and each pulls the output 2 M away at most:
 *   |o - x_i| <= 2 M (n - 1) e^(-b (D_i - 2 M r)),
 * the retrieval error of Ramsauer et al. 2021 (arXiv:2008.02217), Theorem 5, with r for the larger of r and
 * the fixed point's distance. A query halfway between two patterns is separated from neither, whatever b. */
#include "experiments/theory/theory.h"

#include <string.h>

#include "experiments/mathematics/vector.h"

enum { N = 64, D = 16 };

typedef struct smooth_room {
  double q[N * D], k[N * D], v[N * D], o[N * D], smooth[N * D];
} smooth_room;

/* The smoother's output in place of attention's; weighted: with e^(c |k|^2 / 2). */
static void smooth(smooth_room *x, double c, bool weighted) {
  memset(x->smooth, 0, sizeof x->smooth);
  for (int i = 0; i < N; i++) {
    double sum = 0;
    for (int j = 0; j < N; j++) {
      const double *k = x->k + (ptrdiff_t)j * D;
      const double w =
          exp(c / 2 * ((weighted ? vector_dot(k, k, D) : 0) - pow(vector_distance(x->q + i * D, k, D), 2)));
      sum += w;
      for (int l = 0; l < D; l++) x->smooth[i * D + l] += w * x->v[j * D + l];
    }
    for (int l = 0; l < D; l++) x->smooth[i * D + l] /= sum;
  }
}

static void measure_smoother(theory_report *r, void *at) {
  static const double spreads[] = {0, 0.05, 0.1, 0.2, 0.4};
  smooth_room *x = at;
  const attn_problem p = theory_problem(N, N, D, D, 1 / sqrt(D));
  theory_normals(r, N * D, 1, x->q);
  theory_normals(r, N * D, 1, x->v);
  for (int e = 0; e < 5; e++) {
    theory_directions(r, N, D, 0, x->k);
    for (int j = 0; j < N; j++) {
      const double norm = sqrt(D) * exp(spreads[e] * attn_rng_normal(&r->rng));
      for (int l = 0; l < D; l++) x->k[j * D + l] *= norm;
    }
    theory_attend(r, &p, "full", &(attn_tensors){.q = x->q, .k = x->k, .v = x->v, .o = x->o});
    /* The exponents are sums of d squares of |q_l| + |k_l| in place of products of the two. */
    double size = 0;
    for (int i = 0; i < N; i++)
      for (int j = 0; j < N; j++)
        size = fmax(size, p.scale * pow(vector_norm(x->q + i * D, D) + vector_norm(x->k + j * D, D), 2));
    const double tolerance = theory_rounding(N, D, size, theory_largest(x->v, N * D));
    smooth(x, p.scale, true);
    const double weighted = theory_distance(x->smooth, x->o, N * D);
    smooth(x, p.scale, false);
    const double plain = theory_distance(x->smooth, x->o, N * D);
    figure_exact(theory_point(r, "plain Gaussian smoothing", spreads[e]), plain);
    figure_exact(theory_point(r, "with weights of keys", spreads[e]), weighted);
    if (e > 0 && e < 4) continue;
    theory_vanishes(r, false, weighted, tolerance,
                    "|attention - smoothing with weights of keys|, log |k| spread by %g", spreads[e]);
    theory_vanishes(r, e > 0, plain, tolerance, "|attention - plain Gaussian smoothing|");
  }
}

THEORY_DEFINE(smoothing, .name = "smoothing",
              .statement =
                  "softmax attention is Nadaraya-Watson smoothing by a Gaussian kernel, of keys weighted by "
                  "e^(c |k|^2 / 2)",
              .assumption = "all keys have one length, for a smoother without those weights",
              .otherwise = "keys whose lengths differ",
              .source = "Nadaraya 1964; Watson 1964; Tsai et al. 2019 (arXiv:1908.11775)",
              .x = "standard deviation of log |k|", .y = "largest distance of outputs",
              .room = sizeof(smooth_room), .measure = measure_smoother);

/* ---- look-up ------------------------------------------------------------------------------------------- */

typedef struct lookup_room {
  double x[N * D], q[N * D], o[N * D];
} lookup_room;

/* The largest distance of an output to its pattern, and its bound; between: queries between two patterns. */
static double retrieve(theory_report *r, lookup_room *x, double scale, bool between, double *bound) {
  const attn_problem p = theory_problem(N, N, D, D, scale);
  double largest = 0;
  *bound = 0;
  for (int i = 0; i < N; i++) {
    const double *own = x->x + (ptrdiff_t)i * D, *next = x->x + (ptrdiff_t)((i + 1) % N) * D;
    double other = -1, noise[D], *q = x->q + (ptrdiff_t)i * D;
    theory_directions(r, 1, D, 0, noise);
    for (int l = 0; l < D; l++) q[l] = between ? (own[l] + next[l]) / 2 : own[l] + 0.02 * noise[l];
    for (int j = 0; j < N; j++)
      if (j != i) other = fmax(other, vector_dot(own, x->x + (ptrdiff_t)j * D, D));
    *bound = fmax(*bound, 2 * (N - 1) * exp(-scale * (1 - other - 2 * 0.02)));
  }
  theory_attend(r, &p, "full", &(attn_tensors){.q = x->q, .k = x->x, .v = x->x, .o = x->o});
  for (int i = 0; i < N; i++)
    largest = theory_larger(largest, vector_distance(x->o + i * D, x->x + i * D, D));
  return largest;
}

static void measure_lookup(theory_report *r, void *at) {
  lookup_room *x = at;
  theory_directions(r, N, D, 0, x->x);
  for (int scale = 8; scale <= 64; scale *= 2) {
    double bound, ignored;
    const double error = retrieve(r, x, scale, false, &bound),
                 between = retrieve(r, x, scale, true, &ignored);
    const double tolerance = sqrt(D) * theory_rounding(N, D, 1.02 * scale, 1);
    figure_exact(theory_point(r, "error of retrieval", scale), error);
    figure_exact(theory_point(r, "promised at most", scale), bound);
    figure_exact(theory_point(r, "error between two patterns", scale), between);
    if (scale >= 16)
      figure_exact(theory_promise(r, false, THEORY_AT_MOST, bound, tolerance,
                                  "largest |o - x_i|, |q - x_i| = 0.02, scale %d", scale),
                   error);
    if (scale == 64)
      figure_exact(theory_promise(r, true, THEORY_AT_MOST, bound, tolerance,
                                  "the same of queries between two patterns"),
                   between);
  }
}

THEORY_DEFINE(
    lookup, .name = "lookup",
    .statement = "at low temperature attention looks up the key that is nearest, with an error that falls "
                 "exponentially with its separation",
    .assumption = "a query is near to one key, and that key is separated from the others",
    .otherwise = "a query between two keys",
    .source = "Ramsauer et al. 2021 (arXiv:2008.02217), Theorem 5, as recalled",
    .x = "scale (1 / temperature)", .y = "|o - x_i|", .room = sizeof(lookup_room), .measure = measure_lookup);
