/* read_hdf5.h - the groups of a results file, read into rows. Internal to the results file. Absent groups
 * leave the rows as they are. */
#ifndef EXPERIMENTS_RESULTS_READ_HDF5_H
#define EXPERIMENTS_RESULTS_READ_HDF5_H

#include "experiments/results/hdf5_source.h"
#include "experiments/results/write_hdf5.h"

attn_status results_read_samples(const h5_source *root, result_set *);
attn_status results_read_profile(const h5_source *root, result_set *);
attn_status results_read_maps(const h5_source *root, result_set *);
attn_status results_read_bounds(const h5_source *root, result_set *);
attn_status results_read_provenance(const h5_source *root, result_set *);

#endif
