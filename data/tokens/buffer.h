/* buffer.h - a text that grows. Internal to data/. */
#ifndef DATA_TOKENS_BUFFER_H
#define DATA_TOKENS_BUFFER_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"

typedef struct buffer {
  uint8_t *at; /* release with free */
  size_t bytes, capacity;
} buffer;

/* Appends; there is always room for one byte more. ENOMEM, recorded. */
static inline attn_status buffer_put(buffer *b, const void *at, size_t bytes) {
  if (bytes >= b->capacity - b->bytes) {
    const size_t more = 2 * b->capacity + bytes + 1;
    uint8_t *grown = realloc(b->at, more);
    if (!grown) return attn_fail(ATTN_ENOMEM, "no memory for a text of %zu bytes", more);
    b->at = grown;
    b->capacity = more;
  }
  if (bytes) memcpy(b->at + b->bytes, at, bytes);
  b->bytes += bytes;
  return ATTN_OK;
}

#endif
