/* groups.h - the groups of a results file. Internal to the results file. */
#ifndef EXPERIMENTS_RESULTS_HDF5_GROUPS_H
#define EXPERIMENTS_RESULTS_HDF5_GROUPS_H

#include "experiments/results/hdf5/layout.h"

/* A group whose variables lie along run and one dimension of their own; room for one of them at a time. */
typedef struct h5_table {
  hid_t group;
  h5_dim own;
  const h5_dim *run;
  size_t rows, columns;
  void *cells; /* rows * columns of 8 bytes */
} h5_table;

/* coordinate->data has `columns` elements. */
attn_status h5_table_open(hid_t root, const char *name, const h5_dim *run, const h5_variable *coordinate,
                          size_t columns, h5_table *);
attn_status h5_table_write(const h5_table *, h5_variable);
void h5_table_close(h5_table *);

/* The columns p_<name> in root (parameters.c). */
attn_status results_write_parameters(hid_t root, const h5_dim *run, const result_set *);
attn_status results_read_parameters(const h5_source *root, result_set *);

/* Each writes one group into root; run is the dimension of the set's rows. A group that would be empty is
 * left out. */
attn_status results_write_samples(hid_t root, const h5_dim *run, const result_set *);
attn_status results_write_profile(hid_t root, const h5_dim *run, const result_set *);
attn_status results_write_maps(hid_t root, const result_set *);
attn_status results_write_bounds(hid_t root, const row_layout *, const h5_dim *run, const result_set *);
attn_status results_write_provenance(hid_t root, const result_set *);

/* /columns: of every variable that root has by now, what it is. */
attn_status results_write_columns(hid_t root);

/* Opens a group; *out is absent (group < 0) where the file has none. */
attn_status results_open_group(const h5_source *root, const char *name, const char *label, h5_source *out);

/* Each reads one group into the rows, or the sessions, of a set; an absent one leaves them as they are. */
attn_status results_read_samples(const h5_source *root, result_set *);
attn_status results_read_profile(const h5_source *root, result_set *);
attn_status results_read_maps(const h5_source *root, result_set *);
attn_status results_read_bounds(const h5_source *root, const row_layout *, result_set *);
attn_status results_read_provenance(const h5_source *root, result_set *);

#endif
