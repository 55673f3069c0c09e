/* fit.h - exponents of time and memory in n, and the length at which a line overtakes another. */
#ifndef EXPERIMENTS_ANALYSIS_FIT_H
#define EXPERIMENTS_ANALYSIS_FIT_H

#include "attn.h"

typedef struct fit_interval {
  double mid, lo, hi; /* NaN: unknown; infinite: beyond the lengths that were run */
} fit_interval;

/* value ~ n^exponent.mid. The interval is 95 %; NaN ends for a single length. */
typedef struct fit_power {
  fit_interval exponent;
  size_t points; /* lengths */
} fit_power;

typedef enum {
  CROSSING_UNKNOWN, /* fewer than two lengths in common with exact attention */
  CROSSING_FASTER,  /* none in range: faster everywhere */
  CROSSING_SLOWER,  /* none in range: slower everywhere */
  CROSSING_TO_FASTER,
  CROSSING_TO_SLOWER
} fit_crossing_kind;

extern const char *const fit_crossing_names[];

typedef struct fit_crossing {
  fit_crossing_kind kind;
  fit_interval n; /* of the last change: from it on the kind holds */
} fit_crossing;

/* No time or size is reproduced better across runs: a standard error of its logarithm. */
extern const double fit_least_sigma;

/* Slope of log y against log n by weighted least squares. sigma: standard error of each log y, at least 1 %
 * is assumed; NaN: not known. Where the points scatter more than that, the interval follows the scatter; two
 * points, one of whose errors is not known, have none. */
attn_status fit_exponent(const double *n, const double *y, const double *sigma, size_t count,
                         fit_power *); /* ENOMEM */

/* Log ratios of times, one per round, of a line over exact attention at one n. */
typedef struct fit_ratios {
  double n;
  double *log; /* sorted by fit_cross */
  size_t count;
} fit_ratios;

/* Where the median ratio last passes 1, interpolated in log n, and the speed-up at each n, with 95 %
 * bootstrap intervals over rounds; their ends are NaN where a length has one round alone. n ascends, counts
 * >= 1. ENOMEM. */
attn_status fit_cross(fit_ratios *, size_t count, fit_crossing *, fit_interval *speedups);

#endif
