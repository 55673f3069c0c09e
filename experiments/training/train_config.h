/* train_config.h - a study as a YAML file:
 *   schema: 1
 *   tasks: [copy, mqar]
 *   variants: ["topk:k=4", "streaming:sink=2,window=8"]
 *   seeds: 8
 *   steps: 300       (of every task) */
#ifndef EXPERIMENTS_TRAINING_TRAIN_CONFIG_H
#define EXPERIMENTS_TRAINING_TRAIN_CONFIG_H

#include "experiments/training/train_study.h"

/* Takes what the study lacks (no task, no variant, 0 seeds, 0 steps); schema must be there. EINVAL names
 * file, line and column. */
attn_status train_config_read(const char *path, train_study *);

/* EINVAL: no task has this name, with the nearest one, or it is there already. */
attn_status train_study_add_task(train_study *, const char *name);

#endif
