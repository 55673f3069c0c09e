/* attend.h - rows of exact attention in fp64 by the textbook formula: s_j = scale q.k_j, transformed as the
 * problem says, p = softmax(s) over the keys that the query sees and the row's sink, o = sum p_j v_j. It
 * shares no code with the kernels, engines and masks that it
 * judges. Sums run over elements and keys in their order. */
#ifndef EXPERIMENTS_REFERENCE_ATTEND_H
#define EXPERIMENTS_REFERENCE_ATTEND_H

#include "attn_variant.h"

/* Rows of one (batch, head): `row` their positions, `at` their places in keys, sink, p [.., n_kv] and o [..,
 * d_v]. */
typedef struct attend_rows {
  const attn_problem *problem; /* with strides resolved */
  const void *q, *k, *v;       /* of all batches and heads */
  int64_t batch, head;
  int64_t exist; /* keys that do */
  int64_t count;
  const int64_t *row, *at;
  int64_t *keys; /* number of leading keys that include all seen */
  double *p, *o, *sink;
} attend_rows;

/* Room for blocks of keys and values as doubles, with which rows are multiplied together: one thread's. */
size_t attend_scratch(const attn_problem *); /* doubles */
void attend(const attend_rows *, double *scratch);

#endif
