/* forked_probe.h - foreign code in a forked process, which sends what it finds as messages: code that
 * crashes, ends the program, starts processes, loops or waits forever harms the item that it works on and
 * nothing else. Limits count the child's processor time, so that they are the same on a busy machine; the
 * wall clock tells only whether it gets anywhere. */
#ifndef DATA_SUPPORT_FORKED_PROBE_H
#define DATA_SUPPORT_FORKED_PROBE_H

#include "attn.h"

enum { PROBE_TEXT = 160 };

typedef enum { PROBE_WHOLE, PROBE_STOPPED, PROBE_LOST, PROBE_ENDLESS } probe_end;

typedef struct probe_result {
  probe_end end;
  double seconds;        /* of processor time, of all children, as far as seen */
  char text[PROBE_TEXT]; /* what "it" did where it is lost or endless: "crashed: Aborted" */
} probe_result;

typedef struct probe_job {
  size_t items;   /* worked on in turn, by one child as long as it lives */
  size_t message; /* bytes */
  double limit;   /* seconds of processor time, from one message to the next */
  bool by_wall;   /* of the wall clock instead: of work in several threads */
  void *context;
  /* In the child: sends messages to `to`, and what it calls may harm it. */
  void (*work)(void *context, size_t item, int to);
  /* In the parent, for each message. false: the child is no longer needed. */
  bool (*take)(void *context, size_t item, const void *message);
  /* In the parent: the item's work did not end. true: another child goes on with the next item, and knows
   * what take and lost have noted. NULL: the first loss is the end. */
  bool (*lost)(void *context, size_t item, const probe_result *);
} probe_job;

bool probe_send(int to, const void *message, size_t bytes);
/* The result, which may be NULL, is the last child's. The process must have one thread, or the work must
 * use none of the others. ENOMEM; EFOREIGN: no child could be started. */
attn_status probe_run(const probe_job *, probe_result *);

#endif
