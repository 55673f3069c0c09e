/* lse_join.h - the joining of attention over parts of the keys, by log-sum-exp, in fp64. */
#ifndef ATTN_CORE_RING_LSE_JOIN_H
#define ATTN_CORE_RING_LSE_JOIN_H

#include "attn.h"

/* Rows that parts have been added to: o = sum_b exp(lse_b - max) o_b and sum = sum_b exp(lse_b - max), max
 * the largest lse_b. */
typedef struct ring_sums {
  double *o, *max, *sum; /* [rows, d_v], [rows], [rows] */
  int64_t d_v;
} ring_sums;

void ring_sums_clear(ring_sums, int64_t rows);

/* Adds a part: o [rows, d_v] of the dtype and lse [rows], to the rows from `first` on. */
void ring_sums_add(ring_sums, int64_t first, int64_t rows, const void *o, const double *lse, attn_dtype,
                   int threads);

/* out [rows, d_v] = o / sum. */
void ring_sums_finish(ring_sums, int64_t rows, void *out, attn_dtype, int threads);

#endif
