/* kept.h - what a test need not free: it goes at the end of the process, or before by let_object_go. */
#ifndef TESTS_SUPPORT_BASICS_KEPT_H
#define TESTS_SUPPORT_BASICS_KEPT_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct kept_object {
  struct kept_object *before;
  void *at, *copy;
  void (*release)(void *);
} kept_object;

/* Those of the source file that includes this, the last first. */
static kept_object *kept_objects;

static inline void kept_release(kept_object *own) {
  own->release(own->at);
  free(own->copy);
  free(own);
}

static inline void kept_end(void) {
  while (kept_objects) {
    kept_object *last = kept_objects;
    kept_objects = last->before;
    kept_release(last);
  }
}

static inline kept_object *kept_last(void *at, void (*release)(void *)) {
  static bool registered;
  kept_object *own = malloc(sizeof *own);
  if (!own || (!registered && atexit(kept_end))) abort();
  registered = true;
  *own = (kept_object){kept_objects, at, NULL, release};
  return kept_objects = own;
}

/* Returns the object. */
static inline void *keep_object(void *at, void (*release)(void *)) { return kept_last(at, release)->at; }

/* Of malloc and its like; NULL if that is NULL. */
static inline void *kept_memory(void *memory) { return keep_object(memory, free); }

/* A copy of what is there, for `release'; whoever keeps what is there does not release it. */
static inline void *keep_copy(const void *at, size_t bytes, void (*release)(void *copy)) {
  void *copy = malloc(bytes);
  if (!copy) abort();
  return kept_last(memcpy(copy, at, bytes), release)->copy = copy;
}

/* Returns whether it was kept. */
static inline bool let_object_go(void *at) {
  for (kept_object **own = &kept_objects; *own; own = &(*own)->before) {
    if ((*own)->at != at) continue;
    kept_object *found = *own;
    *own = found->before;
    kept_release(found);
    return true;
  }
  return false;
}

#endif
