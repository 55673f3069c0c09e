/* certify.c - RS-2 and RS-3: see certify.h.
 *
 * RS-2. Of s of n values in [0, b] drawn without replacement, with standard deviation sigma (divisor s), with
 * probability 1 - delta
 *   |mean - mu| <= sigma sqrt(2 rho ln(10/delta) / s) + (7/3 + 3/sqrt 2) b ln(10/delta) / s,
 *   rho = 1 - (s-1)/n for s <= n/2, else (1 - s/n)(1 + 1/s).
 * With H strata each takes delta = alpha/H. Four rows a stratum leave this above b itself, so that it
 * competes with Hoeffding's inequality for the stratified mean, sums without replacement being no wider than
 * with it (Hoeffding 1963, Thm 4): |mean - mu| <= sqrt(ln(2/delta)/2 sum_h (w_h b_h)^2 / s_h), w_h = n_h / n.
 *
 * b is what bounds |o^_i - o_i|^2 of every row of a stratum, drawn or not: the hull of V, which holds o_i
 * whatever the algorithm is. What an algorithm claims of itself (FP-3, for one that says it is exact) is not
 * used: that claim is what the certificate is to judge. The mean of |o_i|^2 is estimated likewise, or bounded
 * by that of the output: |O|_F >=
 * |O^|_F - |O^ - O|_F.
 *
 * RS-3. If a fraction f of all rows exceeds the sampled maximum, none of them was drawn, which has
 * probability prod_h (1 - f_h)^s_h <= (1 - sum_h f_h s_h / s)^s <= (1 - rho f)^s, rho = min_h (s_h / n_h) /
 * (s / n). */
#include "experiments/evidence/certify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double serfling(const certify_stratum *h, double delta) {
  double s = (double)h->count, n = h->size, logs = log(10 / delta);
  double rho = 2 * s <= n ? 1 - (s - 1) / n : (1 - s / n) * (1 + 1 / s);
  return h->spread * sqrt(2 * rho * logs / s) + (7.0 / 3 + 3 / sqrt(2)) * h->bound * logs / s;
}

double certify_half_width(const certify_stratum *strata, int64_t count, double alpha) {
  double total = 0, each = 0, squares = 0, sampled = 0;
  for (int64_t h = 0; h < count; h++) {
    total += strata[h].size;
    sampled += (double)strata[h].count < strata[h].size;
  }
  for (int64_t h = 0; h < count; h++) {
    double weight = strata[h].size / total, range = weight * strata[h].bound;
    if (!((double)strata[h].count < strata[h].size)) continue;
    each += weight * serfling(&strata[h], alpha / 2 / sampled);
    squares += range * range / (double)strata[h].count;
  }
  return fmin(each, sqrt(log(2 / (alpha / 2)) / 2 * squares));
}

double certify_tail(const attn_problem *p, const exact_rows *x, int64_t last, double alpha) {
  double rows = 0, drawn = (double)last, least = (double)INFINITY;
  for (stratum h = {0}; h.first + h.count < last && stratum_next(p, x, &h);) {
    rows += h.size;
    least = fmin(least, (double)h.count / h.size);
  }
  if (!(drawn < rows)) return 0;
  return fmin(1, (1 - pow(alpha, 1 / drawn)) * (drawn / rows) / least);
}

/* -- the squares -- */

/* What bounds the rows of a head: values with their mean and the largest distance from it and from 0. */
typedef struct cloud {
  double *mean; /* [d_v] */
  double radius, size;
  double output; /* sum of |o^_i|^2 over the rows seen so far */
} cloud;

static void cloud_measure(const evidence *e, int64_t batch, int64_t head, cloud *out) {
  const attn_problem *p = e->problem;
  int64_t keys = evidence_keys(e, batch), d = p->d_v;
  int64_t at = (batch * p->kv_heads + head / (p->heads / p->kv_heads)) * p->n_kv * d;
  double far = 0, size = 0;
  memset(out->mean, 0, (size_t)d * sizeof *out->mean);
  for (int64_t j = 0; j < keys; j++)
    for (int64_t l = 0; l < d; l++) out->mean[l] += attn_get(e->v, at + j * d + l, p->dtype);
  for (int64_t l = 0; l < d; l++) out->mean[l] /= (double)keys;
  for (int64_t j = 0; j < keys; j++) {
    double distance = 0, norm = 0;
    for (int64_t l = 0; l < d; l++) {
      double v = attn_get(e->v, at + j * d + l, p->dtype), x = v - out->mean[l];
      distance += x * x;
      norm += v * v;
    }
    far = fmax(far, distance);
    size = fmax(size, norm);
  }
  out->radius = sqrt(far);
  out->size = size;
}

/* The largest |o^_i - o_i|^2 that rows first ... last of a head can have: o_i lies in the hull of V, or is 0.
 * NaN if one of them is. */
static double square_limit(const evidence *e, cloud *c, int64_t line, int64_t first, int64_t last) {
  const attn_problem *p = e->problem;
  double limit = 0;
  for (int64_t i = first; i < last; i++) {
    double distance = 0, norm = 0;
    for (int64_t l = 0; l < p->d_v; l++) {
      double o = attn_get(e->o, (line * p->n_q + i) * p->d_v + l, p->dtype), x = o - c->mean[l];
      distance += x * x;
      norm += o * o;
    }
    double reach = sqrt(distance) + c->radius, square = fmax(reach * reach, norm);
    if (!isnan(limit) && !(square <= limit)) limit = square;
    c->output += norm;
  }
  return limit;
}

static certify_stratum summarise(const stratum *h, const double *values, double bound) {
  certify_stratum out = {.size = h->size, .count = h->count, .bound = bound};
  for (int64_t r = h->first; r < h->first + h->count; r++) out.mean += values[r] / (double)h->count;
  for (int64_t r = h->first; r < h->first + h->count; r++)
    out.spread += (values[r] - out.mean) * (values[r] - out.mean) / (double)h->count;
  out.spread = sqrt(out.spread);
  return out;
}

/* Over all rows, of the means or of the bounds. */
static double mean_of(const certify_stratum *strata, int64_t count, bool bounds) {
  double sum = 0, total = 0;
  for (int64_t h = 0; h < count; h++) {
    sum += strata[h].size * (bounds ? strata[h].bound : strata[h].mean);
    total += strata[h].size;
  }
  return sum / total;
}

/* Fills one stratum after the other of both means; returns how many. */
static int64_t strata_fill(const evidence *e, const double *squares, const double *references, cloud *c,
                           certify_stratum *above, certify_stratum *below) {
  const attn_problem *p = e->problem;
  const exact_rows *x = e->exact;
  const sampling design = x->design;
  int64_t count = 0, line = -1;
  for (stratum h = {0}; stratum_next(p, x, &h); count++) {
    const sample_row *row = &x->rows[h.first];
    int64_t bin = sampling_bin(&design, p->n_q, row->i), own = row->batch * p->heads + row->head;
    if (own != line) cloud_measure(e, row->batch, row->head, c);
    line = own;
    double limit = square_limit(e, c, line, sampling_start(&design, p->n_q, bin),
                                sampling_start(&design, p->n_q, bin + 1));
    above[count] = summarise(&h, squares, limit);
    below[count] = summarise(&h, references, c->size);
  }
  return count;
}

certified certify_frobenius(const evidence *e, const double *squares, const double *references) {
  certified out = {(double)NAN, (double)NAN};
  const attn_problem *p = e->problem;
  size_t rows = (size_t)e->exact->count;
  cloud c = {.mean = e->v ? malloc((size_t)p->d_v * sizeof *c.mean) : NULL};
  certify_stratum *above = malloc((2 * rows + 1) * sizeof *above), *below = above ? above + rows : NULL;
  int64_t count = c.mean && above ? strata_fill(e, squares, references, &c, above, below) : 0;
  double limit = count > 0 ? mean_of(above, count, true) : (double)NAN;
  if (!isnan(limit)) {
    double x = mean_of(above, count, false), y = mean_of(below, count, false);
    double x_half = certify_half_width(above, count, CERTIFY_ALPHA / 2),
           y_half = certify_half_width(below, count, CERTIFY_ALPHA / 2);
    double most = fmin(x + x_half, limit), whole = sqrt(c.output / (double)(p->batch * p->heads * p->n_q));
    double least = fmax(y > y_half ? sqrt(y - y_half) : 0, whole - sqrt(most));
    out.lo = x < x_half ? 0 : sqrt((x - x_half) / (y + y_half));
    out.hi = least > 0 ? sqrt(most) / least : (double)INFINITY;
  }
  free(c.mean);
  free(above);
  return out;
}
