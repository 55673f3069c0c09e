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
  size_t n = (size_t)p->n_kv, d_v = (size_t)p->d_v, runs = (size_t)visible_most_runs(pattern, p);
  row_space s = {.q = calloc((size_t)p->d_qk, sizeof(double)),
                 .o = calloc(d_v, sizeof(double)),
                 .bound = calloc(d_v, sizeof(double)),
                 .given = calloc(d_v, sizeof(double)),
                 .kept = calloc(d_v, sizeof(double)),
                 .left = calloc(d_v, sizeof(double)),
                 .center = calloc((size_t)p->d_qk, sizeof(double)),
                 .score = calloc(n, sizeof(double)),
                 .size = calloc(n, sizeof(double)),
                 .units = calloc(n, sizeof(double)),
                 .map = calloc(n, sizeof(double)),
                 .log_weight = calloc(n, sizeof(double)),
                 .weight = calloc(n, sizeof(double)),
                 .slack = calloc(n, sizeof(double)),
                 .index = calloc(n, sizeof(int64_t)),
                 .inside = calloc(n, sizeof(bool)),
                 .runs = calloc(runs, sizeof(attn_run))};
  if (!s.q || !s.o || !s.bound || !s.given || !s.kept || !s.left || !s.center || !s.score || !s.size ||
      !s.units || !s.map || !s.log_weight || !s.weight || !s.slack || !s.index || !s.inside || !s.runs) {
    row_space_free(&s);
    return attn_fail(ATTN_ENOMEM, "no memory for one row of %lld keys", (long long)p->n_kv);
  }
  *out = s;
  return ATTN_OK;
}

void row_space_free(row_space *s) {
  free(s->q);
  free(s->o);
  free(s->bound);
  free(s->given);
  free(s->kept);
  free(s->left);
  free(s->center);
  free(s->score);
  free(s->size);
  free(s->units);
  free(s->map);
  free(s->log_weight);
  free(s->weight);
  free(s->slack);
  free(s->index);
  free(s->inside);
  free(s->runs);
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
