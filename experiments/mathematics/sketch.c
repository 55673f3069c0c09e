/* sketch.c - the mean error of a projected product.
 *
 * With A rows of exact weights, B = V, X = sum_i |A_:i|^2 |B_i:|^2, the mean of |A E^T F B - A B|^2 is
 *   gaussian    F = E: (|A|^2 |B|^2 + |AB|^2) / k                      E, F apart: |AB|^2 + |A|^2 |B|^2 / k
 *   rademacher  F = E: (|A|^2 |B|^2 + |AB|^2 - 2X) / k                 E, F apart: the same
 *   srht        F = E: (N-k) / (k (N-1)) (|A|^2 |B|^2 + |AB|^2 - 2X), N the order of the transform, zeros
 *               appended
 *   dct         F = E: (n-k) / (k (n-1)) (n tau - |AB|^2), tau = sum over rows a of A and columns b of B of
 *               a2' G b2 + 2 (ab)' G (ab) - 2 sum_i G_ii a_i^2 b_i^2, G_ij = (n-1)/n^2 + ([i=j] + [j=n-1-i])
 *                 / 2n
 *   srht, dct   E, F apart, T = H of order N or C of order n: |AB|^2 + (|A|^2 |B|^2 + (k-1) sum_i A2_i g_i
 *               sum_i B2_i g_i)
 *               / k, A2_i = |A_:i|^2, B2_i = |B_i:|^2, g_i = ((sum_r T_ri)^2 - 1) / (order - 1): two rows r,
 *                 s drawn without
 *               replacement have E T_ri T_si = g_i / order. g_0 = 1 for H, whose first column is constant: a
 *                 sink at
 *               the first key costs separate transforms their averaging. */
#include "experiments/mathematics/sketch.h"

#include <math.h>
#include <stdlib.h>

void sketch_free(sketch *s) {
  free(s->product);
  s->product = NULL;
}

/* g_i of the transform. The sum of column i of C is (1 + sqrt(1/2) ((-1)^i cot(t/2) - 1)) / sqrt(n), t = pi
 * (2i+1) / 2n, by the closed form of sum_r cos(r t). */
static double column_gain(const sketch *s, int64_t i) {
  double n = (double)s->n, order = 1;
  if (s->law != ATTN_PROJECTION_DCT) {
    while (order < n) order *= 2;
    return i == 0 ? 1 : -1 / (order - 1);
  }
  double half = acos(-1) * (2 * (double)i + 1) / (4 * n);
  double sum = (1 + sqrt(0.5) * ((i % 2 ? -1 : 1) / tan(half) - 1)) / sqrt(n);
  return n > 1 ? (sum * sum - 1) / (n - 1) : 1;
}

/* Squares of the columns of A and of the rows of V, and the sums of the formulas. */
attn_status sketch_measure(sketch *s) {
  double *a2 = calloc((size_t)s->n, sizeof *a2), *v2 = calloc((size_t)s->n, sizeof *v2);
  attn_status status = a2 && v2 ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for the squares of weights");
  for (int64_t i = 0; i < s->n && !status; i++) {
    for (int64_t r = 0; r < s->rows; r++) a2[i] += s->a[r][i] * s->a[r][i];
    for (int64_t l = 0; l < s->d_v; l++) v2[i] += s->v[i * s->d_v + l] * s->v[i * s->d_v + l];
    s->a_norm += a2[i];
    s->v_norm += v2[i];
    s->cross += a2[i] * v2[i];
    s->a_gain += a2[i] * column_gain(s, i);
    s->v_gain += v2[i] * column_gain(s, i);
  }
  for (int64_t i = 0; i < s->n && !status; i++) {
    int64_t other = s->n - 1 - i;
    double a = 0, v = 0;
    for (int64_t r = 0; r < s->rows; r++) a += s->a[r][i] * s->a[r][other];
    for (int64_t l = 0; l < s->d_v; l++) v += s->v[i * s->d_v + l] * s->v[other * s->d_v + l];
    s->mirrored += a * v;
    s->reflected += a2[i] * v2[other];
    if (i == other) s->middle += a2[i] * v2[i];
  }
  for (int64_t i = 0; i < s->rows * s->d_v; i++) s->product_norm += s->product[i] * s->product[i];
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

double sketch_mean(const sketch *s, double k) {
  double both = s->a_norm * s->v_norm, order = 1;
  bool dense = s->law == ATTN_PROJECTION_GAUSSIAN || s->law == ATTN_PROJECTION_RADEMACHER;
  while (order < (double)s->n) order *= 2;
  if (!s->shared) return s->product_norm + (both + (dense ? 0 : (k - 1) * s->a_gain * s->v_gain)) / k;
  if (s->law == ATTN_PROJECTION_GAUSSIAN) return (both + s->product_norm) / k;
  if (s->law == ATTN_PROJECTION_RADEMACHER) return (both + s->product_norm - 2 * s->cross) / k;
  if (s->law == ATTN_PROJECTION_SRHT) return drawn(order, k) * (both + s->product_norm - 2 * s->cross);
  return drawn((double)s->n, k) * dct_spread(s);
}

const char *sketch_missing(const attn_projection *projection) {
  if (!projection) return "no projection";
  if (projection->law == ATTN_PROJECTION_UNKNOWN)
    return "the variant describes no law of its projection: nothing to hold it against";
  return projection->law == ATTN_PROJECTION_AVERAGES ? "the projection is not random" : NULL;
}
