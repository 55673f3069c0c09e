/* rank_of_weights.c - how much of the weights P a low rank holds, and what attention alone does to the rank
 * of its output.
 *
 * No matrix of rank r is nearer to P than its r first singular triplets (Eckart and Young 1936): |P -
 * P_r|_F^2 = sum_(e > r) s_e^2. Scores of width d are products of d numbers, so that the polynomial sum_(e <=
 * m) s^e / e! of them has rank C(d + m, m), of whatever n; by Taylor's remainder P is that near to such a
 * rank:
 *   |P - P_r|_F^2 <= sum_ij (e^max(s_ij, 0) |s_ij|^(m+1) / (m+1)! / Z_i)^2,  Z_i the softmax's denominator.
 *
 * Attention without residuals, X <- P X, P = softmax(c X X^T), D = max_ij |x_i - x_j|: two rows of P differ
 * by delta, at most, in total variation (Dobrushin), and D' <= delta D. Scores of queries i and i' differ by
 * c (x_i - x_i').x_j, whose range over j is c D^2 at most, and a range R of the difference moves softmax by R
 * / 4 at most: D' <= c D^3 / 4, doubly exponential as in Dong et al. 2021 (arXiv:2103.03404). With residuals,
 * X <- X + P X, D' >= (1 - delta) D. */
#include "experiments/theory/theory.h"

#include <string.h>

#include "experiments/mathematics/spectrum.h"
#include "experiments/mathematics/vector.h"

enum { N = 128, D = 4, MOST = 4 };

typedef struct rank_room {
  double q[N * D], k[N * D], unit[N * N], p[N * N], near[N * N], squares[N];
} rank_room;

/* sqrt of the squares from r on */
static double tail_of(const rank_room *x, int64_t r) {
  double sum = 0;
  for (int64_t e = N; e-- > r;) sum += x->squares[e];
  return sqrt(sum);
}

/* What Taylor's remainder leaves of the weights in x->p. */
static double remainder_of(const rank_room *x, double scale, int m) {
  double sum = 0;
  for (int i = 0; i < N; i++)
    for (int j = 0; j < N; j++) {
      const double s = scale * vector_dot(x->q + i * D, x->k + j * D, D);
      sum += pow(x->p[i * N + j] * exp(fmax(s, 0) - s + (m + 1) * log(fabs(s)) - lgamma(m + 2)), 2);
    }
  return sqrt(sum);
}

static void weigh(theory_report *r, rank_room *x, double scale) {
  const double *rows[N];
  theory_weights(r, theory_problem(N, N, D, N, scale), x->q, x->k, x->unit, x->p);
  for (int i = 0; i < N; i++) rows[i] = x->p + (ptrdiff_t)i * N;
  if (!r->status) r->status = spectrum_squares(rows, N, N, x->squares);
}

static double error_of(theory_report *r, rank_room *x, double scale, const char *spec) {
  const attn_problem p = theory_problem(N, N, D, N, scale);
  theory_attend(r, &p, spec, &(attn_tensors){.q = x->q, .k = x->k, .v = x->unit, .o = x->near});
  return vector_distance(x->near, x->p, N * N);
}

static void measure_rank(theory_report *r, void *at) {
  static const char *const specs[] = {"svd:r=15", "nystrom:landmarks=15"};
  rank_room *x = at;
  double promised[MOST + 1];
  theory_normals(r, N * D, 0.5, x->q);
  theory_normals(r, N * D, 0.5, x->k);
  for (int peaked = 0; peaked < 2; peaked++) {
    const double scale = peaked ? 8 : 0.5;
    weigh(r, x, scale);
    const double norm = vector_norm(x->p, N * N);
    /* Each squared value errs by spectrum_error, N of them together; of a projection twice that. */
    const double tolerance = sqrt(3 * N * spectrum_error(N, N, norm * norm)) / norm;
    int rank = 1;
    for (int m = 0; m <= MOST; rank = rank * (D + m + 1) / (m + 1), m++) {
      if (!peaked) promised[m] = remainder_of(x, scale, m) / norm;
      if (m > 1 && !(peaked && m == MOST)) /* peaked scores may have fewer heaviest keys than that */
        figure_exact(theory_promise(r, peaked, THEORY_AT_MOST, promised[m], tolerance,
                                    "|P - P_r| / |P|, r = C(%d + %d, %d) = %d, scale %g", D, m, m, rank,
                                    scale),
                     tail_of(x, rank) / norm);
      if (!peaked) figure_exact(theory_point(r, "promised by Taylor's remainder", rank), promised[m]);
    }
    for (int64_t e = 1; e <= 64; e *= 2)
      figure_exact(
          theory_point(r, peaked ? "|P - P_r|, peaked scores" : "|P - P_r|, bounded scores", (double)e),
          tail_of(x, e) / norm);
    for (int v = 0; v < 2 && !peaked; v++)
      figure_exact(theory_promise(r, false, v ? THEORY_AT_LEAST : THEORY_EQUAL, tail_of(x, 15) / norm,
                                  tolerance, "|P - approximation| / |P|, %s", specs[v]),
                   error_of(r, x, scale, specs[v]) / norm);
  }
}

THEORY_DEFINE(
    low_rank, .name = "low-rank",
    .statement = "weights of bounded scores are near to a low rank: C(d + m, m) by a polynomial of degree m, "
                 "whatever n",
    .assumption = "scores are bounded", .otherwise = "scores 16 times as large",
    .source = "Eckart and Young 1936; Alman and Song 2023 (arXiv:2302.13214), section 3", .x = "rank r",
    .y = "|P - P_r| / |P|", .room = sizeof(rank_room), .measure = measure_rank);

/* ---- attention alone, layer upon layer ----------------------------------------------------------------- */

enum { TOKENS = 64, WIDTH = 16, LAYERS = 3 };

typedef struct depth_room {
  double x[TOKENS * WIDTH], o[TOKENS * WIDTH], unit[TOKENS * TOKENS], p[TOKENS * TOKENS];
} depth_room;

static double diameter_of(const double *x) {
  double largest = 0;
  for (int i = 0; i < TOKENS; i++)
    for (int j = 0; j < i; j++)
      largest = theory_larger(largest, vector_distance(x + i * WIDTH, x + j * WIDTH, WIDTH));
  return largest;
}

/* max of the rows' total variation */
static double dobrushin(const double *p) {
  double largest = 0;
  for (int i = 0; i < TOKENS; i++)
    for (int k = 0; k < i; k++) {
      double sum = 0;
      for (int j = 0; j < TOKENS; j++) sum += fabs(p[i * TOKENS + j] - p[k * TOKENS + j]);
      largest = theory_larger(largest, sum / 2);
    }
  return largest;
}

static void measure_depth(theory_report *r, void *at) {
  static const char *const curves[] = {"attention alone", "with residuals"};
  depth_room *x = at;
  const attn_problem problem = theory_problem(TOKENS, TOKENS, WIDTH, WIDTH, 1 / sqrt(WIDTH));
  for (int residual = 0; residual < 2; residual++) {
    theory_normals(r, TOKENS * WIDTH, 0.35, x->x);
    double diameter = diameter_of(x->x);
    figure_exact(theory_point(r, curves[residual], 0), diameter);
    for (int layer = 1; layer <= LAYERS; layer++) {
      const double size = theory_score_size(TOKENS, TOKENS, WIDTH, problem.scale, x->x, x->x),
                   tolerance = 2 * sqrt(WIDTH) *
                               theory_rounding(TOKENS, WIDTH, size, theory_largest(x->x, TOKENS * WIDTH));
      theory_weights(r, problem, x->x, x->x, x->unit, x->p);
      theory_attend(r, &problem, "full", &(attn_tensors){.q = x->x, .k = x->x, .v = x->x, .o = x->o});
      for (int i = 0; i < TOKENS * WIDTH; i++) x->x[i] = x->o[i] + (residual ? x->x[i] : 0);
      const double delta = dobrushin(x->p), least = (1 - delta) * diameter,
                   most = fmin(delta * diameter, problem.scale * pow(diameter, 3) / 4);
      diameter = diameter_of(x->x);
      figure_exact(theory_point(r, curves[residual], layer), diameter);
      if (!residual) figure_exact(theory_point(r, "promised at most", layer), most);
      figure_exact(theory_promise(r, residual, THEORY_AT_MOST, most, tolerance,
                                  "largest |x_i - x_j| after layer %d, %s", layer, curves[residual]),
                   diameter);
      if (residual)
        figure_exact(theory_promise(r, false, THEORY_AT_LEAST, least, tolerance,
                                    "... and at least (1 - delta) of that before layer %d", layer),
                     diameter);
    }
  }
}

THEORY_DEFINE(
    rank_collapse, .name = "rank-collapse",
    .statement = "attention alone makes all tokens equal, doubly exponentially in depth: D' <= min(delta D, "
                 "c D^3 / 4)",
    .assumption = "there are no residuals", .otherwise = "x + attention(x), which keeps the differences",
    .source = "Dobrushin 1956; Dong et al. 2021, Theorem 2.2, as recalled; the constant is ours",
    .x = "layers", .y = "largest |x_i - x_j|", .room = sizeof(depth_room), .measure = measure_depth);
