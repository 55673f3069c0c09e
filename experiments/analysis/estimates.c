/* estimates.c - for each setting, the ratios of actual to estimated time and memory: their median, and the
 * one that is farthest from 1. */
#include "experiments/analysis/estimates.h"

#include <math.h>
#include <stdlib.h>

#include "data/support/json_text.h"
#include "experiments/mathematics/statistics.h"

static double time_actual(const result_row *row) { return row->time_median; }
static double time_estimate(const result_row *row) { return row->est_time; }
static double run_actual(const result_row *row) { return row->run_time; }
static double run_estimate_of(const result_row *row) { return row->est_run; }
static double memory_estimate(const result_row *row) { return row->est_memory; }

/* The tensors are estimated besides the work memory; plan and work memory are allocated. */
static double memory_actual(const result_row *row) {
  return row->est_memory - row->work_bytes + row->peak_alloc;
}

static const struct quantity {
  const char *name;
  double (*actual)(const result_row *), (*estimate)(const result_row *);
} quantities[] = {{"time", time_actual, time_estimate},
                  {"run", run_actual, run_estimate_of},
                  {"memory", memory_actual, memory_estimate}};
enum { QUANTITIES = sizeof quantities / sizeof *quantities };

/* NaN if either is unknown or zero. */
static double ratio_of(const result_row *row, const struct quantity *q) {
  const double actual = q->actual(row), estimate = q->estimate(row);
  return row->status == RUN_OK && actual > 0 && estimate > 0 ? actual / estimate : (double)NAN;
}

typedef struct comparison {
  size_t runs;
  double median, worst; /* ratios */
  int64_t n;            /* of the worst */
} comparison;

/* room: for a number for each run. */
static comparison compare(const results_model *m, size_t line, const struct quantity *q, double *room) {
  comparison e = {.median = (double)NAN, .worst = (double)NAN};
  for (size_t i = 0; i < m->set->count; i++) {
    const double ratio = m->setting_of[i] == line ? ratio_of(m->rows[i], q) : (double)NAN;
    if (isnan(ratio)) continue;
    room[e.runs++] = ratio;
    if (e.runs > 1 && !(fabs(log(ratio)) > fabs(log(e.worst)))) continue;
    e.worst = ratio;
    e.n = m->rows[i]->n;
  }
  e.median = median_of(room, e.runs);
  return e;
}

/* [runs, median, worst, n of the worst] */
static json_t *comparison_json(const comparison *e) {
  return json_pack("[I, o, o, I]", (json_int_t)e->runs, result_json_number(e->median),
                   result_json_number(e->worst), (json_int_t)e->n);
}

json_t *estimates_json(const results_model *m) {
  json_t *list = json_array();
  double *room = calloc(m->set->count + 1, sizeof *room);
  bool ok = list && room;
  for (size_t s = 0; ok && s < m->settings_count; s++) {
    json_t *one = json_object();
    bool any = false;
    ok = one && !json_object_set_new(one, "line", json_integer((json_int_t)s));
    for (int q = 0; ok && q < QUANTITIES; q++) {
      const comparison e = compare(m, s, &quantities[q], room);
      any = any || e.runs > 0;
      ok = !json_object_set_new(one, quantities[q].name, comparison_json(&e));
    }
    if (ok && any) ok = !json_array_append(list, one);
    json_decref(one);
  }
  free(room);
  return json_whole(list, ok);
}
