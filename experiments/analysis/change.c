/* change.c - ratios of times and Holm's correction over them; errors beyond rounding; verdicts. */
#include "experiments/analysis/change.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"
#include "data/support/file.h"
#include "experiments/analysis/setting.h"

const char *const change_words[] = {"", "slower", "faster", "untimed", NULL};

static const double SIDE = 0.975;
static const double LEAST_CHANGE = 0.01, ROUNDINGS = 8; /* of an error: relative, and in units of rounding */

/* ---- time ---------------------------------------------------------------------------------------------- */

static bool timed(const result_row *row) { return row->status == RUN_OK && row->time_median > 0; }

/* The variance of the log of the median time; NaN without an interval. */
static double log_variance(const result_row *row) {
  const double s = log(row->time_ci_hi / row->time_ci_lo) / (2 * gsl_cdf_ugaussian_Pinv(SIDE));
  if (row->n_samples < 2 || !(s >= 0) || isinf(s)) return (double)NAN;
  return fmax(s * s, fit_least_sigma * fit_least_sigma);
}

/* What is known of a mean log ratio. */
typedef struct log_ratio {
  double mid, error, freedom;
} log_ratio;

static fit_interval interval_of(const log_ratio *r) {
  const double half = r->freedom > 0 ? gsl_cdf_tdist_Pinv(SIDE, r->freedom) * r->error : (double)NAN;
  return (fit_interval){exp(r->mid), exp(r->mid - half), exp(r->mid + half)};
}

/* P(as far above the limit as seen, or farther), at the limit. */
static double p_above(const log_ratio *r, double sign, double limit) {
  return r->freedom > 0 ? gsl_cdf_tdist_Q((sign * r->mid - log(limit)) / r->error, r->freedom) : (double)NAN;
}

static void compare_times(run_change *c, double limit) {
  const double none = (double)NAN;
  c->ratio = (fit_interval){none, none, none};
  c->p_slower = c->p_faster = none;
  c->time = CHANGE_UNTIMED;
  if (!timed(c->a) || !timed(c->b)) return;
  const double x = log_variance(c->a), y = log_variance(c->b);
  const double freedom =
      (x + y) * (x + y) / (x * x / (double)(c->a->n_samples - 1) + y * y / (double)(c->b->n_samples - 1));
  const log_ratio r = {log(c->b->time_median / c->a->time_median), sqrt(x + y), isnan(x + y) ? 0 : freedom};
  c->ratio = interval_of(&r);
  c->p_slower = p_above(&r, 1, limit);
  c->p_faster = p_above(&r, -1, limit);
  c->time = CHANGE_NONE;
}

/* The geometric mean over the runs that were timed. */
static attn_status compare_means(results_change *out, double limit) {
  double *logs = calloc(out->count + 1, sizeof *logs);
  if (!logs) return attn_fail(ATTN_ENOMEM, "out of memory for the ratios of %zu runs", out->count);
  size_t count = 0;
  for (size_t i = 0; i < out->count; i++)
    if (!isnan(out->runs[i].ratio.mid)) logs[count++] = log(out->runs[i].ratio.mid);
  const double mean = count ? gsl_stats_mean(logs, 1, count) : (double)NAN;
  const double variance = count > 1 ? gsl_stats_variance_m(logs, 1, count, mean) / (double)count : 0;
  const log_ratio r = {mean, sqrt(variance + 2 * fit_least_sigma * fit_least_sigma), (double)count - 1};
  out->mean = interval_of(&r);
  out->p_mean = p_above(&r, 1, limit);
  out->timed = count;
  free(logs);
  return ATTN_OK;
}

typedef struct hypothesis {
  double p;
  run_change *run; /* NULL: of the geometric mean */
} hypothesis;

static int by_p(const void *x, const void *y) {
  const hypothesis *a = x, *b = y;
  return (a->p > b->p) - (a->p < b->p);
}

/* Holm's step-down correction: rejects in ascending order while p <= level / (those left). */
static attn_status decide(results_change *out, change_word word) {
  size_t count = 0;
  hypothesis *all = calloc(out->count + 1, sizeof *all);
  if (!all) return attn_fail(ATTN_ENOMEM, "out of memory for the p-values of %zu runs", out->count);
  for (size_t i = 0; i < out->count; i++) {
    const double p = word == CHANGE_SLOWER ? out->runs[i].p_slower : out->runs[i].p_faster;
    if (!isnan(p)) all[count++] = (hypothesis){p, &out->runs[i]};
  }
  if (word == CHANGE_SLOWER && !isnan(out->p_mean)) all[count++] = (hypothesis){out->p_mean, NULL};
  qsort(all, count, sizeof *all, by_p);
  for (size_t i = 0; i < count && all[i].p <= CHANGE_LEVEL / (double)(count - i); i++) {
    if (all[i].run)
      all[i].run->time = word;
    else
      out->mean_slower = true;
  }
  free(all);
  return ATTN_OK;
}

/* ---- errors -------------------------------------------------------------------------------------------- */

static bool same_input(const result_row *a, const result_row *b) {
  for (axis_id i = 0; i < AXES; i++)
    if (i != AXIS_seed && i != AXIS_threads && i != AXIS_cache && axes[i].section && a->axis[i] != b->axis[i])
      return false;
  for (text_axis_id t = 0; t < TEXT_AXES; t++)
    if (text_axes[t].section && strcmp(result_text(a, t), result_text(b, t)) != 0) return false;
  return true;
}

static bool is_exact(const result_row *row) {
  return row->status == RUN_OK && row->err_rel_fro > 0 && setting_exact(row);
}

/* The least error of an exact variant on the input of these runs. */
static double rounding_of(const results_change *all, const run_change *c) {
  const double unit = attn_numbers[c->a->dtype].unit;
  double least = (double)INFINITY;
  for (size_t i = 0; i < all->count; i++) {
    const run_change *other = &all->runs[i];
    if (!same_input(c->a, other->a)) continue;
    if (is_exact(other->a)) least = fmin(least, other->a->err_rel_fro);
    if (is_exact(other->b)) least = fmin(least, other->b->err_rel_fro);
  }
  return isinf(least) ? unit * sqrt((double)c->a->n_kv) : fmax(least, unit);
}

static bool error_changed(const results_change *all, const run_change *c) {
  const double a = c->a->err_rel_fro, b = c->b->err_rel_fro;
  const result_pair pair = {c->a, c->b};
  if (c->a->status != RUN_OK || c->b->status != RUN_OK || !pair_same_data(&pair)) return false;
  if (isnan(a) || isnan(b)) return isnan(a) != isnan(b);
  const double difference = fabs(b - a);
  if (difference <= LEAST_CHANGE * fmin(a, b) || difference <= ROUNDINGS * rounding_of(all, c)) return false;
  if (c->a->rows_sampled == c->b->rows_sampled) return true;
  return !(c->a->err_rel_fro_lo <= c->b->err_rel_fro_hi && c->b->err_rel_fro_lo <= c->a->err_rel_fro_hi);
}

/* ---- all ----------------------------------------------------------------------------------------------- */

static bool ended_badly(run_status s) { return s != RUN_OK && s != RUN_UNSUPPORTED && s != RUN_SKIPPED; }

static void compare_words(run_change *c) {
  c->verdict = c->a->verdict != c->b->verdict;
  c->model_verdict = c->a->model_verdict != c->b->model_verdict;
  c->status = c->a->status != c->b->status;
  c->violated = c->verdict && c->b->verdict == VERDICT_VIOLATED;
  c->failed = ended_badly(c->b->status) && !ended_badly(c->a->status);
}

static int worst_first(const void *x, const void *y) {
  const run_change *a = x, *b = y;
  if ((a->time == CHANGE_SLOWER) != (b->time == CHANGE_SLOWER)) return a->time == CHANGE_SLOWER ? -1 : 1;
  if (isnan(a->ratio.mid) != isnan(b->ratio.mid)) return isnan(a->ratio.mid) ? 1 : -1;
  if (a->ratio.mid > b->ratio.mid || a->ratio.mid < b->ratio.mid) return a->ratio.mid > b->ratio.mid ? -1 : 1;
  return strcmp(a->a->key, b->a->key);
}

static void count_changes(results_change *out) {
  for (size_t i = 0; i < out->count; i++) {
    const run_change *c = &out->runs[i];
    out->undecided += !isnan(c->ratio.mid) && isnan(c->p_slower);
    out->slower += c->time == CHANGE_SLOWER;
    out->faster += c->time == CHANGE_FASTER;
    out->errors += c->error;
    out->verdicts += c->verdict || c->model_verdict;
    out->statuses += c->status;
    out->violated += c->violated;
    out->failed += c->failed;
  }
}

attn_status change_make(const result_pairs *pairs, double limit, results_change *result) {
  results_change out = {.count = pairs->count};
  if (!(out.runs = calloc(pairs->count + 1, sizeof *out.runs)))
    return attn_fail(ATTN_ENOMEM, "out of memory to compare %zu runs", pairs->count);
  for (size_t i = 0; i < out.count; i++) {
    out.runs[i] = (run_change){.a = pairs->items[i].a, .b = pairs->items[i].b};
    compare_times(&out.runs[i], limit);
    compare_words(&out.runs[i]);
  }
  for (size_t i = 0; i < out.count; i++) out.runs[i].error = error_changed(&out, &out.runs[i]);
  attn_status status = compare_means(&out, limit);
  if (!status) status = decide(&out, CHANGE_SLOWER);
  if (!status) status = decide(&out, CHANGE_FASTER);
  if (!status) {
    qsort(out.runs, out.count, sizeof *out.runs, worst_first);
    count_changes(&out);
    *result = out;
  } else {
    change_free(&out);
  }
  return status;
}

void change_free(results_change *c) {
  free(c->runs);
  *c = (results_change){0};
}

static bool violates(const result_row *row, const char *name) {
  for (int i = 0; i < result_row_cells(row); i++) {
    const result_bound *b = result_row_cell(row, i);
    if (strcmp(b->name, name) == 0 && b->verdict == VERDICT_VIOLATED) return true;
  }
  return false;
}

char *change_bounds(const run_change *c) {
  char *text = strdup("");
  for (int i = 0; text && i < result_row_cells(c->b); i++) {
    const char *name = result_row_cell(c->b, i)->name;
    if (!violates(c->b, name) || violates(c->a, name)) continue;
    char *longer = text_format("%s%s%s", text, *text ? " " : "", name);
    free(text);
    text = longer;
  }
  return text;
}
