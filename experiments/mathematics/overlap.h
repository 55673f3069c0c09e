/* overlap.h - are sets that were drawn one after the other drawn apart?
 *
 * Let S be r of n ranks, drawn uniformly without replacement, and P a set that was known before. |S n P| is
 * hypergeometric, and E exp(t |S n P|) <= (1 + k/n (e^t - 1))^r, k = |P n [0, n)| (Hoeffding 1963, Thm 4).
 * The product over sets of exp(t |S n P|) / (1 + k/n (e^t - 1))^r, each P any that came before its S, is
 * therefore at most 1 on average, and so is any mean of such products: where it is e, p = 1/e (Markov). Sets
 * that share draws make it large for t > 0, sets that avoid one another for t < 0. */
#ifndef EXPERIMENTS_MATHEMATICS_OVERLAP_H
#define EXPERIMENTS_MATHEMATICS_OVERLAP_H

#include <stdint.h>

enum { OVERLAP_POWERS = 5 };

/* Logarithms of the products, one for each t. Zero at first. */
typedef struct overlap {
  double log_product[OVERLAP_POWERS];
} overlap;

/* Ascending ranks of S, of `candidates` in all and `drawn` by the law, and of P. */
void overlap_add(overlap *, const int64_t *set, int64_t size, int64_t candidates, int64_t drawn,
                 const int64_t *before, int64_t before_size);

/* ln of the mean of all products of `count` of them; -infinity if there are none. */
double overlap_evidence(const overlap *, int64_t count);

#endif
