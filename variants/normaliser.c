/* normaliser - exact attention under another normaliser than softmax, o_i = sum_j w_ij v_j:
 *
 *   sigmoid     w = 1 / (1 + e^-(s + bias - ln n))           Ramapuram et al. 2024, arXiv:2409.04431
 *   relu        w = max(s, 0)^power / n                      Wortsman et al. 2023, arXiv:2309.08586
 *   sparsemax   w = max(s - tau, 0), sum w = 1               Martins and Astudillo 2016, arXiv:1602.02068
 *   entmax15    w = max((s - tau) / 2, 0)^2, sum w = 1       Peters et al. 2019, arXiv:1905.05702
 *
 * n is the number of keys that the query sees, or 1 with by=one. The formulas are as recalled. It is another
 * function than softmax: errors against softmax are reported, and what it computes is held against its
 * definition, ENT-0, ENT-1 and ENT-2.
 *
 * tau: with z the scores less their largest (halved for entmax15), F(tau) = sum max(z - tau, 0)^power is
 * convex and falls to 1 between -1, where the largest alone has 1, and 0. Newton's steps from -1 rise and
 * stay on that side: with h = F - 1 and D = -F', convexity gives h'/h + D'/D <= 1, so that h D falls to a
 * quarter at least in each. It is n^2 at first and no less than (rounding of F) once a step is of use: 64
 * steps are more than enough for any n. Keys at or below tau are left out from then on: after the first step
 * few keys are looked at.
 *
 * Deviations: the papers' n is the length of the sequence; n of a causal row is the number of keys before it,
 * so that no row depends on later ones. No sink, which is a key of a softmax, and no log-sum-exp. */
#include "attn_variant.h"

#include <math.h>
#include <string.h>

typedef enum { SIGMOID, RELU, SPARSEMAX, ENTMAX15 } kind;

typedef struct params {
  int kind, by;
  int64_t power;
  double bias;
} params;

static const char *const kinds[] = {"sigmoid", "relu", "sparsemax", "entmax15", NULL}, *const counts[] = {
                                                                                           "keys", "one",
                                                                                           NULL};
static const attn_param table[] = {
    {"kind", ATTN_CHOICE, offsetof(params, kind), 0, 0, "sigmoid", kinds, "the function of the scores"},
    {"by", ATTN_CHOICE, offsetof(params, by), 0, 0, "keys", counts, "n of sigmoid and relu"},
    {"power", ATTN_INT, offsetof(params, power), 1, 4, "1", NULL, "of relu"},
    {"bias", ATTN_REAL, offsetof(params, bias), -1e6, 1e6, "0", NULL,
     "of the scores of sigmoid, besides -ln n"},
    {.name = NULL},
};

static bool sums(const params *p) { return p->kind >= SPARSEMAX; }
static double count_of(const params *p, int64_t n) { return p->by ? 1 : (double)n; }

/* tau of z [n], of which those are kept, in their order, that may have weights. */
static double threshold_of(int64_t n, double *z, int64_t power) {
  enum { STEPS = 64 };
  double tau = -1;
  for (int step = 0; step < STEPS; step++) {
    double sum = 0, slope = 0;
    int64_t kept = 0;
    for (int64_t j = 0; j < n; j++) {
      const double d = z[j] - tau;
      if (d <= 0) continue;
      z[kept++] = z[j];
      sum += power == 1 ? d : d * d;
      slope += power == 1 ? 1 : 2 * d;
    }
    /* Less what rounding may have added to the sum: no step goes too far. */
    const double next = tau + (sum - 1 - 0x1p-53 * (double)n * sum) / slope;
    n = kept;
    if (!(sum > 1 + 0x1p-52 * (double)n) || !(next > tau)) break;
    tau = next;
  }
  return tau;
}

/* x <- factor max(x - tau, 0)^power; NaN stays. */
static void raise_above(int64_t n, double tau, int64_t power, double factor, double *x, double *room) {
  for (int64_t j = 0; j < n; j++) {
    const double d = x[j] - tau;
    room[j] = d <= 0 ? 0 : d;
    x[j] = factor * room[j];
  }
  for (int64_t k = 1; k < power; k++)
    for (int64_t j = 0; j < n; j++) x[j] *= room[j];
}

/* A NaN makes its own weight NaN. */
static void divide(int64_t power, int64_t n, double *x, double *z) {
  enum { LANES = 8 };
  double tops[LANES], top, by = 1 / (double)power;
  int64_t at = 0;
  for (int l = 0; l < LANES; l++) tops[l] = x[0];
  for (; at + LANES <= n; at += LANES)
    for (int l = 0; l < LANES; l++) tops[l] = x[at + l] > tops[l] ? x[at + l] : tops[l];
  for (; at < n; at++) tops[0] = x[at] > tops[0] ? x[at] : tops[0];
  top = tops[0];
  for (int l = 1; l < LANES; l++) top = tops[l] > top ? tops[l] : top;
  for (int64_t j = 0; j < n; j++) z[j] = x[j] = (x[j] - top) * by;
  raise_above(n, threshold_of(n, z, power), power, 1, x, z);
}

/* e^-|s| lies in 0 ... 1 for any s; the 0 behind them is the largest exponent. */
static void squash(const params *p, const attn_context *c, int64_t n, double *x, double *e) {
  const double shift = p->bias - log(count_of(p, n));
  for (int64_t j = 0; j < n; j++) e[j] = -fabs(x[j] + shift);
  e[n] = 0;
  attn_exp_rows(attn_kernels_f64(c->kernels), 1, n + 1, e, n + 1, NULL);
  for (int64_t j = 0; j < n; j++) x[j] = (x[j] + shift >= 0 ? 1 : e[j]) / (1 + e[j]);
}

/* attn_normaliser.normalise */
static void normalise(const void *state, const attn_context *c, int64_t n, double *x, double *room) {
  const params *p = state;
  if (sums(p)) {
    divide(p->kind == SPARSEMAX ? 1 : 2, n, x, room);
  } else if (p->kind == SIGMOID) {
    squash(p, c, n, x, room);
  } else {
    raise_above(n, 0, p->power, 1 / count_of(p, n), x, room);
  }
}

/* attn_normaliser.differentiate. Where rows sum to 1, tau moves with the scores: what their weights give in
 * proportion to their slopes is taken off. */
static void differentiate(const void *state, int64_t n, const double *w, double *ds) {
  const params *p = state;
  const double count = count_of(p, n), power = (double)p->power;
  double along = 0, slopes = 0;
  for (int64_t j = 0; j < n; j++) {
    const double slope = p->kind == SIGMOID ? w[j] * (1 - w[j])
                         : !(w[j] > 0)      ? w[j]
                         : p->kind == RELU  ? power * pow(count * w[j], 1 - 1 / power) / count
                                            : pow(w[j], p->kind == SPARSEMAX ? 0 : 0.5);
    ds[j] *= slope;
    along += ds[j];
    slopes += slope;
  }
  for (int64_t j = 0; sums(p) && j < n; j++)
    if (w[j] != 0) ds[j] -= pow(w[j], p->kind == SPARSEMAX ? 0 : 0.5) * along / slopes;
}

/* attn_normaliser.weight */
static double weight(const void *state, int64_t n, double x) {
  const params *p = state;
  switch (p->kind) {
  case SIGMOID:
    return 1 / (1 + count_of(p, n) * exp(-x - p->bias));
  case RELU:
    return x > 0 ? pow(x, (double)p->power) / count_of(p, n) : 0;
  case SPARSEMAX:
    return fmax(x, 0);
  default:
    return fmax(x, 0) * fmax(x, 0) / 4;
  }
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const params *p = c->params;
  if (sums(p)) out->caps |= ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX | ATTN_CAP_SHIFT;
  out->normaliser = (attn_normaliser){.normalise = normalise,
                                      .differentiate = differentiate,
                                      .weight = weight,
                                      .sums = sums(p),
                                      .reach = p->kind == SPARSEMAX  ? 1
                                               : p->kind == ENTMAX15 ? 2
                                                                     : 0};
  return attn_builder_keep(b, p, sizeof *p, &out->normaliser.state);
}

static attn_cost cost(const attn_context *c) { return attn_softmax_cost(c, attn_visible_pairs(c->problem)); }

ATTN_VARIANT(normaliser, .summary = "exact attention under sigmoid, relu, sparsemax or entmax",
             .formula = "o_i = sum_j w(s_ij) v_j; w = sigmoid(s - ln n), relu(s)^power / n, (s - tau)+ or "
                        "((s - tau)/2)+^2 of sum 1; O(n^2 d)",
             .cite = "Ramapuram et al. 2024, arXiv:2409.04431",
             .caps = ATTN_CAP_CAUSAL | ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_PERMUTATION |
                     ATTN_CAP_SCORE | ATTN_CAP_MASK | ATTN_CAP_HALF | ATTN_CAP_POSITIONS,
             .params = table, .params_size = sizeof(params), .describe = describe, .cost = cost)
