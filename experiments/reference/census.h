/* census.h - exact attention in fp64 on all rows, fast: products of blocks of queries and keys by the
 * machine's gemm (attn_arithmetic.h), weights by weigh.h over a running maximum, masks and scores by
 * visible.h and transform.h. It shares the gemm alone with what it judges, and is held against the textbook's
 * rows. */
#ifndef EXPERIMENTS_REFERENCE_CENSUS_H
#define EXPERIMENTS_REFERENCE_CENSUS_H

#include "experiments/reference/exact.h"

/* o[batch, heads, n_q, d_v], of a resolved problem; arguments as in attn_plan_execute. The same bits for any
 * number of threads. A row sees Inf and NaN where its keys have them, and nowhere else. */
attn_status census_compute(const attn_problem *, const void *q, const void *k, const void *v,
                           const int64_t *kv_len, double *o);

/* Are the judged rows of o those of the textbook (exact_rows.o), within what rounding may do to both?
 * ENUMERIC names a row that is not. Rows of a head whose inputs are not finite are not compared, nor those
 * whose scores are so large that rounding leaves no bound. */
attn_status census_check(const attn_problem *, const void *q, const void *k, const void *v,
                         const int64_t *kv_len, const exact_rows *, const double *o);

/* Both, into rows->all. */
attn_status census_take(const attn_problem *, const void *q, const void *k, const void *v,
                        const int64_t *kv_len, exact_rows *rows);

/* Seconds that it takes, by counted operations at 2^34 multiply-adds a second: about what two cores do, and
 * the same on every machine. */
double census_seconds(const attn_problem *);
/* Are they at most 10, and is its output at most an eighth of `memory` bytes? */
bool census_affordable(const attn_problem *, double memory);

#endif
