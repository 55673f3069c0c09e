/* normalise.h - the threshold of a normaliser by its law, found without the variant. */
#ifndef EXPERIMENTS_REFERENCE_NORMALISE_H
#define EXPERIMENTS_REFERENCE_NORMALISE_H

#include "attn_variant.h"

/* The number tau for which the weights of scores[j] - tau sum to `target`, to the last digit: the least that
 * is found where above is false, else the greatest. 0 if weights are not to sum to anything; NaN: there is no
 * such number, or the scores are not finite. n > 0; the largest score is next to 0. */
double normalise_threshold(const attn_normaliser *, int64_t n, const double *scores, double target,
                           bool above);

#endif
