/* pooled_row.c - see pooled_row.h. */
#include "experiments/reference/pooled_row.h"

#include "experiments/reference/transform.h"

#include <math.h>

static int64_t first_key(const attn_pooling *x, int64_t entry) {
  return entry * x->block > x->overlap ? entry * x->block - x->overlap : 0;
}

/* Keys that exist and are at most at the query's position. */
static int64_t past_keys(const attn_problem *p, int64_t i, int64_t keys) {
  const int64_t t = attn_problem_position(p, i);
  return t + 1 < keys ? t + 1 : keys;
}

void pooled_choose(const attn_pooling *x, const attn_query *query, int64_t keys, double *low, double *high,
                   pooled_choice *out) {
  const int64_t end = past_keys(query->call->context->problem, query->i, keys) / x->block;
  out->opened = out->due = 0;
  for (int64_t b = x->first; b < end; b++) {
    const int64_t first = first_key(x, b);
    double error = 0;
    out->kept[b] = !x->top || end - x->first <= x->top;
    if (out->kept[b]) continue;
    const double score = attn_index_score(&x->index, query, first, (b + 1) * x->block - first, &error);
    low[b] = isfinite(score) ? score - error : -(double)INFINITY;
    high[b] = isfinite(score) ? score + error : (double)INFINITY;
  }
  if (end <= x->first || out->kept[x->first]) return;
  out->due = x->top;
  for (int64_t b = x->first; b < end; b++) {
    int64_t before = 0, perhaps = 0;
    for (int64_t a = x->first; a < end; a++) {
      before += low[a] > high[b] || (a < b && low[a] >= high[b]);
      perhaps += a != b && (high[a] > low[b] || (a < b && high[a] >= low[b]));
    }
    out->kept[b] = perhaps < x->top;
    out->due -= out->kept[b];
    if (!out->kept[b] && before < x->top) out->open[out->opened++] = b;
  }
}

void pooled_row(const attn_pooling *x, const attn_problem *p, int64_t batch, int64_t head, int64_t i,
                int64_t keys, const double *products, const bool *kept, double *weights) {
  const int64_t t = attn_problem_position(p, i), end = past_keys(p, i, keys);
  double top = p->score.sink ? p->score.sink[head] : -(double)INFINITY, sum = 0;
  for (int64_t j = 0; j < keys; j++) weights[j] = 0;
  for (int pass = 0; pass < 2; pass++) {
    for (int64_t j = t - x->window + 1 > 0 ? t - x->window + 1 : 0; j < end; j++) {
      const double s = transform_score(p, batch, head, i, j, products[j]).score;
      if (!pass) top = fmax(top, s);
      if (pass) weights[j] += exp(s - top), sum += exp(s - top);
    }
    for (int64_t b = x->first; b < end / x->block; b++) {
      const int64_t first = first_key(x, b), last = (b + 1) * x->block - 1;
      double mean = 0;
      if (!kept[b]) continue;
      for (int64_t j = first; j <= last; j++) mean += products[j] / (double)(last + 1 - first);
      const double s = transform_score(p, batch, head, i, last, mean).score, w = pass ? exp(s - top) : 0;
      if (!pass) top = fmax(top, s);
      for (int64_t j = first; j <= last; j++) weights[j] += w / (double)(last + 1 - first);
      sum += w;
    }
    if (pass && p->score.sink) sum += exp(p->score.sink[head] - top);
  }
  for (int64_t j = 0; j < keys && sum > 0; j++) weights[j] /= sum;
}
