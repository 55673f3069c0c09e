/* isolate.c - a forked child that answers through a pipe. */
#define _GNU_SOURCE /* prctl, pipe2 */
#include "experiments/instruments/isolate.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "experiments/instruments/timing.h"

typedef struct child {
  pid_t pid;
  int output;
} child;

/* The child: answers until the end, and leaves without what a normal exit does. */
static void answer_from(const isolate_questions *q, size_t first, int output) {
  unsigned char *answer = calloc(1, q->size);
#ifdef __linux__
  prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
  setpgid(0, 0);
  for (size_t i = first; answer && i < q->count; i++) {
    memset(answer, 0, q->size);
    q->ask(q->context, i, answer);
    for (size_t sent = 0; sent < q->size;) {
      const ssize_t written = write(output, answer + sent, q->size - sent);
      if (written < 0 && errno != EINTR) _exit(1);
      if (written > 0) sent += (size_t)written;
    }
  }
  _exit(0);
}

static attn_status start(const isolate_questions *q, size_t first, child *out) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return attn_fail(ATTN_EFOREIGN, "pipe: %s", strerror(errno));
  const pid_t pid = fork();
  if (pid == 0) answer_from(q, first, ends[1]);
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return attn_fail(ATTN_EFOREIGN, "fork: %s", strerror(errno));
  }
  *out = (child){pid, ends[0]};
  return ATTN_OK;
}

/* A whole answer within its time; *late: it is not there yet. */
static bool receive(const isolate_questions *q, const child *c, unsigned char *answer, bool *late) {
  const double end = timing_now() + q->limit;
  *late = false;
  for (size_t got = 0; got < q->size;) {
    const double left = end - timing_now();
    struct pollfd event = {.fd = c->output, .events = POLLIN};
    const int ready = left > 0 ? poll(&event, 1, (int)(1000 * left) + 1) : 0;
    if (ready < 0 && errno == EINTR) continue;
    *late = ready <= 0;
    if (*late) return false;
    const ssize_t count = read(c->output, answer + got, q->size - got);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    got += (size_t)count;
  }
  return true;
}

static int finish(const child *c) {
  int status = 0;
  kill(-c->pid, SIGKILL);
  kill(c->pid, SIGKILL);
  close(c->output);
  while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR) {}
  return status;
}

attn_status isolate_ask(isolate_questions *q) {
  attn_status status = ATTN_OK;
  unsigned char *answer = malloc(q->size);
  if (!answer) return attn_fail(ATTN_ENOMEM, "no memory for an answer");
  for (size_t i = 0; !status && i < q->count;) {
    child c = {0, -1};
    char why[100];
    bool late = false;
    status = start(q, i, &c);
    for (; !status && i < q->count && receive(q, &c, answer, &late); i++) q->take(q->context, i, answer);
    if (status) break;
    const int end = finish(&c);
    if (i == q->count) break;
    if (late)
      snprintf(why, sizeof why, "timeout: no answer in %g s", q->limit);
    else if (WIFSIGNALED(end))
      snprintf(why, sizeof why, "crashed: signal %d (%s)", WTERMSIG(end), strsignal(WTERMSIG(end)));
    else
      snprintf(why, sizeof why, "crashed: exit with code %d", WEXITSTATUS(end));
    q->lost = why;
    q->take(q->context, i++, NULL);
    q->lost = NULL;
  }
  free(answer);
  return status;
}
