/* kept.h - what a test need not free: it goes at the end of the process, or before by let_object_go. */
#ifndef TESTS_SUPPORT_BASICS_KEPT_H
#define TESTS_SUPPORT_BASICS_KEPT_H

#include <stdbool.h>
#include <stdlib.h>

typedef struct kept_object {
  struct kept_object *before;
  void *at;
  void (*release)(void *);
} kept_object;

/* Those of the source file that includes this, the last first. */
static kept_object *kept_objects;

static inline void kept_end(void) {
  while (kept_objects) {
    kept_object *last = kept_objects;
    kept_objects = last->before;
    last->release(last->at);
    free(last);
  }
}

/* Returns the object. */
static inline void *keep_object(void *at, void (*release)(void *)) {
  static bool registered;
  kept_object *own = malloc(sizeof *own);
  if (!own || (!registered && atexit(kept_end))) abort();
  registered = true;
  *own = (kept_object){kept_objects, at, release};
  kept_objects = own;
  return at;
}

/* Of malloc and its like; NULL if that is NULL. */
static inline void *kept_memory(void *memory) { return keep_object(memory, free); }

/* Returns whether it was kept. */
static inline bool let_object_go(void *at) {
  for (kept_object **own = &kept_objects; *own; own = &(*own)->before) {
    if ((*own)->at != at) continue;
    kept_object *found = *own;
    *own = found->before;
    found->release(at);
    free(found);
    return true;
  }
  return false;
}

#endif
