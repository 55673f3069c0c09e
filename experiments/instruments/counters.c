/* counters.c - the counters of the processor and of its energy, by perf_event_open of Linux. */
#define _GNU_SOURCE /* syscall */
#include "experiments/instruments/counters.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/perf_event.h>
#include <sys/syscall.h>
#endif

static int open_event(int which) {
#ifdef __linux__
  static const uint64_t events[COUNTER_EVENTS] = {PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_HW_INSTRUCTIONS,
                                                  PERF_COUNT_HW_CACHE_MISSES};
  struct perf_event_attr about = {.type = PERF_TYPE_HARDWARE, .size = sizeof about};
  about.config = events[which];
  about.inherit = 1;
  about.exclude_kernel = 1; /* an ordinary user may count nothing else */
  about.exclude_hv = 1;
  about.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  return (int)syscall(SYS_perf_event_open, &about, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
#else
  (void)which;
  return -1;
#endif
}

/* The number in a small file; NaN if there is none, or no file. */
static double read_number(int file) {
  char text[32];
  const ssize_t length = pread(file, text, sizeof text - 1, 0);
  if (length <= 0) return (double)NAN;
  text[length] = '\0';
  return strtod(text, NULL);
}

static int open_in(const char *directory, int package, const char *leaf) {
  char path[512];
  if (snprintf(path, sizeof path, "%s/intel-rapl:%d/%s", directory, package, leaf) >= (int)sizeof path)
    return -1;
  return open(path, O_RDONLY | O_CLOEXEC);
}

void counters_open(counters *c, const char *powercap) {
  *c = (counters){.open = true};
  for (int e = 0; e < COUNTER_EVENTS; e++) c->event[e] = open_event(e);
  for (int p = 0; p < COUNTER_PACKAGES; p++) {
    const int file = open_in(powercap, p, "energy_uj"), range = open_in(powercap, p, "max_energy_range_uj");
    if (range < 0 || isnan(read_number(file))) {
      if (file >= 0) close(file);
      if (range >= 0) close(range);
      break;
    }
    c->range[c->packages] = read_number(range);
    c->package[c->packages++] = file;
    close(range);
  }
}

void counters_close(counters *c) {
  if (!c->open) return;
  for (int e = 0; e < COUNTER_EVENTS; e++)
    if (c->event[e] >= 0) close(c->event[e]);
  for (int p = 0; p < c->packages; p++) close(c->package[p]);
  *c = (counters){0};
}

void counters_read(const counters *c, counter_sample *sample) {
  *sample = (counter_sample){0};
  for (int e = 0; c->open && e < COUNTER_EVENTS; e++) {
    const size_t size = sizeof sample->event[e];
    if (c->event[e] < 0 || read(c->event[e], sample->event[e], size) != (ssize_t)size)
      memset(sample->event[e], 0, size);
  }
  for (int p = 0; p < c->packages; p++) sample->package[p] = read_number(c->package[p]);
}

void counters_add(const counters *c, const counter_sample *from, const counter_sample *to, counter_sum *sum) {
  for (int e = 0; e < COUNTER_EVENTS; e++) {
    const double count = (double)(to->event[e][0] - from->event[e][0]),
                 enabled = (double)(to->event[e][1] - from->event[e][1]),
                 running = (double)(to->event[e][2] - from->event[e][2]);
    /* If there are more events than counters, the kernel multiplexes them. */
    sum->event[e] += running > 0 ? count * enabled / running : (double)NAN;
  }
  double energy = c->packages ? 0 : (double)NAN;
  for (int p = 0; p < c->packages; p++) {
    const double used = to->package[p] - from->package[p];
    energy += (used < 0 ? used + c->range[p] : used) * 1e-6;
  }
  sum->energy += energy;
}
