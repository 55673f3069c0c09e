/* block.h - weights of head 0 as a matrix: the exact ones, their singular values, and a method's, read off by
 * columns of the identity for V. */
#ifndef EXPERIMENTS_CHECKS_LOWRANK_BLOCK_H
#define EXPERIMENTS_CHECKS_LOWRANK_BLOCK_H

#include "experiments/evidence/cache.h"
#include "experiments/evidence/judged_run.h"

/* The rows and columns of a block: `count` of each, evenly spaced, of the attention of the first n_q queries
 * to the first n_kv keys. */
typedef struct block_shape {
  int64_t n_q, n_kv, count;
} block_shape;

/* Of the weights of a variant of_bounded_rank. */
int64_t block_rank(const attn_view *);

/* The exact block and the squares of its singular values, from the cache if it holds them. ENUMERIC: not
 * finite. */
attn_status block_exact(const evidence *, block_shape, const spectrum_entry **);

/* The method's, in fp64, of a problem that has the rows alone for queries: out [count, count]. EINVAL,
 * EUNSUPPORTED: the variant takes no such problem. */
attn_status block_implied(const evidence *, block_shape, double *out);

#endif
