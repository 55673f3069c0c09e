/* train_results.h - what comes of a finished study: an HDF5 file that netCDF-4 readers understand, a row a
 * model, with its learning curve in /curves; and a page with the curves of each task. */
#ifndef EXPERIMENTS_TRAINING_TRAIN_RESULTS_H
#define EXPERIMENTS_TRAINING_TRAIN_RESULTS_H

#include "experiments/training/train_study.h"

extern const output_kind kind_training_results;

/* NULL: none. Each whole, or not at all. */
attn_status train_results_write(const train_study *, const char *file, const char *page);

#endif
