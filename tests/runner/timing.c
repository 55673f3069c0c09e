/* timing.c - statistics of timing samples, and the order in which subjects take turns. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "experiments/instruments/timing.h"
#include "attn_variant.h"
#include "tests/support/basics/rng.h"

static timing_summary summarise(const double *samples, int64_t count) {
  timing_summary s;
  cr_assert_eq(timing_summarise(samples, count, 7, &s), ATTN_OK);
  return s;
}

Test(timing_summary, small_samples_by_hand) {
  const timing_summary odd = summarise((const double[]){3, 1, 2, 10, 4}, 5);
  cr_expect(odd.min == 1 && odd.median == 3 && odd.mean == 4);
  cr_expect_float_eq(odd.std, sqrt(50.0 / 4), 1e-14);
  cr_expect_eq(odd.mad, 1); /* of 0 1 1 2 7 */
  /* Quartiles 2 and 4: fences at -1 and 7. */
  cr_expect_eq(odd.outliers, 1);
  cr_expect_eq(summarise((const double[]){3, -1.1, 2, 6.9, 4}, 5).outliers, 1);
  const timing_summary even = summarise((const double[]){4, 1, 3, 2}, 4);
  cr_expect(even.median == 2.5 && even.mad == 1 && even.outliers == 0);
}

Test(timing_summary, one_sample_has_no_interval_and_equal_ones_one_of_no_width) {
  double samples[50];
  for (int i = 0; i < 50; i++) samples[i] = 0.25;
  timing_summary s = summarise(samples, 50);
  cr_expect(s.ci_lo == 0.25 && s.ci_hi == 0.25 && s.std == 0 && s.outliers == 0);
  s = summarise(samples, 1);
  cr_expect(s.median == 0.25 && s.mad == 0 && isnan(s.std) && isnan(s.ci_lo) && isnan(s.ci_hi));
}

Test(timing_summary, outliers_on_both_sides) {
  double samples[22];
  for (int i = 0; i < 20; i++) samples[i] = 10 + 0.1 * i;
  samples[20] = -5;
  samples[21] = 40;
  cr_expect_eq(summarise(samples, 22).outliers, 2);
}

Test(timing_summary, same_seed_same_interval) {
  const double samples[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8};
  const timing_summary a = summarise(samples, 12), b = summarise(samples, 12);
  cr_expect(a.ci_lo == b.ci_lo && a.ci_hi == b.ci_hi);
  cr_expect(a.ci_lo <= a.median && a.median <= a.ci_hi && a.ci_lo < a.ci_hi);
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The short cut through order statistics against resamples that are really drawn: the quantiles of both are
 * order statistics of the same samples, so they agree to one rank (1 of count) but for the noise of 10,000
 * draws. */
static void expect_as_drawn(int count) {
  enum { DRAWS = 10000 };
  static double medians[DRAWS];
  double samples[64], resample[64];
  for (int i = 0; i < count; i++) samples[i] = i;
  attn_rng rng = rng_of(1, 2, (uint64_t)count);
  for (int b = 0; b < DRAWS; b++) {
    for (int i = 0; i < count; i++) resample[i] = samples[attn_rng_below(&rng, count)];
    qsort(resample, (size_t)count, sizeof *resample, compare);
    medians[b] = 0.5 * (resample[(count - 1) / 2] + resample[count / 2]);
  }
  qsort(medians, DRAWS, sizeof *medians, compare);
  gsl_rng *draws = gsl_rng_alloc(gsl_rng_mt19937);
  double sum = 0, squares = 0; /* of medians about the middle, by which they are symmetric */
  for (int b = 0; b < DRAWS; b++) {
    const double off = timing_resampled_median(draws, samples, count) - (count - 1) / 2.0;
    sum += off, squares += off * off;
  }
  cr_expect(fabs(sum) <= 6 * sqrt(squares), "n=%d: the mean is off by %g", count, sum / DRAWS);
  gsl_rng_free(draws);
  const timing_summary s = summarise(samples, count);
  cr_expect(fabs(s.ci_lo - medians[249]) <= 1, "n=%d: %g, drawn %g", count, s.ci_lo, medians[249]);
  cr_expect(fabs(s.ci_hi - medians[9749]) <= 1, "n=%d: %g, drawn %g", count, s.ci_hi, medians[9749]);
}

Test(timing_summary, the_interval_is_that_of_drawn_resamples) {
  for (int count = 2; count <= 64; count += 1 + count / 4) expect_as_drawn(count);
}

/* The interval of 41 samples ends at the ranks where Beta(21, 21) has 2.5 % beyond, the 15th and the 27th, so
 * it covers with probability P(15 <= Bin(41, 1/2) <= 26) = 0.940. Of 400 trials, fewer than 354 or more than
 * 395 coverages have a probability below 1e-5 each. */
Test(timing_summary, the_interval_covers_the_median) {
  enum { TRIALS = 400, COUNT = 41 };
  int covered = 0;
  for (int t = 0; t < TRIALS; t++) {
    double samples[COUNT];
    attn_rng rng = rng_of(3, 4, (uint64_t)t);
    for (int i = 0; i < COUNT; i++) samples[i] = exp(attn_rng_normal(&rng)); /* median 1 */
    const timing_summary s = summarise(samples, COUNT);
    covered += s.ci_lo <= 1 && 1 <= s.ci_hi;
  }
  cr_expect(covered >= 354 && covered <= 395, "%d of %d", covered, TRIALS);
}

/* A subject that writes its number into a shared log. */
enum { LOG_MAX = 4096 };
static char turns[LOG_MAX];
static int turn_count;

typedef struct fake {
  char name;
  long nanoseconds;
  int executions, fail_at, open;
} fake;

static attn_status fake_begin(void *context) {
  fake *f = context;
  cr_assert_eq(f->open++, 0);
  if (turn_count < LOG_MAX) turns[turn_count++] = f->name;
  return ATTN_OK;
}

static void fake_end(void *context) { cr_assert_eq(((fake *)context)->open--, 1); }

static attn_status fake_execute(void *context) {
  fake *f = context;
  cr_assert_eq(f->open, 1);
  if (++f->executions == f->fail_at) return attn_fail(ATTN_ENUMERIC, "failed as told");
  const struct timespec pause = {0, f->nanoseconds};
  nanosleep(&pause, NULL);
  return ATTN_OK;
}

static timing_subject subject_of(fake *f, double first) {
  return (timing_subject){
      .begin = fake_begin, .execute = fake_execute, .end = fake_end, .context = f, .first = first};
}

Test(timing_rounds, subjects_take_turns) {
  fake fakes[3] = {{.name = 'a', .nanoseconds = 100000}, {.name = 'b', .nanoseconds = 200000}, {.name = 'c'}};
  timing_subject subjects[3];
  for (int i = 0; i < 3; i++) subjects[i] = subject_of(&fakes[i], 1e-3);
  timing_options options = timing_defaults();
  options.min_time = 0.02;
  options.max_time = 0.04;
  options.warmup = 0.002;
  cr_assert_eq(timing_rounds(subjects, 3, &options, 5), ATTN_OK);
  for (int i = 0; i < 3; i++) {
    cr_expect_eq(subjects[i].status, ATTN_OK);
    cr_expect(subjects[i].count >= 2 && subjects[i].rounds[subjects[i].count - 1] >= 1);
    for (int64_t s = 1; s < subjects[i].count; s++)
      cr_expect(subjects[i].rounds[s] >= subjects[i].rounds[s - 1]);
    /* An execution takes at least its pause, so that no more iterations are wanted than fill a sample with
     * pauses. */
    for (int64_t s = 0; s < subjects[i].count; s++)
      cr_expect(subjects[i].samples[s] >= 1e-9 * (double)fakes[i].nanoseconds);
    cr_expect((double)subjects[i].iterations * 1e-9 * (double)fakes[i].nanoseconds <
              options.sample_time + 1e-9 * (double)fakes[i].nanoseconds);
    timing_subject_free(&subjects[i]);
  }
  /* Each of the first two rounds has each subject once. */
  cr_assert(turn_count >= 6);
  for (int round = 0; round < 2; round++)
    for (const char *name = "abc"; *name; name++) cr_expect_not_null(memchr(turns + 3 * round, *name, 3));
}

Test(timing_rounds, longer_than_the_budget_is_one_sample) {
  fake f = {.name = 'a'};
  timing_subject subject = subject_of(&f, 2.5);
  timing_options options = timing_defaults();
  options.max_time = 2;
  cr_assert_eq(timing_rounds(&subject, 1, &options, 5), ATTN_OK);
  cr_expect(subject.count == 1 && subject.samples[0] == 2.5 && subject.iterations == 1 && f.executions == 0);
  timing_subject_free(&subject);
}

Test(timing_rounds, a_failure_ends_its_subject_alone) {
  fake fakes[2] = {{.name = 'a', .fail_at = 3}, {.name = 'b'}};
  timing_subject subjects[2] = {subject_of(&fakes[0], 1e-6), subject_of(&fakes[1], 1e-6)};
  timing_options options = timing_defaults();
  options.min_time = options.max_time = 0.01;
  options.warmup = 0;
  cr_assert_eq(timing_rounds(subjects, 2, &options, 5), ATTN_OK);
  cr_expect(subjects[0].status == ATTN_ENUMERIC && fakes[0].executions == 3 && subjects[1].status == ATTN_OK);
  cr_expect(subjects[1].count >= 2);
  for (int i = 0; i < 2; i++) timing_subject_free(&subjects[i]);
}

Test(timing_rounds, samples_are_limited) {
  fake f = {.name = 'a'};
  timing_subject subject = subject_of(&f, 1e-6);
  timing_options options = timing_defaults();
  options.samples = 5;
  options.target = 0;
  options.sample_time = 1e-5;
  options.warmup = 0;
  cr_assert_eq(timing_rounds(&subject, 1, &options, 5), ATTN_OK);
  cr_expect_eq(subject.count, 5);
  cr_expect(subject.rounds[0] == 0 && subject.rounds[4] >= 1, "one round took all samples");
  timing_subject_free(&subject);
}

Test(timing_clock, moves_forward) {
  const double start = timing_now();
  const double spin = timing_spin();
  cr_expect(spin > 0 && timing_now() - start >= spin);
}
