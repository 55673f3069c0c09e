/* evaluate.h - what replacing a model's attention does to the distribution of its next token, position by
 * position. */
#ifndef EXPERIMENTS_QUALITY_EVALUATE_H
#define EXPERIMENTS_QUALITY_EVALUATE_H

#include "data/data.h"
#include "experiments/mathematics/divergence.h"
#include "experiments/quality/judged_layer.h"
#include "experiments/quality/tasks/windows.h"

/* At a scored position: of a swap against the exact model. */
typedef struct quality_point {
  float dnll, kl, dp, range, bennett, variance;
  bool same_top,
      certified; /* the exact logits' margin is above the range of the change: the same by theorem */
  bool right;    /* the most likely token is the one that follows */
} quality_point;

/* Theorems about a position: where a swap comes nearest to what they allow, or furthest beyond. */
typedef enum { THEOREM_KL, THEOREM_DNLL, THEOREM_TOP, THEOREMS } quality_theorem;
typedef struct quality_extreme {
  double measured, limit;
} quality_extreme;

/* What a swap does to a layer's attention, over all windows. */
typedef struct quality_layer {
  double error, size;  /* sums of squares of o' - o and of o */
  double seconds;      /* in the variant */
  double read, pairs;  /* keys that sampled queries read, of those that they may */
  double left, judged; /* exact weight of keys that are not read, summed over queries at scored positions */
  double bits;         /* of a cache, a mean over windows (density.h); 0: the layer is not replaced */
  int64_t windows;
  const attn_plan *by; /* compared, and not looked into once the pass is over */
} quality_layer;

typedef struct quality_data {
  int64_t windows, positions, swaps, layers;
  int64_t *scored;                      /* [windows] scored positions of each window, at most `positions` */
  double *nll;                          /* [windows, positions] of the exact model */
  bool *right;                          /* [windows, positions] likewise */
  quality_point *points;                /* [swaps, windows, positions] */
  quality_layer *layer;                 /* [swaps, layers] */
  quality_extreme (*extreme)[THEOREMS]; /* [swaps] */
  judged_cells *judged;                 /* [swaps] empty where nobody asks for them */
} quality_data;

/* Keeps the larger share of what is allowed. */
void quality_extreme_keep(quality_extreme *, double measured, double limit);

/* judged: each variant is judged in the first layer that it replaces, on the first window. */
attn_status quality_evaluate(const data_llama *, const quality_windows *, const data_llama_swap *swaps,
                             int64_t count, bool judged, quality_data *out);
void quality_data_free(quality_data *);

#endif
