/* hdf5_try.c - reading a file in a process of its own first, which may crash (POSIX). */
#define _XOPEN_SOURCE 700
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data/formats/hdf5_input.h"

enum { SECONDS = 120, MESSAGE = 1000 };

typedef struct outcome {
  attn_status status;
  char message[MESSAGE];
} outcome;

/* Half of the machine's memory beyond what the process has already; no core, and an end to endless loops. */
static void limit_process(void) {
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "re");
  const bool known = file && fscanf(file, "%ld", &pages) == 1;
  if (file) fclose(file);
  const rlim_t memory = ((rlim_t)pages + (rlim_t)sysconf(_SC_PHYS_PAGES) / 2) * (rlim_t)sysconf(_SC_PAGESIZE);
  if (known) setrlimit(RLIMIT_AS, &(struct rlimit){memory, memory});
  setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
  setrlimit(RLIMIT_CPU, &(struct rlimit){SECONDS, SECONDS});
}

/* The child. What the C library has to say when it aborts is not for the terminal. */
static void try_read(int to, const char *path, attn_status (*read)(const char *, void *), void *context) {
  static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGXCPU, SIGPIPE};
  for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++) signal(fatal[i], SIG_DFL);
  const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (null >= 0) dup2(null, STDERR_FILENO);
  limit_process();
  outcome o = {.status = read(path, context)};
  if (o.status) snprintf(o.message, sizeof o.message, "%s", attn_last_error());
  _exit(file_write_all(to, &o, sizeof o) ? 0 : 1);
}

static bool receive(int from, outcome *o) {
  size_t filled = 0;
  while (filled < sizeof *o) {
    const ssize_t got = read(from, (char *)o + filled, sizeof *o - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    filled += (size_t)got;
  }
  return true;
}

static attn_status crashed(const char *path, int end) {
  if (WIFSIGNALED(end) && WTERMSIG(end) == SIGXCPU)
    return attn_fail(ATTN_EINVAL, "%s: damaged: the HDF5 library reads it for more than %d s", path, SECONDS);
  return attn_fail(ATTN_EINVAL, "%s: damaged: the HDF5 library crashes on it", path);
}

attn_status hdf5_try_in_child(const char *path, attn_status (*read)(const char *path, void *context),
                              void *context) {
  int ends[2], end = 0;
  outcome o = {.status = ATTN_OK};
  if (pipe(ends)) return attn_fail(ATTN_EFOREIGN, "%s: pipe: %s", path, strerror(errno));
  fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  fcntl(ends[1], F_SETFD, FD_CLOEXEC);
  const pid_t child = fork();
  if (child == 0) try_read(ends[1], path, read, context);
  const int reason = errno;
  close(ends[1]);
  const bool told = child > 0 && receive(ends[0], &o);
  close(ends[0]);
  if (child < 0) return attn_fail(ATTN_EFOREIGN, "%s: fork: %s", path, strerror(reason));
  while (waitpid(child, &end, 0) < 0 && errno == EINTR) continue;
  if (!told) return crashed(path, end);
  o.message[MESSAGE - 1] = '\0';
  return o.status ? attn_fail(o.status, "%s", o.message) : ATTN_OK;
}

attn_status hdf5_input_try(const char *path, attn_status (*read)(const char *path, void *context),
                           void *context) {
  file_map content;
  attn_status status = file_map_open(path, &content);
  if (status) return status;
  const bool ours = hdf5_carries_digest(&content);
  file_map_close(&content);
  return ours ? ATTN_OK : hdf5_try_in_child(path, read, context);
}
