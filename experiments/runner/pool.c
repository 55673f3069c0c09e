/* pool.c - the parent's side of a worker: reads it, watches its time and memory, judges its end. */
#include "experiments/runner/pool.h"

#include "experiments/instruments/processes.h"
#include "experiments/results/row_json.h"
#include "experiments/runner/measure.h"
#include "experiments/runner/message.h"
#include "experiments/runner/provenance.h"
#include "experiments/runner/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { POLL_MS = 50, END_MS = 2, LINE_MAX_BYTES = 64 << 20 };
/* Seconds: between two looks that are not disturbed by reading; from the last message to the end; of a gap in
 * which this process was stopped. */
static const double WATCH_EVERY = 1, END_GRACE = 5, GAP = 1;

typedef struct pending_run {
  bool reported;
  double seconds; /* spent in it, over its turns */
} pending_run;

typedef struct worker {
  const worker_pool *pool;
  const job *job;
  pending_run *pending; /* of each run of the block */
  char token[MESSAGE_TOKEN];
  spawned process;
  bool open; /* its pipe */
  int wait_status;
  char *buffer; /* what has been read and not yet handled */
  size_t used, size;
  int64_t current; /* index of the run at work, -1: none */
  double since;    /* when it became so, by the worker's clock */
  double beside;   /* bytes that the worker keeps for other runs */
  double silent;   /* when the pipe was closed or the last message came; 0: neither */
  bool done, reported;
  run_status killed; /* why the parent killed this process; RUN_OK: it did not */
  const char *why;   /* of RUN_FAILED */
} worker;

static double seconds_of(const worker *w, int64_t index) { return w->pending[index].seconds; }

/* Adds the time up to a moment to the run at work. The worker's clock counts: it goes on while this process
 * is stopped. */
static void account_time(worker *w, double at) {
  if (!(at > w->since)) return;
  if (w->current >= 0) w->pending[w->current].seconds += at - w->since;
  w->since = at;
}

static attn_status report(worker *w, int64_t index, result_row *row) {
  w->pending[index].reported = true;
  w->reported = true;
  row->run_time = seconds_of(w, index);
  return w->pool->row(w->pool->context, &w->job->block.runs[index], row);
}

/* Reports a run that returned no result. */
static attn_status report_end(worker *w, int64_t index, run_status outcome, const char *message) {
  result_row row;
  result_row_init(&row);
  attn_status status = grid_row(&w->job->block, &w->job->block.runs[index], &row);
  if (!status) {
    row.end_time = timing_wall();
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

static attn_status accept_row(worker *w, const worker_message *m) {
  result_row row;
  attn_status status = result_row_parse(m->text, m->length, &row);
  if (status) return status;
  const int64_t index = find_run(w, row.key);
  if (index >= 0) status = report(w, index, &row);
  result_row_free(&row);
  return status;
}

static void kill_worker(worker *w, run_status why, const char *text) {
  if (w->killed == RUN_OK) {
    w->killed = why;
    w->why = text;
  }
  processes_kill(&w->process.tree);
}

static attn_status handle_object(worker *w, const json_t *object) {
  attn_status status = ATTN_OK;
  const char *starting = json_string_value(json_object_get(object, "starting"));
  if (starting) {
    w->current = find_run(w, starting);
    w->beside = json_number_value(json_object_get(object, "beside"));
  } else if (json_object_get(object, "done")) {
    w->done = true;
    w->silent = timing_now();
  } else if (json_object_get(object, "resting")) {
    w->current = -1;
  }
  for (int outcome = RUN_OK + 1; !status && run_status_names[outcome]; outcome++) {
    const char *message = json_string_value(json_object_get(object, run_status_names[outcome]));
    if (message) status = report_all(w, (run_status)outcome, message);
  }
  return status;
}

/* What is no message was written by somebody who had no business there, and may have torn messages. */
static attn_status handle_message(worker *w, const char *line, size_t length) {
  worker_message m;
  json_t *object = NULL;
  attn_status status = ATTN_OK;
  const bool sound = message_read(w->token, line, length, &m);
  if (sound) account_time(w, m.at);
  if (sound && m.kind == MESSAGE_ROW)
    status = accept_row(w, &m);
  else if (sound && (object = json_loadb(m.text, m.length, JSON_ALLOW_NUL, NULL)))
    status = handle_object(w, object);
  else
    kill_worker(w, RUN_FAILED, "a message of the worker was damaged, as by writing to a foreign descriptor");
  json_decref(object);
  return status;
}

/* Handles the complete lines in the buffer. */
static attn_status handle_lines(worker *w) {
  attn_status status = ATTN_OK;
  char *start = w->buffer, *newline;
  size_t left = w->used;
  while (!status && w->killed == RUN_OK && (newline = memchr(start, '\n', left))) {
    const size_t length = (size_t)(newline - start);
    status = handle_message(w, start, length);
    start = newline + 1;
    left -= length + 1;
  }
  memmove(w->buffer, start, left);
  w->used = left;
  return status;
}

/* Reads what there is; *more: perhaps there is more. */
static attn_status read_some(worker *w, bool *more) {
  if (w->size - w->used < 65536) {
    const size_t size = 2 * w->size + 131072;
    char *buffer = size <= LINE_MAX_BYTES ? realloc(w->buffer, size) : NULL;
    if (!buffer) return attn_fail(ATTN_ENOMEM, "no memory for a worker's line of %zu bytes", size);
    w->buffer = buffer;
    w->size = size;
  }
  const ssize_t count = read(w->process.output, w->buffer + w->used, w->size - w->used);
  *more = count > 0;
  if (count < 0)
    return errno == EINTR || errno == EAGAIN
               ? ATTN_OK
               : attn_fail(ATTN_EFOREIGN, "a worker's pipe: %s", strerror(errno));
  if (count == 0) {
    w->open = false;
    w->silent = timing_now();
  }
  w->used += (size_t)count;
  return handle_lines(w);
}

static void watch(worker *w) {
  const double now = timing_now(), budget = w->job->budget_time;
  const double memory = (double)processes_memory(&w->process.tree);
  if (w->current >= 0 && seconds_of(w, w->current) + (now - w->since) > budget) {
    account_time(w, now);
    kill_worker(w, RUN_TIMEOUT, NULL);
  }
  if (memory > (double)w->job->budget_memory + w->beside) kill_worker(w, RUN_OOM, NULL);
  if (w->silent > 0 && now - w->silent > END_GRACE) kill_worker(w, RUN_FAILED, "the worker closed its pipe");
}

/* Reads until the worker ends, whoever else holds its pipe, and then what is left in it. */
static attn_status poll_output(worker *w) {
  attn_status status = ATTN_OK;
  bool ended = false, more = true;
  double looked = timing_now(), watched = looked;
  while (!ended && !status && !*w->pool->interrupted) {
    struct pollfd event = {.fd = w->open ? w->process.output : -1, .events = POLLIN};
    const int ready = poll(&event, 1, w->open ? POLL_MS : END_MS);
    if (ready < 0 && errno != EINTR) return attn_fail(ATTN_EFOREIGN, "poll: %s", strerror(errno));
    /* Messages that came while this process was stopped are read before it judges. */
    const double now = timing_now();
    if (now - looked > GAP) watched = now;
    looked = now;
    if (ready > 0) status = read_some(w, &more);
    if (ready <= 0 || now - watched > WATCH_EVERY) {
      watch(w);
      watched = now;
    }
    ended = spawn_ended(&w->process);
    w->pool->tick(w->pool->context, w->current >= 0 ? &w->job->block.runs[w->current] : NULL);
  }
  for (more = w->open; more && !status && w->killed == RUN_OK && !*w->pool->interrupted;)
    status = read_some(w, &more);
  if (w->current >= 0 && !w->done) account_time(w, timing_now());
  return status;
}

/* Reports the end of a worker as the result of its current run; if there is none, of all that are left,
 * unless the worker brought something to its end: then another one goes on. */
static attn_status judge_end(worker *w) {
  const int wait_status = w->wait_status;
  char message[160];
  run_status outcome = RUN_CRASHED;
  if (w->killed == RUN_TIMEOUT) {
    outcome = RUN_TIMEOUT;
    snprintf(message, sizeof message, "took longer than its budget of %g s", w->job->budget_time);
  } else if (w->killed == RUN_OOM) {
    outcome = RUN_OOM;
    snprintf(message, sizeof message,
             "its process, with what checks take, held more resident memory than the budget of %.3g MiB",
             (double)w->job->budget_memory / 0x1p20);
  } else if (w->killed == RUN_FAILED) {
    outcome = RUN_FAILED;
    snprintf(message, sizeof message, "%s", w->why);
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
  return w->reported ? ATTN_OK : report_all(w, outcome, message);
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
  return attn_fail(ATTN_EFOREIGN, "%s: it was replaced while the sweep ran; the same command resumes",
                   pool->program);
}

static attn_status run_worker(worker *w) {
  attn_status status = check_program(w->pool);
  if (status) return status;
  message_token(w->token);
  json_t *object = remaining_job(w);
  if (!object) return ATTN_ENOMEM;
  status = json_object_set_new(object, "token", json_string(w->token)) == 0
               ? spawn_worker(w->pool, w->token, &w->process)
               : attn_fail(ATTN_ENOMEM, "no memory for a worker's job");
  if (status) {
    json_decref(object);
    return status;
  }
  w->current = -1;
  w->open = true;
  w->done = w->reported = false;
  w->killed = RUN_OK;
  w->beside = w->silent = 0;
  w->since = timing_now();
  w->used = 0;
  status = send_job(w->process.input, object);
  close(w->process.input);
  json_decref(object);
  if (!status) status = poll_output(w);
  spawn_end(&w->process, &w->wait_status);
  if (status || *w->pool->interrupted) return status;
  return w->done ? report_all(w, RUN_CRASHED, "the worker ended without a result for this run")
                 : judge_end(w);
}

attn_status pool_run_block(const worker_pool *pool, const job *j) {
  attn_status status = ATTN_OK;
  worker w = {.pool = pool, .job = j};
  w.pending = calloc(j->block.count + 1, sizeof *w.pending);
  if (!w.pending) return attn_fail(ATTN_ENOMEM, "no memory for a block of %zu runs", j->block.count);
  processes_adopt(1);
  /* Without its tensors no process is worth starting. */
  if (j->block.unfit) status = report_all(&w, measure_outcome(j->block.unfit_status), j->block.unfit);
  for (size_t i = 0; !status && i < j->block.count && !*pool->interrupted;) {
    if (w.pending[i].reported)
      i++;
    else
      status = run_worker(&w);
  }
  processes_adopt(0);
  free(w.buffer);
  free(w.pending);
  return status;
}
