/* memory.c - the counting allocator, and resident memory from /proc. */
#include "experiments/instruments/memory.h"

#include <fcntl.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
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

/* A size of /proc/self/status in bytes. */
static double own_size(const char *name) {
  FILE *file = fopen("/proc/self/status", "re");
  if (!file) return (double)NAN;
  char line[256];
  double kilobytes = (double)NAN;
  while (fgets(line, sizeof line, file))
    if (strncmp(line, name, strlen(name)) == 0) kilobytes = (double)strtoll(line + strlen(name), NULL, 10);
  fclose(file);
  return 1024 * kilobytes;
}

double memory_peak(void) { return own_size("VmHWM:"); }

double memory_resident(void) { return own_size("VmRSS:"); }

double memory_reset_peak(void) {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
  const int file = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  if (file >= 0) {
    const ssize_t ignored = write(file, "5", 1);
    (void)ignored;
    close(file);
  }
  return memory_resident();
}
