/* gguf.h - tensors and metadata of a .gguf file, mapped. Internal to data/. */
#ifndef DATA_FORMATS_GGUF_H
#define DATA_FORMATS_GGUF_H

#include "data/formats/tensor.h"
#include "data/support/config_value.h"
#include "data/support/sha256.h"

typedef struct gguf gguf;

/* Opens a file of version 2 or 3 and checks everything except the numbers: every key has a value, every
 * tensor has a unique name and lies in the file. EUNSUPPORTED: elements in a format that is not widened. */
attn_status gguf_open(const char *path, gguf **);
void gguf_close(gguf *);
const char *gguf_path(const gguf *);
size_t gguf_count(const gguf *);
const tensor *gguf_at(const gguf *, size_t index);       /* in the order of their names */
const tensor *gguf_find(const gguf *, const char *name); /* NULL if there is none */

/* The value of a key; a list is SETTING_OTHER. Texts live as long as the file is open. */
setting gguf_get(const gguf *, const char *key);

/* What is left of a list. */
typedef struct gguf_list {
  uint64_t count; /* 0: all taken, or no list of values that are no lists */
  uint32_t type;
  const uint8_t *at;
} gguf_list;

gguf_list gguf_get_list(const gguf *, const char *key);
/* Takes the first item of a list that is not empty. */
setting gguf_next(gguf_list *);

/* Adds the whole file to a hash. */
void gguf_hash(const gguf *, sha256 *);

#endif
