/* hdf5_try.c - reads a file first in a child process, which may crash (POSIX). */
#define _XOPEN_SOURCE 700
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "data/formats/hdf5_input.h"
#include "data/support/forked_probe.h"

enum { SECONDS = 120, MESSAGE = 1000 };

typedef struct outcome {
  attn_status status;
  char message[MESSAGE];
} outcome;

typedef struct trial {
  const char *path;
  attn_status (*read)(const char *, void *);
  void *context;
  outcome found;
} trial;

/* Half of the machine's memory beyond what the process has already, and no core. */
static void limit_process(void) {
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "re");
  const bool known = file && fscanf(file, "%ld", &pages) == 1;
  if (file) fclose(file);
  const rlim_t memory = ((rlim_t)pages + (rlim_t)sysconf(_SC_PHYS_PAGES) / 2) * (rlim_t)sysconf(_SC_PAGESIZE);
  if (known) setrlimit(RLIMIT_AS, &(struct rlimit){memory, memory});
  setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
}

/* In the child. What the C library has to say when it aborts is not for the terminal. */
static void try_read(void *context, size_t item, int to) {
  const trial *t = context;
  const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  (void)item;
  if (null >= 0) dup2(null, STDERR_FILENO);
  limit_process();
  outcome o = {.status = t->read(t->path, t->context)};
  if (o.status) snprintf(o.message, sizeof o.message, "%s", attn_last_error());
  (void)probe_send(to, &o, sizeof o);
}

static bool take(void *context, size_t item, const void *message) {
  trial *t = context;
  (void)item;
  memcpy(&t->found, message, sizeof t->found);
  return true;
}

attn_status hdf5_try_in_child(const char *path, attn_status (*read)(const char *path, void *context),
                              void *context) {
  trial t = {.path = path, .read = read, .context = context};
  const probe_job job = {.items = 1,
                         .message = sizeof(outcome),
                         .limit = SECONDS,
                         .context = &t,
                         .work = try_read,
                         .take = take};
  probe_result r;
  const attn_status status = probe_run(&job, &r);
  if (status) return status;
  if (r.end == PROBE_ENDLESS)
    return attn_fail(ATTN_EINVAL, "%s: damaged: the HDF5 library reads it for more than %d s", path, SECONDS);
  if (r.end != PROBE_WHOLE)
    return attn_fail(ATTN_EINVAL, "%s: damaged: the HDF5 library crashes on it", path);
  t.found.message[MESSAGE - 1] = '\0';
  return t.found.status ? attn_fail(t.found.status, "%s", t.found.message) : ATTN_OK;
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
