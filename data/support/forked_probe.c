/* forked_probe.c - see forked_probe.h. */
#define _GNU_SOURCE /* prctl, pipe2 */
#include "data/support/forked_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "data/support/file.h"

enum { FORKED = 113, MESSAGE = 'm', END = 'e' };
static const double idle_least =
    10; /* seconds without any processor time, after which it is held to wait forever */
static const double wall_most = 30; /* times the limit, of the wall clock, for what barely moves */
static const double look = 0.2;     /* seconds between two looks at the clocks */

static bool nested; /* a probe within a probe forks */

bool probe_send(int to, const void *message, size_t bytes) {
  const char kind = MESSAGE;
  return file_write_all(to, &kind, 1) && file_write_all(to, message, bytes);
}

static void leave_at_fork(void) {
  if (!nested) _exit(FORKED);
}

/* The child. Handlers of the parent are not for what happens here. */
static void work_from(const probe_job *job, size_t first, int to) {
  static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGPIPE, SIGALRM};
  const char kind = END;
  for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++) signal(fatal[i], SIG_DFL);
#ifdef __linux__
  prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
  setpgid(0, 0);
  alarm((unsigned)fmin(2 * wall_most * job->limit + 60, 1e6)); /* if the parent dies */
  nested = false;
  pthread_atfork(leave_at_fork, NULL, NULL);
  for (size_t i = first; i < job->items; i++) {
    job->work(job->context, i, to);
    if (!file_write_all(to, &kind, 1)) _exit(1);
  }
  _exit(0);
}

/* A child as its parent sees it, and the clocks: what it had used when it last did something. */
typedef struct watch {
  pid_t pid;
  int from;
  clockid_t clock;
  double used, used_at_message, wall, wall_at_message;
} watch;

static double wall_time(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double processor_time(const watch *w) {
  struct timespec t;
  return clock_gettime(w->clock, &t) ? w->used : (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void watch_message(watch *w) {
  w->used_at_message = w->used = processor_time(w);
  w->wall_at_message = w->wall = wall_time();
}

/* Is it stuck? Says how. */
static bool is_stuck(const probe_job *job, watch *w, char text[PROBE_TEXT]) {
  const double now = wall_time(), used = processor_time(w), idle = fmax(job->limit, idle_least);
  if (used > w->used) {
    w->used = used;
    w->wall = now;
  }
  if (job->by_wall ? now - w->wall_at_message > job->limit : used - w->used_at_message > job->limit)
    snprintf(text, PROBE_TEXT, "did not come to an end within %g s%s (endless loop?)", job->limit,
             job->by_wall ? "" : " of processor time");
  else if (now - w->wall > idle)
    snprintf(text, PROBE_TEXT, "did not come to an end: for %g s it used no processor time (a lock?)", idle);
  else if (now - w->wall_at_message > wall_most * fmax(job->limit, 1))
    snprintf(text, PROBE_TEXT, "did not come to an end within %g s, of which it used %.3g (a lock?)",
             now - w->wall_at_message, used - w->used_at_message);
  else
    return false;
  return true;
}

/* Takes messages until the end, or its pipe closes, or it is stuck; *item: the one that is worked on. */
static void take_messages(const probe_job *job, char *room, watch *w, size_t *item, probe_result *r) {
  size_t have = 0;
  watch_message(w);
  while (*item < job->items) {
    struct pollfd wait = {.fd = w->from, .events = POLLIN};
    const int ready = poll(&wait, 1, (int)(look * 1e3));
    if (ready <= 0) {
      if (!is_stuck(job, w, r->text)) continue;
      r->end = PROBE_ENDLESS;
      return;
    }
    const size_t wanted = have ? 1 + job->message : 1;
    const ssize_t got = read(w->from, room + have, wanted - have);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    have += (size_t)got;
    if (*room != END && *room != MESSAGE) {
      snprintf(r->text, PROBE_TEXT, "wrote to a descriptor that is not its own");
      return;
    }
    if (*room != END && have < 1 + job->message) continue;
    watch_message(w);
    have = 0;
    if (*room == END) {
      ++*item;
    } else if (!job->take(job->context, *item, room + 1)) {
      r->end = PROBE_STOPPED;
      return;
    }
  }
  r->end = PROBE_WHOLE;
}

static void say_lost(int how, bool left, char text[PROBE_TEXT]) {
  if (WIFSIGNALED(how))
    snprintf(text, PROBE_TEXT, "crashed: %s", strsignal(WTERMSIG(how)));
  else if (left || WEXITSTATUS(how) == FORKED)
    snprintf(text, PROBE_TEXT, "started a process (fork): a variant computes in the process that calls it");
  else
    snprintf(text, PROBE_TEXT, "left the program with exit code %d", WEXITSTATUS(how));
}

static attn_status start(const probe_job *job, size_t first, watch *w) {
  int ends[2];
  fflush(NULL);
  if (pipe2(ends, O_CLOEXEC)) return attn_fail(ATTN_EFOREIGN, "pipe: %s", strerror(errno));
  nested = true;
  w->pid = fork();
  const int reason = errno;
  if (w->pid == 0) {
    close(ends[0]);
    work_from(job, first, ends[1]);
  }
  nested = false;
  close(ends[1]);
  w->from = ends[0];
  if (w->pid < 0) {
    close(w->from);
    return attn_fail(ATTN_EFOREIGN, "fork: %s", strerror(reason));
  }
  setpgid(w->pid, w->pid);
  if (clock_getcpuclockid(w->pid, &w->clock)) w->clock = CLOCK_MONOTONIC;
  return ATTN_OK;
}

/* Waits for the end of a child that closed its pipe, perhaps without ending. */
static int wait_for(const probe_job *job, watch *w, probe_result *r) {
  int how = 0;
  for (;;) {
    const bool waits = r->end == PROBE_LOST;
    const pid_t ended = waitpid(w->pid, &how, waits ? WNOHANG : 0);
    if (ended == w->pid || (ended < 0 && errno != EINTR)) return how;
    if (ended == 0 && is_stuck(job, w, r->text)) {
      r->end = PROBE_ENDLESS;
      kill(-w->pid, SIGKILL);
    } else if (ended == 0) {
      (void)poll(NULL, 0, 1);
    }
  }
}

/* One child, from an item on. */
static attn_status run_child(const probe_job *job, char *room, size_t *item, probe_result *r) {
  watch w = {.used = 0};
  const attn_status status = start(job, *item, &w);
  if (status) return status;
  r->end = PROBE_LOST;
  *r->text = '\0';
  take_messages(job, room, &w, item, r);
  r->seconds += processor_time(&w);
  close(w.from);
  if (r->end != PROBE_WHOLE && (r->end != PROBE_LOST || *r->text)) kill(-w.pid, SIGKILL);
  const int how = wait_for(job, &w, r);
  const bool left = kill(-w.pid, SIGKILL) == 0; /* processes of its group, now without it */
  if (r->end == PROBE_WHOLE && (left || !WIFEXITED(how) || WEXITSTATUS(how) != 0)) r->end = PROBE_LOST;
  if (r->end == PROBE_LOST && !*r->text) say_lost(how, left, r->text);
  if (r->end == PROBE_LOST && *item == job->items) --*item;
  return ATTN_OK;
}

attn_status probe_run(const probe_job *job, probe_result *out) {
  probe_result r = {.end = PROBE_WHOLE};
  attn_status status = ATTN_OK;
  enum { ALIGNED = _Alignof(max_align_t) };
  char *base = malloc(ALIGNED + job->message);
  if (!base) return attn_fail(ATTN_ENOMEM, "no memory for the messages of a process");
  char *room = base + ALIGNED - 1; /* a kind's byte, then a message as its type is aligned */
  for (size_t item = 0; !status && item < job->items; item++) {
    status = run_child(job, room, &item, &r);
    if (status || r.end == PROBE_WHOLE || r.end == PROBE_STOPPED || !job->lost) break;
    if (!job->lost(job->context, item, &r)) break;
  }
  free(base);
  if (!status && out) *out = r;
  return status;
}
