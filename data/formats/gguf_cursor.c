/* gguf_cursor.c - the elements of a GGUF file, none of which may reach beyond its end. */
#include "data/formats/gguf_cursor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "data/support/file.h"

enum { NAME_BYTES_MAX = 65535, DEPTH_MAX = 4 /* of lists in lists */ };

/* Bytes of a value; 0: they differ. */
static const size_t type_bytes[GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

uint64_t gguf_load(const uint8_t *at, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = bytes; i-- > 0;) value = value << 8 | at[i];
  return value;
}

attn_status cursor_fail(const gguf_cursor *c, const char *why) {
  char of[40] = "";
  if (c->whole) snprintf(of, sizeof of, " of %s %" PRIu64, c->whole, c->index);
  return attn_fail(ATTN_EINVAL, "%s: byte %zu: %s%s %s", c->path, (size_t)(c->at - c->start), c->part, of,
                   why);
}

attn_status cursor_take(gguf_cursor *c, uint64_t bytes, const uint8_t **out) {
  if (bytes > (uint64_t)(c->end - c->at)) return cursor_fail(c, "ends beyond the file");
  *out = c->at;
  c->at += bytes;
  return ATTN_OK;
}

attn_status cursor_number(gguf_cursor *c, size_t bytes, uint64_t *out) {
  const uint8_t *at = NULL;
  attn_status status = cursor_take(c, bytes, &at);
  if (!status) *out = gguf_load(at, bytes);
  return status;
}

static attn_status take_text(gguf_cursor *c, const uint8_t **at, uint64_t *bytes) {
  attn_status status = cursor_number(c, 8, bytes);
  return status ? status : cursor_take(c, *bytes, at);
}

attn_status cursor_name(gguf_cursor *c, char **out) {
  const uint8_t *at = NULL;
  uint64_t bytes = 0;
  attn_status status = take_text(c, &at, &bytes);
  if (status) return status;
  bool good = bytes >= 1 && bytes <= NAME_BYTES_MAX;
  for (uint64_t i = 0; good && i < bytes; i++) good = at[i] > ' ' && at[i] < 127;
  if (!good) return cursor_fail(c, "is not 1 to 65535 printable characters");
  *out = text_format("%.*s", (int)bytes, (const char *)at);
  return *out ? ATTN_OK : ATTN_ENOMEM;
}

static attn_status skip(gguf_cursor *c, uint32_t type, uint64_t count, int depth) {
  const uint8_t *at = NULL;
  uint64_t bytes = 0;
  attn_status status = ATTN_OK;
  if (type >= GGUF_TYPES) return cursor_fail(c, "has a type beyond the 13 that there are");
  if (type_bytes[type]) {
    if (count > (uint64_t)(c->end - c->at) / type_bytes[type]) return cursor_fail(c, "ends beyond the file");
    status = cursor_take(c, count * type_bytes[type], &at);
    for (uint64_t i = 0; !status && type == GGUF_BOOL && i < count; i++)
      if (at[i] > 1) status = cursor_fail(c, "is neither true nor false");
    return status;
  }
  if (type == GGUF_LIST && depth == DEPTH_MAX) return cursor_fail(c, "is a list in too many lists");
  for (uint64_t i = 0; !status && i < count; i++) {
    if (type == GGUF_TEXT) {
      status = take_text(c, &at, &bytes);
    } else {
      uint64_t inner = 0, items = 0;
      status = cursor_number(c, 4, &inner);
      if (!status) status = cursor_number(c, 8, &items);
      if (!status) status = skip(c, (uint32_t)inner, items, depth + 1);
    }
  }
  return status;
}

attn_status cursor_skip(gguf_cursor *c, uint32_t type, uint64_t count) { return skip(c, type, count, 0); }

static setting decode(uint32_t type, const uint8_t *at) {
  uint64_t bits = gguf_load(at, type == GGUF_TEXT ? 8 : type_bytes[type]);
  uint32_t narrow = (uint32_t)bits;
  float single;
  setting s = {.kind = SETTING_INTEGER, .integer = (int64_t)bits};
  switch (type) {
  case GGUF_I8:
    s.integer = (int8_t)bits;
    break;
  case GGUF_I16:
    s.integer = (int16_t)bits;
    break;
  case GGUF_I32:
    s.integer = (int32_t)bits;
    break;
  case GGUF_U64:
    if (bits > INT64_MAX) return (setting){.kind = SETTING_OTHER};
    break;
  case GGUF_F32:
    memcpy(&single, &narrow, sizeof single);
    return (setting){.kind = SETTING_REAL, .real = (double)single};
  case GGUF_F64:
    s = (setting){.kind = SETTING_REAL};
    memcpy(&s.real, &bits, sizeof s.real);
    return s;
  case GGUF_BOOL:
    s.kind = SETTING_FLAG;
    break;
  case GGUF_TEXT:
    return (setting){.kind = SETTING_TEXT, .text = (const char *)at + 8, .bytes = (size_t)bits};
  case GGUF_LIST:
    return (setting){.kind = SETTING_OTHER};
  default:
    break;
  }
  s.real = (double)s.integer;
  return s;
}

setting gguf_decode(uint32_t type, const uint8_t *at, size_t *bytes) {
  setting s = decode(type, at);
  *bytes = type == GGUF_TEXT ? 8 + s.bytes : type_bytes[type];
  return s;
}
