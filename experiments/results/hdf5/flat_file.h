/* flat_file.h - one table as an HDF5 file, a column a variable, along one dimension that numbers the rows;
 * and as the data of a page. */
#ifndef EXPERIMENTS_RESULTS_HDF5_FLAT_FILE_H
#define EXPERIMENTS_RESULTS_HDF5_FLAT_FILE_H

#include "data/support/output.h"
#include "experiments/results/column.h"
#include "experiments/support/json_stream.h"

/* Numbers along a further dimension, in a group. */
typedef struct flat_series {
  const char *group; /* NULL: there are none */
  const char *dimension, *about;
  const double *at; /* [length] of the dimension */
  size_t length;
  const char *name, *long_name;
  size_t offset; /* in a row: double [length] */
} flat_series;

typedef struct flat_file {
  const char *title, *schema, *dimension; /* schema NULL: none that others read */
  const result_column *columns;           /* ends with an empty one */
  const void *const *rows;
  size_t count;
  flat_series series;
} flat_file;

/* The file appears whole or not at all. EFOREIGN, ENOMEM. */
attn_status flat_file_write(const char *path, const output_kind *, const flat_file *);
/* {"lines": [] (of runs, which look.js asks for), "rows": [{the columns, and the series by its group}]} */
void flat_file_put(json_stream *, const void *file);

#endif
