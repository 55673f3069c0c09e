/* statistics.h - p-values that hold for every sample size, from known moments or a known distribution. */
#ifndef EXPERIMENTS_MATHEMATICS_STATISTICS_H
#define EXPERIMENTS_MATHEMATICS_STATISTICS_H

#include <stddef.h>
#include <stdint.h>

/* Median of the values that are not NaN, which are reordered; NaN if there are none. */
double median_of(double *values, size_t count);

/* Of the probabilities to lie at least as far below, and above: of either, or 0 if one is NaN. */
double two_sided(double below, double above);

/* The least of several p-values, and how many there are; zeroed at first. A NaN is the least. */
typedef struct surprise {
  double least;
  int64_t count;
} surprise;

void surprise_add(surprise *, double p);
double surprise_p(const surprise *); /* count times the least (Bonferroni); 1 of none */
/* The same of a list. */
#define BONFERRONI(...) \
  bonferroni((const double[]){__VA_ARGS__}, sizeof(double[]){__VA_ARGS__} / sizeof(double))
double bonferroni(const double *p, size_t count);

/* Of count independent values of this mean and of a standard deviation up to sigma, each off by up to slack:
 * the p-value of both sides, whatever their distribution. With x = +-a (value - mean), the product over the
 * values of (1 + x + x^2/2) / (1 + a^2 sigma^2 / 2) is at most 1 on average (Catoni 2012, Prop. 2.4), as is
 * its mean over both signs and some a; where that is t, p = 1/t (Markov). Near what a normal distribution
 * would give: 6 standard errors have p = 1e-6 or so, in place of 2e-9. */
double mean_p_value(const double *values, int64_t count, double mean, double sigma, double slack);
/* A deviation of the mean whose p-value is near alpha: sigma sqrt(2 ln(6 / alpha) / count). */
double mean_critical_value(double alpha, double sigma, int64_t count);

/* Of `sum` of values whose signs are independent fair coins given their magnitudes, `squares` the sum of
 * their squares: 2 exp(-sum^2 / (2 squares)) (Hoeffding 1963). */
double signs_p_value(double sum, double squares);

/* Of count vectors of R^d, of which those of different runs of `step` have independent uniform directions:
 * |cos| > c with probability P(Beta(1/2, (d-1)/2) > c^2), for the largest of all compared pairs (Bonferroni).
 * Runs are compared with as many before them as `work` multiply-adds allow. Raises *largest to the largest
 * |cos|. */
double directions_p_value(const double *w, int64_t count, int64_t d, int64_t step, double work,
                          double *largest);

/* P(sup |F_count - F| >= what is seen) for levels F(x_i), which are sorted: 2 exp(-2 count sup^2) (Massart
 * 1990). */
double dkw_p_value(double *levels, int64_t count);

/* P(the largest distance between the empirical distributions of two samples of `count` from one continuous
 * distribution is at least what is seen): at most 2 C(2 count, count - c) / C(2 count, count), c the distance
 * times count (Gnedenko and Korolyuk 1951: the first term of their alternating series). Both are sorted. */
double samples_p_value(double *a, double *b, int64_t count);

/* Two-sided, of `hits` of count independent events of one probability, which lies between low and high. */
double hits_p_value(int64_t hits, int64_t count, double low, double high);

#endif
