/* block_means.c - ranking by the weights of means of blocks (attn_means): the means, their weights for a
 * query, what these give to columns, and the law. */
#include "core/engines/softmax/ranking.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t keys_of(const attn_ranker *x) { return x->means.block + x->means.overlap; }

/* Entries begin with the first whole one. */
static int64_t before(const attn_ranker *x) { return attn_ceil_div(x->means.overlap, x->means.block); }

int64_t attn_means_entries(const attn_ranker *x, int64_t keys) {
  return x->means.block ? attn_max(keys / x->means.block - before(x), 0) : 0;
}

/* The last key of an entry, and one more. */
static int64_t end_of(const attn_ranker *x, int64_t entry) {
  return (entry + before(x) + 1) * x->means.block;
}

void attn_means_prepare(const attn_ranker *x, const attn_call *call, int64_t batch, int64_t kv_head,
                        void *means) {
  const attn_problem *p = call->context->problem;
  const int64_t entries = attn_means_entries(x, attn_call_keys(call, batch)), keys = keys_of(x);
  for (int64_t b = 0; b < entries; b++) {
    const void *k = attn_row(call->k, p->k, batch, kv_head, end_of(x, b) - keys, p->dtype);
    for (int64_t l = 0; l < p->d_qk; l++) {
      double sum = 0;
      for (int64_t j = 0; j < keys; j++) sum += attn_get(k, j * p->k.row + l, attn_stored(p->k, p->dtype));
      attn_set(means, b * p->d_qk + l, p->dtype, sum / (double)keys);
    }
  }
}

void attn_means_weigh(const attn_ranker *x, const attn_rank_chunk *c, const void *means, void *weights) {
  const attn_context *context = c->call->context;
  const attn_dtype t = context->problem->dtype;
  const int64_t all = attn_means_entries(x, attn_call_keys(c->call, c->block->batch));
  attn_gemm(context->kernels, c->rows, all, x->depth, (attn_matrix){c->queries, x->depth, 1},
            (attn_matrix){means, 1, x->depth}, false, weights, all, c->gemm);
  for (int64_t r = 0; r < c->rows; r++) {
    int64_t begin, end;
    attn_visible_keys(c->call, c->block->batch, attn_rank_head(c, r), attn_rank_row(c, r), &begin, &end);
    const int64_t count = attn_means_entries(x, end);
    attn_softmax_row(context->kernels, count, attn_at(weights, r * all, t), 1);
    memset(attn_at(weights, r * all + count, t), 0, (size_t)(all - count) * attn_dtype_size(t));
  }
}

/* Those of a head that are no numbers give nothing. */
void attn_means_share(const attn_ranker *x, const attn_rank_chunk *c, const void *weights) {
  const attn_dtype t = c->call->context->problem->dtype;
  const int64_t all = attn_means_entries(x, attn_call_keys(c->call, c->block->batch));
  for (int64_t at = 0; at < c->rows / c->heads * c->count; at++) {
    const int64_t r = at / c->count * c->heads, low = (c->first + at % c->count) * x->unit,
                  high = low + x->unit;
    double sum = 0;
    for (int64_t b = attn_max(low / x->means.block - before(x), 0); b < all; b++) {
      const int64_t end = end_of(x, b), first = end - keys_of(x);
      if (first >= high) break;
      for (int64_t h = 0; h < c->heads; h++) {
        const double own = attn_get(weights, (r + h) * all + b, t);
        if (own > 0) sum += own * (double)(attn_min(end, high) - attn_max(first, low));
      }
    }
    attn_set(c->x, r * c->x_row + at % c->count, t, sum);
  }
}

/* ---- the law: in fp64, shares within what rounding may do to them ------------------------------------ */

/* The score of the entry that ends here. */
static double entry_score(const attn_ranker *x, const attn_query *q, int64_t end, double *error) {
  const attn_problem *p = q->call->context->problem;
  const int64_t keys = keys_of(x), kv_head = q->head / (p->heads / p->kv_heads);
  const void *a = attn_row(q->call->q, p->q, q->batch, q->head, q->i, p->dtype);
  double sum = 0, size = 0;
  for (int64_t j = end - keys; j < end; j++) {
    const void *b = attn_row(q->call->k, p->k, q->batch, kv_head, j, p->dtype);
    for (int64_t l = 0; l < p->d_qk; l++) {
      const double own = p->scale / (double)keys * attn_get(a, l, attn_stored(p->q, p->dtype)) *
                         attn_get(b, l, attn_stored(p->k, p->dtype));
      sum += own;
      size += fabs(own);
    }
  }
  *error = isfinite(sum) ? attn_rank_error(p, p->d_qk + keys + 4, size) : (double)INFINITY;
  return sum;
}

/* Adds what a head gives to columns; returns how far it may be off, relatively. weights: [keys]. */
static double add_head(const attn_ranker *x, const attn_query *q, int64_t keys, double *weights,
                       double *scores) {
  double most = -(double)INFINITY, sum = 0, off = 0, error;
  int64_t last = keys / x->means.block * x->means.block;
  for (int64_t end = last; end >= keys_of(x); end -= x->means.block) {
    weights[end - 1] = entry_score(x, q, end, &error);
    most = fmax(most, weights[end - 1]);
    off = fmax(off, error);
  }
  for (int64_t end = last; end >= keys_of(x); end -= x->means.block)
    sum += weights[end - 1] = exp(weights[end - 1] - most);
  for (int64_t end = last; end >= keys_of(x); end -= x->means.block)
    for (int64_t j = end - keys_of(x); j < end; j++) scores[j / x->unit] += weights[end - 1] / sum;
  return expm1(2 * off) +
         (double)(keys / x->means.block + 64) * 4 * attn_numbers[q->call->context->problem->dtype].unit;
}

/* A column is surely kept if fewer than `kept` others may have as much, surely not if as many have more. */
void attn_means_margins(const void *ranker, const attn_query *query, int64_t keys, double *low,
                        double *high) {
  const attn_ranker *x = ranker;
  const attn_problem *p = query->call->context->problem;
  const int64_t group = p->heads / p->kv_heads, columns = attn_ceil_div(keys, x->unit);
  double *weights = calloc((size_t)(2 * keys + 1), sizeof *weights), off = 0;
  attn_query own = *query;
  int64_t begin, end;
  for (int64_t j = 0; j < keys; j++) low[j] = -1, high[j] = 1;
  if (!weights) return;
  double *scores = weights + keys;
  attn_visible_keys(query->call, query->batch, query->head, query->i, &begin, &end);
  for (own.head -= own.head % group; own.head / group == query->head / group; own.head++)
    off = fmax(off, add_head(x, &own, end, weights, scores));
  for (int64_t j = 0; j < columns; j++)
    if (j * x->unit >= end || x->always(query, j)) scores[j] = -1;
  const double least = (double)(group * end * keys_of(x)) * attn_numbers[p->dtype].normal;
  for (int64_t j = 0; j < end; j++) {
    const double score = scores[j / x->unit];
    int64_t may = 0, surely = 0;
    for (int64_t c = 0; c < columns && j % x->unit == 0; c++) {
      const double apart = off * (scores[c] + score) + least;
      may += c != j / x->unit && !(scores[c] < 0 || scores[c] + apart < score);
      surely += scores[c] >= 0 && scores[c] - apart > score;
    }
    low[j] = j % x->unit ? low[j - 1] : may < x->kept ? 1 : -1;
    high[j] = j % x->unit ? high[j - 1] : surely < x->kept ? 1 : -1;
  }
  free(weights);
}
