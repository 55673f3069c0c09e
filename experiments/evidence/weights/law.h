/* law.h - what the law of a selector's weights (attn_selector.moments) says of a row. With w_j the weight of
 * key j, 0 where it is not kept, E w_j = 1 and M_jl = E w_j w_l, p the exact weights of a row and x_j any
 *   numbers, E sum_j p_j w_j x_j = sum_j p_j x_j,  Var = sum_jl p_j p_l (M_jl - 1) x_j x_l
 * x = 1: the denominator D~ in units of the exact one; x = v - o: the numerator less D~ o, the mean of which
 * is 0. */
#ifndef EXPERIMENTS_EVIDENCE_WEIGHTS_LAW_H
#define EXPERIMENTS_EVIDENCE_WEIGHTS_LAW_H

#include "attn_variant.h"

/* m[a * count + b] = M - 1 of the keys [count]. */
void weight_moments(const attn_selector *, const attn_query *, const int64_t *keys, int64_t count, double *m);

/* Is the key at a place always taken? */
bool weight_always(const double *m, int64_t count, int64_t place);

/* The variances of sum p w x of each column of x [count][columns], of p and M - 1 by place; NaN or Inf where
 * some of these are, as for a key that can never be drawn. */
void weight_variances(const double *m, int64_t count, const double *p, const double *x, int64_t columns,
                      double *variance);

/* With what probability a key is kept, and two are (excess: their M - 1), by their log-weights, of keys that
 * are not always taken. Of keys that may be drawn several times, out of n draws (of one key at a time, M - 1
 * = -1/n for each two): 1 - (1 - pi_j)^n and 1 - (1 - pi_j)^n - (1 - pi_l)^n + (1 - pi_j - pi_l)^n, pi_j =
 * e^-log_weight / n. draws: n, or 0: each key once at most. */
double inclusion_probability(double log_weight, double draws);
double joint_inclusion_probability(double log_weight, double other, double excess, double draws);

#endif
