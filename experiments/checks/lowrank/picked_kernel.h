/* picked_kernel.h - points that are picked to stand for all by a Gaussian kernel, by the definitions of
 * KEYS and POINTS in attn_low_rank. */
#ifndef EXPERIMENTS_CHECKS_LOWRANK_PICKED_KERNEL_H
#define EXPERIMENTS_CHECKS_LOWRANK_PICKED_KERNEL_H

#include "experiments/checks/lowrank/defined.h"

/* Of n points, queries before keys, and the m of them that are picked and not left out. */
typedef struct picked_kernel {
  int64_t n, m;
  int64_t *rows;      /* [m] */
  double *x, *square; /* [n, d]; [n] scale |x|^2 / 2 */
  double *raise;      /* [n]: what g's exponents are raised by, 0 of keys and POINTS */
  double *g, *w;      /* [n, m] e^raise G(x, x_s), and G_SS^-1 of that */
  double *rest;       /* [n] what picked points leave of G(x, x), with the raise taken away */
  double condition;   /* of G_SS */
  bool decided;       /* no point is left out, or kept, by rounding alone */
} picked_kernel;

/* Its arrays are of the region. */
attn_status picked_kernel_make(region *, const attn_low_rank *, const low_rank_head *, picked_kernel *);
/* ln G(x_i, x_j) */
double picked_kernel_exponent(const picked_kernel *, const low_rank_head *, int64_t i, int64_t j);
/* g_i . w_j */
double picked_kernel_product(const picked_kernel *, int64_t i, int64_t j);
/* As picked_weights. */
attn_status picked_kernel_weights(region *, const attn_low_rank *, const low_rank_head *, double unit,
                                  double *w, double *amplified);

#endif
