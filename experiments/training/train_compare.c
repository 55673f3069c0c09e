/* train_compare.c - variants against exact attention, seed by seed (train_study.h). */
#include <gsl/gsl_cdf.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>

#include "experiments/mathematics/statistics.h"
#include "experiments/results/bound.h"
#include "experiments/results/set.h"
#include "experiments/training/train_study.h"

static const double LEVEL = 0.05;

const char *const train_words[] = {"open", "worse", "better"};

/* values: room for a number a seed; which: where in a row they stand. */
static double median_over_seeds(const train_study *s, int64_t task, int64_t spec, size_t which,
                                double *values) {
  for (int64_t i = 0; i < s->seeds; i++)
    values[i] = *(const double *)((const char *)train_study_row(s, task, spec, i) + which);
  return median_of(values, (size_t)s->seeds);
}

/* Two-sided, of Student's test that the mean is 0; NaN: it has no interval. */
static double p_of_mean(const double *values, size_t count, interval mean) {
  if (isnan(mean.lo)) return (double)NAN;
  const double error = gsl_stats_sd_m(values, 1, count, mean.at) / sqrt((double)count);
  if (!(error > 0)) return mean.at == 0 ? 1 : 0;
  return 2 * gsl_cdf_tdist_Q(fabs(mean.at) / error, (double)(count - 1));
}

/* The correction is that of results files: a cell for each variant that has a p-value. */
static attn_status judge_words(const train_study *s, train_comparison *c) {
  result_row *rows = calloc((size_t)s->spec_count, sizeof *rows);
  result_bound *cells = calloc((size_t)s->spec_count, sizeof *cells);
  attn_status status = rows && cells ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for a comparison");
  size_t count = 0;
  for (int64_t v = 1; !status && v < s->spec_count; v++) {
    if (isnan(c[v].p)) continue;
    bound_begin(&cells[v], "accuracy", KIND_PROB);
    bound_prob(&cells[v], c[v].difference.at, 0, c[v].p);
    rows[count++] =
        (result_row){.variant = s->specs[v]->text, .params = "", .bounds = &cells[v], .bounds_count = 1};
  }
  if (!status) status = results_holm(rows, count, LEVEL);
  for (int64_t v = 1; !status && v < s->spec_count; v++)
    if (!isnan(c[v].p) && cells[v].verdict == VERDICT_VIOLATED)
      c[v].word = c[v].difference.at < 0 ? TRAIN_WORSE : TRAIN_BETTER;
  free(rows);
  free(cells);
  return status;
}

attn_status train_compare(const train_study *s, int64_t task, train_comparison *c) {
  double *values = calloc((size_t)s->seeds, sizeof *values);
  if (!values) return attn_fail(ATTN_ENOMEM, "no memory for %ld seeds", (long)s->seeds);
  for (int64_t v = 0; v < s->spec_count; v++) {
    const struct {
      size_t at;
      double *to;
    } medians[] = {{offsetof(train_row, trained.loss), &c[v].trained.loss},
                   {offsetof(train_row, trained.accuracy), &c[v].trained.accuracy},
                   {offsetof(train_row, swapped.loss), &c[v].swapped.loss},
                   {offsetof(train_row, swapped.accuracy), &c[v].swapped.accuracy}};
    for (size_t i = 0; i < sizeof medians / sizeof *medians; i++)
      *medians[i].to = median_over_seeds(s, task, v, medians[i].at, values);
    for (int64_t i = 0; i < s->seeds; i++)
      values[i] =
          train_study_row(s, task, v, i)->trained.accuracy - train_study_row(s, task, 0, i)->trained.accuracy;
    c[v].difference = interval_of_mean(values, (size_t)s->seeds);
    c[v].p = v ? p_of_mean(values, (size_t)s->seeds, c[v].difference) : (double)NAN;
    c[v].word = TRAIN_OPEN;
  }
  free(values);
  return judge_words(s, c);
}
