/* weigh.h - weights of a softmax, of one block of scores after another, by an exponential apart from those of
 * the kernels and of the C library. */
#ifndef EXPERIMENTS_REFERENCE_WEIGH_H
#define EXPERIMENTS_REFERENCE_WEIGH_H

#include <stdint.h>

/* x = k ln 2 + r with |r| <= 0.347, e^r = 1 + r + r^2 g(r), g by interpolation of degree 9 at Chebyshev's
 * nodes: within 0.16 u, u = 2^-53. Rounding of r adds 0.35 u, of the sum (0.41 + 0.22) u / 0.7, of the last
 * addition u. */
#define WEIGH_ERROR 0x1.8p-52 /* relative, of a weight; below 2^-1022 it may be 0 */

/* The running maximum of a row's scores, -Inf at first, and the sum of its weights. */
typedef struct weigh_row {
  double max, sum;
} weigh_row;

/* Turns a block of scores, x[0 .. count), into weights e^(x - max), max the greatest score up to now, and
 * returns the factor for the weights of former blocks, and sums over them; that of the row is multiplied. A
 * score of -Inf has the weight 0, and a NaN makes its weight and the sum NaN. The order of the sum depends on
 * count alone. */
typedef double weigh(int64_t count, double *x, weigh_row *);

/* For an instruction set by its name (attn_plan_isa). */
weigh *weigh_of(const char *isa);

#endif
