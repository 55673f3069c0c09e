/* tokenizer_json.h - the parts of tokenizer.json that are read apart. Internal to data/. */
#ifndef DATA_TOKENS_TOKENIZER_JSON_H
#define DATA_TOKENS_TOKENIZER_JSON_H

#include <jansson.h>

#include "data/tokens/tokenizer.h"

enum { JSON_PLACE = 400 }; /* more than a message holds */

/* The value of a key; NULL if it is absent or null. */
json_t *json_given(json_t *object, const char *key);

/* EUNSUPPORTED names a key of the object that is given and not among `known` (which ends with NULL). */
attn_status json_check_keys(const char *place, json_t *object, const char *const *known);

/* false if absent. EINVAL: neither true nor false. */
attn_status json_flag(const char *place, json_t *object, const char *key, bool *out);

/* Whether the text under "type" is `wanted`. */
bool json_is_type(json_t *object, const char *wanted);

/* EINVAL: not an id; what and name go into the message. */
attn_status json_id(const char *file, json_t *value, const char *what, const char *name, int64_t *out);

/* normalizer and pre_tokenizer (steps_json.c); model with the texts of added_tokens (model_json.c); where a
 * text is cut at those (added_json.c). */
attn_status read_steps(data_tokenizer *, json_t *file);
attn_status read_model(data_tokenizer *, json_t *file);
attn_status add_added(data_tokenizer *, json_t *vocab, json_t *added);
attn_status read_added(data_tokenizer *, json_t *added);

#endif
