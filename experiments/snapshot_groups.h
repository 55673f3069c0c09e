/* snapshot_groups.h - the groups of a results file. Internal to the results file. */
#ifndef EXPERIMENTS_SNAPSHOT_GROUPS_H
#define EXPERIMENTS_SNAPSHOT_GROUPS_H

#include "h5columns.h"
#include "snapshot.h"

/* Each writes one group into root; run is the dimension of the set's rows. A group that would be empty is
 * left out. */
attn_status snapshot_samples(hid_t root, const h5_dim *run, const result_set *);
attn_status snapshot_profile(hid_t root, const h5_dim *run, const result_set *);
attn_status snapshot_maps(hid_t root, const result_set *);
attn_status snapshot_bounds(hid_t root, const h5_dim *run, const result_set *);
attn_status snapshot_provenance(hid_t root, const result_set *);

#endif
