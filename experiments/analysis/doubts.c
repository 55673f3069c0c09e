/* doubts.c - reasons to doubt the numbers of a run or of the sessions that made the runs. */
#include "experiments/analysis/doubts.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "data/support/json_text.h"
#include "experiments/support/names.h"

enum {
  DOUBT_DRIFT = 1 << 0,
  DOUBT_OUTLIERS = 1 << 1,
  DOUBT_WIDE = 1 << 2,
  DOUBT_FEW = 1 << 3,
  DOUBT_SAMPLED = 1 << 4,
  DOUBT_UNCERTIFIABLE = 1 << 5,
  DOUBT_CHECK = 1 << 6,
  DOUBT_VIOLATED = 1 << 7,
  DOUBT_UNCHECKED = 1 << 8,
  DOUBT_STEPS = 1 << 9
};

const doubt doubt_list[] = {
    {"drift", "time: the machine's speed changed by more than 5 % while the run was timed (drift_ratio)"},
    {"outliers",
     "time: more than a tenth of the samples lie outside Tukey's fences, as when others use the machine"},
    {"wide", "time: the 95 % interval of the median is wider than a tenth of it"},
    {"few", "time: fewer than five samples"},
    {"sampled", "error: measured on a sample of rows, with an interval wider than a fifth of it"},
    {"uncertifiable", "bound: rounding or a missing hypothesis keeps a bound from being decided"},
    {"check", "bound: a check could not be evaluated"},
    {"violated", "bound: a bound does not hold, so error and time may be those of a defect"},
    {"unchecked", "bound: no check of the variant applied, so its correctness is untested"},
    {"steps",
     "time: samples are multiples of a few milliseconds, or the interval has no width: the clock or the "
     "scheduler counts in steps, and the interval is too narrow"},
    {NULL, NULL}};

/* Are at least three samples different multiples of a step, to a hundredth of it? A sample anywhere is near a
 * multiple of a given step once in 50 times. */
static bool come_in_steps(const double *samples, int64_t count) {
  static const int steps[] = {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 25, 40, 50, 100}; /* milliseconds */
  for (size_t s = 0; samples && count >= 3 && s < sizeof steps / sizeof *steps; s++) {
    const double step = steps[s] * 1e-3;
    bool all = true, differ = false;
    for (int64_t i = 0; i < count && all; i++) {
      const double multiple = round(samples[i] / step);
      all = multiple > 0 && fabs(samples[i] / step - multiple) <= 0.01;
      differ |= multiple != round(samples[0] / step);
    }
    if (all && differ) return true;
  }
  return false;
}

/* Is the interval of the median narrower than anything that two executions have in common? */
static bool has_no_width(const result_row *row) {
  return row->n_samples >= 2 && row->time_ci_hi - row->time_ci_lo <= 1e-4 * row->time_median;
}

unsigned doubts_of(const result_row *row) {
  unsigned doubts = 0;
  if (row->time_median > 0) {
    if (fabs(row->drift_ratio - 1) > 0.05) doubts |= DOUBT_DRIFT;
    if (row->n_outliers * 10 > row->n_samples) doubts |= DOUBT_OUTLIERS;
    if (row->time_ci_hi - row->time_ci_lo > 0.1 * row->time_median) doubts |= DOUBT_WIDE;
    if (row->n_samples < 5) doubts |= DOUBT_FEW;
    if (has_no_width(row) || (row->iters_per_sample == 1 && come_in_steps(row->samples, row->n_samples)))
      doubts |= DOUBT_STEPS;
  }
  if (row->err_rel_fro_hi - row->err_rel_fro_lo > 0.2 * row->err_rel_fro) doubts |= DOUBT_SAMPLED;
  if (row->verdict == VERDICT_UNCHECKED) doubts |= DOUBT_UNCHECKED;
  for (int b = 0; b < result_row_cells(row); b++) {
    const check_verdict verdict = result_row_cell(row, b)->verdict;
    if (verdict == VERDICT_UNCERTIFIABLE) doubts |= DOUBT_UNCERTIFIABLE;
    if (verdict == VERDICT_ERROR) doubts |= DOUBT_CHECK;
    if (verdict == VERDICT_VIOLATED) doubts |= DOUBT_VIOLATED;
  }
  return doubts;
}

/* How far the load average over a minute may exceed the number of running threads. */
#define LOAD_SLACK 0.5

bool doubts_of_load(double load, double own, double cores) {
  return cores > 0 && load + own > cores + LOAD_SLACK;
}

/* ---- sessions ------------------------------------------------------------------------------------------ */

/* What is said so far; failed: memory ran out. */
typedef struct warnings {
  json_t *texts;
  bool failed;
} warnings;

static void warn(warnings *list, const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (json_array_append_new(list->texts, result_json_text(text))) list->failed = true;
}

static const char *text_of(const json_t *session, const char *name) {
  const char *text = json_string_value(json_object_get(session, name));
  return text ? text : "";
}

static void warn_session(warnings *list, const json_t *session, size_t number) {
  const char *governor = text_of(session, "governor"), *boost = text_of(session, "boost");
  if (strcmp(governor, "unknown") == 0 || !*governor)
    warn(list,
         "Session %zu: the frequency governor is not visible (a virtual machine?); the clock may have "
         "changed.",
         number);
  else if (strcmp(governor, "performance") != 0)
    warn(list,
         "Session %zu: the frequency governor is '%s', not 'performance': times depend on what ran before.",
         number, governor);
  if (strcmp(boost, "1") == 0)
    warn(list,
         "Session %zu: frequency boost is on: times depend on temperature and on the load of other cores.",
         number);
  if (strcmp(text_of(session, "smt"), "on") == 0)
    warn(list, "Session %zu: simultaneous multithreading is on: two threads may share one core.", number);
  if (json_is_true(json_object_get(session, "git_dirty")))
    warn(list, "Session %zu: the program was built from uncommitted sources.", number);
  if (!strstr(text_of(session, "cflags"), "-O3") && !strstr(text_of(session, "cflags"), "-O2"))
    warn(list, "Session %zu: the program was built without optimisation (%s): its times mean nothing.",
         number, text_of(session, "cflags"));
}

/* If the threads of a session exceeded the processors, they had to take turns on them. */
static void warn_load(warnings *list, const result_set *set, size_t number) {
  const json_t *session = json_array_get(set->sessions, number);
  double start = (double)NAN, cores = json_number_value(json_object_get(session, "n_cores")), most = 0,
         own = 0;
  const json_t *told = json_object_get(session, "load_start");
  if (told && !result_json_read_number(told, &start)) start = (double)NAN;
  for (size_t i = 0; i < set->count; i++)
    if (set->rows[i].session == (int64_t)number) {
      most = fmax(most, set->rows[i].load);
      own = fmax(own, (double)set->rows[i].threads);
    }
  if (doubts_of_load(start, own, cores))
    warn(list,
         "Session %zu: the load average was %.1f at its start: with the %g threads of the session that is "
         "more than %g processors.",
         number, start, own, cores);
  if (cores > 0 && most > fmax(own, cores) + LOAD_SLACK)
    warn(list,
         "Session %zu: the load average rose to %.1f, which its own threads (at most %g) do not explain: "
         "others used the machine.",
         number, most, fmax(own, cores));
}

/* How many different values the sessions have. */
static void warn_if_many(warnings *list, const json_t *sessions, const char *name, const char *what) {
  names values = {0};
  for (size_t i = 0; i < json_array_size(sessions); i++)
    if (names_add(&values, text_of(json_array_get(sessions, i), name))) list->failed = true;
  if (values.count > 1)
    warn(list, "The runs come from %zu different %s: times may not compare between them.", values.count,
         what);
  names_free(&values);
}

json_t *doubts_of_sessions(const result_set *set) {
  warnings list = {.texts = json_array()};
  if (!list.texts) return NULL;
  for (size_t i = 0; i < json_array_size(set->sessions); i++) {
    warn_session(&list, json_array_get(set->sessions, i), i);
    warn_load(&list, set, i);
  }
  warn_if_many(&list, set->sessions, "build", "builds of the program");
  warn_if_many(&list, set->sessions, "cpu_model", "processors");
  return json_whole(list.texts, !list.failed);
}
