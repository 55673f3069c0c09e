/* sweep_fixture.h - running sweeps with the program, and looking at their rows; for test_runner_*.c. */
#ifndef TESTS_SUPPORT_SWEEP_FIXTURE_H
#define TESTS_SUPPORT_SWEEP_FIXTURE_H

#include <sys/stat.h>

#include "experiments/instruments/timing.h"
#include "tests/support/command.h"
#include "tests/support/results_fixture.h"

#define FAULT " --plugin " TEST_BINARY_DIR "/tests/fault.so"
#define TIMING "timing: {min_time: 0.004, max_time: 2, warmup: 0.001, samples: 8}\n"

static inline int run(const char *arguments) {
  command_run(arguments, &result);
  return result.exit_code;
}

/* Sweeps x.yaml into x.h5, which must end with this exit code; the rows, until the next sweep. */
static inline const result_set *sweep_again(const char *options, int code) {
  static result_set set;
  const char *arguments = text_of("run x.yaml -o x.h5 %s", options);
  cr_assert_eq(run(arguments), code, "attnlab %s: %s", arguments, result.err);
  set = read_results("x.h5");
  return &set;
}

/* The same of this configuration. */
static inline const result_set *sweep(const char *options, int code, const char *configuration) {
  command_write_text("x.yaml", configuration);
  return sweep_again(options, code);
}

static inline long size_of(const char *path) {
  struct stat about;
  return stat(path, &about) == 0 ? (long)about.st_size : -1;
}

static inline const result_row *find_row(const result_set *set, const char *part) {
  for (size_t i = 0; i < set->count; i++)
    if (strstr(set->rows[i].key, part)) return &set->rows[i];
  cr_assert_fail("no row with %s", part);
  return NULL;
}

static inline void expect_status(const result_row *row, run_status status) {
  cr_expect_eq(row->status, status, "%s: %s %s", row->key, run_status_names[row->status], row->message);
}

static inline void expect_measured(const result_row *row) {
  expect_status(row, RUN_OK);
  cr_expect(row->rows_sampled > 0);
  cr_expect(row->end_time >= row->start_time && row->start_time > 1.6e9);
  if (strncmp(row->variant, "null_", 5) == 0) {
    cr_expect_eq(row->verdict, VERDICT_NOT_APPLICABLE);
    cr_expect(isnan(row->time_median) && row->n_samples == 0);
    return;
  }
  cr_expect(row->err_rel_fro < 1e-5, "%s: %g", row->key, row->err_rel_fro);
  cr_expect_neq(row->verdict, VERDICT_VIOLATED);
  timing_summary s;
  cr_assert_eq(timing_summarise(row->samples, row->n_samples, (uint64_t)row->seed, &s), ATTN_OK);
  cr_expect(row->time_min > 0 && row->time_min == s.min && row->time_median == s.median &&
            row->time_mean == s.mean && row->time_std == s.std && row->time_mad == s.mad &&
            row->time_ci_lo == s.ci_lo && row->time_ci_hi == s.ci_hi && row->n_outliers == s.outliers);
  cr_expect_float_eq(row->gflops * row->time_median, 1e-9 * row->flops, 1e-15 * row->flops);
  cr_expect(row->n_samples >= 2 && row->iters_per_sample >= 1 && row->drift_ratio > 0 && row->run_time > 0);
  cr_expect(row->peak_alloc >= row->work_bytes && row->flops > 0);
}

#endif
