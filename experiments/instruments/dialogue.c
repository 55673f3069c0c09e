/* dialogue.c - see dialogue.h. */
#include "experiments/instruments/dialogue.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "experiments/instruments/timing.h"

extern char **environ;

attn_status dialogue_start(char *const *arguments, dialogue *out) {
  int ends[2], error;
  posix_spawn_file_actions_t actions;
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
    return attn_fail(ATTN_EFOREIGN, "cannot make a socket for %s: %s", arguments[0], strerror(errno));
  fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  fcntl(ends[1], F_SETFD, FD_CLOEXEC);
  if ((error = posix_spawn_file_actions_init(&actions)) == 0) {
    if ((error = posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO)) == 0 &&
        (error = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO)) == 0)
      error = posix_spawnp(&out->pid, arguments[0], &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
  }
  close(ends[1]);
  out->socket = ends[0];
  if (error == 0) return ATTN_OK;
  close(ends[0]);
  return attn_fail(ATTN_EFOREIGN, "cannot run %s: %s", arguments[0], strerror(error));
}

/* Waits until the program has written something, or ended. */
static attn_status wait_for(const dialogue *d, double until, double seconds) {
  for (;;) {
    struct pollfd about = {.fd = d->socket, .events = POLLIN};
    const double left = until - timing_now();
    const int ready = isinf(until) ? poll(&about, 1, -1)
                      : left > 0   ? poll(&about, 1, (int)fmin(left * 1e3 + 1, 1e6))
                                   : 0;
    if (ready > 0) return ATTN_OK;
    if (ready < 0 && errno != EINTR) return attn_fail(ATTN_EFOREIGN, "poll: %s", strerror(errno));
    if (!(until > timing_now())) return attn_fail(ATTN_EFOREIGN, "it did not answer within %g s", seconds);
  }
}

/* A line is taken from the socket, and what stands behind it left there for the next. */
attn_status dialogue_ask(const dialogue *d, const char *question, double seconds, char *answer, size_t size) {
  const double until = isinf(seconds) ? seconds : timing_now() + seconds;
  size_t used = 0, left = question ? strlen(question) : 0;
  while (left > 0) {
    const ssize_t sent = send(d->socket, question, left, MSG_NOSIGNAL);
    if (sent < 0 && errno != EINTR) break; /* it has ended, as its answer says */
    if (sent < 0) continue;
    question += sent;
    left -= (size_t)sent;
  }
  for (;;) {
    const attn_status status = wait_for(d, until, seconds);
    if (status) return status;
    const ssize_t seen = recv(d->socket, answer + used, size - 1 - used, MSG_PEEK);
    if (seen < 0 && errno == EINTR) continue;
    if (seen <= 0) return attn_fail(ATTN_EFOREIGN, "it exited without an answer");
    const char *end = memchr(answer + used, '\n', (size_t)seen);
    const size_t taken = end ? (size_t)(end - answer) - used + 1 : (size_t)seen;
    if (recv(d->socket, answer + used, taken, 0) != (ssize_t)taken)
      return attn_fail(ATTN_EFOREIGN, "its answer was lost");
    used += taken;
    if (end) break;
    if (used == size - 1) return attn_fail(ATTN_EFOREIGN, "it wrote a line of more than %zu bytes", size - 2);
  }
  answer[used - 1] = '\0';
  return ATTN_OK;
}

int dialogue_end(dialogue *d) {
  int status = 0;
  pid_t ended = 0;
  close(d->socket);
  for (int i = 0; d->pid && (ended = waitpid(d->pid, &status, WNOHANG)) == 0; i++) {
    if (i == 2500) kill(d->pid, SIGKILL); /* after 5 s */
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
  }
  d->pid = 0;
  return ended > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}
