/* kept.h - what a test has made and does not release itself: that is done when the program ends. */
#ifndef TESTS_SUPPORT_BASICS_KEPT_H
#define TESTS_SUPPORT_BASICS_KEPT_H

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct kept_piece {
  struct kept_piece *before;
  void (*release)(void *copy);
  max_align_t copy[];
} kept_piece;

static kept_piece *kept_last;

static inline void kept_release(void) {
  while (kept_last) {
    kept_piece *own = kept_last;
    kept_last = own->before;
    own->release(own->copy);
    free(own);
  }
}

/* A copy of what is there, which is released at the end; whoever keeps what is there does not release it. */
static inline void *keep_copy(const void *at, size_t bytes, void (*release)(void *copy)) {
  kept_piece *own = malloc(sizeof *own + bytes);
  if (!own || (!kept_last && atexit(kept_release))) abort();
  own->before = kept_last;
  own->release = release;
  memcpy(own->copy, at, bytes);
  kept_last = own;
  return own->copy;
}

#endif
