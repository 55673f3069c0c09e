/* backward.h - the backward pass of the softmax engine, for tiles of a pattern and of selections. */
#ifndef ATTN_CORE_ENGINES_SOFTMAX_BACKWARD_H
#define ATTN_CORE_ENGINES_SOFTMAX_BACKWARD_H

#include "core/engines/softmax/softmax.h"

/* What a thread needs besides softmax_worker, in the type of the arithmetic; rows in groups of ATTN_LANES. */
struct softmax_back {
  const attn_gradients *of;
  int64_t qk, v;                 /* elements from row to row of d_qk and of d_v */
  void *q, *d_o;                 /* the tile's rows; those that are not finite are zeros */
  void *q_columns, *d_o_columns; /* [group][d][lane], as they are */
  void *dq;                      /* [row] */
  void *lse, *rest, *delta;      /* [row]; lse in units of log 2, and what its rounding has left of it */
  uint64_t *odd_q, *odd_d_o;     /* [group] lanes whose row is not finite */
  void *scores, *gradients;      /* of a step, [key][ATTN_LANES]: s, then p; dp, then ds */
  void *k, *sums;                /* of a step: keys side by side; values, or what keys are added */
  void *dk, *dv;                 /* of the kv head: sums, without the scale; NULL: not wanted */
  bool *met;                     /* ... of these blocks of keys they have begun */
  void *products;                /* of a step, [key][ATTN_LANES]: dp */
  const attn_bias_sums *biases;  /* the gradients by biases are computed, not the others; NULL: these are */
  int64_t first_head, slice;     /* ... of a slice of the queries of heads from the first on */
};

/* The sums over slices of the work of each kv head. */
typedef struct softmax_sums {
  int64_t slices;
  char *k, *v; /* those of the slices after the first */
  bool *met;   /* [line][slice][block of keys] */
} softmax_sums;

/* Into how many slices `items` tiles of each kv head are cut, from the problem alone. */
int64_t attn_softmax_back_slices(const attn_problem *, int64_t items);
softmax_back attn_softmax_back_carve(const attn_context *, const softmax_shape *, attn_carver *);
softmax_sums attn_softmax_sums_carve(const attn_problem *, int64_t slices, attn_carver *);
/* Has the worker add to the sums of a slice of kv head `line` of all batch entries. */
void attn_softmax_sums_begin(const softmax_sums *, const attn_problem *, int64_t line, int64_t slice,
                             softmax_back *);
/* The worker is about to add to the sums of these keys. */
void attn_softmax_sums_meet(const softmax_back *, const attn_problem *, const int64_t *keys, int64_t count);
/* Adds the slices up, in order; by all threads of a team together. */
void attn_softmax_sums_end(const softmax_sums *, const attn_call *, const attn_gradients *);
void attn_softmax_sink_back(const attn_call *, const attn_gradients *);
/* Adds the gradients of a step's scores to those by biases: of the lanes first ... first + rows - 1 of a
 * group. keys: of the step, as they are numbered. */
void attn_softmax_back_biases(const softmax_task *, const softmax_back *, const attn_step *,
                              const int64_t *keys, int64_t group, int64_t first, int64_t rows);

#endif
