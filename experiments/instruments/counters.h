/* counters.h - what the processor counts while a run executes: cycles, instructions, misses of the last cache
 * (perf_event_open, user mode, all threads started later) and the energy of its packages (powercap).
 *
 * What a machine does not have, or does not let this user read, is NaN; nothing here fails. */
#ifndef EXPERIMENTS_INSTRUMENTS_COUNTERS_H
#define EXPERIMENTS_INSTRUMENTS_COUNTERS_H

#include "attn.h"

enum { COUNTER_EVENTS = 3, COUNTER_PACKAGES = 8 };

typedef struct counters {
  bool open;
  int event[COUNTER_EVENTS]; /* descriptors, -1: none */
  int package[COUNTER_PACKAGES];
  double range[COUNTER_PACKAGES]; /* microjoules at which a package's count starts again */
  int packages;
} counters;

/* The counts at one moment. */
typedef struct counter_sample {
  uint64_t event[COUNTER_EVENTS][3]; /* count, time enabled, time running */
  double package[COUNTER_PACKAGES];  /* microjoules */
} counter_sample;

/* Counts over some time; a sum over several intervals by counters_add. */
typedef struct counter_sum {
  double event[COUNTER_EVENTS]; /* cycles, instructions, misses */
  double energy;                /* J */
} counter_sum;

#define COUNTERS_POWERCAP "/sys/class/powercap"

/* To be called before the first parallel region, or the threads it starts are not counted. powercap: the
 * system's directory of energy counters. */
void counters_open(counters *, const char *powercap);
void counters_close(counters *); /* of a zero object too */
void counters_read(const counters *, counter_sample *);
/* Adds what was counted between two samples. */
void counters_add(const counters *, const counter_sample *from, const counter_sample *to, counter_sum *);

#endif
