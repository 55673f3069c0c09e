/* counted.h - an allocator that knows what is held, refuses one call, and takes pieces back as they were
 * given. */
#ifndef TESTS_SUPPORT_BASICS_COUNTED_H
#define TESTS_SUPPORT_BASICS_COUNTED_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"

enum { COUNTED_MOST = 4096 };

/* Too large for the stack of a test. */
typedef struct counted {
  void *at[COUNTED_MOST];
  size_t bytes[COUNTED_MOST];
  int live, calls, refuse_at; /* the call that is refused, or -1 */
  int refused;
  size_t live_bytes;
} counted;

static inline void *counted_alloc(void *context, size_t bytes) {
  counted *c = context;
  const bool refuses = c->calls++ == c->refuse_at || c->live == COUNTED_MOST;
  void *block = refuses ? NULL : aligned_alloc(64, (bytes + 63) / 64 * 64);
  c->refused += !block;
  if (!block) return NULL;
  memset(block, 0xA7, bytes); /* fresh memory is not zero */
  c->at[c->live] = block;
  c->bytes[c->live++] = bytes;
  c->live_bytes += bytes;
  return block;
}

static inline void counted_release(void *context, void *block, size_t bytes) {
  counted *c = context;
  int k = 0;
  while (k < c->live && c->at[k] != block) k++;
  const bool known = k < c->live && c->bytes[k] == bytes;
  cr_expect(known, "release of an unknown block, or of another size than was asked for");
  if (!known) return;
  memset(block, 0xA7, bytes);
  free(block);
  c->at[k] = c->at[--c->live];
  c->bytes[k] = c->bytes[c->live];
  c->live_bytes -= bytes;
}

/* Counts from here on; no call is refused if refuse_at is -1. */
static inline attn_allocator counted_begin(counted *c, int refuse_at) {
  *c = (counted){.refuse_at = refuse_at};
  return (attn_allocator){counted_alloc, counted_release, c};
}

#endif
