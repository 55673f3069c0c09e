/* train_study.h - models of every task, variant and seed, their file, and what the variants cost.
 *
 * The file is JSON lines, the same bytes for any number of threads, and after any interruption: a line that
 * says what is trained (tasks, steps, variants, seeds) by which program (build, isa), and one for each model
 * that is finished, in the order of tasks, variants and seeds:
 *   task, variant, seed
 *   loss, accuracy                    trained and tested with the variant: nats, share of scored positions
 *   swapped_loss, swapped_accuracy    trained with exact attention, the same seed, tested with the variant
 *   curve                             the loss of the batches of each span of steps (train_run.h)
 * Numbers have full precision, those that are not finite are null. It is written whole after each model; a
 * training that is killed begins again, since it takes seconds. */
#ifndef EXPERIMENTS_TRAINING_TRAIN_STUDY_H
#define EXPERIMENTS_TRAINING_TRAIN_STUDY_H

#include "data/support/output.h"
#include "experiments/mathematics/intervals.h"
#include "experiments/training/train_run.h"

enum { TRAIN_SPECS = 64, TRAIN_SEEDS = 4096 }; /* at most */
#define TRAIN_EXACT "tiled"

typedef struct train_row {
  bool done;
  train_score trained, swapped;
  double curve[TRAIN_SPANS];
} train_row;

typedef struct train_study {
  train_settings settings;
  const train_task *tasks[TRAIN_TASKS];
  attn_spec *specs[TRAIN_SPECS]; /* the first is TRAIN_EXACT; owned */
  char *later[TRAIN_SPECS];      /* why an answer may depend on later tokens; NULL: it does not; owned */
  int64_t task_count, spec_count, seeds;
  const char *path; /* NULL: no file */
  char *head;       /* first line of the file */
  train_row *rows;  /* [tasks][specs][seeds] */
} train_study;

/* Adds a spec, and first of all TRAIN_EXACT. EINVAL: it is there already, or there are too many. */
attn_status train_study_add(train_study *, const char *spec);
/* Does every task take every spec? EUNSUPPORTED names the spec, with the reason. Then reads the file, if
 * there is one; EINVAL: it is of another study. */
attn_status train_study_open(train_study *);
/* Trains what is not done of a task, as many models at once as OpenMP has threads. */
attn_status train_study_run(train_study *, int64_t task);
void train_study_free(train_study *);

static inline train_row *train_study_row(const train_study *s, int64_t task, int64_t spec, int64_t seed) {
  return &s->rows[(task * s->spec_count + spec) * s->seeds + seed];
}

/* How a variant compares with exact attention, over the seeds of a task. */
typedef enum { TRAIN_OPEN, TRAIN_WORSE, TRAIN_BETTER } train_word;
extern const char *const train_words[];
typedef struct train_comparison {
  train_score trained, swapped; /* medians */
  interval difference;          /* of the accuracy, from exact attention's of the same seed */
  double p;                     /* of Student's paired test; NaN: too few seeds, or exact itself */
  train_word word;              /* at 5 %, after Holm's correction over the variants of the task */
} train_comparison;

attn_status train_compare(const train_study *, int64_t task, train_comparison *of_specs);

#endif
