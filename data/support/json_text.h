/* json_text.h - JSON from texts and to them, in whole or not at all. */
#ifndef DATA_SUPPORT_JSON_TEXT_H
#define DATA_SUPPORT_JSON_TEXT_H

#include <jansson.h>

#include "attn.h"

/* No key twice. EINVAL (not recorded): *error says where and what; ENOMEM (recorded). */
attn_status json_parse(const char *text, size_t bytes, json_error_t *error, json_t **out);

/* As json_dumps, to be freed; NULL without memory (recorded), and for NULL. */
char *json_print(const json_t *, size_t flags);
/* That text and a line break. ENOMEM also for NULL. */
attn_status json_write(FILE *, const json_t *, size_t flags);

/* Give a value to an object or an array. jansson's *_new functions take NULL, release what they were given,
 * and fail: a part that could not be made leaves its parent incomplete, which this flag tells. */
void json_put(json_t *object, const char *name, json_t *value, bool *ok);
void json_add(json_t *array, json_t *value, bool *ok);
/* made if all went well, else NULL: it is released. */
json_t *json_whole(json_t *made, bool ok);

#endif
