/* worker_loop.c - the loop of a worker: verifies and times the runs of one block.
 *
 * Verification comes first, for all runs; then those that passed take turns being timed. A run that has
 * nothing left to time is reported at once, and so is one too long to take turns. The others are reported
 * when the last of them is timed: reporting means writing and syncing files, which would disturb those still
 * at their turns. What a kill can lose is therefore one block's turns, of at most a few times max_time a
 * run. */
#define _GNU_SOURCE /* prctl */
#include "experiments/runner/worker_loop.h"

#include "data/support/file.h"
#include "experiments/results/row_json.h"
#include "experiments/runner/measure.h"
#include "experiments/runner/message.h"
#include "experiments/support/entropy.h"
#include "experiments/support/point.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

static int channel = -1;
static char token[MESSAGE_TOKEN];

void worker_open(void) {
  enum { LOWEST = 64, ROOM = 64 };
  struct rlimit limit;
  const bool known = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur > LOWEST + 2 * ROOM;
  const int64_t highest = known && limit.rlim_cur < 65536 ? (int64_t)limit.rlim_cur : 1024;
  channel = fcntl(WORKER_OUTPUT, F_DUPFD_CLOEXEC, LOWEST + (int)entropy_below(highest - LOWEST - ROOM));
  if (channel >= 0) close(WORKER_OUTPUT);
}

/* Takes the object. */
static attn_status send(message_kind kind, json_t *object) {
  char *line = NULL;
  size_t length = 0;
  point_fix();
  attn_status status = object ? message_write(token, kind, timing_now(), object, &line, &length)
                              : attn_fail(ATTN_ENOMEM, "no memory for a message to the parent");
  if (!status && !file_write_all(channel, line, length))
    status = attn_fail(ATTN_EFOREIGN, "the parent of this worker is gone");
  free(line);
  json_decref(object);
  return status;
}

/* Takes the value. */
static attn_status write_message(const char *name, json_t *value) {
  json_t *object = value ? json_object() : NULL;
  if (object && json_object_set(object, name, value) != 0) {
    json_decref(object);
    object = NULL;
  }
  json_decref(value);
  return send(MESSAGE_OBJECT, object);
}

/* From now on a run is worked on; what the process has taken since the block was opened is not the run's. */
static attn_status write_start(const measured_run *run, const measure_block *block) {
  const double beside = memory_resident() - block->resident;
  return send(MESSAGE_OBJECT,
              json_pack("{ss sf}", "starting", run->run->key, "beside", beside > 0 ? beside : 0.0));
}

static attn_status write_row(measured_run *run) {
  const attn_status status = send(MESSAGE_ROW, result_row_to_json(&run->row));
  measured_run_free(run);
  return status;
}

/* A turn as the parent sees it. */
static attn_status begin_turn(void *context) {
  const measured_run *run = context;
  const attn_status status = write_start(run, run->block);
  return status ? status : measure_begin(context);
}

static void end_turn(void *context) {
  measure_end(context);
  /* A write fails only if the parent is gone, and then this process is killed (see die_with_parent). */
  (void)write_message("resting", json_true());
}

/* A last execution, unless the last turn saw the output change with the inputs and back. */
static void challenge(measured_run *run, const timing_subject *subject) {
  const bool *seen = run->seen, other = !seen[true];
  if (subject->status || *run->fault || !run->check.known[true] || (seen[false] && seen[true])) return;
  if (!begin_turn(run)) measure_challenge(run, other);
  end_turn(run);
}

static attn_status time_runs(measured_run *runs, size_t count, const job *j) {
  timing_subject *subjects = calloc(count + 1, sizeof *subjects);
  measured_run **owners = calloc(count + 1, sizeof(measured_run *));
  attn_status status =
      subjects && owners ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory to time %zu runs", count);
  int64_t timed = 0;
  for (size_t i = 0; !status && i < count; i++) {
    if (!runs[i].timed) continue;
    subjects[timed] = (timing_subject){.begin = begin_turn,
                                       .check = measure_check,
                                       .prepare = j->block.cache == CACHE_COLD ? measure_prepare : NULL,
                                       .execute = measure_execute,
                                       .end = end_turn,
                                       .context = &runs[i],
                                       .first = runs[i].first};
    owners[timed++] = &runs[i];
  }
  const double before = timing_spin();
  if (!status) status = timing_rounds(subjects, timed, &j->timing, (uint64_t)j->block.data_seed);
  const double drift = timing_spin() / before;
  for (int64_t i = 0; !status && i < timed; i++) {
    challenge(owners[i], &subjects[i]);
    status = measure_finish(owners[i], &subjects[i], drift);
    if (!status) status = write_row(owners[i]);
  }
  for (int64_t i = 0; subjects && i < timed; i++) timing_subject_free(&subjects[i]);
  free(owners);
  free(subjects);
  return status;
}

static attn_status verify_runs(measure_block *block, measured_run *runs) {
  const job *j = block->job;
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < j->block.count; i++) {
    runs[i] = (measured_run){.block = block, .run = &j->block.runs[i]};
    status = write_start(&runs[i], block);
    if (!status) status = measure_verify(&runs[i]);
    if (status) break;
    if (!runs[i].timed)
      status = write_row(&runs[i]);
    else if (runs[i].first > j->timing.max_time) /* it has its one sample already */
      status = time_runs(&runs[i], 1, j);
  }
  return status ? status : write_message("resting", json_true());
}

/* Says why no run of the block can start, under the name of the status they get. */
static attn_status give_up(run_status outcome) {
  return write_message(run_status_names[outcome], result_json_text(attn_last_error()));
}

static attn_status check_memory(const job *j) {
  const attn_problem problem = grid_problem(&j->block);
  size_t total = 0, output = 0;
  const attn_status status = measure_tensor_bytes(&problem, &total, &output);
  if (status || total <= (size_t)j->budget_memory) return status;
  return attn_fail(ATTN_EUNSUPPORTED, "Q, K, V and O take %.3g GiB; the budget is %.3g GiB",
                   (double)total / 0x1p30, (double)j->budget_memory / 0x1p30);
}

static attn_status run_job(const job *j) {
  measure_block block = {.job = j};
  if (check_memory(j)) return give_up(RUN_SKIPPED);
  measured_run *runs = calloc(j->block.count + 1, sizeof *runs);
  attn_status status =
      runs ? measure_block_open(&block) : attn_fail(ATTN_ENOMEM, "no memory for the block's runs");
  if (status) {
    status = give_up(measure_outcome(status));
  } else {
    status = verify_runs(&block, runs);
    if (!status) status = time_runs(runs, j->block.count, j);
    if (!status) status = write_message("done", json_true());
  }
  for (size_t i = 0; runs && i < j->block.count; i++) measured_run_free(&runs[i]);
  free(runs);
  measure_block_close(&block);
  return status;
}

/* The system kills a worker when its parent ends, and before any other process when memory runs out. Both are
 * best effort. */
static void die_with_parent(void) {
#ifdef __linux__
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  FILE *score = fopen("/proc/self/oom_score_adj", "we");
  if (score) {
    fputs("1000", score);
    fclose(score);
  }
#endif
}

static attn_status read_job(job *j) {
  json_error_t error;
  json_t *object = json_loadf(stdin, JSON_REJECT_DUPLICATES, &error);
  if (!object)
    return attn_fail(ATTN_EINVAL, "standard input: %s; this command is for `attnlab run' only", error.text);
  const attn_status status = job_from_json(object, j);
  const char *text = json_string_value(json_object_get(object, "token"));
  snprintf(token, sizeof token, "%s", text ? text : "");
  json_decref(object);
  return status;
}

attn_status worker_run(void) {
  job j = {0};
  die_with_parent();
  if (channel < 0)
    return attn_fail(ATTN_EINVAL, "descriptor 3 is closed; this command is for `attnlab run' only");
  attn_status status = read_job(&j);
  if (status) return status;
  status = run_job(&j);
  json_decref(j.settled);
  grid_block_free(&j.block);
  return status;
}
