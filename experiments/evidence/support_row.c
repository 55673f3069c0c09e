/* support_row.c - rows of attention in fp64 on their support; how far rounding takes computed ones is in
 * rounding/row_bound.c. */
#include "experiments/evidence/support_row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/reference/transform.h"
#include "experiments/reference/visible.h"

void row_widen(const void *at, attn_dtype type, int64_t offset, int64_t d, double *out) {
  attn_numbers[type].load(attn_at(at, offset, type), d, out);
}

int64_t row_offset(const attn_problem *p, const sample_row *row, int64_t d) {
  return ((row->batch * p->heads + row->head) * p->n_q + row->i) * d;
}

/* -- a row -- */

attn_status row_space_make(const attn_problem *p, const attn_pattern *pattern, row_space *out) {
  row_space s = {.i = 0};
  region *m = &s.memory;
  s.q = region_zeros(m, p->d_qk, sizeof *s.q);
  s.o = region_zeros(m, p->d_v, sizeof *s.o);
  s.bound = region_zeros(m, p->d_v, sizeof *s.bound);
  s.given = region_zeros(m, p->d_v, sizeof *s.given);
  s.kept = region_zeros(m, p->d_v, sizeof *s.kept);
  s.left = region_zeros(m, p->d_v, sizeof *s.left);
  s.center = region_zeros(m, p->d_qk, sizeof *s.center);
  s.score = region_zeros(m, p->n_kv, sizeof *s.score);
  s.size = region_zeros(m, p->n_kv, sizeof *s.size);
  s.units = region_zeros(m, p->n_kv, sizeof *s.units);
  s.map = region_zeros(m, p->n_kv, sizeof *s.map);
  s.log_weight = region_zeros(m, p->n_kv, sizeof *s.log_weight);
  s.weight = region_zeros(m, p->n_kv, sizeof *s.weight);
  s.slack = region_zeros(m, p->n_kv, sizeof *s.slack);
  s.index = region_zeros(m, p->n_kv, sizeof *s.index);
  s.inside = region_zeros(m, p->n_kv, sizeof *s.inside);
  s.runs = region_zeros(m, visible_most_runs(pattern, p), sizeof *s.runs);
  const attn_status status = region_status(m, "for one row");
  if (status) region_free(m);
  *out = s;
  return status;
}

void row_space_free(row_space *s) {
  region_free(&s->memory);
  *s = (row_space){0};
}

void row_support(const head_data *h, const attn_pattern *pattern, int64_t i, row_space *s) {
  s->i = i;
  s->count = 0;
  visible_mark(pattern, h->problem, h->batch, h->head, i, h->keys, s->runs, s->inside);
  for (int64_t j = 0; j < h->keys; j++)
    if (s->inside[j]) s->index[s->count++] = j;
  memset(s->log_weight, 0, (size_t)s->count * sizeof *s->log_weight);
}

void row_see(const head_data *h, const seen_keys *seen, int64_t i, row_space *s) {
  row_support(h, seen_of(seen, h->batch), i, s);
  seen_log_weights(seen, &(sample_row){h->batch, h->head, i}, s->index, s->count, s->log_weight);
}

const char *row_reason(row_verdict v) {
  switch (v) {
  case ROW_INFINITE:
    return "the inputs are not finite";
  case ROW_OVERFLOW:
    return "the scores or the sum of the weighted values can overflow";
  case ROW_CHAIN:
    return "the rounding chain is too long for its bound (k u >= 1)";
  case ROW_LOOSE:
    return "the scores are so large that their rounding leaves no bound on the weights";
  case ROW_REFUSED:
    return "no memory for the exact row";
  case ROW_CANCELLED:
    return "the denominator is zero, or lost to cancellation";
  default:
    return "";
  }
}

enum { LANES = 8 };

/* sum q_l k_l and sum |q_l k_l|, in LANES interleaved sums each. */
static void products(const double *q, const double *k, int64_t d, double *score, double *size) {
  double a[LANES] = {0}, b[LANES] = {0};
  int64_t l = 0;
  for (; l + LANES <= d; l += LANES)
    for (int t = 0; t < LANES; t++) {
      double x = q[l + t] * k[l + t];
      a[t] += x;
      b[t] += fabs(x);
    }
  for (; l < d; l++) {
    double x = q[l] * k[l];
    a[0] += x;
    b[0] += fabs(x);
  }
  *score = ((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7]));
  *size = ((b[0] + b[1]) + (b[2] + b[3])) + ((b[4] + b[5]) + (b[6] + b[7]));
}

static row_extremes row_scores(const head_data *h, const double *moved, row_space *s) {
  int64_t d = h->problem->d_qk;
  double scale = h->problem->scale;
  const attn_problem *p = h->problem;
  row_extremes e = {-(double)INFINITY, 0, transform_most(p, h->batch, h->head, s->i)};
  double weight = 0;
  if (p->score.sink) e.top = p->score.sink[h->head];
  for (int64_t a = 0; a < s->count; a++) {
    const double *k = h->k + s->index[a] * d;
    double score, whole;
    for (int64_t l = 0; l < d && moved; l++) s->center[l] = k[l] + moved[l];
    products(s->q, moved ? s->center : k, d, &score, &whole);
    transformed x = transform_score(p, h->batch, h->head, s->i, s->index[a], scale * score);
    if (s->log_weight[a] != 0) transform_weigh(&x, s->log_weight[a]);
    weight = fabs(s->log_weight[a]) > weight ? fabs(s->log_weight[a]) : weight;
    s->score[a] = x.score;
    s->units[a] = x.units;
    s->map[a] = x.map;
    s->size[a] = fabs(scale) * whole;
    e.top = s->score[a] > e.top ? s->score[a] : e.top;
    e.size = whole > e.size ? whole : e.size;
  }
  e.bias += weight;
  return e;
}

bool row_fits(const head_data *h, double size, double bias, int64_t count) {
  const double largest = attn_numbers[h->problem->dtype].largest;
  return 1.5 * (size * fmax(1, fabs(h->problem->scale)) + bias) < largest &&
         1.5 * (double)count * h->v_max < largest;
}

static void row_softmax(const head_data *h, double top, row_space *s) {
  int64_t d_v = h->problem->d_v;
  const double *sink = h->problem->score.sink;
  double sum = s->sink = sink ? exp(sink[h->head] - top) : 0;
  for (int64_t a = 0; a < s->count; a++) sum += s->weight[a] = exp(s->score[a] - top);
  s->sink /= sum;
  for (int64_t l = 0; l < d_v; l++) s->o[l] = 0;
  for (int64_t a = 0; a < s->count; a++) {
    const double *v = h->v + s->index[a] * d_v;
    double p = s->weight[a] /= sum;
    for (int64_t l = 0; l < d_v; l++) s->o[l] += p * v[l];
  }
}

double row_range(const head_data *h, int64_t l) {
  const bool sink = h->problem->score.sink;
  return (sink ? fmax(h->high[l], 0) : h->high[l]) - (sink ? fmin(h->low[l], 0) : h->low[l]);
}

row_verdict row_attend(const head_data *h, const double *moved, row_space *s, row_extremes *out) {
  for (int64_t l = 0; l < h->problem->d_v; l++) s->o[l] = 0;
  *out = (row_extremes){0, 0, 0};
  s->sink = s->sink_slack = 0;
  if (s->count == 0) return ROW_OK;
  if (!h->finite) return ROW_INFINITE;
  *out = row_scores(h, moved, s);
  if (!isfinite(out->top) || !isfinite(out->size)) return ROW_INFINITE;
  if (!row_fits(h, out->size, out->bias, s->count)) return ROW_OVERFLOW;
  row_softmax(h, out->top, s);
  return ROW_OK;
}
