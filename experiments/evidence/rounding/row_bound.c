/* row_bound.c - FP-1, FP-2 and FP-3 of one row.
 *
 * A computed weight is the exact one times e^eta_j, |eta_j| <= h_j, where
 *   e_j = gamma_{D_s+3} |c| sum_l |q_l k_jl| + underflow of the products
 *   h_j = e_j + kappa_s u (1+u) (m - s_j + e_j + max e) + (1 + R_j)(-ln(1 - exp_error)),
 * the error of the computed maximum being common to all. Where the problem transforms its scores, e_j grows
 * by what that costs (reference/transform.h), and a sink z is one more key, of value 0 and e = 2 u |z|. (D_s
 * + 3, not + 2: rounding c log2(e), the constant
 * log2(e) in fp64, and multiplying by it.) Then o^ - o = sum p_j (e^eta_j - 1)(v_j - o) / sum p_j e^eta_j  +
 * theta, |theta| <= G sum p_j e^h_j |v_j| / sum p_j e^-h_j. Weights below the least normal number may be
 * flushed to zero, once as an exponential and once by a rescale, and every product may underflow: both are
 * absolute errors against a denominator of at least e^-h.
 *
 * Operands that are rounded, x^ = x (1 + delta), |delta| <= r: 1 + gamma becomes (1 + r)^2 (1 + gamma) in e_j
 * and 1 + G becomes (1 + r)(1 + G). Weights that are rounded, by |delta| <= w, before both sums: h_j grows by
 * -ln(1 - w). */
#include "experiments/evidence/support_row.h"

#include <math.h>
#include <string.h>

#include "experiments/mathematics/vector.h"
#include "experiments/reference/transform.h"

double gamma_of(int64_t k, double unit) {
  double x = (double)k * unit;
  return x < 1 ? x / (1 - x) : (double)INFINITY;
}

int64_t row_chain(const attn_rounding *r) { return r->value + r->sum + (int64_t)ceil(r->kappa_d); }

static const double most_exponent = 700; /* e^h is finite and e^-h not zero */

typedef struct format {
  double tiny, least; /* least normal, least subnormal */
} format;

static format format_of(attn_dtype type) {
  return (format){attn_numbers[type].normal, attn_numbers[type].subnormal};
}

/* Steps of the online softmax: the descriptor's chain is (keys of a step) + 2 steps. */
static int64_t steps_of(const attn_rounding *r) {
  if (r->block == 0) return 1;
  int64_t steps = (r->value - r->block) / 2;
  return steps > 1 ? steps : 1;
}

/* What underflow takes from a product of numbers up to `size`. */
static double product_lost(const head_data *h, const attn_rounding *r, double size) {
  return r->underflow > 0 ? r->underflow * (1 + size) : format_of(h->problem->dtype).least;
}

/* Products that underflow: one per key and two per step in the sum, and the quotient. */
static double products_lost(const head_data *h, const attn_rounding *r, int64_t count) {
  return ((double)count + 2 * (double)steps_of(r) + 2) * product_lost(h, r, h->v_max);
}

static double score_lost(const head_data *h, const attn_rounding *r, double q_size) {
  return ((double)h->problem->d_qk + 2) * (1 + fabs(h->problem->scale)) * (1 + h->k_max + q_size) *
         product_lost(h, r, 0);
}

/* gamma_k, or with lambda > 0 the least of it and the probabilistic model's. */
static double chain_growth(int64_t k, double unit, double lambda) {
  double sure = gamma_of(k, unit), chain = (double)k;
  if (!(lambda > 0)) return sure;
  return fmin(sure, expm1(lambda * sqrt(chain) * unit + chain * unit * unit / (1 - unit)));
}

/* Relative errors of a score's products and of the weighted sum of the values. */
static double score_growth(const attn_rounding *r, double lambda) {
  double operands = r->operand * (2 + r->operand);
  return operands + (1 + operands) * chain_growth(r->score + 3, r->unit, lambda);
}
static double value_growth(const attn_rounding *r, double lambda) {
  double sums = chain_growth(row_chain(r), r->unit, lambda);
  return r->operand + (1 + r->operand) * sums;
}

row_verdict row_apriori_bound(const head_data *h, const attn_rounding *r, double q_norm, double bias,
                              int64_t count, prior *out) {
  format f = format_of(h->problem->dtype);
  double size = fabs(h->problem->scale) * q_norm * h->k_max, u = r->unit;
  if (!h->finite || !isfinite(q_norm)) return ROW_INFINITE;
  if (!row_fits(h, q_norm * h->k_max, bias, count)) return ROW_OVERFLOW;
  double error = score_growth(r, 0) * size + score_lost(h, r, q_norm);
  if (transform_any(h->problem) || bias > 0)
    error += r->map * size + u * (1 + 8 * u) * (5 * size + 10 * bias);
  double exponent = error + r->kappa_s * u * (1 + u) * (2 * (size + bias) + 2 * error) -
                    (double)steps_of(r) * log1p(-r->exp_error) - log1p(-r->weight);
  *out = (prior){tanh(exponent / 2), value_growth(r, 0), products_lost(h, r, count) * exp(exponent)};
  /* Flushed weights and products: absolute, against a denominator of at least e^-H. */
  out->spread += 2 * (double)count * f.tiny * exp(exponent);
  if (!isfinite(error) || !isfinite(out->growth)) return ROW_CHAIN;
  return exponent < most_exponent ? ROW_OK : ROW_LOOSE;
}

attn_rounding row_reference_rounding(const attn_problem *p, int64_t count) {
  return (attn_rounding){.unit = 0x1p-53,
                         .score = p->d_qk,
                         .value = count + 1,
                         .sum = count + 1,
                         .exp_error = 0x1p-51,
                         .kappa_s = 1,
                         .kappa_d = 1,
                         .map = transform_reference_map(p)};
}

/* e^h - 1 from above and e^-h from below: by two terms where h is so small that nothing is lost. */
static double above(double h) { return h < 0x1p-12 ? h + h * h : expm1(h); }
static double below(double h) { return h < 0x1p-12 ? 1 - h : exp(-h); }

/* e_j of the key at a place of the support. */
static double score_error(const attn_rounding *r, double chain, double underflow, const row_space *s,
                          int64_t a) {
  return chain * s->size[a] + underflow + r->unit * (1 + 8 * r->unit) * s->units[a] + r->map * s->map[a];
}

/* h_j of every key of the support into s->slack, and of the sink (NULL: none); returns the largest, and in
 * *inverse sum_j p_j e^-h_j. */
static double log_weight_errors(const attn_rounding *r, bool ordered, double chain, double underflow,
                                const double *sink, double top, row_space *s, double *inverse) {
  int64_t steps = steps_of(r);
  double u = r->unit, once = -log1p(-r->exp_error), rounded = -log1p(-r->weight), least = 0;
  const double sink_error = sink ? 2 * u * fabs(*sink) : 0;
  double error_max = sink_error;
  for (int64_t a = 0; a < s->count; a++) {
    const double error = score_error(r, chain, underflow, s, a);
    error_max = error > error_max ? error : error_max;
  }
  *inverse = 0;
  if (sink) {
    least = s->sink_slack = sink_error + r->kappa_s * u * (1 + u) * (top - *sink + sink_error + error_max) +
                            (double)steps * once + rounded;
    *inverse = s->sink * below(s->sink_slack);
  }
  for (int64_t a = 0; a < s->count; a++) {
    int64_t later = steps - 1;
    if (ordered && r->block > 0) later = (s->count - 1) / r->block - a / r->block;
    double error = score_error(r, chain, underflow, s, a);
    s->slack[a] = error + r->kappa_s * u * (1 + u) * (top - s->score[a] + error + error_max) +
                  (double)(1 + later) * once + rounded;
    *inverse += s->weight[a] * below(s->slack[a]);
    least = s->slack[a] > least ? s->slack[a] : least;
  }
  return least;
}

row_verdict row_score_errors(const head_data *h, const attn_rounding *r, row_space *s) {
  double q_max = 0, chain = score_growth(r, 0);
  for (int64_t l = 0; l < h->problem->d_qk; l++) q_max = fmax(q_max, fabs(s->q[l]));
  if (!isfinite(chain)) return ROW_CHAIN;
  const double underflow = score_lost(h, r, q_max);
  for (int64_t a = 0; a < s->count; a++) s->slack[a] = score_error(r, chain, underflow, s, a);
  return ROW_OK;
}

/* Fills s->slack; *least the largest of it, *inverse sum_j p_j e^-h_j. */
static row_verdict row_slacks(const head_data *h, const attn_rounding *r, bool ordered, double lambda,
                              const row_extremes *scores, row_space *s, double *least, double *inverse) {
  double q_max = 0, growth = value_growth(r, lambda), chain = score_growth(r, lambda);
  for (int64_t l = 0; l < h->problem->d_qk; l++) q_max = fmax(q_max, fabs(s->q[l]));
  if (!isfinite(growth) || !isfinite(chain)) return ROW_CHAIN;
  const double *sink = h->problem->score.sink ? h->problem->score.sink + h->head : NULL;
  *least = log_weight_errors(r, ordered, chain, score_lost(h, r, q_max), sink, scores->top, s, inverse);
  return *least < most_exponent ? ROW_OK : ROW_LOOSE;
}

row_verdict row_log_sum(const head_data *h, const attn_rounding *r, const row_extremes *scores, row_space *s,
                        double *sum, double *bound) {
  double least, inverse, most = 0, off = 0, top = fabs(scores->top), n = (double)s->count + 1;
  *sum = h->problem->score.sink ? h->problem->score.sink[h->head] : -(double)INFINITY;
  *bound = isinf(*sum) ? 0 : 2 * r->unit * fabs(*sum); /* a sink is rounded to the tensors' precision */
  if (s->count == 0) return ROW_OK;
  row_verdict verdict = row_slacks(h, r, false, 0, scores, s, &least, &inverse);
  if (verdict != ROW_OK) return verdict;
  most = s->sink;
  off = s->sink * above(s->sink_slack);
  for (int64_t a = 0; a < s->count; a++) {
    most = fmax(most, s->weight[a]);
    off += s->weight[a] * above(s->slack[a]);
  }
  double chain = gamma_of(r->sum, r->unit) + 2 * n * format_of(h->problem->dtype).tiny * exp(least),
         own = gamma_of(h->problem->d_qk + s->count + 8, 0x1p-53);
  if (!(chain < 1)) return ROW_LOOSE;
  *sum = scores->top - log(most); /* the largest weight is e^0 over the sum */
  *bound = log1p(off) - log1p(-chain) + own * (1 + fabs(h->problem->scale) * scores->size) +
           0x1p-49 * (1 + top + log(n) + scores->bias);
  return ROW_OK;
}

row_verdict row_error(const head_data *h, const attn_rounding *r, bool ordered, const double *moved,
                      double lambda, const row_extremes *scores, row_space *s, double *bound) {
  int64_t d_v = h->problem->d_v;
  format f = format_of(h->problem->dtype);
  double growth = value_growth(r, lambda), least, inverse;
  memset(bound, 0, (size_t)d_v * sizeof *bound);
  if (s->count == 0) return ROW_OK;
  row_verdict verdict = row_slacks(h, r, ordered, lambda, scores, s, &least, &inverse);
  if (verdict != ROW_OK) return verdict;
  for (int64_t a = 0; a < s->count; a++) {
    const double *v = h->v + s->index[a] * d_v;
    double off = s->weight[a] * above(s->slack[a]), on = growth * (s->weight[a] + off);
    for (int64_t l = 0; l < d_v; l++) bound[l] += off * fabs(v[l] - s->o[l]) + on * fabs(v[l]);
  }
  for (int64_t l = 0; l < d_v; l++) bound[l] += s->sink * above(s->sink_slack) * fabs(s->o[l]);
  attn_rounding own = row_reference_rounding(h->problem, s->count);
  prior reference;
  head_data wide = *h;
  if (moved) wide.k_max += vector_norm(moved, h->problem->d_qk);
  verdict =
      row_apriori_bound(&wide, &own, vector_norm(s->q, h->problem->d_qk), scores->bias, s->count, &reference);
  if (verdict != ROW_OK) return verdict;
  double flushed = 2 * (double)s->count * f.tiny * exp(least);
  double lost = products_lost(h, r, s->count) * exp(least) + reference.floor;
  for (int64_t l = 0; l < d_v; l++) {
    double range = row_range(h, l), size = fmax(fabs(h->high[l]), fabs(h->low[l]));
    bound[l] =
        bound[l] / inverse + flushed * range + lost + reference.spread * range + reference.growth * size;
  }
  return ROW_OK;
}

row_verdict row_bound(const head_data *h, const attn_rounding *r, bool ordered, const double *moved,
                      row_space *s) {
  row_extremes scores;
  memset(s->bound, 0, (size_t)h->problem->d_v * sizeof *s->bound);
  row_verdict verdict = row_attend(h, moved, s, &scores);
  return verdict == ROW_OK ? row_error(h, r, ordered, moved, 0, &scores, s, s->bound) : verdict;
}
