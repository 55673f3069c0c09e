/* safetensors.h - tensors of a .safetensors file, mapped. Internal to data/. */
#ifndef DATA_FORMATS_SAFETENSORS_H
#define DATA_FORMATS_SAFETENSORS_H

#include "data/formats/tensor.h"
#include "data/support/sha256.h"

typedef struct safetensors safetensors;

/* Opens and checks a file: the tensors fill its data without overlap or gap, each with the size of its
 * shape. */
attn_status safetensors_open(const char *path, safetensors **);
void safetensors_close(safetensors *);
size_t safetensors_count(const safetensors *);
const tensor *safetensors_at(const safetensors *, size_t index);       /* in the order of the data */
const tensor *safetensors_find(const safetensors *, const char *name); /* NULL if there is none */

/* Adds the whole file to a hash. */
void safetensors_hash(const safetensors *, sha256 *);

#endif
