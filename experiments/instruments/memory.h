/* memory.h - how much memory a run takes: an allocator that counts, and the process's peak. */
#ifndef EXPERIMENTS_INSTRUMENTS_MEMORY_H
#define EXPERIMENTS_INSTRUMENTS_MEMORY_H

#include "attn.h"

/* Counts the bytes of a plan and its work memory exactly. Not to be moved once it is initialised. */
typedef struct memory_counter {
  attn_allocator allocator; /* pass this */
  size_t limit;             /* refuses beyond this many bytes at once */
  size_t now, peak;
} memory_counter;

void memory_counter_init(memory_counter *, size_t limit);

/* Counts memory that another allocator gave; false beyond the limit. */
bool memory_take(memory_counter *, size_t bytes);
void memory_give(memory_counter *, size_t bytes);

/* Gives freed memory back to the system, restarts the peak of the resident set, and returns what is resident
 * now. Where the system cannot restart it, the peak is that of the whole process. */
double memory_reset_peak(void);
double memory_resident(void); /* bytes; NaN if the system does not report it */
double memory_peak(void);

#endif
