/* sketch.c - LIN-1: the error of a random projection on this very product of weights and values.
 *
 * With A rows of exact weights, B = V, X = sum_i |A_:i|^2 |B_i:|^2, the mean of |A E^T F B - A B|^2 is
 *   gaussian    F = E: (|A|^2 |B|^2 + |AB|^2) / k                      E, F apart: |AB|^2 + |A|^2 |B|^2 / k
 *   rademacher  F = E: (|A|^2 |B|^2 + |AB|^2 - 2X) / k                 E, F apart: the same
 *   srht        F = E: (N-k) / (k (N-1)) (|A|^2 |B|^2 + |AB|^2 - 2X), N the order of the transform, zeros appended
 *   dct         F = E: (n-k) / (k (n-1)) (n tau - |AB|^2), tau = sum over rows a of A and columns b of B of
 *               a2' G b2 + 2 (ab)' G (ab) - 2 sum_i G_ii a_i^2 b_i^2, G_ij = (n-1)/n^2 + ([i=j] + [j=n-1-i]) / 2n
 *   srht, dct   E, F apart, T = H of order N or C of order n: |AB|^2 + (|A|^2 |B|^2 + (k-1) sum_i A2_i g_i sum_i B2_i g_i)
 *               / k, A2_i = |A_:i|^2, B2_i = |B_i:|^2, g_i = ((sum_r T_ri)^2 - 1) / (order - 1): two rows r, s drawn without
 *               replacement have E T_ri T_si = g_i / order. g_0 = 1 for H, whose first column is constant: a sink at
 *               the first key costs separate transforms their averaging.
 * One run is judged by Markov's inequality: p = mean / error^2. It sees the projection, not the output: blind to zeros
 * (whose error |AB|^2 is below the mean as a rule), to the mean of V and to random keys. */
#include "checks/probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct sketch {
  int64_t rows, n, keys, d_v, k;       /* rows of A; n columns, of which keys exist */
  const double *const *a;              /* [rows] of n weights */
  const double *v;                     /* [n, d_v] */
  bool cosine;                         /* the transform is C, not H */
  double a_norm, v_norm, product_norm; /* |A|^2 |B|^2 |AB|^2 */
  double cross, middle;                /* X, and its part where i = n-1-i */
  double mirrored, reflected;          /* sum_i A_:i.A_:m B_i:.B_m: and sum_i A2_i B2_m, m = n-1-i */
  double a_gain, v_gain;               /* sum_i A2_i g_i and sum_i B2_i g_i */
} sketch;

/* g_i of the transform. The sum of column i of C is (1 + sqrt(1/2) ((-1)^i cot(t/2) - 1)) / sqrt(n), t = pi (2i+1) / 2n,
 * by the closed form of sum_r cos(r t). */
static double column_gain(const sketch *s, int64_t i) {
  double n = (double)s->n, order = 1;
  if (!s->cosine) {
    while (order < n) order *= 2;
    return i == 0 ? 1 : -1 / (order - 1);
  }
  double half = acos(-1) * (2 * (double)i + 1) / (4 * n);
  double sum = (1 + sqrt(0.5) * ((i % 2 ? -1 : 1) / tan(half) - 1)) / sqrt(n);
  return n > 1 ? (sum * sum - 1) / (n - 1) : 1;
}

/* Squares of the columns of A and of the rows of V, and the sums of the formulas. */
static attn_status sketch_measure(sketch *s, const double *product) {
  double *a2 = calloc((size_t)s->n, sizeof *a2), *v2 = calloc((size_t)s->n, sizeof *v2);
  attn_status status = a2 && v2 ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for the squares of weights");
  for (int64_t i = 0; i < s->n && status == ATTN_OK; i++) {
    for (int64_t r = 0; r < s->rows; r++) a2[i] += s->a[r][i] * s->a[r][i];
    for (int64_t l = 0; l < s->d_v; l++) v2[i] += s->v[i * s->d_v + l] * s->v[i * s->d_v + l];
    s->a_norm += a2[i];
    s->v_norm += v2[i];
    s->cross += a2[i] * v2[i];
    s->a_gain += a2[i] * column_gain(s, i);
    s->v_gain += v2[i] * column_gain(s, i);
  }
  for (int64_t i = 0; i < s->n && status == ATTN_OK; i++) {
    int64_t other = s->n - 1 - i;
    double a = 0, v = 0;
    for (int64_t r = 0; r < s->rows; r++) a += s->a[r][i] * s->a[r][other];
    for (int64_t l = 0; l < s->d_v; l++) v += s->v[i * s->d_v + l] * s->v[other * s->d_v + l];
    s->mirrored += a * v;
    s->reflected += a2[i] * v2[other];
    if (i == other) s->middle += a2[i] * v2[i];
  }
  for (int64_t i = 0; i < s->rows * s->d_v; i++) s->product_norm += product[i] * product[i];
  free(a2);
  free(v2);
  return status;
}

/* sum over all pairs of n tau - (a.b)^2 */
static double dct_spread(const sketch *s) {
  double n = (double)s->n, flat = (n - 1) / (n * n), both = s->a_norm * s->v_norm;
  double squares = flat * both + (s->cross + s->reflected) / (2 * n);
  double products = 2 * (flat * s->product_norm + (s->cross + s->mirrored) / (2 * n));
  double diagonal = 2 * ((flat + 1 / (2 * n)) * s->cross + s->middle / (2 * n));
  return n * (squares + products - diagonal) - s->product_norm;
}

/* (order - k) / (k (order - 1)): what is left to chance by rows drawn without replacement. */
static double drawn(double order, double k) { return order > 1 ? (order - k) / (k * (order - 1)) : 0; }

/* The mean square error. */
static double sketch_mean(const sketch *s, const char *kind, bool shared) {
  double k = (double)s->k, both = s->a_norm * s->v_norm, order = 1;
  bool dense = strcmp(kind, "gaussian") == 0 || strcmp(kind, "rademacher") == 0;
  while (order < (double)s->n) order *= 2;
  if (!shared) return s->product_norm + (both + (dense ? 0 : (k - 1) * s->a_gain * s->v_gain)) / k;
  if (strcmp(kind, "gaussian") == 0) return (both + s->product_norm) / k;
  if (strcmp(kind, "rademacher") == 0) return (both + s->product_norm - 2 * s->cross) / k;
  if (strcmp(kind, "srht") == 0) return drawn(order, k) * (both + s->product_norm - 2 * s->cross);
  return drawn((double)s->n, k) * dct_spread(s);
}

/* |A E^T F B - A B|^2. The rows of A are projected d_qk at a time, as keys are. */
static attn_status sketch_error(const probe *p, const sketch *s, const double *product, double *out) {
  int64_t d = p->problem.d_qk, used = 0;
  double *x = malloc((size_t)(s->n * d) * sizeof *x), *ea = malloc((size_t)(s->k * d) * sizeof *ea);
  double *fv = malloc((size_t)(s->k * s->d_v) * sizeof *fv), error = 0;
  attn_status status = x && ea && fv ? probe_project(p, ATTN_VALUE, s->v, s->d_v, fv, &used)
                                     : attn_fail(ATTN_ENOMEM, "no memory to project weights");
  for (int64_t first = 0; first < s->rows && status == ATTN_OK; first += d) {
    for (int64_t i = 0; i < s->n; i++)
      for (int64_t c = 0; c < d; c++) x[i * d + c] = first + c < s->rows ? s->a[first + c][i] : 0;
    status = probe_project(p, ATTN_KEY, x, d, ea, &used);
    for (int64_t c = 0; c < d && first + c < s->rows && status == ATTN_OK; c++)
      for (int64_t l = 0; l < s->d_v; l++) {
        double sum = -product[(first + c) * s->d_v + l];
        for (int64_t t = 0; t < s->k; t++) sum += ea[t * d + c] * fv[t * s->d_v + l];
        error += sum * sum;
      }
  }
  free(x);
  free(ea);
  free(fv);
  *out = error;
  return status;
}

/* Up to 64 rows of head 0 of batch 0. */
enum { ROWS = 64 };

static attn_status sketch_judge(const evidence *e, const probe *p, const char *kind, bool shared,
                                result_bound *bound) {
  const exact_rows *x = e->exact;
  const double *rows[ROWS];
  int64_t n = p->problem.n_kv, d_v = p->problem.d_v, have = 0;
  while (have < x->count && x->rows[have].batch == 0 && x->rows[have].head == 0) have++;
  sketch s = {.rows = have < ROWS ? have : ROWS,
              .n = n,
              .keys = p->head.keys,
              .d_v = d_v,
              .k = p->view.projection->slots};
  double *product = calloc((size_t)(ROWS * d_v), sizeof *product), error = 0;
  if (!product) return attn_fail(ATTN_ENOMEM, "no memory for the product of a sketch");
  for (int64_t r = 0; r < s.rows; r++) {
    int64_t at = r * have / s.rows;
    rows[r] = x->p + at * n;
    memcpy(product + r * d_v, x->o + at * d_v, (size_t)d_v * sizeof *product);
  }
  s.a = rows;
  s.cosine = strcmp(kind, "dct") == 0;
  s.v = p->head.v;
  attn_status status = sketch_measure(&s, product);
  if (status == ATTN_OK) status = sketch_error(p, &s, product, &error);
  free(product);
  if (status != ATTN_OK) return status;
  double mean = sketch_mean(&s, kind, shared);
  /* fp64 rounding of the projections, each entry at most sqrt(N/k): all that is left at k = n. */
  double rounding = gamma_of(n + s.k + 64, 0x1p-53) * 4 * (double)n * sqrt(s.a_norm * s.v_norm);
  double root = sqrt(mean) + rounding;
  bound_prob(bound, error, root * root, error > 0 ? fmin(1, root * root / error) : 1);
  return ATTN_OK;
}

static attn_status sketch_evaluate(const evidence *e, result_bound *bound) {
  char kind[32] = "", share[32] = "";
  static const char *const known[] = {"gaussian", "rademacher", "srht", "dct"};
  bool has_mean = false;
  if (e->view->projection && plan_param(e->plan, "projection", NULL, kind, sizeof kind))
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) has_mean |= strcmp(kind, known[i]) == 0;
  if (!has_mean) {
    bound_not_applicable(bound, "no random projection of a known kind");
    return ATTN_OK;
  }
  plan_param(e->plan, "share", NULL, share, sizeof share);
  probe *p;
  attn_status status = probe_get(e, &p);
  if (status != ATTN_OK) return status;
  if (!p->head.finite) {
    bound_uncertifiable(bound, row_reason(ROW_INFINITE));
    return ATTN_OK;
  }
  return sketch_judge(e, p, kind, strcmp(share, "none") != 0, bound);
}

const check check_lin1 = {
    .name = "LIN-1",
    .kind = KIND_PROB,
    .statement = "the squared error of the projected product exceeds its exact mean by a factor t with "
                 "probability 1/t",
    .source =
        "derived: Isserlis, sign pairings, finite-population variance, with Markov; blind to the output",
    .formula = "For A exact weights, B = V, E and F of k rows, X = sum_i |A_:i|^2 |B_i:|^2, the mean of |A "
               "E' F B - A B|^2 "
               "is: F = E gaussian: (|A|^2 |B|^2 + |AB|^2) / k; rademacher: less 2X / k; srht of order N: "
               "(N-k) / (k (N-1)) "
               "times (|A|^2 |B|^2 + |AB|^2 - 2X); dct: (n-k) / (k (n-1)) (n tau - |AB|^2), tau = sum over "
               "rows a of A and "
               "columns b of B of a2' G b2 + 2 (ab)' G (ab) - 2 sum_i G_ii a_i^2 b_i^2, elementwise, G_ij = "
               "(n-1)/n^2 + "
               "([i=j] + [j=n-1-i]) / 2n. E and F apart: gaussian and rademacher |AB|^2 + |A|^2 |B|^2 / k; "
               "srht and dct "
               "|AB|^2 + (|A|^2 |B|^2 + (k-1) sum_i |A_:i|^2 g_i sum_i |B_i:|^2 g_i) / k, g_i = ((sum_r "
               "T_ri)^2 - 1) / "
               "(order - 1) of the transform T. p = mean / error^2.",
    .assumes = "A random projection whose law is known (gaussian, rademacher, srht, dct); not causal.",
    .nulls =
        CHECK_BLIND("the projected product is computed from the projection itself; no output is looked at"),
    .evaluate = sketch_evaluate,
};
