/* timing.c - warm-up, batches and interleaved rounds. */
#include "experiments/instruments/timing.h"

#include <gsl/gsl_randist.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

timing_options timing_defaults(void) {
  return (timing_options){.min_time = 0.2,
                          .max_time = 1,
                          .warmup = 0.1,
                          .sample_time = 1e-3,
                          .target = 0.02,
                          .samples = 200,
                          .rounds = 2};
}

static double seconds_of(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double timing_now(void) { return seconds_of(CLOCK_MONOTONIC); }
double timing_wall(void) { return seconds_of(CLOCK_REALTIME); }

double timing_spin(void) {
  enum { STEPS = 1 << 20, REPEATS = 3 };
  static volatile double sink;
  double best = HUGE_VAL;
  for (int r = 0; r < REPEATS; r++) {
    const double start = timing_now();
    /* A chain of dependent operations depends on the clock rate alone, not on the compiler or the caches. */
    double x = 0.5;
    for (int i = 0; i < STEPS; i++) x = 3.7 * x * (1 - x);
    sink = x;
    const double elapsed = timing_now() - start;
    if (elapsed < best) best = elapsed;
  }
  (void)sink;
  return best;
}

void timing_subject_free(timing_subject *subject) {
  free(subject->samples);
  free(subject->rounds);
  subject->samples = NULL;
  subject->rounds = NULL;
  subject->count = 0;
}

static attn_status add_sample(timing_subject *subject, double seconds, int64_t round) {
  const size_t size = (size_t)subject->count + 1;
  double *samples = realloc(subject->samples, size * sizeof *samples);
  if (samples) subject->samples = samples;
  int32_t *rounds = realloc(subject->rounds, size * sizeof *rounds);
  if (rounds) subject->rounds = rounds;
  if (!samples || !rounds) return attn_fail(ATTN_ENOMEM, "no memory for %zu timing samples", size);
  samples[subject->count] = seconds;
  rounds[subject->count++] = (int32_t)round;
  return ATTN_OK;
}

/* Seconds per execution over a batch. */
static attn_status time_batch(timing_subject *subject, int64_t iterations, double *seconds) {
  const double start = timing_now();
  for (int64_t i = 0; i < iterations; i++) {
    const attn_status status = subject->execute(subject->context);
    if (status) return status;
  }
  const double elapsed = timing_now() - start;
  subject->spent += elapsed;
  *seconds = elapsed / (double)iterations;
  return ATTN_OK;
}

/* Doubles the batch until the warm-up time is spent and settles the number of iterations of a sample, by the
 * fastest batch, since a disturbed one would make samples too short. Later turns only bring the caches back.
 * An execution longer than the warm-up has been warmed by its verification. */
static attn_status warm_up(timing_subject *subject, const timing_options *options) {
  attn_status status = ATTN_OK;
  double seconds = subject->first, fastest = seconds;
  if (subject->prepare) subject->iterations = 1;
  if (subject->iterations) return seconds < options->warmup ? time_batch(subject, 1, &seconds) : ATTN_OK;
  const double start = timing_now();
  for (int64_t batch = 1; !status && (timing_now() - start + seconds < options->warmup ||
                                      (double)batch * fastest < options->sample_time);
       batch *= 2) {
    status = time_batch(subject, batch, &seconds);
    fastest = fmin(fastest, seconds);
  }
  const double wanted = ceil(options->sample_time / fmax(fastest, 1e-9));
  subject->iterations = wanted > 1 ? (int64_t)wanted : 1;
  return status;
}

/* Calls begin or check. */
static attn_status call(timing_subject *subject, attn_status (*function)(void *context)) {
  const double start = timing_now();
  const attn_status status = function ? function(subject->context) : ATTN_OK;
  subject->spent += timing_now() - start;
  return status;
}

static void prepare(timing_subject *subject) {
  if (!subject->prepare) return;
  const double start = timing_now();
  subject->prepare(subject->context);
  subject->spent += timing_now() - start;
}

/* One turn: samples for a share of the obligatory time. There is at least one sample, and enough are left
 * for the other rounds. */
static attn_status take_turn(timing_subject *subject, const timing_options *options, int64_t round) {
  attn_status status = warm_up(subject, options);
  const double share = options->min_time / (double)options->rounds;
  const int64_t portion = options->samples / options->rounds, left = options->samples - subject->count;
  const int64_t end = subject->count + (portion < 1 ? 1 : portion < left ? portion : left);
  const double start = timing_now();
  do {
    double seconds = 0;
    if (!status) status = call(subject, subject->check);
    prepare(subject);
    if (!status) status = time_batch(subject, subject->iterations, &seconds);
    if (!status) status = add_sample(subject, seconds, round);
  } while (!status && timing_now() - start < share && subject->count < end);
  return status;
}

/* The obligatory rounds are made even if they exceed the time. */
static bool subject_finished(const timing_subject *subject, const timing_options *options, int64_t rounds,
                             uint64_t seed) {
  timing_summary summary;
  if (subject->status || subject->count >= options->samples) return true;
  if (rounds < options->rounds) return false;
  if (subject->spent >= options->max_time) return true;
  return !timing_summarise(subject->samples, subject->count, seed, &summary) &&
         summary.ci_hi - summary.ci_lo < options->target * summary.median;
}

attn_status timing_rounds(timing_subject *subjects, int64_t count, const timing_options *options,
                          uint64_t seed) {
  attn_status status = ATTN_OK;
  int64_t *order = calloc((size_t)count + 1, sizeof *order);
  gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
  if (!order || !rng) {
    status = attn_fail(ATTN_ENOMEM, "no memory to order %lld timed runs", (long long)count);
    goto out;
  }
  gsl_rng_set(rng, (unsigned long)seed);
  int64_t active = 0;
  for (int64_t i = 0; i < count; i++) {
    subjects[i].spent = 0;
    if (subjects[i].first <= options->max_time) {
      order[active++] = i;
      continue;
    }
    subjects[i].iterations = 1;
    subjects[i].status = add_sample(&subjects[i], subjects[i].first, 0);
  }
  for (int64_t round = 0; active > 0; round++) {
    gsl_ran_shuffle(rng, order, (size_t)active, sizeof *order);
    int64_t kept = 0;
    for (int64_t i = 0; i < active; i++) {
      timing_subject *subject = &subjects[order[i]];
      subject->status = call(subject, subject->begin);
      if (!subject->status) subject->status = take_turn(subject, options, round);
      if (subject->end) subject->end(subject->context);
      if (!subject_finished(subject, options, round + 1, seed)) order[kept++] = order[i];
    }
    active = kept;
  }
out:
  if (rng) gsl_rng_free(rng);
  free(order);
  return status;
}
