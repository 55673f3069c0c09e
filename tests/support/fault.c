/* fault.c - a plug-in variant that fails as its parameter says, for the tests of the runner. */
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/plugins/exact_plugin.h"

/* behind_late: the second execution of a plan is timed. */
#define FAULTS(FAULT)                                                                              \
  FAULT(none), FAULT(crash), FAULT(crash_late), FAULT(hang), FAULT(eat), FAULT(quit), FAULT(fail), \
      FAULT(unwritten), FAULT(wrong), FAULT(unsupported), FAULT(huge_work), FAULT(one_nan),        \
      FAULT(before_output), FAULT(behind_output), FAULT(behind_late), FAULT(before_work),          \
      FAULT(behind_work), FAULT(into_queries), FAULT(into_values), FAULT(into_slice)
CHOOSE_FAULT("mode", "how it fails");

static attn_status applicable(const attn_context *c) {
  return fault_of(c) == F_unsupported ? attn_fail(ATTN_EUNSUPPORTED, "variant fault: does not want to")
                                      : ATTN_OK;
}

enum { SLICES = 2, SLICE = 40 };
enum { WORK = 100, LINE = 64 }; /* the library may leave a cache line free around the work memory */

static attn_status work_size(const attn_context *c, const attn_parts *parts, size_t *bytes) {
  const fault mode = fault_of(c);
  attn_carver carver = attn_carver_count(c);
  (void)parts;
  attn_carve_slices(&carver, SLICES, SLICE);
  *bytes = mode == F_into_slice                             ? carver.used
           : mode == F_huge_work                            ? (size_t)1 << 40
           : mode == F_before_work || mode == F_behind_work ? WORK
                                                            : 0;
  return ATTN_OK;
}

static attn_cost cost(const attn_context *c) {
  const attn_problem *p = c->problem;
  return (attn_cost){(double)(p->batch * p->heads * (p->d_qk + p->d_v)) * attn_visible_pairs(p), 0, 0};
}

/* The pointer is volatile: clang would leave out memory that nobody reads. */
static void eat(void) {
  static char *volatile food;
  const struct timespec pause = {0, 10000000};
  const size_t mouthful = (size_t)32 << 20;
  for (;;) {
    food = malloc(mouthful);
    if (food) memset(food, 1, mouthful);
    nanosleep(&pause, NULL);
  }
}

/* One write where none belongs. */
static void trespass(fault mode, const attn_call *call, int executions) {
  const attn_problem *p = call->context->problem;
  float *o = call->o, *end = o + p->batch * p->heads * p->n_q * p->d_v;
  char *work = call->work;
  attn_carver carver = attn_carver_at(call, work);
  if (mode == F_into_slice) ((char *)attn_slice(attn_carve_slices(&carver, SLICES, SLICE), 0))[SLICE] = 1;
  if (mode == F_one_nan) end[-1 - p->n_q / 3 * p->d_v] = (float)NAN;
  if (mode == F_before_output) o[-1] = 1;
  if (mode == F_behind_output || (mode == F_behind_late && executions > 1)) *end = 1;
  if (mode == F_before_work) work[-LINE] = 1;
  if (mode == F_behind_work) work[WORK + LINE] = 1;
  if (mode == F_into_queries) ((float *)(uintptr_t)call->q)[0] = 1;
  if (mode == F_into_values) ((float *)(uintptr_t)call->v)[0] = 1;
}

static attn_status execute(const void *state, const attn_call *call) {
  const fault mode = fault_of(call->context);
  const int executions = count_execution(state);
  if (mode == F_crash || (mode == F_crash_late && executions > 1)) raise(SIGABRT);
  if (mode == F_hang)
    for (;;) pause();
  if (mode == F_eat) eat();
  if (mode == F_quit) _exit(42);
  if (mode == F_fail) return attn_fail(ATTN_ENUMERIC, "variant fault: fails as told");
  if (mode == F_unwritten) return ATTN_OK;
  exact_output(call, call->k, mode == F_wrong ? 2 : 1);
  trespass(mode, call, executions);
  return ATTN_OK;
}

static DESCRIBE_METHOD(describe, exact_rounding(c->problem), .work_size = work_size, .plan = plan_to_count,
                       .execute = execute);

ATTN_VARIANT(fault, .summary = "fails as told", .cite = "none",
             .caps = ATTN_CAP_EXACT | ATTN_CAP_CAUSAL | ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX,
             .params = table, .params_size = sizeof(params), .applicable = applicable, .describe = describe,
             .cost = cost)
