/* child.c - see child.h. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/conformance/child.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "data/support/file.h"
#include "experiments/instruments/timing.h"

enum { FORKED = 113, MESSAGE = 'm', END = 'e' };
static const double idle_least =
    10; /* seconds without any processor time, after which it is held to wait forever */
static const double wall_most = 30; /* times the limit, of the wall clock, for what barely moves */
static const double look = 0.2;     /* seconds between two looks at the clocks */

bool child_send(int to, const void *message, size_t bytes) {
  const char kind = MESSAGE;
  return file_write_all(to, &kind, 1) && file_write_all(to, message, bytes);
}

static void leave_at_fork(void) { _exit(FORKED); }

static void work_alone(const child_job *job, int to) {
  const char kind = END;
  setpgid(0, 0);
  alarm((unsigned)fmin(2 * wall_most * job->limit + 60, 1e6)); /* if the parent dies */
  pthread_atfork(leave_at_fork, NULL, NULL);
  job->work(job->context, to);
  (void)file_write_all(to, &kind, 1);
  _exit(0);
}

/* The clocks of a child: what it used when it last did something. */
typedef struct watch {
  clockid_t clock;
  double used, used_at_message, wall, wall_at_message;
} watch;

static double processor_time(const watch *w) {
  struct timespec t;
  return clock_gettime(w->clock, &t) ? w->used : (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void watch_message(watch *w) {
  w->used_at_message = w->used = processor_time(w);
  w->wall_at_message = w->wall = timing_now();
}

/* Is it stuck? Says how. */
static bool watch_stuck(watch *w, double limit, char text[CHILD_TEXT]) {
  const double now = timing_now(), used = processor_time(w), idle = fmax(limit, idle_least);
  if (used > w->used) {
    w->used = used;
    w->wall = now;
  }
  if (used - w->used_at_message > limit)
    snprintf(text, CHILD_TEXT,
             "it did not come to an end within %g s of processor time (endless loop? --limit)", limit);
  else if (now - w->wall > idle)
    snprintf(text, CHILD_TEXT, "it did not come to an end: for %g s it used no processor time (a lock?)",
             idle);
  else if (now - w->wall_at_message > wall_most * fmax(limit, 1))
    snprintf(text, CHILD_TEXT, "it did not come to an end within %g s, of which it used %.3g (a lock?)",
             now - w->wall_at_message, used - w->used_at_message);
  else
    return false;
  return true;
}

/* Takes messages until the end, or its pipe closes, or it is stuck. */
static void take_messages(const child_job *job, int from, watch *w, child_result *r) {
  char room[1 + CHILD_MESSAGE];
  size_t have = 0;
  watch_message(w);
  for (;;) {
    struct pollfd wait = {.fd = from, .events = POLLIN};
    const int ready = poll(&wait, 1, (int)(look * 1e3));
    if (ready <= 0) {
      if (!watch_stuck(w, job->limit, r->text)) continue;
      r->end = CHILD_ENDLESS;
      return;
    }
    const size_t wanted = have ? 1 + job->message : 1;
    const ssize_t got = read(from, room + have, wanted - have);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    have += (size_t)got;
    if (*room == END) {
      r->end = CHILD_WHOLE;
      return;
    }
    if (have < 1 + job->message) continue;
    watch_message(w);
    have = 0;
    if (job->take(job->context, room + 1)) continue;
    r->end = CHILD_STOPPED;
    return;
  }
}

static void say_lost(int how, bool left, char text[CHILD_TEXT]) {
  if (WIFSIGNALED(how))
    snprintf(text, CHILD_TEXT, "it crashed: %s", strsignal(WTERMSIG(how)));
  else if (left || WEXITSTATUS(how) == FORKED)
    snprintf(text, CHILD_TEXT,
             "it started a process (fork): a variant computes in the process that calls it");
  else
    snprintf(text, CHILD_TEXT, "it left the program with exit code %d", WEXITSTATUS(how));
}

attn_status child_run(const child_job *job, child_result *out) {
  int ends[2], how = 0;
  watch w = {.used = 0};
  child_result r = {.end = CHILD_LOST};
  if (job->message > CHILD_MESSAGE) return attn_fail(ATTN_EINVAL, "a message of %zu bytes", job->message);
  fflush(NULL);
  if (pipe(ends)) return attn_fail(ATTN_EFOREIGN, "pipe failed");
  const pid_t child = fork();
  if (child < 0) {
    close(ends[0]);
    close(ends[1]);
    return attn_fail(ATTN_EFOREIGN, "fork failed");
  }
  if (child == 0) {
    close(ends[0]);
    work_alone(job, ends[1]);
  }
  setpgid(child, child);
  close(ends[1]);
  if (clock_getcpuclockid(child, &w.clock)) w.clock = CLOCK_MONOTONIC;
  take_messages(job, ends[0], &w, &r);
  r.seconds = processor_time(&w);
  close(ends[0]);
  if (r.end != CHILD_WHOLE && r.end != CHILD_LOST) kill(-child, SIGKILL);
  while (waitpid(child, &how, 0) < 0 && errno == EINTR) continue;
  const bool left = kill(-child, SIGKILL) == 0; /* processes of its group, now without it */
  if (r.end == CHILD_WHOLE && (left || !WIFEXITED(how) || WEXITSTATUS(how) != 0)) r.end = CHILD_LOST;
  if (r.end == CHILD_LOST) say_lost(how, left, r.text);
  *out = r;
  return ATTN_OK;
}
