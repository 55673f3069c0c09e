/* fault.c - a plug-in variant that fails as its parameter says, for the tests of the runner. */
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/exact_plugin.h"

typedef enum {
  NONE,
  CRASH,
  CRASH_LATE,
  HANG,
  EAT,
  QUIT,
  FAIL,
  UNWRITTEN,
  WRONG,
  UNSUPPORTED,
  HUGE_WORK,
  ONE_NAN,
  BEFORE_OUTPUT,
  BEHIND_OUTPUT,
  BEHIND_LATE, /* the second execution of a plan is timed */
  BEFORE_WORK,
  BEHIND_WORK,
  INTO_QUERIES,
  INTO_VALUES,
  INTO_SLICE
} fault;

typedef struct params {
  int mode;
} params;

static const char *const modes[] = {
    "none",          "crash",         "crash_late",  "hang",        "eat",         "quit",
    "fail",          "unwritten",     "wrong",       "unsupported", "huge_work",   "one_nan",
    "before_output", "behind_output", "behind_late", "before_work", "behind_work", "into_queries",
    "into_values",   "into_slice",    NULL};
static const attn_param table[] = {
    {"mode", ATTN_CHOICE, offsetof(params, mode), 0, 0, "none", modes, "how it fails"}, {.name = NULL}};

static fault mode_of(const attn_context *c) { return (fault)((const params *)c->params)->mode; }

static attn_status applicable(const attn_context *c) {
  return mode_of(c) == UNSUPPORTED ? attn_fail(ATTN_EUNSUPPORTED, "variant fault: does not want to")
                                   : ATTN_OK;
}

enum { SLICES = 2, SLICE = 40 };
enum { WORK = 100, LINE = 64 }; /* the library may leave a cache line free around the work memory */

static attn_status work_size(const attn_context *c, const attn_parts *parts, size_t *bytes) {
  const fault mode = mode_of(c);
  attn_carver carver = attn_carver_count(c);
  (void)parts;
  attn_carve_slices(&carver, SLICES, SLICE);
  *bytes = mode == INTO_SLICE                           ? carver.used
           : mode == HUGE_WORK                          ? (size_t)1 << 40
           : mode == BEFORE_WORK || mode == BEHIND_WORK ? WORK
                                                        : 0;
  return ATTN_OK;
}

static attn_cost cost(const attn_context *c) {
  const attn_problem *p = c->problem;
  return (attn_cost){(double)(p->batch * p->heads * (p->d_qk + p->d_v)) * attn_visible_pairs(p), 0, 0};
}

typedef struct state {
  fault mode;
  int *executions; /* of this plan */
} state;

static attn_status plan(attn_builder *b, const attn_parts *parts, void **out) {
  (void)parts;
  state *s = attn_builder_alloc(b, 1, sizeof *s);
  if (!s) return ATTN_ENOMEM;
  s->mode = mode_of(attn_builder_context(b));
  s->executions = attn_builder_alloc(b, 1, sizeof *s->executions);
  if (!s->executions) return ATTN_ENOMEM;
  *s->executions = 0;
  *out = s;
  return ATTN_OK;
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
  if (mode == INTO_SLICE) ((char *)attn_slice(attn_carve_slices(&carver, SLICES, SLICE), 0))[SLICE] = 1;
  if (mode == ONE_NAN) end[-1 - p->n_q / 3 * p->d_v] = (float)NAN;
  if (mode == BEFORE_OUTPUT) o[-1] = 1;
  if (mode == BEHIND_OUTPUT || (mode == BEHIND_LATE && executions > 1)) *end = 1;
  if (mode == BEFORE_WORK) work[-LINE] = 1;
  if (mode == BEHIND_WORK) work[WORK + LINE] = 1;
  if (mode == INTO_QUERIES) ((float *)(uintptr_t)call->q)[0] = 1;
  if (mode == INTO_VALUES) ((float *)(uintptr_t)call->v)[0] = 1;
}

static attn_status execute(const void *opaque, const attn_call *call) {
  const state *s = opaque;
  const int executions = ++*s->executions;
  if (s->mode == CRASH || (s->mode == CRASH_LATE && executions > 1)) raise(SIGABRT);
  if (s->mode == HANG)
    for (;;) pause();
  if (s->mode == EAT) eat();
  if (s->mode == QUIT) _exit(42);
  if (s->mode == FAIL) return attn_fail(ATTN_ENUMERIC, "variant fault: fails as told");
  if (s->mode == UNWRITTEN) return ATTN_OK;
  exact_output(call, call->k, s->mode == WRONG ? 2 : 1);
  trespass(s->mode, call, executions);
  return ATTN_OK;
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  static const attn_method method = {.work_size = work_size, .plan = plan, .execute = execute};
  (void)b;
  out->method = &method;
  out->rounding = exact_rounding(c->problem);
  return ATTN_OK;
}

ATTN_VARIANT(fault, .summary = "fails as told", .cite = "none",
             .caps = ATTN_CAP_EXACT | ATTN_CAP_CAUSAL | ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX,
             .params = table, .params_size = sizeof(params), .applicable = applicable, .describe = describe,
             .cost = cost)
