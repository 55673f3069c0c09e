/* drawn.h - the problems that attnlab test draws for a variant, and what becomes of them. */
#ifndef EXPERIMENTS_CONFORMANCE_DRAWN_H
#define EXPERIMENTS_CONFORMANCE_DRAWN_H

#include "experiments/conformance/judge.h"

typedef struct drawn_options {
  uint64_t seed;
  double seconds; /* of processor time that all problems may take; 0: as much as they need */
  double limit;   /* of one, after which it is held to be endless */
} drawn_options;

/* What problems may differ in. */
typedef struct drawn_scope {
  uint32_t caps;       /* ATTN_CAP */
  bool in_turn;        /* one thread, layout and instruction set: of ATTN_EXEMPT_BITS */
  bool groups, widths; /* heads may share keys, values be of another width */
  bool keyless;        /* causal queries may stand before the first key */
} drawn_scope;
static inline drawn_scope drawn_scope_all(uint32_t caps) {
  return (drawn_scope){caps, false, true, true, true};
}
/* Of one that is called in turn what it takes, else everything: what it refuses is counted. */
drawn_scope drawn_scope_of(const attn_spec *);

/* Of what is called in turn the smallest problems, each with each; of others none. Returns how many. */
enum { DRAWN_SMALL = 5 * 4 * 2 * 2 * PADDINGS };
int64_t drawn_small(const drawn_scope *, problem[DRAWN_SMALL]);

/* A covering array of all pairs of what problems can differ in, and of all triples of sizes, unless they are
 * called in turn; the smallest come first, two long sequences last. To be freed. ENOMEM. */
attn_status drawn_problems(const drawn_scope *, uint64_t seed, problem **, int64_t *count);

typedef struct drawn_result {
  int64_t count, tried, alone, refused; /* alone: held only against itself */
  int64_t loose, vacuous;               /* as of a finding */
  char reasons[480];                    /* why some were refused, each kind once */
  int64_t failed;                       /* place of the first that failed, -1: none */
  problem smallest;                     /* of it: what still fails */
  finding found;                        /* there */
  bool shrunk, endless;                 /* was it tried? The problem did not come to an end */
} drawn_result;

/* Judges problems in turn, in a process of their own, until one fails, and makes that as small as it can. */
attn_status drawn_run(const attn_spec *spec, const problem *, int64_t count, const drawn_options *,
                      drawn_result *);

#endif
