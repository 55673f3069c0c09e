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

/* Restarts the peak of the resident set. Where the system cannot do so, the peak is that of the whole
 * process. */
void memory_reset_peak(void);
double memory_peak(void); /* bytes; NaN if the system does not report it */

/* Resident bytes of a process; 0 if it has ended or the system does not report them. */
int64_t memory_of_process(long pid);

#endif
