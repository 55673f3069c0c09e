/* memory.c - the counting allocator, and resident memory from /proc. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/instruments/memory.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ALIGNMENT = 64 };

bool memory_take(memory_counter *counter, size_t bytes) {
  if (bytes > counter->limit || counter->now > counter->limit - bytes) return false;
  counter->now += bytes;
  if (counter->now > counter->peak) counter->peak = counter->now;
  return true;
}

void memory_give(memory_counter *counter, size_t bytes) { counter->now -= bytes; }

static void *count_alloc(void *context, size_t bytes) {
  void *pointer = NULL;
  if (!memory_take(context, bytes)) return NULL;
  if (posix_memalign(&pointer, ALIGNMENT, bytes ? bytes : 1) == 0) return pointer;
  memory_give(context, bytes);
  return NULL;
}

static void count_release(void *context, void *pointer, size_t bytes) {
  if (!pointer) return;
  memory_give(context, bytes);
  free(pointer);
}

void memory_counter_init(memory_counter *counter, size_t limit) {
  *counter = (memory_counter){.allocator = {count_alloc, count_release, counter}, .limit = limit};
}

void memory_reset_peak(void) {
  const int file = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  const ssize_t ignored = write(file, "5", 1);
  (void)ignored;
  close(file);
}

double memory_peak(void) {
  FILE *file = fopen("/proc/self/status", "re");
  if (!file) return (double)NAN;
  char line[256];
  double kilobytes = (double)NAN;
  while (fgets(line, sizeof line, file))
    if (strncmp(line, "VmHWM:", 6) == 0) kilobytes = strtod(line + 6, NULL);
  fclose(file);
  return 1024 * kilobytes;
}

int64_t memory_of_process(long pid) {
  char path[64];
  long long size, resident = 0;
  snprintf(path, sizeof path, "/proc/%ld/statm", pid);
  FILE *file = fopen(path, "re");
  if (!file) return 0;
  if (fscanf(file, "%lld %lld", &size, &resident) != 2) resident = 0;
  fclose(file);
  return resident * (int64_t)sysconf(_SC_PAGESIZE);
}
