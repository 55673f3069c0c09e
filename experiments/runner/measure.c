/* measure.c - the steps of a run in a worker: cost, execution, evidence, verdicts, times. */
#include "experiments/runner/measure.h"

#include "experiments/checks/check.h"
#include "experiments/evidence/rounding/nonfinite.h"
#include "experiments/evidence/rounding/stored.h"
#include "experiments/evidence/null.h"
#include "experiments/properties/property.h"
#include "experiments/results/bound.h"
#include "experiments/results/set.h"
#include "experiments/support/names.h"
#include "experiments/support/table.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An upper bound for present cores: 1024 multiply-adds a cycle in a bf16 tile unit at 4 GHz, 32 exponentials
 * a cycle. A run is skipped only if it would exceed its time even so; the rest is for the timeout. */
#define FASTEST_MUL_ADD 4e12
#define FASTEST_EXP 1e11

void measure_conclude(result_row *row, run_status status, const char *format, ...) {
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
  measure_conclude(row, measure_outcome(status), "%s", attn_last_error());
}

static evidence evidence_of(const measured_run *r, const attn_plan *plan, const attn_view *view) {
  const measure_block *block = r->block;
  return (evidence){.plan = plan,
                    .problem = &block->judged,
                    .view = view,
                    .q = block->judged_q,
                    .k = block->judged_k,
                    .v = block->judged_v,
                    .extra = block->extra,
                    .extras = block->extras,
                    .o = block->judged_o,
                    .stored = measure_block_stored(block) ? block->o.at : NULL,
                    .as = block->as,
                    .exact = block->exact,
                    .backward = block->job->block.backward,
                    .seed = (uint64_t)r->run->seed,
                    .cache = block->cache};
}

static attn_status judge_null(measured_run *r, const null_baseline *null) {
  const measure_block *block = r->block;
  evidence e = evidence_of(r, NULL, NULL);
  recheck_poison(&r->check);
  attn_status status = null_fill(null, &e, block->judged_o);
  if (e.stored)
    attn_convert(block->judged_o, block->judged.dtype, (int64_t)(block->o.bytes / attn_dtype_size(block->as)),
                 block->as, block->o.at);
  if (!status) status = evidence_all(&e, false, checks_run, &r->row);
  if (status) return status;
  r->row.status = RUN_OK;
  if (*r->block->nonfinite)
    measure_conclude(&r->row, RUN_OK, "the inputs are not finite: %s", r->block->nonfinite);
  return ATTN_OK;
}

/* Skips what cannot fit; the status stays RUN_OK otherwise. */
static void check_budget(measured_run *r, size_t work_size, const attn_cost *cost) {
  const job *j = r->block->job;
  size_t tensors = 0, output = 0;
  measure_tensor_bytes(&r->block->problem, &tensors, &output);
  const double bytes = (double)work_size + (double)tensors;
  const double seconds =
      fmax(cost->mul_add / FASTEST_MUL_ADD, cost->exp / FASTEST_EXP) / (double)j->block.threads;
  char need[SHORT_TEXT], work[SHORT_TEXT], budget[SHORT_TEXT];
  if (bytes > (double)j->budget_memory)
    measure_conclude(&r->row, RUN_SKIPPED, "needs %s, of which %s for work; the budget is %s",
                     short_bytes(bytes, need), short_bytes((double)work_size, work),
                     short_bytes((double)j->budget_memory, budget));
  else if (seconds > j->budget_time)
    measure_conclude(&r->row, RUN_SKIPPED,
                     "would take more than %s on the fastest of machines; the budget is %s",
                     short_time(seconds, need), short_time(j->budget_time, budget));
}

attn_options measure_options(const measured_run *r) {
  attn_options options = grid_options(&r->block->job->block);
  options.allocator = &r->memory.allocator;
  return options;
}

/* Plans a spec and executes it once. */
static attn_status execute_once(measured_run *r, const attn_spec *spec, double *seconds) {
  const attn_options options = measure_options(r);
  attn_status status = attn_plan_create_spec(&r->plan, &r->block->problem, spec, &options);
  if (!status) status = measure_open(r);
  if (!status) {
    recheck_poison(&r->check);
    if (r->block->evictor.buffer) measure_prepare(r);
    const double start = timing_now();
    status = measure_execute(r);
    *seconds = timing_now() - start;
  }
  if (r->plan) measure_close(r);
  return !status && r->damage ? attn_fail(ATTN_EFOREIGN, "%s", r->damage) : status;
}

/* Of a run on tensors that are stored in 16 bits: the same in fp32 on the same numbers, into judged_o.
 * EFOREIGN: the output is not that, rounded once. Else the plan of the run itself. */
static attn_status plan_judged(measured_run *r, const attn_spec *spec, attn_plan **own,
                               const attn_plan **plan) {
  const measure_block *block = r->block;
  const attn_options options = grid_options(&block->job->block);
  *plan = r->plan;
  if (!measure_block_stored(block)) return ATTN_OK;
  attn_status status = attn_plan_create_spec(own, &block->judged, spec, &options);
  void *work = status ? NULL : malloc(attn_plan_work_size(*own) + 1);
  if (!status && !work) status = attn_fail(ATTN_ENOMEM, "no memory to run %s in fp32", spec->text);
  if (!status)
    status = attn_plan_run(*own, &(attn_tensors){.q = block->judged_q,
                                                 .k = block->judged_k,
                                                 .v = block->judged_v,
                                                 .o = block->judged_o,
                                                 .work = work,
                                                 .extra = block->extra,
                                                 .extras = block->extras});
  free(work);
  *plan = *own;
  if (status) return status;
  return stored_check(block->o.at, block->as, block->judged_o, block->judged.dtype,
                      (int64_t)(block->o.bytes / attn_dtype_size(block->as)));
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
  bound->verdict = VERDICT_ERROR;
  bound_say(bound, "p = %.3g, and no p-value when it was repeated with another seed: %.100s", bound->p_value,
            !again            ? "not a check of it"
            : *again->message ? again->message
                              : check_verdict_names[again->verdict]);
}

/* A PROB check that finds a small p-value is evaluated once more on fresh draws; results_holm weighs both. */
static attn_status repeat_surprises(measured_run *r, const char *seed) {
  result_row *row = &r->row;
  bool surprised = false;
  attn_spec *spec = NULL;
  for (int i = 0; i < row->bounds_count; i++) surprised = surprised || is_surprising(&row->bounds[i]);
  if (!surprised || !seed) return ATTN_OK;
  attn_status status = attn_spec_with_seed(r->run->spec, seed, r->run->seed + FAR_SEED, &spec);
  if (status) return status;
  attn_plan *kept = r->plan, *own = NULL;
  const attn_plan *plan = NULL;
  attn_view view;
  double seconds;
  result_row again;
  result_row_init(&again);
  r->plan = NULL;
  status = execute_once(r, spec, &seconds);
  if (!status) status = plan_judged(r, spec, &own, &plan);
  if (!status) status = attn_plan_inspect(plan, &view);
  if (!status) {
    const evidence e = evidence_of(r, plan, &view);
    status = checks_run(&e, &again);
    for (int i = 0; !status && i < row->bounds_count; i++)
      if (is_surprising(&row->bounds[i])) take_repeat(&row->bounds[i], cell_of(&again, row->bounds[i].name));
    result_row_judge(row);
  }
  attn_plan_destroy(own);
  attn_plan_destroy(r->plan);
  r->plan = kept;
  result_row_free(&again);
  attn_spec_destroy(spec);
  return status;
}

/* Properties are judged by the first run of their setting. Of others the parent has the cells, or this
 * block. */
static attn_status judge_properties(measured_run *r, const evidence *e) {
  bool known = false, violated = false;
  if (!r->block->job->settled) return ATTN_OK;
  attn_status status = properties_settled(r->block->job->settled, &r->row, &known, &violated);
  if (violated) r->row.verdict = VERDICT_VIOLATED;
  if (status || known) return status;
  status = properties_give(&r->block->found, &r->row, &known);
  if (status || known) return status;
  status = properties_run(e, &r->row);
  if (!status) status = result_row_refer(&r->row);
  if (!status) status = properties_keep(&r->block->found, &r->row);
  result_row_judge(&r->row);
  return status;
}

static double largest(const guard *g, attn_dtype t) {
  const int64_t count = (int64_t)(g->bytes / attn_dtype_size(t));
  double most = 0;
  for (int64_t i = 0; i < count; i++) most = fmax(most, fabs(attn_get(g->at, i, t)));
  return most;
}

/* Is a score possibly so large that not even its whole part is certain? An approximation may overflow there
 * where exact attention, which sees differences of scores alone, does not. So may the product of two features
 * that are exponentials of elements of a query and a key, or be 0 for every key. */
static bool beyond_range(const measure_block *block, bool features) {
  const attn_problem *p = &block->problem;
  const attn_number *number = &attn_numbers[block->judged.dtype];
  const double q = largest(&block->q, block->as), k = largest(&block->k, block->as);
  const double score = fabs(p->scale) * (double)p->d_qk * q * k;
  const double range = -log(number->normal);
  return isfinite(score) && (score * number->unit > 1 || (features && q + k > range));
}

/* An approximation may compute NaN on such an input: its row has a message and no verdict. Rows whose weights
 * cancel are counted. */
static void conclude_nan(measured_run *r, const attn_view *view, int64_t unwritten) {
  const bool cancels = !(view->caps & (ATTN_CAP_EXACT | ATTN_CAP_CONVEX));
  if (!unwritten && cancels && r->row.rows_degenerate) {
    measure_conclude(&r->row, RUN_OK,
                     "%lld of %lld rows compared are not finite: their weights cancel, or a sum of them is "
                     "beyond the range",
                     (long long)r->row.rows_degenerate, (long long)r->row.rows_sampled);
    return;
  }
  if (unwritten) {
    measure_conclude(&r->row, RUN_FAILED, "%lld elements of the output were not written",
                     (long long)unwritten);
    return;
  }
  if ((view->caps & ATTN_CAP_EXACT) || !beyond_range(r->block, view->by_features)) {
    measure_conclude(&r->row, RUN_FAILED,
                     "the output has elements that are NaN, although the inputs are finite");
    return;
  }
  measure_conclude(&r->row, RUN_UNSUPPORTED,
                   "the output has elements that are NaN: queries up to %.3g and keys up to %.3g are beyond "
                   "the range of this variant's arithmetic",
                   largest(&r->block->q, r->block->as), largest(&r->block->k, r->block->as));
  r->row.bounds_count = 0;
  r->row.verdict = r->row.model_verdict = VERDICT_NOT_APPLICABLE;
}

/* Of inputs that are not finite an output may have NaN, where it depends on them. Its error is none. */
static attn_status conclude_nonfinite(measured_run *r, const evidence *e, int64_t unwritten) {
  char fault[NONFINITE_TEXT];
  const attn_status status = nonfinite_judge(e, fault);
  if (status) return status;
  if (unwritten)
    measure_conclude(&r->row, RUN_FAILED, "%lld elements of the output were not written",
                     (long long)unwritten);
  else if (*fault)
    measure_conclude(&r->row, RUN_FAILED, "%s (of the inputs, %s)", fault, r->block->nonfinite);
  else
    measure_conclude(&r->row, RUN_OK, "the inputs are not finite: %s", r->block->nonfinite);
  return ATTN_OK;
}

static attn_status judge_plan(measured_run *r, const attn_plan *plan) {
  attn_view view;
  attn_status status = attn_plan_inspect(plan, &view);
  if (status) return status;
  if (view.rounding.path && !(r->row.path = names_keep(view.rounding.path)))
    return attn_fail(ATTN_ENOMEM, "no memory for the row of %s", r->row.key);
  const evidence e = evidence_of(r, plan, &view);
  status = evidence_all(&e, r->run->map, checks_run, &r->row);
  const bool has_nan = measure_block_has_nan(r->block);
  const int64_t unwritten = has_nan ? recheck_unwritten(&r->check) : 0;
  if (!status) status = repeat_surprises(r, view.seed); /* into the same output */
  if (!status && !has_nan) status = judge_properties(r, &e);
  if (!status && *r->block->nonfinite && r->row.verdict != VERDICT_VIOLATED)
    return conclude_nonfinite(r, &e, unwritten);
  if (status) return status;
  if (has_nan)
    conclude_nan(r, &view, unwritten);
  else if (r->row.verdict == VERDICT_VIOLATED)
    measure_conclude(&r->row, RUN_OK, "not timed: a bound is violated");
  return ATTN_OK;
}

static attn_status judge(measured_run *r) {
  attn_plan *own = NULL;
  const attn_plan *plan = NULL;
  attn_status status = plan_judged(r, r->run->spec, &own, &plan);
  if (!status) status = judge_plan(r, plan);
  attn_plan_destroy(own);
  return status;
}

static attn_status verify_variant(measured_run *r) {
  const attn_options options = measure_options(r);
  size_t work_size = 0;
  attn_cost cost;
  attn_status status = attn_estimate_spec(&r->block->problem, r->run->spec, &options, &work_size, &cost);
  if (status) return status;
  r->row.flops = 2 * cost.mul_add;
  r->row.bytes_moved = cost.bytes;
  r->row.work_bytes = (double)work_size;
  check_budget(r, work_size, &cost);
  if (r->row.status != RUN_OK) return ATTN_OK;
  const double before = memory_reset_peak();
  status = execute_once(r, r->run->spec, &r->first);
  /* As if it were the first run: what others left is not its own. */
  r->row.peak_rss = r->block->resident + (memory_peak() - before);
  r->row.peak_alloc = (double)r->memory.peak;
  if (!status) status = recheck_learn(&r->check);
  if (!status) status = judge(r);
  if (!status && r->row.status == RUN_OK && r->row.verdict != VERDICT_VIOLATED) status = measure_select(r);
  return status || r->row.status != RUN_OK || r->row.verdict == VERDICT_VIOLATED ? status : measure_watch(r);
}

attn_status measure_verify(measured_run *r) {
  result_row_init(&r->row);
  memory_counter_init(&r->memory, (size_t)r->block->job->budget_memory);
  attn_status status = grid_row(&r->block->job->block, r->run, &r->row);
  if (status) return status;
  const measure_block *block = r->block;
  r->check = (recheck){.q = block->q.at,
                       .k = block->k.at,
                       .v = block->v.at,
                       .o = block->o.at,
                       .q_bytes = block->q.bytes,
                       .k_bytes = block->k.bytes,
                       .v_bytes = block->v.bytes,
                       .o_bytes = block->o.bytes,
                       .dtype = block->as,
                       .d_v = r->row.d_v};
  recheck_begin(&r->check);
  r->row.status = RUN_OK;
  r->row.start_time = timing_wall();
  const null_baseline *null = null_find(r->run->variant);
  status = null ? judge_null(r, null) : verify_variant(r);
  if (status) conclude_status(&r->row, status);
  r->row.end_time = timing_wall();
  r->timed = r->plan && r->row.status == RUN_OK && r->row.verdict != VERDICT_VIOLATED;
  /* A turn plans anew, so that plans do not add up while others are verified. */
  attn_plan_destroy(r->plan);
  r->plan = NULL;
  return ATTN_OK;
}
