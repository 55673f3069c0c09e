/* measure.c - the steps of a run in a worker: cost, execution, evidence, verdicts, times. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/runner/measure.h"

#include "experiments/checks/check.h"
#include "experiments/evidence/null.h"
#include "experiments/results/bound.h"
#include "experiments/results/set.h"
#include "experiments/support/spec.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* An upper bound for present cores: 1024 multiply-adds a cycle in a bf16 tile unit at 4 GHz, 32 exponentials
 * a cycle. A run is skipped only if it would exceed its time even so; the rest is for the timeout. */
#define FASTEST_MUL_ADD 4e12
#define FASTEST_EXP 1e11

static double wall_time(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Ends the run with a status and a message in place of a result. */
static void conclude(result_row *row, run_status status, const char *format, ...) {
  char message[400];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  free(row->message);
  row->status = status;
  row->message = strdup(message);
}

run_status measure_outcome(attn_status status) {
  return status == ATTN_EUNSUPPORTED ? RUN_UNSUPPORTED : status == ATTN_ENOMEM ? RUN_OOM : RUN_FAILED;
}

static void conclude_status(result_row *row, attn_status status) {
  conclude(row, measure_outcome(status), "%s", attn_last_error());
}

static evidence evidence_of(const measured_run *r, const attn_view *view) {
  const measure_block *block = r->block;
  return (evidence){.plan = r->plan,
                    .problem = &block->problem,
                    .view = view,
                    .q = block->q.at,
                    .k = block->k.at,
                    .v = block->v.at,
                    .o = block->o.at,
                    .exact = block->exact,
                    .seed = (uint64_t)r->run->seed,
                    .cache = block->cache};
}

static attn_status judge_null(measured_run *r, const null_baseline *null) {
  evidence e = evidence_of(r, NULL);
  measure_block_poison(r->block);
  attn_status status = null_fill(null, &e, r->block->o.at);
  if (!status) status = evidence_all(&e, false, checks_run, &r->row);
  if (!status) r->row.status = RUN_OK;
  return status;
}

/* Skips what cannot fit; the status stays RUN_OK otherwise. */
static void check_budget(measured_run *r, size_t work_size, const attn_cost *cost) {
  const job *j = r->block->job;
  size_t tensors = 0, output = 0;
  measure_tensor_bytes(&r->block->problem, &tensors, &output);
  const double bytes = (double)work_size + (double)tensors;
  const double seconds =
      fmax(cost->mul_add / FASTEST_MUL_ADD, cost->exp / FASTEST_EXP) / (double)j->block.threads;
  if (bytes > (double)j->budget_memory)
    conclude(&r->row, RUN_SKIPPED, "needs %.3g GiB, of which %.3g for work; the budget is %.3g GiB",
             bytes / 0x1p30, (double)work_size / 0x1p30, (double)j->budget_memory / 0x1p30);
  else if (seconds > j->budget_time)
    conclude(&r->row, RUN_SKIPPED,
             "would take more than %.3g s on the fastest of machines; the budget is %.3g s", seconds,
             j->budget_time);
}

static attn_options options_of(const measured_run *r) {
  attn_options options = grid_options(&r->block->job->block);
  options.allocator = &r->memory.allocator;
  return options;
}

attn_status measure_begin(void *context) {
  measured_run *r = context;
  const size_t size = attn_plan_work_size(r->plan);
  attn_status status = ATTN_OK;
  if (size > 0 && !memory_take(&r->memory, size))
    return attn_fail(ATTN_ENOMEM, "no memory for %zu bytes of work", size);
  /* The library aligns it itself. */
  if (size > 0 && (status = guard_open(&r->work, size, 1))) memory_give(&r->memory, size);
  if (!status) counters_read(&r->block->counters, &r->turn);
  return status;
}

attn_status measure_execute(void *context) {
  measured_run *r = context;
  const measure_block *block = r->block;
  r->executions++;
  return attn_plan_execute(r->plan, block->q.at, block->k.at, block->v.at, NULL, block->o.at, r->work.at);
}

/* Adds what was counted since the turn, or since the last eviction. */
static void settle(measured_run *r) {
  counter_sample now;
  counters_read(&r->block->counters, &now);
  counters_add(&r->block->counters, &r->turn, &now, &r->counted);
}

void measure_prepare(void *context) {
  measured_run *r = context;
  settle(r);
  evict(&r->block->evictor);
  counters_read(&r->block->counters, &r->turn);
}

/* Notes what a variant wrote to beside its own memory, and restores the inputs for the other runs. */
static void inspect_guards(measured_run *r) {
  const struct {
    const guard *guard;
    const char *before, *behind;
  } places[] = {{&r->block->o, "wrote before its output", "wrote behind its output"},
                {&r->work, "wrote before its work memory", "wrote behind its work memory"}};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    const guard_state state = places[i].guard->at ? guard_check(places[i].guard) : GUARD_INTACT;
    if (state == GUARD_INTACT) continue;
    r->damage = state == GUARD_BEFORE ? places[i].before : places[i].behind;
    guard_reset(places[i].guard);
  }
}

void measure_end(void *context) {
  measured_run *r = context;
  settle(r);
  inspect_guards(r);
  if (r->work.at) memory_give(&r->memory, r->work.bytes);
  guard_close(&r->work);
}

/* Plans a spec and executes it once. */
static attn_status execute_once(measured_run *r, const char *spec, double *seconds) {
  const attn_options options = options_of(r);
  attn_status status = attn_plan_create(&r->plan, &r->block->problem, spec, &options);
  if (!status) status = measure_begin(r);
  if (!status) {
    measure_block_poison(r->block);
    if (r->block->evictor.buffer) measure_prepare(r);
    const double start = timing_now();
    status = measure_execute(r);
    *seconds = timing_now() - start;
  }
  if (r->plan) measure_end(r);
  return !status && r->damage ? attn_fail(ATTN_EFOREIGN, "%s", r->damage) : status;
}

static bool is_surprising(const result_bound *bound) {
  return bound->kind == KIND_PROB && bound->p_value < RESULTS_REPEAT;
}

/* NULL: a check speaks of the variant with this seed, and not with the other one. */
static const result_bound *cell_of(const result_row *row, const char *name) {
  for (int i = 0; i < row->bounds_count; i++)
    if (strcmp(row->bounds[i].name, name) == 0) return &row->bounds[i];
  return NULL;
}

enum { FAR_SEED = 1000003 }; /* beyond the seeds of a grid */

/* What the repetition says of a surprise. Without a p-value it neither confirms nor acquits. */
static void take_repeat(result_bound *bound, const result_bound *again) {
  if (again && again->p_value >= 0) {
    bound->p_repeat = fmax(again->p_value, DBL_MIN);
    return;
  }
  char why[sizeof bound->message];
  snprintf(why, sizeof why, "p = %.3g, and no p-value when it was repeated with another seed: %.100s",
           bound->p_value,
           !again            ? "not a check of it"
           : *again->message ? again->message
                             : check_verdict_names[again->verdict]);
  bound_excuse(bound, VERDICT_ERROR, why);
}

/* A PROB check that finds a small p-value is evaluated once more on fresh draws; results_holm weighs both. */
static attn_status repeat_surprises(measured_run *r, const char *seed) {
  result_row *row = &r->row;
  bool surprised = false;
  char *spec = NULL;
  for (int i = 0; i < row->bounds_count; i++) surprised = surprised || is_surprising(&row->bounds[i]);
  if (!surprised || !seed) return ATTN_OK;
  attn_status status = spec_with(r->run->spec, seed, r->run->seed + FAR_SEED, &spec);
  if (status) return status;
  attn_plan *kept = r->plan;
  attn_view view;
  double seconds;
  result_row again;
  result_row_init(&again);
  r->plan = NULL;
  status = execute_once(r, spec, &seconds);
  if (!status) status = attn_plan_inspect(r->plan, &view);
  if (!status) {
    const evidence e = evidence_of(r, &view);
    status = checks_run(&e, &again);
    for (int i = 0; !status && i < row->bounds_count; i++)
      if (is_surprising(&row->bounds[i])) take_repeat(&row->bounds[i], cell_of(&again, row->bounds[i].name));
    row->verdict = bounds_worst(row->bounds, row->bounds_count);
  }
  attn_plan_destroy(r->plan);
  r->plan = kept;
  result_row_free(&again);
  free(spec);
  return status;
}

static attn_status judge(measured_run *r) {
  attn_view view;
  attn_status status = attn_plan_inspect(r->plan, &view);
  if (status) return status;
  if (view.rounding.path && !(r->row.path = strdup(view.rounding.path)))
    return attn_fail(ATTN_ENOMEM, "no memory for the row of %s", r->row.key);
  const evidence e = evidence_of(r, &view);
  status = evidence_all(&e, r->run->map, checks_run, &r->row);
  if (status) return status;
  if (measure_block_has_nan(r->block))
    conclude(&r->row, RUN_FAILED, "the output has elements that are NaN or were not written");
  else if (r->row.verdict == VERDICT_VIOLATED)
    conclude(&r->row, RUN_OK, "not timed: a bound is violated");
  return repeat_surprises(r, view.seed);
}

static attn_status verify_variant(measured_run *r) {
  const attn_options options = options_of(r);
  size_t work_size = 0;
  attn_cost cost;
  attn_status status = attn_estimate(&r->block->problem, r->run->spec, &options, &work_size, &cost);
  if (status) return status;
  r->row.flops = 2 * cost.mul_add;
  r->row.bytes_moved = cost.bytes;
  r->row.work_bytes = (double)work_size;
  check_budget(r, work_size, &cost);
  if (r->row.status != RUN_OK) return ATTN_OK;
  memory_reset_peak();
  status = execute_once(r, r->run->spec, &r->first);
  r->row.peak_rss = memory_peak();
  r->row.peak_alloc = (double)r->memory.peak;
  return status ? status : judge(r);
}

attn_status measure_verify(measured_run *r) {
  result_row_init(&r->row);
  memory_counter_init(&r->memory, (size_t)r->block->job->budget_memory);
  attn_status status = grid_row(&r->block->job->block, r->run, &r->row);
  if (status) return status;
  r->row.status = RUN_OK;
  r->row.start_time = wall_time();
  const null_baseline *null = null_find(r->run->variant);
  status = null ? judge_null(r, null) : verify_variant(r);
  if (status) conclude_status(&r->row, status);
  r->row.end_time = wall_time();
  const bool timed = r->plan && r->row.status == RUN_OK && r->row.verdict != VERDICT_VIOLATED;
  if (!timed) {
    attn_plan_destroy(r->plan);
    r->plan = NULL;
  }
  return ATTN_OK;
}

attn_status measure_finish(measured_run *r, timing_subject *subject, double drift_ratio) {
  result_row *row = &r->row;
  row->end_time = wall_time();
  if (subject->status) {
    conclude_status(row, subject->status);
    return ATTN_OK;
  }
  if (r->damage) {
    conclude(row, RUN_FAILED, "%s while it was timed", r->damage);
    return ATTN_OK;
  }
  timing_summary summary;
  const attn_status status =
      timing_summarise(subject->samples, subject->count, (uint64_t)r->run->seed, &summary);
  if (status) return status;
  row->time_min = summary.min;
  row->time_median = summary.median;
  row->time_mean = summary.mean;
  row->time_std = summary.std;
  row->time_mad = summary.mad;
  row->time_ci_lo = summary.ci_lo;
  row->time_ci_hi = summary.ci_hi;
  row->n_outliers = summary.outliers;
  row->n_samples = subject->count;
  row->iters_per_sample = subject->iterations;
  row->drift_ratio = drift_ratio;
  row->cycles = r->counted.event[0] / (double)r->executions;
  row->instructions = r->counted.event[1] / (double)r->executions;
  row->llc_misses = r->counted.event[2] / (double)r->executions;
  row->energy_pkg = r->counted.energy / (double)r->executions;
  row->gflops = 1e-9 * row->flops / summary.median;
  row->samples = subject->samples;
  row->rounds = subject->rounds;
  subject->samples = NULL;
  subject->rounds = NULL;
  return ATTN_OK;
}

void measured_run_free(measured_run *r) {
  attn_plan_destroy(r->plan);
  result_row_free(&r->row);
  *r = (measured_run){0};
}
