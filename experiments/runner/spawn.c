/* spawn.c - a worker as a process. */
#define _GNU_SOURCE /* pipe2 */
#include "experiments/runner/spawn.h"

#include "experiments/runner/worker_loop.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* attnlab worker --plugin a --plugin b; to be freed. */
static char **arguments(const worker_pool *pool) {
  static char name[] = "attnlab", subcommand[] = "worker", option[] = "--plugin";
  size_t plugins = 0;
  while (pool->plugins[plugins]) plugins++;
  char **argv = calloc(2 * plugins + 3, sizeof *argv);
  if (!argv) return NULL;
  argv[0] = name;
  argv[1] = subcommand;
  for (size_t i = 0; i < plugins; i++) {
    argv[2 + 2 * i] = option;
    argv[3 + 2 * i] = pool->plugins[i];
  }
  return argv;
}

/* This process's environment and the mark; to be freed. */
static char **environment(char *mark) {
  size_t count = 0;
  while (environ[count]) count++;
  char **all = calloc(count + 2, sizeof *all);
  if (!all) return NULL;
  memcpy(all, environ, count * sizeof *all);
  all[count] = mark;
  return all;
}

static int add_descriptors(posix_spawn_file_actions_t *actions, int messages, int input, int output) {
  int error = 0;
  /* Before WORKER_OUTPUT, which may be its number here. */
  for (int to_user = STDOUT_FILENO; !error && messages && to_user <= STDERR_FILENO; to_user++)
    error = posix_spawn_file_actions_adddup2(actions, messages, to_user);
  if (!error) error = posix_spawn_file_actions_adddup2(actions, input, STDIN_FILENO);
  if (!error) error = posix_spawn_file_actions_adddup2(actions, output, WORKER_OUTPUT);
  return error;
}

static void close_pipe(const int ends[2]) {
  for (int i = 0; i < 2; i++)
    if (ends[i] >= 0) close(ends[i]);
}

attn_status spawn_worker(const worker_pool *pool, const char *token, spawned *out) {
  int to[2] = {-1, -1}, from[2] = {-1, -1};
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  pid_t pid = 0;
  snprintf(out->mark, sizeof out->mark, "ATTNLAB_WORKER=%s", token);
  char **argv = arguments(pool), **environment_ = environment(out->mark);
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  int error = !argv || !environment_ ? ENOMEM : 0;
  if (!error) error = pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC) ? errno : 0;
  if (!error) error = add_descriptors(&actions, pool->messages, to[0], from[1]);
  if (!error) error = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  if (!error) error = posix_spawn(&pid, pool->program, &actions, &attributes, argv, environment_);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  free(argv);
  free(environment_);
  if (error) {
    close_pipe(to);
    close_pipe(from);
    return attn_fail(ATTN_EFOREIGN, "%s: a worker cannot be started: %s", pool->program, strerror(error));
  }
  close(to[0]);
  close(from[1]);
  fcntl(from[0], F_SETFL, O_NONBLOCK);
  out->tree = (process_tree){pid, out->mark};
  out->input = to[1];
  out->output = from[0];
  return ATTN_OK;
}

bool spawn_ended(const spawned *s) {
  siginfo_t about = {.si_pid = 0};
  return waitid(P_PID, (id_t)s->tree.root, &about, WEXITED | WNOHANG | WNOWAIT) == 0 && about.si_pid != 0;
}

void spawn_end(spawned *s, int *wait_status) {
  processes_kill(&s->tree); /* while the root is not waited for, no other process has its number */
  close(s->output);
  while (waitpid(s->tree.root, wait_status, 0) < 0 && errno == EINTR) {}
}
