/* tokenizer_json.h - the parts of tokenizer.json that are read apart. Internal to data/. */
#ifndef DATA_TOKENS_TOKENIZER_JSON_H
#define DATA_TOKENS_TOKENIZER_JSON_H

#include <jansson.h>

#include "data/tokens/tokenizer.h"

/* The value of a key; NULL if it is absent or null. */
json_t *json_given(json_t *object, const char *key);

/* EUNSUPPORTED names a key of the object that is given and not among `known` (which ends with NULL). */
attn_status json_check_keys(const char *place, json_t *object, const char *const *known);

/* false if absent. EINVAL: neither true nor false. */
attn_status json_flag(const char *place, json_t *object, const char *key, bool *out);

/* Whether the text under "type" is `wanted`. */
bool json_is_type(json_t *object, const char *wanted);

/* normalizer and pre_tokenizer (split_json.c); model and added_tokens (model_json.c). */
attn_status read_splits(data_tokenizer *, json_t *file);
attn_status read_model(data_tokenizer *, json_t *file);

#endif
