/* evaluation_file.h - evaluations as one HDF5 file that netCDF-4 readers understand: the columns of
 * quality_columns along run, and /by_window, /by_position and /by_layer with the series of each run, /checks
 * with a cell for each run and check. */
#ifndef EXPERIMENTS_QUALITY_EVALUATION_FILE_H
#define EXPERIMENTS_QUALITY_EVALUATION_FILE_H

#include "data/support/output.h"
#include "experiments/quality/evaluation_rows.h"
#include "experiments/results/hdf5/layout.h"

#define QUALITY_SCHEMA "attnlab-eval"
#define QUALITY_SCHEMA_VERSION 1

extern const output_kind kind_evaluation;
extern const row_layout layout_of_evaluation; /* in the root, or in the group /evaluation beside a sweep */

/* Whether a file has an evaluation, and whether nothing else. */
bool quality_file_has(const char *path);
bool quality_file_is(const char *path);

/* Whole, or not at all. */
attn_status quality_write(const char *path, const quality_set *);
/* EINVAL: not an evaluation, of a newer schema, or malformed. */
attn_status quality_read(const char *path, quality_set *out);

#endif
