/* taylor.c - TAY-1 and AS-1: Taylor polynomials T_g(s) = sum_(r <= g) s^r / r! in the place of e^s.
 *
 * TAY-1. Weights p'_j proportional to p_j e^eta_j, with eta_j = ln T_g(s_j) - s_j in a range of length L, are
 * no further from p than tanh(L/4) in total variation: the ratios p'_j / p_j lie in [a, a e^L] for some a <=
 * 1, and with m the mass of p where the ratio exceeds 1 the variation is at most the largest of (r - 1) m
 * under 1 = r m + r e^-L (1 - m), which is (e^(L/2) - 1) / (e^(L/2) + 1), at m = 1 / (e^(L/2) + 1). An output
 * moves by that times the diameter of V. T_2(s) = ((s + 1)^2 + 1) / 2 >= 1/2, so of degree 2 L always exists;
 * of degree 1 rows with a score of -1 or less have none. No feature enters L, which is wide where scores are:
 * beyond |s| = 3 or so every output in the hull passes.
 *
 * AS-1. The relative error of T_g on [-B, B] is largest at -B: Taylor's remainder over e^s is s^(g+1) / g!
 * times the integral of (1 - t)^g e^(-(1 - t) s) over 0 <= t <= 1, whose terms grow with -s. Its integral at
 * -B is the series
 *   B^(g+1) / g! sum_k B^k / (k! (g + k + 1)),
 * and features of the polynomial in d coordinates are the C(d + g, g) monomials up to degree g. */
#include "experiments/checks/check_table.h"

#include "experiments/evidence/rows.h"
#include "experiments/evidence/probe.h"
#include "experiments/mathematics/vector.h"

#include <math.h>

enum { ROWS = 8 };

typedef struct taylor_case {
  const probe *p;
  double range[ROWS], largest[ROWS]; /* L and max |s| */
} taylor_case;

static double polynomial(int64_t degree, double s) {
  double sum = 1, term = 1;
  for (int64_t r = 1; r <= degree; r++) sum += term *= s / (double)r;
  return sum;
}

/* L of the row; NaN where the polynomial is not positive. */
static double range_of(const taylor_case *c, row_space *s, double *largest) {
  const attn_problem *x = &c->p->problem;
  const int64_t degree = c->p->view.features->law.degree;
  double low = (double)INFINITY, high = -(double)INFINITY;
  for (int64_t a = 0; a < s->count; a++) {
    const double score = x->scale * vector_dot(s->q, c->p->head.k + s->index[a] * x->d_qk, x->d_qk);
    const double value = polynomial(degree, score), eta = log(value) - score;
    *largest = fmax(*largest, fabs(score));
    if (!(value > 0)) return (double)NAN;
    low = fmin(low, eta);
    high = fmax(high, eta);
  }
  return high - low;
}

static outcome judge_row(void *context, int64_t place, int64_t row, row_space *s) {
  taylor_case *c = context;
  const int64_t d_v = c->p->problem.d_v;
  row_verdict verdict = probe_kernel(c->p, ATTN_F64, row, s);
  double rounding = vector_norm(s->bound, d_v), error = 0;
  if (verdict == ROW_OK && s->count == 0) return (outcome){vector_norm(s->given, d_v), 0, NULL};
  const double range = c->range[place] = range_of(c, s, &c->largest[place]);
  if (verdict == ROW_OK) verdict = probe_exact(c->p, row, s, &error);
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  if (isnan(range)) return (outcome){.why = "the polynomial is not positive at a score of the row"};
  return (outcome){vector_distance(s->given, s->o, d_v),
                   tanh(range / 4) * c->p->head.diameter + rounding + error, NULL};
}

static attn_status taylor_evaluate(const evidence *e, result_bound *bound) {
  probe *p;
  taylor_case c = {.range = {0}};
  double range = 0, largest = 0;
  attn_status status = probe_get(e, &p);
  c.p = p;
  if (!status) status = probe_check(p, ROWS, judge_row, &c, bound);
  for (int r = 0; r < ROWS; r++) {
    range = fmax(range, c.range[r]);
    largest = fmax(largest, c.largest[r]);
  }
  if (!status && (bound->verdict == VERDICT_PASS || bound->verdict == VERDICT_VIOLATED))
    bound_say(bound, "L up to %.3g at scores up to %.3g: tanh(L/4) = %.3g", range, largest, tanh(range / 4));
  return status;
}

/* -- AS-1 -- */

/* Beyond it the numbers of features have no meaning. */
static const double score_most = 300;
static const double tolerated = 0.1;

static double relative_error(int64_t g, double b) {
  double sum = 0, term = 1;
  for (int64_t k = 0; k < 10000; k++, term *= b / (double)k) {
    const double more = term / (double)(g + k + 1);
    sum += more;
    if ((double)k > b && more < 1e-17 * sum) break;
  }
  return b > 0 ? exp((double)(g + 1) * log(b) - lgamma((double)(g + 1))) * sum : 0;
}

static attn_status columns_evaluate(const evidence *e, result_bound *bound) {
  probe *p;
  attn_status status = probe_get(e, &p);
  if (status) return status;
  const attn_problem *x = &p->problem;
  double b = 0;
  for (int64_t r = 0; r < x->n_q; r++)
    for (int64_t j = 0; j < p->head.keys; j++)
      b = fmax(b, fabs(x->scale *
                       vector_dot((const double *)p->q + r * x->d_qk, p->head.k + j * x->d_qk, x->d_qk)));
  if (!p->head.finite || !(b <= score_most))
    return bound_uncertifiable(bound, "scores beyond 300: no polynomial that could be stored");
  int64_t g = 0;
  const double d = (double)x->d_qk;
  while (relative_error(g, b) > tolerated) g++;
  bound_report(bound, exp(lgamma(d + (double)g + 1) - lgamma(d + 1) - lgamma((double)g + 1)),
               (double)p->view.features->columns);
  bound_say(bound, "degree %lld for scores up to %.3g", (long long)g, b);
  return ATTN_OK;
}

const check check_tay1 = {
    .name = "TAY-1",
    .of = &of_taylor,
    .kind = KIND_HARD,
    .statement = "the fp64 error of a row is at most tanh(L/4) Delta_V, L the range of ln of the polynomial "
                 "over e^s at its exact scores",
    .source = "derived: total variation of two weightings whose log ratio has range L",
    .formula =
        "|o~ - o| <= tanh(L/4) Delta_V, L = max_j - min_j of ln T_g(s_j) - s_j, T_g(s) = sum_(r <= g) s^r / "
        "r!, s_j = c q.k_j, Delta_V = 2 max_j |v_j - mean V|; plus rounding. T_2 >= 1/2, and |e^s - T_2(s)| "
        "<= e^max(s,0) |s|^3 / 6, so that L is small where all scores are; over up to 8 rows.",
    .assumes = "The polynomial is positive at every score of the row (always of degree 2); in fp64 on a "
               "probe. Scores beyond 3 or so leave no more than the diameter of V.",
    .nulls = CHECK_REJECTS_ALL("Gaussian inputs of std 0.3, d = 16, degree 2; blind where scores are large"),
    .evaluate = taylor_evaluate,
};

const check check_as1 = {
    .name = "AS-1",
    .of = &of_taylor,
    .kind = KIND_REPORT,
    .statement =
        "number of features of a Taylor polynomial that is within 10 % of e^s at the scores of this run",
    .source = "Alman and Song 2023, arXiv:2302.13214, as recalled: polynomials of low degree suffice if "
              "scores are o(sqrt(log n)), and under SETH only then",
    .formula = "C(d + g, g), g the least degree with |T_g(s) / e^s - 1| <= 0.1 for all |s| <= B, that is at "
               "-B: B^(g+1) / g! sum_k B^k / (k! (g + k + 1)) <= 0.1; B the largest |c q.k| of the probe. "
               "value: the features that the variant has.",
    .assumes = "Scores up to 300.",
    .nulls = CHECK_BLIND("a number that follows from Q and K"),
    .evaluate = columns_evaluate,
};
