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

/* Numbers that the law writes of b, w and angles: at least 1. */
static inline int64_t recurrent_betas(const attn_recurrence *x) {
  return (x->betas > 1 ? x->betas : 1) + x->turns;
}
/* Where the angles are among them. */
static inline int64_t recurrent_angles(const attn_recurrence *x) { return recurrent_betas(x) - x->turns; }
/* Are b and w vectors? */
static inline bool recurrent_vectors(const attn_recurrence *x) { return x->betas > 1 && !x->carries; }

/* x [d_qk], in place: turned by these angles times sign. */
void recurrent_turn(const attn_recurrence *, const double *angles, double sign, double *x);
/* What a query is multiplied by, the problem's scale among it. */
double recurrent_query_scale(const attn_problem *, const attn_recurrence *, const double *q);
/* The last key that a query at this position reads behind; -1: none. */
int64_t recurrent_last(const attn_recurrence *, int64_t position, int64_t keys);

/* Key t of the head: k [d_qk] scaled, a [d_qk], or 1 number, and betas. false: a decay is above 1. */
bool recurrent_key_make(const evidence *, const head_data *, int64_t t, double *k, double *a, double *betas,
                        recurrent_key *);

#endif
