/* layout.h - how a kind of row lies in a results file, and the writing and reading of files that follow from
 * it.
 *
 * The root, or a group, has the columns along the unlimited dimension run, a group with a cell for each run
 * and bound, /provenance (what each session of the program ran as), /columns (a line for each variable, with
 * what it means), and the groups that are the kind's own. */
#ifndef EXPERIMENTS_RESULTS_HDF5_LAYOUT_H
#define EXPERIMENTS_RESULTS_HDF5_LAYOUT_H

#include "experiments/results/hdf5/source.h"
#include "experiments/results/set.h"

typedef struct row_layout {
  const row_kind *kind;
  const output_kind *file; /* whose root has such rows */
  const char *schema, *title;
  int version;
  const char
      *group; /* that has the rows where the root has those of another kind; NULL: they are in the root */
  const char *bounds, *bound,
      *about_bound; /* names of the group of bounds and of its dimension, and what that is */
  attn_status (*init)(void *row);
  int (*cells)(const void *row); /* bounds of a row */
  const result_bound *(*cell)(const void *row, int);
  attn_status (*take)(void *row, const result_bound *cells, int count); /* those that a file has */
  attn_status (*write_columns)(hid_t root, const h5_dim *run, const void *const *rows, const result_set *);
  attn_status (*write_groups)(hid_t root, const h5_dim *run, const result_set *);
  attn_status (*read_columns)(const h5_source *root,
                              result_set *); /* what is derived from them; may be NULL */
  attn_status (*read_groups)(const h5_source *root, result_set *);
  attn_status (*complete)(const h5_source *root, result_set *); /* at the end; may be NULL */
} row_layout;

extern const row_layout layout_of_sweep;

/* Writes a file of one or two sets: the first in its root, the second in its group, by whose name an
 * attribute of the root gives its schema. Whole, or not at all (the old one stays). EFOREIGN: a system call
 * or HDF5 failed. */
typedef struct layout_part {
  const row_layout *layout;
  const result_set *set;
} layout_part;
attn_status layout_write(const char *path, const layout_part *, size_t count);

/* Reads the rows of the kind, from the root or their group, into a set (to be freed). EINVAL: the file has
 * none, is of a newer schema, or malformed. */
attn_status layout_read(const char *path, const row_layout *, result_set *out);

#endif
