/* statistics.h - p-values that hold for every sample size, from known moments or a known distribution. */
#ifndef EXPERIMENTS_MATHEMATICS_STATISTICS_H
#define EXPERIMENTS_MATHEMATICS_STATISTICS_H

#include <stddef.h>
#include <stdint.h>

/* Median of the values that are not NaN, which are reordered; NaN if there are none. */
double median_of(double *values, size_t count);

enum { MEAN_GROUPS = 31 };

/* Median of the means of MEAN_GROUPS groups of equal size, of count >= MEAN_GROUPS independent values; the
 * remainder is left out. values is overwritten. */
double median_of_means(double *values, int64_t count);
/* P(|median of means - mean| >= deviation) is at most this, sigma the standard deviation of one value: a
 * group errs by as much with probability q = sigma^2 / (size deviation^2) at most (Chebyshev), the median
 * only if half of them do, the upper tail of a binomial variable. */
double median_p_value(double deviation, double sigma, int64_t count);
/* The deviation whose p-value is alpha. */
double median_limit(double alpha, double sigma, int64_t count);

/* P(sup |F_count - F| >= what is seen) for levels F(x_i), which are sorted: 2 exp(-2 count sup^2) (Massart
 * 1990). */
double levels_p_value(double *levels, int64_t count);

/* Two-sided, of `hits` of count fair coins. */
double coin_p_value(int64_t hits, int64_t count);

#endif
