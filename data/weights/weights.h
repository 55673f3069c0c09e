/* weights.h - the tensors of a model: in a safetensors file or a GGUF file, or in several of them. Internal
 * to data/. */
#ifndef DATA_WEIGHTS_WEIGHTS_H
#define DATA_WEIGHTS_WEIGHTS_H

#include "data/formats/gguf.h"

typedef struct weights weights;

/* Opens a GGUF file, with its other parts if it is the first of several, NAME-00001-of-COUNT.gguf, or
 * DIRECTORY/model.safetensors, or the shards that DIRECTORY/model.safetensors.index.json names. */
attn_status weights_open(const char *path, weights **);
void weights_close(weights *);

const tensor *weights_find(const weights *, const char *name); /* NULL if there is none */
size_t weights_count(const weights *);
const tensor *weights_at(const weights *, size_t index);

/* The GGUF file, the first of several; NULL: they are of a directory. */
const gguf *weights_gguf(const weights *);

/* SHA-256 of the file, or of the shards one after another in the order of their names. */
void weights_sha256(const weights *, char hex[65]);

#endif
