/* timing.h - how long one execution takes: interleaved rounds of batched samples, and their statistics.
 *
 * A sample is the mean of `iterations` executions in a row, as many as make it last sample_time. The subjects
 * of a block take turns, in a new random order each round, so that a slow drift of the machine meets all of
 * them.
 *
 * A subject that has to be prepared for each execution (its operands evicted from the caches) has samples of
 * one, and no warm-up but an execution at the beginning of a turn, for the pages of the memory that it was
 * given. */
#ifndef EXPERIMENTS_INSTRUMENTS_TIMING_H
#define EXPERIMENTS_INSTRUMENTS_TIMING_H

#include <gsl/gsl_rng.h>

#include "attn.h"

typedef struct timing_options {
  double min_time;    /* seconds sampled in the obligatory rounds together */
  double max_time;    /* seconds after which no further round begins; a longer execution is one sample */
  double warmup;      /* seconds of doubling before the first sample */
  double sample_time; /* seconds of a sample at least */
  double target;      /* stop when the 95 % interval is narrower than this fraction of the median */
  int64_t samples;    /* at most */
  int64_t rounds;     /* at least */
} timing_options;

timing_options timing_defaults(void);

/* What is timed. begin and end bracket a turn (buffers); check, then prepare come before each sample, outside
 * its time; each may be NULL. A status other than ATTN_OK ends the subject and is kept. The fields after
 * `first` are results, zero at first. */
typedef struct timing_subject {
  attn_status (*begin)(void *context);
  attn_status (*check)(void *context);
  void (*prepare)(void *context);
  attn_status (*execute)(void *context);
  void (*end)(void *context);
  void *context;
  double first; /* seconds of an earlier, verified execution: the only sample if it exceeds max_time */
  attn_status status;
  double *samples; /* seconds, in order of time; owned (timing_subject_free) */
  int32_t *rounds; /* the round of each */
  int64_t count, iterations;
  double spent; /* seconds in samples, warm-up, and what comes before them */
} timing_subject;

void timing_subject_free(timing_subject *);

/* Runs the rounds. The order is drawn from seed. ENOMEM leaves what has been sampled. */
attn_status timing_rounds(timing_subject *, int64_t count, const timing_options *, uint64_t seed);

typedef struct timing_summary {
  double min, median, mean, std; /* std with divisor count - 1 */
  double mad;                    /* median absolute deviation, not scaled */
  double ci_lo, ci_hi;           /* 95 % percentile bootstrap interval of the median; NaN for one sample */
  int64_t outliers;              /* beyond Tukey's fences, 1.5 interquartile ranges; counted, never dropped */
} timing_summary;

/* count >= 1. The same samples and seed give the same interval. */
attn_status timing_summarise(const double *samples, int64_t count, uint64_t seed, timing_summary *);

/* The median of one bootstrap resample of count >= 1 ascending values. */
double timing_resampled_median(gsl_rng *, const double *sorted, int64_t count);

/* The 95 % percentile interval of such medians, or of numbers computed from them. Sorts the values, which may
 * be infinite: nothing is interpolated. */
void timing_interval(double *values, size_t count, double *low, double *high);

double timing_now(void);  /* seconds, monotonic */
double timing_wall(void); /* seconds since the epoch */
double timing_spin(void); /* seconds of a fixed amount of work, the best of three: the present speed of the
                    * machine */

#endif
