/* train_tasks.h - what small models are taught: sequences that a seed draws, each with the answers that it
 * determines. A position is scored if what stands up to it determines its answer. */
#ifndef EXPERIMENTS_TRAINING_TRAIN_TASKS_H
#define EXPERIMENTS_TRAINING_TRAIN_TASKS_H

#include "attn_variant.h"

typedef struct train_task {
  const char *name, *about;
  int64_t n, vocabulary; /* tokens of a sequence; they are 0 ... vocabulary - 1 */
  int64_t answers;       /* among which an answer is: 1 / answers is guessed rightly by chance */
  double rate;           /* of learning, at most: at which exact attention learns the task in few steps */
  int64_t steps;         /* in which it learns it, as far as it does */
  /* tokens [n], targets [n]: the answer at a position, -1 where none is scored */
  void (*draw)(const struct train_task *, attn_rng *, int32_t *tokens, int32_t *targets);
} train_task;

enum { TRAIN_TASKS = 8 };
extern const train_task train_tasks[TRAIN_TASKS];

/* NULL: there is none of this name. */
const train_task *train_task_find(const char *name);

/* Tokens of listops: digits, then these. */
enum { LISTOPS_MIN = 10, LISTOPS_MAX, LISTOPS_MEDIAN, LISTOPS_SUM, LISTOPS_END, LISTOPS_PAD, LISTOPS_EQUALS };

#endif
