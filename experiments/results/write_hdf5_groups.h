/* write_hdf5_groups.h - the groups of a results file. Internal to the results file. */
#ifndef EXPERIMENTS_RESULTS_WRITE_HDF5_GROUPS_H
#define EXPERIMENTS_RESULTS_WRITE_HDF5_GROUPS_H

#include "experiments/results/hdf5_variables.h"
#include "experiments/results/write_hdf5.h"

/* Each writes one group into root; run is the dimension of the set's rows. A group that would be empty is
 * left out. */
attn_status snapshot_samples(hid_t root, const h5_dim *run, const result_set *);
attn_status snapshot_profile(hid_t root, const h5_dim *run, const result_set *);
attn_status snapshot_maps(hid_t root, const result_set *);
attn_status snapshot_bounds(hid_t root, const h5_dim *run, const result_set *);
attn_status snapshot_provenance(hid_t root, const result_set *);

#endif
