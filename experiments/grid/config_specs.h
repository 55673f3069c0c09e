/* config_specs.h - the lists `variants:`, `datasets:` and `exclude:` of a configuration. Internal to
 * config. */
#ifndef EXPERIMENTS_GRID_CONFIG_SPECS_H
#define EXPERIMENTS_GRID_CONFIG_SPECS_H

#include "experiments/grid/config.h"

/* Each reads one list node, checks every name and value, and appends. */
attn_status config_read_variants(const tree_node *, config_specs *);
attn_status config_read_datasets(const tree_node *, config_specs *);
attn_status config_read_exclude(const tree_node *, config *); /* config_exclude.c */

/* The values of grid.score, or with of_mask of grid.mask, in canonical form, appended. */
attn_status config_read_targets(const tree_node *, bool of_mask, value_texts *);

/* The values of an axis, integers from min to max, appended (config.c). */
attn_status config_read_axis(const tree_node *, axis_id, int64_t min, int64_t max, value_ints *);

/* One parameter of a variant: its values, each checked at its own place, appended as texts. */
attn_status config_read_variant_param(const char *variant, const tree_node *, value_texts *);

void config_specs_free(config_specs *);
void config_filter_free(config_filter *);

#endif
