/* linear.h - what the two files of the linear engine share: sizes, a thread's workspace, and the running
 * state. */
#ifndef ATTN_LINEAR_H
#define ATTN_LINEAR_H

#include "internal.h"

enum { SEGMENT = 2048, CHUNK = 128 };

/* Sizes of a problem, and one thread's workspace. */
typedef struct linear_shape {
  const attn_context *c;
  const attn_problem *p;
  const attn_feature_map *map;
  int64_t columns, width; /* of S: features and the row of eps, d_v + 1 */
  int64_t segments;
  attn_dtype t;
} linear_shape;

typedef struct linear_worker {
  void *fq, *fk;        /* [CHUNK, columns] */
  double *scale_q;      /* [CHUNK] */
  double *scale_k;      /* [CHUNK] */
  void *scores;         /* [CHUNK, CHUNK], causal */
  void *values, *out;   /* [CHUNK, width] */
  void *total, *before; /* [columns + 1, width] */
  void *map, *gemm;     /* scratch */
} linear_worker;

/* A state: (columns + 1) x width elements, the last row sum_j (v_j, 1), and the reference M. */
typedef struct linear_state {
  void *sums;
  double *reference;
} linear_state;

size_t linear_state_bytes(const linear_shape *);
void linear_clear(const linear_shape *, linear_state);
/* to += from */
void linear_merge(const linear_shape *, linear_state to, linear_state from);
/* Adds `rows` keys, mapped into w->fk and w->scale_k, and their values. */
void linear_absorb(const linear_shape *, linear_worker *, const void *v, int64_t rows, linear_state);

/* e^(from - to): 1 where both are still -inf, nothing having been added. */
double linear_rescale(double from, double to);
/* values <- weight_j (v_j, 1), weight_j = e^(scale_j - reference), or 1 where scale is NULL. */
void linear_weigh_values(const linear_shape *, const void *v, int64_t rows, const double *scale,
                         double reference, void *values);
/* The largest of max and scale[0 .. rows); a NaN is passed over, its weight makes the sum NaN. */
double linear_running_max(const double *scale, int64_t rows, double max);

#endif
