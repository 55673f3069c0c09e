/* core.h - what the tests of core/ include; one file of a program does. */
#ifndef TESTS_SUPPORT_CORE_H
#define TESTS_SUPPORT_CORE_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/basics/kept.h"
#include "tests/support/oracle.h"

void fail_test(void) { cr_expect(false, "the failures noted above"); }

/* A plan that must be made. */
static inline attn_plan *plan_made(const attn_problem *p, const char *spec, const attn_options *options) {
  attn_plan *plan = plan_or_note(p, spec, options);
  cr_assert_not_null(plan, "%s", spec);
  return plan;
}

static inline void destroy_plan(void *plan) { attn_plan_destroy(plan); }

/* ... which goes with the process. */
static inline attn_plan *plan_kept(const attn_problem *p, const char *spec, const attn_options *options) {
  return keep_object(plan_made(p, spec, options), destroy_plan);
}

/* ... and what it shows; its maker destroys it. */
static inline attn_plan *plan_inspected(const attn_problem *p, const char *spec, const attn_options *options,
                                        attn_view *view) {
  attn_plan *plan = plan_made(p, spec, options);
  cr_assert_eq(attn_plan_inspect(plan, view), ATTN_OK);
  return plan;
}

/* Sets the rounding direction of the threads that OpenMP keeps; how many did not have the one before? */
static inline int turn_rounding(int threads, int before, int mode) {
  int others = 0;
#pragma omp parallel num_threads(threads) reduction(+ : others)
  others += fegetround() != before;
  fesetround(mode);
#pragma omp parallel num_threads(threads)
  fesetround(mode);
  return others;
}

/* -- which keys the rows of a pattern see -- */

typedef struct seen_pattern {
  attn_plan *plan;
  attn_view view;
  attn_problem problem;
} seen_pattern;

/* A plan with a pattern, of one batch entry, which goes with the process; ends the test if there is none. */
static inline seen_pattern open_pattern(const char *spec, int64_t heads, int64_t n_q, int64_t n_kv,
                                        bool causal) {
  seen_pattern s = {.problem = attn_problem_make(1, heads, n_kv, 4)};
  s.problem.n_q = n_q;
  s.problem.causal = causal;
  note_context("%s n %dx%d%s", spec, (int)n_q, (int)n_kv, causal ? " causal" : "");
  s.plan = keep_object(plan_inspected(&s.problem, spec, NULL, &s.view), destroy_plan);
  cr_assert_not_null(s.view.pattern);
  return s;
}

/* Marks the keys of a row; notes runs that are out of range, overlap or descend, and a wrong count of
 * them. */
static inline void mark_row(const seen_pattern *s, int64_t head, int64_t i, unsigned char *marks) {
  const attn_problem *p = &s->problem;
  attn_run *runs = calloc((size_t)s->view.pattern->max_runs + 1, sizeof *runs);
  cr_assert_not_null(runs);
  int64_t count = attn_pattern_row(s->view.pattern, p, head, i, runs);
  if (count > s->view.pattern->max_runs)
    note_failure("%d runs, at most %d", (int)count, (int)s->view.pattern->max_runs);
  memset(marks, 0, (size_t)p->n_kv);
  for (int64_t r = 0; r < count; r++) {
    if (runs[r].count < 1 || runs[r].step < 1 || runs[r].first < 0 ||
        runs[r].first + (runs[r].count - 1) * runs[r].step >= p->n_kv) {
      note_failure("row %d: run %d + %d x %d is out of range", (int)i, (int)runs[r].first, (int)runs[r].count,
                   (int)runs[r].step);
      continue;
    }
    if (r && runs[r].first <= runs[r - 1].first) note_failure("row %d: runs do not ascend", (int)i);
    for (int64_t t = 0; t < runs[r].count; t++) {
      int64_t j = runs[r].first + t * runs[r].step;
      if (marks[j]++) note_failure("row %d sees key %d twice", (int)i, (int)j);
    }
  }
  free(runs);
}

/* The cost of the plan is d_qk + d_v multiply-adds for each pair. */
static inline void expect_pairs(const seen_pattern *s, double pairs) {
  double counted = attn_plan_cost(s->plan).mul_add / (double)(s->problem.d_qk + s->problem.d_v);
  if (!(fabs(counted - pairs) <= 1e-9 * pairs)) note_failure("%g pairs by the cost, %g seen", counted, pairs);
}

/* The weight of each key for each query of a head, 0 where it is not taken; a row of weights has `width`. */
static inline void selected_weights(const attn_plan *plan, const inputs *in, int64_t batch, int64_t head,
                                    int64_t width, double *weights) {
  attn_view view;
  cr_assert_eq(attn_plan_inspect(plan, &view), ATTN_OK);
  const int64_t n_q = in->problem.n_q, runs = view.selector->max_runs;
  int64_t *all = calloc((size_t)n_q, sizeof *all);
  attn_picks x = {.max_runs = runs,
                  .runs = calloc((size_t)(n_q * runs), sizeof(attn_run)),
                  .counts = calloc((size_t)n_q, sizeof(int64_t)),
                  .log_weights = calloc((size_t)(n_q * runs), sizeof(double))};
  for (int64_t i = 0; i < n_q; i++) all[i] = i;
  const attn_row_set set = {batch, head, n_q, all};
  cr_assert_eq(
      attn_plan_select(
          plan, &(attn_tensors){.q = in->q, .k = in->k, .v = in->v, .kv_len = in->padded ? in->kv_len : NULL},
          &set, &x),
      ATTN_OK);
  memset(weights, 0, (size_t)(n_q * width) * sizeof *weights);
  for (int64_t i = 0; i < n_q; i++)
    for (int64_t r = i * runs; r < i * runs + x.counts[i]; r++)
      for (int64_t j = 0; j < x.runs[r].count; j++)
        weights[i * width + x.runs[r].first + j] = exp(x.log_weights[r]);
  free(all);
  free(x.runs);
  free(x.counts);
  free(x.log_weights);
}

#endif
