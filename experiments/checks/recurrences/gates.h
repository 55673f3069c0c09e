/* gates.h - a key of a recurrence by the law: what it does to the state. */
#ifndef EXPERIMENTS_CHECKS_RECURRENCES_GATES_H
#define EXPERIMENTS_CHECKS_RECURRENCES_GATES_H

#include "experiments/evidence/head.h"
#include "experiments/evidence/judged_run.h"

typedef struct recurrent_key {
  double size, asks;  /* |k|, |b . k| */
  double most, least; /* the largest a; ln of the least */
  double norm;        /* of I - k (b . k)^T under the delta rule, else 1 */
} recurrent_key;

/* Numbers of b and w that the law writes: at least 1. */
static inline int64_t recurrent_betas(const attn_recurrence *x) { return x->betas > 1 ? x->betas : 1; }

/* Key t of the head: k [d_qk] scaled, a [d_qk], or 1 number, and betas. false: a decay is above 1. */
bool recurrent_key_make(const evidence *, const head_data *, int64_t t, double *k, double *a, double *betas,
                        recurrent_key *);

#endif
