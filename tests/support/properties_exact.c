/* properties_exact.c - properties that hold bit by bit, for sanitizers and processors on which
 * experiments/properties/ does not run (properties.h). */
#include "tests/support/properties.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void check_threads(const subject *s) {
  static const int counts[] = {2, 7};
  for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
    attn_options options = s->options;
    options.threads = counts[k];
    void *o = run_spec(s->spec, &options, &s->in);
    expect_same(&s->in.problem, s->o, o, "another number of threads");
    free(o);
  }
}

static void check_alignment(const subject *s) {
  size_t size = attn_dtype_size(s->in.problem.dtype);
  const placement places[] = {{size, 0, 1}, {0, size, 33}};
  for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
    void *o = run_guarded(s->plan, &s->in, places[k]);
    expect_same(&s->in.problem, s->o, o, "unaligned pointers");
    free(o);
  }
}

typedef struct runner {
  const attn_plan *plan;
  const inputs *in;
  void *o[3];
} runner;

static void *run_thrice(void *argument) {
  runner *r = argument;
  for (int k = 0; k < 3; k++) r->o[k] = run_plain(r->plan, r->in);
  return NULL;
}

static void check_reentrant(const subject *s) {
  attn_options options = s->options;
  options.threads = 2;
  attn_plan *plan = plan_or_note(&s->in.problem, s->spec, &options);
  if (!plan) return;
  runner runners[2] = {{.plan = plan, .in = &s->in}, {.plan = plan, .in = &s->in}};
  pthread_t threads[2];
  int started = 0;
  while (started < 2 && pthread_create(&threads[started], NULL, run_thrice, &runners[started]) == 0)
    started++;
  if (started < 2) note_failure("pthread_create failed");
  for (int t = 0; t < started; t++) pthread_join(threads[t], NULL);
  for (int t = 0; t < started; t++)
    for (int k = 0; k < 3; k++) {
      expect_same(&s->in.problem, s->o, runners[t].o[k], "two threads on one plan");
      free(runners[t].o[k]);
    }
  attn_plan_destroy(plan);
}

static void check_estimate(const subject *s) {
  size_t bytes = SIZE_MAX;
  attn_cost cost = {-1, -1, -1}, planned = attn_plan_cost(s->plan);
  EXPECT_STATUS(attn_estimate(&s->in.problem, s->spec, &s->options, &bytes, &cost), ATTN_OK);
  EXPECT(bytes == attn_plan_work_size(s->plan));
  EXPECT(memcmp(&cost, &planned, sizeof cost) == 0);
  EXPECT(cost.mul_add > 0 && cost.exp >= 0 && cost.bytes > 0 &&
         isfinite(cost.mul_add + cost.exp + cost.bytes));
  EXPECT_STATUS(attn_estimate(&s->in.problem, s->spec, NULL, NULL, NULL), ATTN_OK);
}

const property properties_exact[] = {
    {"threads", 0, NULL, check_threads, false},
    {"alignment", 0, NULL, check_alignment, false},
    {"reentrant", 0, NULL, check_reentrant, false},
    {"estimate", 0, NULL, check_estimate, false},
    {.name = NULL},
};
