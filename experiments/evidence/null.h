/* null.h - null baselines: outputs that ignore all or most scores, as a scale for errors.
 *
 * A variant that is no better than the mean of V, or than exact attention over a few keys drawn at random,
 * has not approximated attention, whatever its error looks like. */
#ifndef EXPERIMENTS_EVIDENCE_NULL_H
#define EXPERIMENTS_EVIDENCE_NULL_H

#include "experiments/evidence/judged_run.h"

enum { NULL_KEYS = 256 }; /* the budget of random keys for each query */

struct null_room;
typedef struct null_baseline {
  const char *name, *spec, *params; /* params: JSON */
  const char *title;                /* what it is, in a few words */
  int keys; /* 0: it looks at none, and what errs as much as it does has approximated nothing */
  void (*row)(const evidence *, const sample_row *, struct null_room *); /* of the output */
} null_baseline;

extern const null_baseline null_baselines[];      /* ends with a NULL name */
const null_baseline *null_find(const char *name); /* NULL if there is none */

/* Fills the rows of o that are compared ([batch, heads, n_q, d_v] in the problem's dtype); e->exact says
 * which, e->seed draws. e->plan, view and o are not used. ENOMEM. */
attn_status null_fill(const null_baseline *, const evidence *, void *o);

#endif
