/* machine.h - the machine and the build that a measurement was made with. */
#ifndef EXPERIMENTS_INSTRUMENTS_MACHINE_H
#define EXPERIMENTS_INSTRUMENTS_MACHINE_H

#include <jansson.h>

/* A new object of the /provenance columns that do not depend on the run: compiler cflags cpu_model
 * cpu_flags n_cores governor boost smt aslr kernel hostname lib_versions. All but n_cores are texts,
 * "unknown" if the system does not report them. NULL without memory. */
json_t *machine_facts(void);

/* The processor's name, or "unknown". */
void machine_processor(char *text, size_t size);

/* The load average over the last minute; NaN if the system does not report it. */
double machine_load(void);

/* Bytes of physical memory; 0 if the system does not report them. */
double machine_memory(void);

#endif
