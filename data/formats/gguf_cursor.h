/* gguf_cursor.h - the elements of a GGUF file, read one after another: numbers, texts, values. Internal to
 * gguf.c. */
#ifndef DATA_FORMATS_GGUF_CURSOR_H
#define DATA_FORMATS_GGUF_CURSOR_H

#include "data/support/config_value.h"

/* The types of values by their numbers in the file. */
typedef enum {
  GGUF_U8,
  GGUF_I8,
  GGUF_U16,
  GGUF_I16,
  GGUF_U32,
  GGUF_I32,
  GGUF_F32,
  GGUF_BOOL,
  GGUF_TEXT, /* u64 length, bytes */
  GGUF_LIST, /* u32 type, u64 count, values */
  GGUF_U64,
  GGUF_I64,
  GGUF_F64,
  GGUF_TYPES
} gguf_type;

typedef struct gguf_cursor {
  const char *path;
  const uint8_t *start, *at, *end;
  /* What is being read, for messages: "the name" of "key" 3. whole is NULL for the header. */
  const char *part, *whole;
  uint64_t index;
} gguf_cursor;

/* EINVAL with the place: "x.gguf: byte 60: the name of key 3 ends beyond the file". */
attn_status cursor_fail(const gguf_cursor *, const char *why);
attn_status cursor_take(gguf_cursor *, uint64_t bytes, const uint8_t **out);
attn_status cursor_number(gguf_cursor *, size_t bytes, uint64_t *out);
/* A text of printable ASCII as a new string. */
attn_status cursor_name(gguf_cursor *, char **out);
/* Checks and passes over `count` values, and what is in them. */
attn_status cursor_skip(gguf_cursor *, uint32_t type, uint64_t count);

/* A little-endian number. */
uint64_t gguf_load(const uint8_t *at, size_t bytes);
/* A value that cursor_skip has checked, and the bytes that it takes (of a list: 0). */
setting gguf_decode(uint32_t type, const uint8_t *at, size_t *bytes);

#endif
