/* processes.c - walks /proc/PID/task/TID/children. */
#define _GNU_SOURCE /* prctl */
#include "experiments/instruments/processes.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

enum { LIST_MAX = 1024 }; /* more are counted and killed in the next rounds */

typedef struct pid_list {
  pid_t pid[LIST_MAX];
  size_t count;
} pid_list;

static FILE *open_file(long pid, const char *rest) {
  char path[400];
  snprintf(path, sizeof path, "/proc/%ld/%s", pid, rest);
  return fopen(path, "re");
}

static void add_children(pid_t pid, pid_list *list) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%ld/task", (long)pid);
  DIR *threads = opendir(path);
  for (struct dirent *entry; threads && (entry = readdir(threads));) {
    char rest[300];
    long child;
    snprintf(rest, sizeof rest, "task/%s/children", entry->d_name);
    FILE *file = *entry->d_name == '.' ? NULL : open_file(pid, rest);
    while (file && list->count < LIST_MAX && fscanf(file, "%ld", &child) == 1)
      list->pid[list->count++] = (pid_t)child;
    if (file) fclose(file);
  }
  if (threads) closedir(threads);
}

/* Everything below those that are in the list from `first`. */
static void add_descendants(pid_list *list, size_t first) {
  for (size_t i = first; i < list->count; i++) add_children(list->pid[i], list);
}

static int has_mark(pid_t pid, const char *mark) {
  FILE *file = open_file(pid, "environ");
  char *entry = NULL;
  size_t size = 0;
  int found = 0;
  while (file && !found && getdelim(&entry, &size, '\0', file) > 0) found = strcmp(entry, mark) == 0;
  free(entry);
  if (file) fclose(file);
  return found;
}

/* Children of this process that carry the mark, without the root. */
static void add_orphans(const process_tree *tree, pid_list *list) {
  pid_list own = {.count = 0};
  add_children(getpid(), &own);
  for (size_t i = 0; i < own.count && list->count < LIST_MAX; i++)
    if (own.pid[i] != tree->root && has_mark(own.pid[i], tree->mark)) list->pid[list->count++] = own.pid[i];
}

void processes_adopt(int wanted) {
#ifdef __linux__
  prctl(PR_SET_CHILD_SUBREAPER, (unsigned long)wanted, 0UL, 0UL, 0UL);
#else
  (void)wanted;
#endif
}

static int64_t resident(pid_t pid) {
  long long size, pages = 0;
  FILE *file = open_file(pid, "statm");
  if (file && fscanf(file, "%lld %lld", &size, &pages) != 2) pages = 0;
  if (file) fclose(file);
  return pages * (int64_t)sysconf(_SC_PAGESIZE);
}

/* Of several processes: a page that all share counts once. */
static int64_t proportional(pid_t pid) {
  char line[256];
  long long kilobytes = -1;
  FILE *file = open_file(pid, "smaps_rollup");
  while (file && kilobytes < 0 && fgets(line, sizeof line, file))
    if (strncmp(line, "Pss:", 4) == 0) kilobytes = strtoll(line + 4, NULL, 10);
  if (file) fclose(file);
  return kilobytes < 0 ? resident(pid) : 1024 * kilobytes;
}

int64_t processes_memory(const process_tree *tree) {
  pid_list all = {.pid = {tree->root}, .count = 1};
  int64_t sum = 0;
  add_orphans(tree, &all);
  add_descendants(&all, 0);
  if (all.count == 1) return resident(tree->root);
  for (size_t i = 0; i < all.count; i++) sum += proportional(all.pid[i]);
  return sum;
}

void processes_kill(const process_tree *tree) {
  const struct timespec pause = {0, 1000000};
  kill(-tree->root, SIGKILL);
  kill(tree->root, SIGKILL);
  /* What is killed may have started something meanwhile; its orphans come here. */
  for (int round = 0; round < 1000; round++) {
    pid_list orphans = {.count = 0}, all = {.pid = {tree->root}, .count = 1};
    add_descendants(&all, 0); /* before the orphans: what loses its parent meanwhile is one of them */
    add_orphans(tree, &orphans);
    add_descendants(&orphans, 0);
    if (all.count + orphans.count == 1) break;
    for (size_t i = 1; i < all.count; i++) kill(all.pid[i], SIGKILL);
    for (size_t i = 0; i < orphans.count; i++) kill(orphans.pid[i], SIGKILL);
    for (size_t i = 0; i < orphans.count; i++) waitpid(orphans.pid[i], NULL, WNOHANG);
    nanosleep(&pause, NULL);
  }
}
