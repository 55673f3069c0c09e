/* linear.h - what the files of the linear engine share: sizes, a thread's workspace, and the running
 * state. */
#ifndef ATTN_CORE_ENGINES_LINEAR_LINEAR_H
#define ATTN_CORE_ENGINES_LINEAR_LINEAR_H

#include "core/internal.h"

/* Rows whose features are in the cache at a time, and keys that are summed from zero before they enter the
 * running sum. A chunk is a multiple of every register tile. */
enum { CHUNK = 96, SEGMENT = 21 * CHUNK };

/* Sizes of a problem. Rows of features are f_row elements apart and rows of values v_row, both padded for
 * attn_product. */
typedef struct linear_shape {
  const attn_context *c;
  const attn_problem *p;
  const attn_kernels *simd;
  const attn_feature_map *map;
  int64_t columns; /* features */
  int64_t f_row, v_row;
  int64_t segments; /* of the keys */
  int64_t chains;   /* of segments: each is computed in order, see linear.c */
  attn_dtype t;
  attn_guards *guards; /* of attn_plan_verify, or NULL */
} linear_shape;

/* S: rows of sum_j e^(c_j - M) f_j v_j^T, and below them sum_j v_j. z: sum_j e^(c_j - M) f_j. M: the
 * reference, the largest c_j. One block of memory, in this order. */
typedef struct linear_state {
  void *sums; /* [columns + 1] rows */
  void *z;    /* [columns] */
  double *reference, *keys;
} linear_state;

/* One thread's workspace. */
typedef struct linear_worker {
  void *fq, *fk;            /* [CHUNK] rows of features */
  void *fk_transposed;      /* [columns] rows of CHUNK, causal */
  double *scale_k;          /* [CHUNK], of keys: that of a query cancels */
  void *weights, *eps_term; /* [CHUNK]; of keys, and of queries: eps sum_r (f_r + eps) */
  void *scores;             /* [CHUNK] rows of CHUNK, causal */
  void *values;             /* [CHUNK] rows of d_v */
  double *sums;             /* [CHUNK] denominators */
  linear_state total, part, before;
} linear_worker;

size_t linear_state_bytes(const linear_shape *);
linear_state linear_state_at(const linear_shape *, void *block);
void linear_clear(const linear_shape *, linear_state);
void linear_copy(const linear_shape *, linear_state from, linear_state to);
/* sum <- a + b; sum may be a */
void linear_merge(const linear_shape *, linear_state a, linear_state b, linear_state sum);
/* Adds `rows` keys, mapped into w->fk and w->scale_k, and their values. Overwrites w->values. */
void linear_add_keys(const linear_shape *, linear_worker *, const void *v, int64_t rows, linear_state);

/* e^(from - to): 1 where both are still -inf, nothing having been added; at least the smallest normal number
 * of the dtype unless fp64 has 0, so that it does not turn Inf into 0 * Inf. */
double linear_rescale(const linear_shape *, double from, double to);
/* The larger of max and c; a NaN is passed over, its weight makes the sum NaN. */
static inline double linear_raise(double max, double c) { return c > max ? c : max; }

/* The variant's map under watch: what it leaves unwritten, and what it writes elsewhere. */
void linear_map_watched(const linear_shape *, const attn_feature_rows *, void *f, double *scale);

/* Maps rows of a head into w->fq, or w->fk and w->scale_k. With eps > 0 queries are f + eps, and
 * w->eps_term is set. */
void linear_map(const linear_shape *, linear_worker *, const attn_feature_rows *);
/* o, rows of the output, and w->sums <- mapped queries against a state: numerators and denominators. */
void linear_read(const linear_shape *, linear_worker *, int64_t rows, linear_state, void *o);
/* o and w->sums += what eps on the keys' side adds for the keys of a state. */
void linear_read_eps(const linear_shape *, linear_worker *, int64_t rows, linear_state, void *o);
/* o <- o / w->sums */
void linear_divide(const linear_shape *, const linear_worker *, int64_t rows, void *o);

/* One head's tensors; head counts keys' heads. */
typedef struct linear_head {
  int64_t batch, head, keys;
  const void *k, *v;
} linear_head;

/* Sums the keys of a segment into part, from zero. */
void linear_sum_segment(const linear_shape *, linear_worker *, const linear_head *, int64_t segment,
                        linear_state part);
/* The same into w->part, with the outputs of the queries at its positions; w->total: the state before it. */
void linear_causal_segment(const linear_shape *, linear_worker *, const attn_call *, const linear_head *,
                           int64_t segment);

#endif
