/* picked.h - weights of rows that a variant picks, from what attn_low_rank.picked says of them, in fp64. */
#ifndef EXPERIMENTS_CHECKS_LOWRANK_PICKED_H
#define EXPERIMENTS_CHECKS_LOWRANK_PICKED_H

#include "experiments/checks/lowrank/defined.h"

/* The rows that are picked of a head, in the region, and how many pick says that there are. */
attn_status picked_rows(region *, const attn_low_rank *, const low_rank_head *, int64_t **picked,
                        int64_t *count);
/* w [n_q, keys], and how far rounding to `unit` is amplified in each row, as low_rank_output. */
attn_status picked_weights(region *, const attn_low_rank *, const low_rank_head *, double unit, double *w,
                           double *amplified);

#endif
