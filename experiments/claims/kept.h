/* kept.h - which keys variants keep, and how much of the exact softmax's mass these have: causal attention on
 * the tensors of a claim. */
#ifndef EXPERIMENTS_CLAIMS_KEPT_H
#define EXPERIMENTS_CLAIMS_KEPT_H

#include "experiments/claims/claim.h"
#include "experiments/reference/exact.h"
#include "experiments/support/region.h"

enum { KEPT_N = 1024, KEPT_FEWEST = 512 };

/* The first KEPT_N positions, with exact weights of sampled rows; taken are those that see KEPT_FEWEST keys
 * or more. */
typedef struct kept_subject {
  data_qkv in;
  attn_problem p;
  exact_rows *x;
  bool *take;
} kept_subject;

attn_status kept_subject_make(const claim_options *, kept_subject *); /* free it also after a failure */
void kept_subject_free(kept_subject *);

/* Called with the keys of each row that is taken, r of x, and the logarithms of their weights, 0 where they
 * have none. */
typedef void kept_visit(const kept_subject *, int64_t r, const bool *inside, const double *log_weights,
                        void *context);
attn_status kept_rows(const kept_subject *, const char *spec, kept_visit *, void *context);

/* Of each row that is taken: mass and number of its keys, and how many it could see. */
typedef struct kept {
  region memory; /* to be freed, also after a failure */
  double *mass, *keys, *visible;
  int count;
} kept;
attn_status kept_make(const kept_subject *, const char *spec, kept *);

#endif
