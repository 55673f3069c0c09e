/* flat_file.h - an HDF5 file that is one table: a column a variable, along one dimension that numbers the
 * rows. */
#ifndef EXPERIMENTS_RESULTS_HDF5_FLAT_FILE_H
#define EXPERIMENTS_RESULTS_HDF5_FLAT_FILE_H

#include "data/support/output.h"
#include "experiments/results/column.h"

typedef struct flat_file {
  const char *title, *dimension;
  const result_column *columns; /* ends with an empty one */
  const void *const *rows;
  size_t count;
} flat_file;

/* The file appears whole or not at all. EFOREIGN, ENOMEM. */
attn_status flat_file_write(const char *path, const output_kind *, const flat_file *);

#endif
