/* child.h - work in a process of its own, whose messages arrive one by one: what crashes, ends the program, starts
 * processes, loops or waits forever harms nobody else. Limits count the child's processor time, so that they are the
 * same on a busy machine; the wall clock is asked only whether it gets anywhere. */
#ifndef EXPERIMENTS_CONFORMANCE_CHILD_H
#define EXPERIMENTS_CONFORMANCE_CHILD_H

#include "attn.h"

enum { CHILD_MESSAGE = 1200, CHILD_TEXT = 160 };

typedef struct child_job {
  /* In the child. It sends messages to `to`, and what it calls may harm it. */
  void (*work)(void *context, int to);
  /* In the parent, for each message. false: the child is no longer needed. */
  bool (*take)(void *context, const void *message);
  void *context;
  size_t message; /* bytes, at most CHILD_MESSAGE */
  double limit;   /* seconds of processor time, from one message to the next */
} child_job;

typedef enum { CHILD_WHOLE, CHILD_STOPPED, CHILD_LOST, CHILD_ENDLESS } child_end;
typedef struct child_result {
  child_end end;
  double seconds;        /* of processor time, as far as seen */
  char text[CHILD_TEXT]; /* what befell it where it is lost or endless */
} child_result;

bool child_send(int to, const void *message, size_t bytes);
/* EFOREIGN: no child could be started. */
attn_status child_run(const child_job *, child_result *);

#endif
