/* cold_cache.c - emptying the caches by writing more than they hold. Lines are written and not only read,
 * because an exclusive cache may keep lines that were only read. Every thread writes, because a core
 * empties only its own caches. */
#include "experiments/instruments/cold_cache.h"

#include <stdlib.h>
#include <string.h>

static int64_t slice_bytes(int threads) {
  int64_t last = 0;
  for (int level = 1; level <= 3; level++) {
    const int64_t bytes = attn_cache_size(level).bytes;
    if (bytes > last) last = bytes;
  }
  const int64_t share = 2 * last / threads, own = 4 * attn_cache_size(2).bytes;
  return ((share > own ? share : own) / EVICT_LINE + 1) * EVICT_LINE;
}

attn_status evict_open(evictor *e, int threads) {
  void *buffer = NULL;
  const size_t bytes = (size_t)slice_bytes(threads) * (size_t)threads;
  if (posix_memalign(&buffer, EVICT_LINE, bytes) != 0)
    return attn_fail(ATTN_ENOMEM, "no memory for %zu bytes to empty the caches with", bytes);
  memset(buffer, 0, bytes);
  *e = (evictor){buffer, bytes, threads};
  return ATTN_OK;
}

void evict_close(evictor *e) {
  free(e->buffer);
  *e = (evictor){0};
}

void evict(const evictor *e) {
  const size_t slice = e->bytes / (size_t)e->threads;
#pragma omp parallel for num_threads(e->threads) schedule(static, 1)
  for (int t = 0; t < e->threads; t++)
    for (size_t i = 0; i < slice; i += EVICT_LINE) e->buffer[(size_t)t * slice + i]++;
}
