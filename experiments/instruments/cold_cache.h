/* cold_cache.h - empties the caches before a run with a cold cache. */
#ifndef EXPERIMENTS_INSTRUMENTS_COLD_CACHE_H
#define EXPERIMENTS_INSTRUMENTS_COLD_CACHE_H

#include "attn.h"

enum { EVICT_LINE = 64 }; /* bytes; no supported processor has shorter lines */

/* Memory that nothing else uses: a slice for each thread of a team. */
typedef struct evictor {
  unsigned char *buffer;
  size_t bytes;
  int threads;
} evictor;

/* Each slice exceeds a core's second-level cache four times, and all of them together the last-level cache
 * twice. ENOMEM. */
attn_status evict_open(evictor *, int threads);
void evict_close(evictor *); /* of a zero object too */

/* Every thread of the team reads and writes each line of its slice, after which the caches hold little
 * else. */
void evict(const evictor *);

#endif
