/* groups.h - the groups of a results file. Internal to the results file. */
#ifndef EXPERIMENTS_RESULTS_HDF5_GROUPS_H
#define EXPERIMENTS_RESULTS_HDF5_GROUPS_H

#include "experiments/results/hdf5/source.h"
#include "experiments/results/set.h"

/* The columns p_<name> in root (parameters.c). */
attn_status results_write_parameters(hid_t root, const h5_dim *run, const result_set *);
attn_status results_read_parameters(const h5_source *root, result_set *);

/* Each writes one group into root; run is the dimension of the set's rows. A group that would be empty is
 * left out. */
attn_status results_write_samples(hid_t root, const h5_dim *run, const result_set *);
attn_status results_write_profile(hid_t root, const h5_dim *run, const result_set *);
attn_status results_write_maps(hid_t root, const result_set *);
attn_status results_write_bounds(hid_t root, const h5_dim *run, const result_set *);
attn_status results_write_provenance(hid_t root, const result_set *);

/* /columns: of every variable that root has by now, what it is. */
attn_status results_write_columns(hid_t root);

/* Each reads one group into the rows, or the sessions, of a set; an absent one leaves them as they are. */
attn_status results_read_samples(const h5_source *root, result_set *);
attn_status results_read_profile(const h5_source *root, result_set *);
attn_status results_read_maps(const h5_source *root, result_set *);
attn_status results_read_bounds(const h5_source *root, result_set *);
attn_status results_read_provenance(const h5_source *root, result_set *);

#endif
