/* train_file.h - the file of a study (train_study.h has its form). Internal to it. */
#ifndef EXPERIMENTS_TRAINING_TRAIN_FILE_H
#define EXPERIMENTS_TRAINING_TRAIN_FILE_H

#include "experiments/training/train_study.h"

/* Makes the first line, and takes the rows of the file, if there is one. EINVAL: it is of another study. */
attn_status train_file_read(train_study *);
attn_status train_file_write(const train_study *);

#endif
