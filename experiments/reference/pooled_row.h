/* pooled_row.h - the weights that the definition of attn_pooling gives to the values of a row's keys. */
#ifndef EXPERIMENTS_REFERENCE_POOLED_ROW_H
#define EXPERIMENTS_REFERENCE_POOLED_ROW_H

#include "experiments/reference/transform.h"

#include <math.h>

/* Row i, where `keys` keys exist; products[j] = scale q . k_j. The product of a block's mean is the mean of
 * the products of its keys, each of which has an equal share of its weight. weights[keys] and the sink's sum
 * to 1; they are all 0 where the query sees nothing. */
static inline void pooled_row(const attn_pooling *x, const attn_problem *p, int64_t batch, int64_t head,
                              int64_t i, int64_t keys, const double *products, double *weights) {
  const int64_t t = attn_problem_position(p, i), end = t + 1 < keys ? t + 1 : keys;
  double top = p->score.sink ? p->score.sink[head] : -(double)INFINITY, sum = 0;
  for (int64_t j = 0; j < keys; j++) weights[j] = 0;
  for (int pass = 0; pass < 2; pass++) {
    for (int64_t j = t - x->window + 1 > 0 ? t - x->window + 1 : 0; j < end; j++) {
      const double s = transform_score(p, batch, head, i, j, products[j]).score;
      if (!pass) top = fmax(top, s);
      if (pass) weights[j] += exp(s - top), sum += exp(s - top);
    }
    for (int64_t last = (x->first + 1) * x->block - 1; last < end; last += x->block) {
      const int64_t own = last - x->block + 1 - x->overlap, first = own > 0 ? own : 0;
      double mean = 0;
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

#endif
