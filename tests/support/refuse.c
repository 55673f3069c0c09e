/* refuse.c - to be preloaded or linked: malloc, calloc and realloc of a process are counted, and number
 * REFUSE_AT (0: the first) gives NULL, with REFUSE_AFTER all after it, too. The count is written to the file
 * REFUSE_COUNT at the end. Libraries are refused like attnlab itself. */
#include "tests/support/refuse.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Of glibc. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *at, size_t size);

static atomic_long calls;
static long first = -1, last = -1; /* that are refused */
bool refuse_paused;

void refuse_from(long at, bool after) {
  first = at;
  last = after ? INT32_MAX : at;
  atomic_store(&calls, 0);
}

long refuse_calls(void) { return atomic_load(&calls); }

__attribute__((constructor)) static void begin(void) {
  const char *at = getenv("REFUSE_AT");
  refuse_from(at ? strtol(at, NULL, 10) : -1, at && getenv("REFUSE_AFTER"));
}

__attribute__((destructor)) static void end(void) {
  const char *name = getenv("REFUSE_COUNT");
  const long count = atomic_load(&calls);
  FILE *file = name ? fopen(name, "w") : NULL;
  if (!file) return;
  fprintf(file, "%ld\n", count);
  fclose(file);
}

static bool refused(void) {
  if (refuse_paused) return false;
  const long call = atomic_fetch_add(&calls, 1);
  return call >= first && call <= last;
}

void *malloc(size_t size) { return refused() ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return refused() ? NULL : __libc_calloc(count, size); }
void *realloc(void *at, size_t size) { return refused() ? NULL : __libc_realloc(at, size); }
