/* settled_properties.h - properties depend on the setting of a run (result_row_setting): what was found for
 * one run of a sweep holds for all others of that setting. */
#ifndef EXPERIMENTS_RUNNER_SETTLED_PROPERTIES_H
#define EXPERIMENTS_RUNNER_SETTLED_PROPERTIES_H

#include <jansson.h>

#include "experiments/results/bound.h"

typedef struct found_properties {
  char *setting;
  const result_properties *properties;
} found_properties;

/* Zero is the empty one. */
typedef struct properties_found {
  found_properties *settings;
  size_t count;
} properties_found;

void properties_found_free(properties_found *);

/* Keeps the properties that a row refers to, unless its setting is known. ENOMEM. */
attn_status properties_keep(properties_found *, const result_row *);
/* Lets a row without properties refer to those of its setting, and brings its verdict up to date; *known: is
 * the setting known? ENOMEM. */
attn_status properties_give(const properties_found *, result_row *, bool *known);

/* {setting: is any violated?}, a new reference; NULL: no memory. Of that, those of a row's setting: known,
 * and violated. ENOMEM. */
json_t *properties_found_json(const properties_found *);
attn_status properties_settled(const json_t *, const result_row *, bool *known, bool *violated);

#endif
