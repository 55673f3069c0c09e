/* train_run.h - training a small model on a task, and what it then answers. All draws are of the seed: runs
 * of one seed have the same weights at first, the same data in the same order, and the same questions. One
 * thread; the bits are those of any other call. */
#ifndef EXPERIMENTS_TRAINING_TRAIN_RUN_H
#define EXPERIMENTS_TRAINING_TRAIN_RUN_H

#include "experiments/training/small_model.h"
#include "experiments/training/train_tasks.h"

typedef struct train_settings {
  int64_t steps, batch, tests; /* 0: the task's; sequences of a step; batches that are asked at the end */
  int64_t width, heads, layers, inner;
  double decay; /* adamw.h */
} train_settings;

extern const train_settings train_presets;

enum { TRAIN_SPANS = 32 }; /* of a learning curve, at most */

typedef struct train_score {
  double loss, accuracy; /* of the scored positions of the test: nats in the mean, share that is right */
} train_score;

small_shape train_shape(const train_task *, const train_settings *);
static inline int64_t train_steps(const train_task *t, const train_settings *s) {
  return s->steps ? s->steps : t->steps;
}

/* The steps fall into this many spans, as equal as they can be: points of a learning curve. */
static inline int64_t train_spans(const train_task *t, const train_settings *s) {
  return attn_min(TRAIN_SPANS, train_steps(t, s));
}

/* weights [small_weights_count], drawn and trained with the spec as attention; curve [train_spans]: the loss
 * of each span's batches, before they were learned from, nats a scored position. A training that diverges
 * ends with weights that are not finite. */
attn_status train_run(const train_task *, const train_settings *, const attn_spec *, uint64_t seed,
                      double *weights, double *curve);

/* What these weights answer with the spec as attention. */
attn_status train_test(const train_task *, const train_settings *, const attn_spec *, uint64_t seed,
                       const double *weights, train_score *);

#endif
