/* file.h - evaluations as one HDF5 file that netCDF-4 readers understand: the columns of quality_columns along run, and
 * /by_window, /by_position and /by_layer with the series of each run, /checks with a cell for each run and check. */
#ifndef EXPERIMENTS_QUALITY_FILE_H
#define EXPERIMENTS_QUALITY_FILE_H

#include "data/support/output.h"
#include "experiments/quality/record.h"

#define QUALITY_SCHEMA "attnlab-eval"
#define QUALITY_SCHEMA_VERSION 1

typedef struct quality_set {
  quality_record *records;
  size_t count;
} quality_set;

void quality_set_free(quality_set *);
/* Takes the record over, in place of one with the same key. ENOMEM: it is the caller's still. */
attn_status quality_set_add(quality_set *, quality_record *);
/* The record of the run, if need be one of an older program; NULL: there is none. */
const quality_record *quality_set_find(const quality_set *, const char *key);

extern const output_kind kind_evaluation;

/* Calls with the path of a file that is not there yet, in a directory of its own, and that goes afterwards. */
attn_status quality_unnamed(attn_status (*with)(void *to, const char *path), void *to);

/* While a process has the lock, by a descriptor that closing gives back, no other changes evaluations in the path's
 * directory. -1: there are no locks there, and changes of two processes at once may be lost. */
int quality_lock(const char *path);

/* Whole, or not at all. */
attn_status quality_write(const char *path, const quality_set *);
/* EINVAL: not an evaluation, of a newer schema, or malformed. */
attn_status quality_read(const char *path, quality_set *out);

#endif
