/* pool.c - the parent's side of a worker: starts it, reads it, watches its time and memory, judges its
 * end. */
#define _GNU_SOURCE /* pipe2 */
#include "experiments/runner/pool.h"

#include "experiments/instruments/memory.h"
#include "experiments/results/row_json.h"
#include "experiments/runner/provenance.h"
#include "experiments/runner/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { POLL_MS = 50, LINE_MAX_BYTES = 64 << 20 };

typedef struct pending_run {
  bool reported;
  double seconds; /* spent in it, over its turns */
} pending_run;

typedef struct worker {
  const worker_pool *pool;
  const job *job;
  pending_run *pending; /* of each run of the block */
  pid_t pid;
  int output;
  char *buffer; /* what has been read and not yet handled */
  size_t used, size;
  int64_t current; /* index of the run at work, -1: none */
  double since;    /* when it became so, or account_time was last called */
  bool done;
  run_status killed; /* why the parent killed this process; RUN_OK: it did not */
} worker;

static double seconds_of(const worker *w, int64_t index) { return w->pending[index].seconds; }

/* Adds the time since the last call to the run at work. */
static void account_time(worker *w) {
  const double now = timing_now();
  if (w->current >= 0) w->pending[w->current].seconds += now - w->since;
  w->since = now;
}

static attn_status report(worker *w, int64_t index, result_row *row) {
  w->pending[index].reported = true;
  row->run_time = seconds_of(w, index);
  return w->pool->row(w->pool->context, &w->job->block.runs[index], row);
}

/* Reports a run that has no result of its own. */
static attn_status report_end(worker *w, int64_t index, run_status outcome, const char *message) {
  result_row row;
  result_row_init(&row);
  attn_status status = grid_row(&w->job->block, &w->job->block.runs[index], &row);
  if (!status) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    row.end_time = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    row.start_time = row.end_time - seconds_of(w, index);
    row.status = outcome;
    row.message = strdup(message);
    status = report(w, index, &row);
  }
  result_row_free(&row);
  return status;
}

static attn_status report_all(worker *w, run_status outcome, const char *message) {
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < w->job->block.count; i++)
    if (!w->pending[i].reported) status = report_end(w, (int64_t)i, outcome, message);
  return status;
}

static int64_t find_run(const worker *w, const char *key) {
  for (size_t i = 0; key && i < w->job->block.count; i++)
    if (!w->pending[i].reported && strcmp(w->job->block.runs[i].key, key) == 0) return (int64_t)i;
  return -1;
}

static attn_status accept_row(worker *w, const json_t *object) {
  result_row row;
  attn_status status = result_row_from_json(object, &row);
  if (status) return status;
  const int64_t index = find_run(w, row.key);
  if (index >= 0) status = report(w, index, &row);
  result_row_free(&row);
  return status;
}

static attn_status handle_message(worker *w, const char *line, size_t length) {
  json_error_t error;
  json_t *object = json_loadb(line, length, JSON_ALLOW_NUL, &error);
  if (!object) return attn_fail(ATTN_EFOREIGN, "a worker wrote a line that is not JSON: %s", error.text);
  attn_status status = ATTN_OK;
  const json_t *row = json_object_get(object, "row");
  const char *starting = json_string_value(json_object_get(object, "starting"));
  account_time(w);
  if (starting)
    w->current = find_run(w, starting);
  else if (row)
    status = accept_row(w, row);
  else if (json_object_get(object, "done"))
    w->done = true;
  else if (json_object_get(object, "resting"))
    w->current = -1;
  for (int outcome = RUN_OK + 1; !status && run_status_names[outcome]; outcome++) {
    const char *message = json_string_value(json_object_get(object, run_status_names[outcome]));
    if (message) status = report_all(w, (run_status)outcome, message);
  }
  json_decref(object);
  return status;
}

/* Handles the complete lines in the buffer. */
static attn_status handle_lines(worker *w) {
  attn_status status = ATTN_OK;
  char *start = w->buffer, *newline;
  size_t left = w->used;
  while (!status && (newline = memchr(start, '\n', left))) {
    const size_t length = (size_t)(newline - start);
    status = handle_message(w, start, length);
    start = newline + 1;
    left -= length + 1;
  }
  memmove(w->buffer, start, left);
  w->used = left;
  return status;
}

/* Reads what there is; *open becomes false at the end. */
static attn_status read_some(worker *w, bool *open) {
  if (w->size - w->used < 65536) {
    const size_t size = 2 * w->size + 131072;
    char *buffer = size <= LINE_MAX_BYTES ? realloc(w->buffer, size) : NULL;
    if (!buffer) return attn_fail(ATTN_ENOMEM, "no memory for a worker's line of %zu bytes", size);
    w->buffer = buffer;
    w->size = size;
  }
  const ssize_t count = read(w->output, w->buffer + w->used, w->size - w->used);
  if (count < 0)
    return errno == EINTR || errno == EAGAIN
               ? ATTN_OK
               : attn_fail(ATTN_EFOREIGN, "a worker's pipe: %s", strerror(errno));
  *open = count > 0;
  w->used += (size_t)count;
  return handle_lines(w);
}

static void kill_worker(worker *w, run_status why) {
  if (w->killed == RUN_OK) w->killed = why;
  kill(w->pid, SIGKILL);
}

static void watch(worker *w) {
  account_time(w);
  if (w->current >= 0 && seconds_of(w, w->current) > w->job->budget_time) kill_worker(w, RUN_TIMEOUT);
  if (memory_of_process(w->pid) > w->job->budget_memory) kill_worker(w, RUN_OOM);
}

static attn_status poll_output(worker *w) {
  attn_status status = ATTN_OK;
  bool open = true;
  w->since = timing_now();
  while (open && !status && !*w->pool->interrupted) {
    struct pollfd event = {.fd = w->output, .events = POLLIN};
    const int ready = poll(&event, 1, POLL_MS);
    if (ready < 0 && errno != EINTR) return attn_fail(ATTN_EFOREIGN, "poll: %s", strerror(errno));
    if (ready > 0) status = read_some(w, &open);
    watch(w);
    w->pool->tick(w->pool->context, w->current >= 0 ? &w->job->block.runs[w->current] : NULL);
  }
  return status;
}

/* Reports the end of a worker as the result of its current run, or of all that are left if there is none. */
static attn_status judge_end(worker *w, int wait_status) {
  char message[160];
  run_status outcome = RUN_CRASHED;
  if (w->killed == RUN_TIMEOUT) {
    outcome = RUN_TIMEOUT;
    snprintf(message, sizeof message, "took longer than its budget of %g s", w->job->budget_time);
  } else if (w->killed == RUN_OOM) {
    outcome = RUN_OOM;
    snprintf(message, sizeof message, "the worker took more memory than its budget of %.3g GiB",
             (double)w->job->budget_memory / 0x1p30);
  } else if (WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL) {
    outcome = RUN_OOM;
    snprintf(message, sizeof message,
             "the worker was killed from outside, as the system does when memory runs out");
  } else if (WIFSIGNALED(wait_status)) {
    const int number = WTERMSIG(wait_status);
    snprintf(message, sizeof message, "the worker died of signal %d (%s)%s", number, strsignal(number),
             number == SIGSEGV ? ", as by writing to its inputs or beyond its output or work memory" : "");
  } else {
    snprintf(message, sizeof message, "the worker exited with code %d", WEXITSTATUS(wait_status));
  }
  if (w->current >= 0 && !w->pending[w->current].reported) return report_end(w, w->current, outcome, message);
  return report_all(w, outcome, message);
}

static attn_status send_job(int input, const json_t *object) {
  size_t length = 0;
  char *text = NULL;
  attn_status status = result_json_line(object, &text, &length);
  for (size_t sent = 0; !status && sent < length;) {
    const ssize_t written = write(input, text + sent, length - sent);
    if (written < 0 && errno == EPIPE) break; /* it died; how is judged by its end */
    if (written < 0 && errno != EINTR)
      status = attn_fail(ATTN_EFOREIGN, "a worker's pipe: %s", strerror(errno));
    if (written > 0) sent += (size_t)written;
  }
  free(text);
  return status;
}

/* attnlab worker --plugin a --plugin b, with the job on 0 and its lines on 3, in a process group of its own,
 * so that an interrupt from the keyboard reaches the parent alone. */
static attn_status spawn(worker *w, int *input) {
  int to[2] = {-1, -1}, from[2] = {-1, -1};
  size_t plugins = 0;
  while (w->pool->plugins[plugins]) plugins++;
  char **argv = calloc(2 * plugins + 3, sizeof *argv);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  if (!argv) return attn_fail(ATTN_ENOMEM, "no memory for a worker's arguments");
  static char name[] = "attnlab", subcommand[] = "worker", option[] = "--plugin";
  argv[0] = name;
  argv[1] = subcommand;
  for (size_t i = 0; i < plugins; i++) {
    argv[2 + 2 * i] = option;
    argv[3 + 2 * i] = w->pool->plugins[i];
  }
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  int error = pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC) ? errno : 0;
  /* Before WORKER_OUTPUT, which may be its number here. */
  for (int to_user = STDOUT_FILENO; !error && w->pool->messages && to_user <= STDERR_FILENO; to_user++)
    error = posix_spawn_file_actions_adddup2(&actions, w->pool->messages, to_user);
  if (!error) error = posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
  if (!error) error = posix_spawn_file_actions_adddup2(&actions, from[1], WORKER_OUTPUT);
  if (!error) error = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  if (!error) error = posix_spawn(&w->pid, w->pool->program, &actions, &attributes, argv, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  free(argv);
  if (to[0] >= 0) close(to[0]);
  if (from[1] >= 0) close(from[1]);
  if (error) {
    if (to[1] >= 0) close(to[1]);
    if (from[0] >= 0) close(from[0]);
    return attn_fail(ATTN_EFOREIGN, "%s: a worker cannot be started: %s", w->pool->program, strerror(error));
  }
  *input = to[1];
  w->output = from[0];
  return ATTN_OK;
}

/* The job with the runs that are not reported yet; shares the texts of the original. */
static json_t *remaining_job(const worker *w) {
  job left = *w->job;
  left.block.runs = calloc(left.block.count + 1, sizeof *left.block.runs);
  if (!left.block.runs) {
    attn_fail(ATTN_ENOMEM, "no memory for a worker's job");
    return NULL;
  }
  left.block.count = 0;
  for (size_t i = 0; i < w->job->block.count; i++)
    if (!w->pending[i].reported) left.block.runs[left.block.count++] = w->job->block.runs[i];
  json_t *object = job_to_json(&left);
  free(left.block.runs);
  return object;
}

/* Rows that a worker of another build measures would name the wrong build. */
static attn_status check_program(const worker_pool *pool) {
  char stamp[PROVENANCE_STAMP] = "";
  if (!provenance_stamp(pool->program, stamp) && strcmp(stamp, pool->stamp) == 0) return ATTN_OK;
  return attn_fail(ATTN_EFOREIGN,
                   "%s: it was replaced while the sweep ran; the same command goes on where it stopped",
                   pool->program);
}

static attn_status run_worker(worker *w) {
  int input = -1, wait_status = 0;
  attn_status status = check_program(w->pool);
  if (status) return status;
  json_t *object = remaining_job(w);
  status = object ? spawn(w, &input) : ATTN_ENOMEM;
  if (status) {
    json_decref(object);
    return status;
  }
  w->current = -1;
  w->done = false;
  w->killed = RUN_OK;
  w->used = 0;
  status = send_job(input, object);
  close(input);
  json_decref(object);
  if (!status) status = poll_output(w);
  if (status || *w->pool->interrupted) kill(w->pid, SIGKILL);
  close(w->output);
  while (waitpid(w->pid, &wait_status, 0) < 0 && errno == EINTR) {}
  if (status || *w->pool->interrupted) return status;
  return w->done ? report_all(w, RUN_CRASHED, "the worker ended without a result for this run")
                 : judge_end(w, wait_status);
}

attn_status pool_run_block(const worker_pool *pool, const job *j) {
  attn_status status = ATTN_OK;
  worker w = {.pool = pool, .job = j};
  w.pending = calloc(j->block.count + 1, sizeof *w.pending);
  if (!w.pending) return attn_fail(ATTN_ENOMEM, "no memory for a block of %zu runs", j->block.count);
  for (size_t i = 0; !status && i < j->block.count && !*pool->interrupted;) {
    if (w.pending[i].reported)
      i++;
    else
      status = run_worker(&w);
  }
  free(w.buffer);
  free(w.pending);
  return status;
}
