/* json_setting.h - config.json of a model directory, and what it says of a key. */
#ifndef DATA_SUPPORT_JSON_SETTING_H
#define DATA_SUPPORT_JSON_SETTING_H

#include <jansson.h>

#include "data/support/config_value.h"

/* Reads DIRECTORY/config.json, an object. *path, for messages, is to be freed whatever happens. ENOTFOUND: it
 * is not there. */
attn_status json_config_read(const char *directory, char **path, json_t **out);

/* null is absent. */
setting json_setting(const json_t *, const char *key);

#endif
