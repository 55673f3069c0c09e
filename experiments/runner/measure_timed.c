/* measure_timed.c - executions of a run: work memory between guards, turns of timing, and checks between
 * samples of whether the output is still right. */
#include "experiments/runner/measure.h"

#include "experiments/support/entropy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };
enum { CHECK_EVERY = 8 }; /* samples, on average */
#define CHECK_SHARE 0.1   /* of the time of a turn, beside the check at its beginning and its end */
enum { PLANS_SHARE = 4 }; /* plans that stay take this part of the budget of memory at most */

attn_status measure_open(measured_run *r) {
  const size_t size = attn_plan_work_size(r->plan);
  attn_status status = ATTN_OK;
  if (size > 0 && !memory_take(&r->memory, size))
    return attn_fail(ATTN_ENOMEM, "no memory for %zu bytes of work", size);
  /* The library aligns it itself. */
  if (size > 0 && (status = guard_open(&r->work, size, 1))) memory_give(&r->memory, size);
  if (!status) counters_read(&r->block->counters, &r->turn);
  return status;
}

/* Adds what was counted since the turn, or since the last pause. */
static void settle(measured_run *r) {
  counter_sample now;
  counters_read(&r->block->counters, &now);
  counters_add(&r->block->counters, &r->turn, &now, &r->counted);
}

/* Notes what a variant wrote to beside its own memory. */
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

void measure_close(measured_run *r) {
  settle(r);
  inspect_guards(r);
  if (r->work.at) memory_give(&r->memory, r->work.bytes);
  guard_close(&r->work);
}

/* Keeps the message of a turn's failure, since others may fail before the row is written. */
static attn_status keep_fault(measured_run *r, attn_status status) {
  if (status && !*r->fault) snprintf(r->fault, sizeof r->fault, "%s", attn_last_error());
  return status;
}

/* Executes beside what is timed and counted. */
static attn_status execute_aside(measured_run *r, const void *q, const void *k, const void *v) {
  r->number++;
  const measure_block *block = r->block;
  return attn_plan_run(r->plan, &(attn_tensors){.q = q,
                                                .k = k,
                                                .v = v,
                                                .o = block->o.at,
                                                .work = r->work.at,
                                                .extra = block->extra,
                                                .extras = block->extras});
}

attn_status measure_execute(void *context) {
  measured_run *r = context;
  const measure_block *block = r->block;
  r->executions++;
  return keep_fault(r, execute_aside(r, block->q.at, block->k.at, block->v.at));
}

void measure_prepare(void *context) {
  measured_run *r = context;
  settle(r);
  evict(&r->block->evictor);
  counters_read(&r->block->counters, &r->turn);
}

/* Mirrors the inputs of the block where they stand, or restores them. */
static attn_status mirror_inputs(measured_run *r) {
  const measure_block *block = r->block;
  const guard *const inputs[] = {&block->q, &block->k, &block->v};
  attn_status status = ATTN_OK;
  for (int i = 0; !status && i < 3; i++) status = guard_thaw(inputs[i]);
  if (!status) recheck_mirror(&r->check);
  for (int i = 0; !status && i < 3; i++) status = guard_freeze(inputs[i]);
  return status;
}

/* Copies of Q, K and V, or *memory NULL where the budget has no room for them. */
static void copy_inputs(const measured_run *r, void **memory, unsigned char *copy[3]) {
  const recheck *c = &r->check;
  const void *const from[] = {c->q, c->k, c->v};
  const size_t bytes[] = {c->q_bytes, c->k_bytes, c->v_bytes};
  size_t place[3], total = 0;
  *memory = NULL;
  for (int i = 0; i < 3; i++) {
    place[i] = total;
    total += (bytes[i] + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  }
  const size_t others = total + c->o_bytes + r->memory.now, budget = (size_t)r->block->job->budget_memory;
  if (others > budget || total > budget - others || posix_memalign(memory, ALIGNMENT, total) != 0) return;
  for (int i = 0; i < 3; i++) memcpy(copy[i] = (unsigned char *)*memory + place[i], from[i], bytes[i]);
}

/* What mirrored inputs must give: the first output of a fresh plan, from other addresses than those that the
 * process has computed from before. */
static attn_status learn_mirrored(measured_run *r) {
  void *memory;
  unsigned char *copy[3] = {r->check.q, r->check.k, r->check.v};
  attn_status status = mirror_inputs(r);
  if (status) return status;
  copy_inputs(r, &memory, copy);
  recheck_poison(&r->check);
  status = execute_aside(r, copy[0], copy[1], copy[2]);
  if (!status) status = recheck_learn(&r->check);
  free(memory);
  const attn_status restored = mirror_inputs(r);
  r->checked = r->number;
  return status ? status : restored;
}

attn_status measure_begin(void *context) {
  measured_run *r = context;
  const attn_options options = measure_options(r);
  attn_status status = ATTN_OK;
  if (!r->plan) status = attn_plan_create_spec(&r->plan, &r->block->problem, r->run->spec, &options);
  if (!status) status = measure_open(r);
  if (!status && !r->check.known[true]) status = learn_mirrored(r);
  recheck_poison(&r->check);
  r->until_check = 0;
  r->seen[false] = r->seen[true] = false;
  r->began = timing_now();
  r->paused = 0;
  if (!status) counters_read(&r->block->counters, &r->turn);
  return keep_fault(r, status);
}

/* Checks the output of the last execution, unless it was checked before. */
static attn_status check_output(measured_run *r) {
  if (r->checked == r->number) return ATTN_OK;
  r->checked = r->number;
  r->seen[r->check.mirrored] = true;
  return recheck_output(&r->check, r->number);
}

/* At the beginning of a turn and at random moments in it. Afterwards an execution brings the caches back,
 * unless they are to be empty or an execution takes longer than a warm-up. */
attn_status measure_check(void *context) {
  measured_run *r = context;
  const measure_block *block = r->block;
  const double start = timing_now();
  if (r->until_check-- > 0 || r->paused > CHECK_SHARE * (start - r->began)) return ATTN_OK;
  settle(r);
  attn_status status = check_output(r);
  if (!status && entropy_below(2)) status = mirror_inputs(r);
  recheck_poison(&r->check);
  if (!status && !block->evictor.buffer && r->first < block->job->timing.warmup)
    status = execute_aside(r, block->q.at, block->k.at, block->v.at);
  r->until_check = entropy_below(2 * CHECK_EVERY);
  r->paused += timing_now() - start;
  counters_read(&block->counters, &r->turn);
  return keep_fault(r, status);
}

void measure_challenge(measured_run *r, bool mirrored) {
  const measure_block *block = r->block;
  attn_status status = mirrored ? mirror_inputs(r) : ATTN_OK;
  recheck_poison(&r->check);
  if (!status) status = execute_aside(r, block->q.at, block->k.at, block->v.at);
  (void)keep_fault(r, status);
}

/* A plan stays for the next turn while all that stay leave the runs their memory. */
static void keep_plan(measured_run *r) {
  measure_block *block = r->block;
  const size_t limit = (size_t)block->job->budget_memory / PLANS_SHARE, bytes = r->memory.now;
  if (r->kept || !r->plan) return;
  if (bytes <= limit && block->kept <= limit - bytes) {
    r->kept = bytes;
    block->kept += bytes;
  } else {
    attn_plan_destroy(r->plan);
    r->plan = NULL;
  }
}

void measure_end(void *context) {
  measured_run *r = context;
  measure_close(r);
  if (!*r->fault && r->plan) (void)keep_fault(r, check_output(r));
  if (r->check.mirrored) (void)keep_fault(r, mirror_inputs(r));
  keep_plan(r);
}

/* Releases what the run holds for its turns. */
static void release(measured_run *r) {
  attn_plan_destroy(r->plan);
  r->plan = NULL;
  if (r->block) r->block->kept -= r->kept;
  r->kept = 0;
}

static void fill_times(measured_run *r, timing_subject *subject, const timing_summary *summary) {
  result_row *row = &r->row;
  row->time_min = summary->min;
  row->time_median = summary->median;
  row->time_mean = summary->mean;
  row->time_std = summary->std;
  row->time_mad = summary->mad;
  row->time_ci_lo = summary->ci_lo;
  row->time_ci_hi = summary->ci_hi;
  row->n_outliers = summary->outliers;
  row->n_samples = subject->count;
  row->iters_per_sample = subject->iterations;
  row->cycles = r->counted.event[0] / (double)r->executions;
  row->instructions = r->counted.event[1] / (double)r->executions;
  row->llc_misses = r->counted.event[2] / (double)r->executions;
  row->energy_pkg = r->counted.energy / (double)r->executions;
  row->gflops = 1e-9 * row->flops / summary->median;
  row->samples = subject->samples;
  row->rounds = subject->rounds;
  subject->samples = NULL;
  subject->rounds = NULL;
}

attn_status measure_finish(measured_run *r, timing_subject *subject, double drift_ratio) {
  timing_summary summary;
  r->row.end_time = timing_wall();
  release(r);
  if (*r->fault || subject->status) {
    const run_status outcome = subject->status ? measure_outcome(subject->status) : RUN_FAILED;
    measure_conclude(&r->row, outcome, "%s", *r->fault ? r->fault : attn_last_error());
    return ATTN_OK;
  }
  if (r->damage) {
    measure_conclude(&r->row, RUN_FAILED, "%s while it was timed", r->damage);
    return ATTN_OK;
  }
  const attn_status status =
      timing_summarise(subject->samples, subject->count, (uint64_t)r->run->seed, &summary);
  if (status) return status;
  fill_times(r, subject, &summary);
  r->row.drift_ratio = drift_ratio;
  return ATTN_OK;
}

void measured_run_free(measured_run *r) {
  release(r);
  result_row_free(&r->row);
  *r = (measured_run){0};
}
