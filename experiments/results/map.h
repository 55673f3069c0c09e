/* map.h - the attention map of a row as JSON. Internal to row_json.c. */
#ifndef EXPERIMENTS_RESULTS_MAP_H
#define EXPERIMENTS_RESULTS_MAP_H

#include <jansson.h>

#include "experiments/results/row.h"

json_t *result_map_json(const result_row *); /* of a row that has a map; NULL: no memory */

/* Makes the map of a row whose n and n_kv are known. EINVAL for any other text than result_map_json's. */
attn_status result_map_read(const json_t *, result_row *);

#endif
