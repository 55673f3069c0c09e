/* head.h - keys and values of one (batch, head) in fp64, with what bounds need of them. */
#ifndef EXPERIMENTS_EVIDENCE_HEAD_H
#define EXPERIMENTS_EVIDENCE_HEAD_H

#include "experiments/evidence/judged_run.h"

/* Inputs of one (batch, head) in fp64. */
typedef struct head_data {
  region memory; /* of k ... mean */
  const attn_problem *problem;
  int64_t batch, head;
  int64_t keys;              /* that exist; the other rows of k and v are zeros */
  double *k, *v;             /* [n_kv, d_qk], [n_kv, d_v] */
  double *low, *high, *mean; /* [d_v] of each component over the keys that exist */
  double k_max;              /* greatest norm of a key */
  double v_max;              /* greatest magnitude of an element of v */
  double diameter;           /* Delta_V = 2 max |v_j - mean| >= diameter of the values */
  bool finite;
} head_data;

attn_status head_data_load(const evidence *, int64_t batch, int64_t head, head_data *);
void head_data_free(head_data *);

/* The same from the evidence's cache, which then holds it; give it back with head_data_return. Where the
 * heads of a block exceed 2^28 bytes in fp64 none are held. */
attn_status head_data_borrow(const evidence *, int64_t batch, int64_t head, head_data *);
void head_data_return(const evidence *, head_data *);
/* Fills all that follows from k and v: ranges, norms, finite. */
void head_data_measure(head_data *);
/* Zeroed k, v, low, high, mean for a problem. */
attn_status head_data_alloc(const attn_problem *, head_data *);
/* A copy with every value 1. Release with head_data_free. */
attn_status head_data_ones(const head_data *, head_data *);

/* The largest and the least magnitude that the largest value of a head has; heads of zeros alone do not
 * count. Kept in e->cache. */
void head_values_range(const evidence *, double *most, double *least);

#endif
