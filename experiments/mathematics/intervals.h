/* intervals.h - 95 % intervals of means, shares and differences over independent units (windows, samples). */
#ifndef EXPERIMENTS_MATHEMATICS_INTERVALS_H
#define EXPERIMENTS_MATHEMATICS_INTERVALS_H

#include <stddef.h>
#include <stdint.h>

enum { INTERVAL_UNITS = 8 }; /* fewer units have no interval: its ends are NaN */

typedef struct interval {
  double at, lo, hi;
} interval;

/* The mean of count values, and Student's interval of it; a NaN among them: all are NaN. */
interval interval_of_mean(const double *values, size_t count);

/* hits of count, and the interval of Clopper and Pearson (1934), which covers the probability with at least
 * the probability `level`. */
interval interval_of_hits(int64_t hits, int64_t count, double level);
/* The same of 95 %, with none for few units. */
interval interval_of_share(int64_t hits, int64_t count);

/* The mean difference a_i - b_i of paired scores, and the percentile interval of its bootstrap, 10,000
 * resamples of the pairs drawn from the seed. Exact where the scores are few-valued, as Student's is not. */
interval interval_of_difference(const double *a, const double *b, size_t count, uint64_t seed);

#endif
