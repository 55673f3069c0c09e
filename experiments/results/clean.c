/* clean.c - temporary files (data/support/file.c names them FILE.tmp.PID.COUNT) of processes that died
 * writing. */
#define _XOPEN_SOURCE 700 /* realpath */
#include <dirent.h>
#include <errno.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/support/file.h"
#include "experiments/results/write_hdf5.h"

/* Whether `name` is a temporary file for `base` of a process that is gone. */
static bool abandoned(const char *name, const char *base) {
  const size_t length = strlen(base);
  long pid;
  int count, end = 0;
  if (strncmp(name, base, length) != 0) return false;
  if (sscanf(name + length, ".tmp.%ld.%d%n", &pid, &count, &end) != 2 || name[length + (size_t)end])
    return false;
  return pid > 0 && kill((pid_t)pid, 0) != 0 && errno == ESRCH;
}

void results_clean(const char *path) {
  /* Through a symbolic link the file it points to is replaced, so that is where temporary files are. */
  char *target = realpath(path, NULL);
  if (!target) target = strdup(path);
  char *copy = target ? strdup(target) : NULL;
  const char *directory = copy ? dirname(copy) : NULL;
  const char *slash = target ? strrchr(target, '/') : NULL;
  DIR *list = directory ? opendir(directory) : NULL;
  for (struct dirent *entry; list && (entry = readdir(list));) {
    if (!abandoned(entry->d_name, slash ? slash + 1 : target)) continue;
    char *stale = file_join(directory, entry->d_name);
    if (stale) unlink(stale);
    free(stale);
  }
  if (list) closedir(list);
  free(copy);
  free(target);
}
