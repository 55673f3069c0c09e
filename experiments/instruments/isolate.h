/* isolate.h - questions to foreign code, asked in a child process: an answer that crashes or does not come is
 * the question's alone. */
#ifndef EXPERIMENTS_INSTRUMENTS_ISOLATE_H
#define EXPERIMENTS_INSTRUMENTS_ISOLATE_H

#include "attn.h"

typedef struct isolate_questions {
  size_t count, size; /* of an answer in bytes: a flat object */
  double limit;       /* seconds of an answer */
  void *context;
  void (*ask)(void *context, size_t index, void *answer);        /* in the child; answer is zero before */
  void (*take)(void *context, size_t index, const void *answer); /* in order, NULL: there is none, */
  const char *lost;                                              /* for this reason, which take may read */
} isolate_questions;

/* Asks one after the other; after a loss another child goes on with the next. What take has noted is known to
 * ask. The process must have one thread. EFOREIGN: there can be no child. */
attn_status isolate_ask(isolate_questions *);

#endif
