/* json_text.h - JSON from texts and to them, in whole or not at all. */
#ifndef DATA_SUPPORT_JSON_TEXT_H
#define DATA_SUPPORT_JSON_TEXT_H

#include <jansson.h>

#include "attn.h"

/* No key twice. EINVAL (not recorded): *error says where and what; ENOMEM (recorded). */
attn_status json_parse(const char *text, size_t bytes, json_error_t *error, json_t **out);

/* As json_dumps, to be freed; NULL without memory (recorded), and for NULL. */
char *json_print(const json_t *, size_t flags);

#endif
