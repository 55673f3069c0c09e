/* found.h - properties depend on the variant's parameters but the seed, on the widths, the type, the mask and
 * the instruction set: what was found for one run of a sweep holds for all others of that setting. */
#ifndef EXPERIMENTS_PROPERTIES_FOUND_H
#define EXPERIMENTS_PROPERTIES_FOUND_H

#include <jansson.h>

#include "experiments/results/bound.h"

typedef struct found_cells {
  char *setting;
  result_bound *cells;
  int count;
} found_cells;

/* Zero is the empty one. */
typedef struct properties_found {
  found_cells *settings;
  size_t count;
} properties_found;

void properties_found_free(properties_found *);

/* Keeps the cells of properties that a row of this spec (NULL: of a baseline) has, unless its setting is
 * known. ENOMEM. */
attn_status properties_keep(properties_found *, const attn_spec *, const result_row *);
/* Appends the cells of the row's setting to a row that has none, and brings its verdict up to date; *known:
 * is the setting known? ENOMEM. */
attn_status properties_give(const properties_found *, const attn_spec *, result_row *, bool *known);

/* {setting: is any violated?}, a new reference; NULL: no memory. Of that, those of a row's setting: known, and
 * violated. ENOMEM. */
json_t *properties_found_json(const properties_found *);
attn_status properties_settled(const json_t *, const attn_spec *, const result_row *, bool *known,
                               bool *violated);

#endif
