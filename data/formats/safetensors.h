/* safetensors.h - tensors of a .safetensors file, mapped. Internal to data/. */
#ifndef DATA_FORMATS_SAFETENSORS_H
#define DATA_FORMATS_SAFETENSORS_H

#include "data/data.h"
#include "data/support/sha256.h"

enum { SAFETENSOR_RANK_MAX = 8 };

typedef enum { ST_F32, ST_F16, ST_BF16, ST_F64, ST_OTHER } safetensor_type;

typedef struct safetensor {
  const char *name, *file; /* file: for messages */
  const char *type_name;   /* as in the file */
  safetensor_type type;
  int rank;
  int64_t shape[SAFETENSOR_RANK_MAX];
  int64_t count; /* elements */
  size_t bytes;
  const uint8_t *at; /* any alignment, little-endian */
} safetensor;

typedef struct safetensors safetensors;

/* Opens and checks a file: the tensors fill its data without overlap or gap, each with the size of its
 * shape. */
attn_status safetensors_open(const char *path, safetensors **);
void safetensors_close(safetensors *);
size_t safetensors_count(const safetensors *);
const safetensor *safetensors_at(const safetensors *, size_t index);       /* in the order of the data */
const safetensor *safetensors_find(const safetensors *, const char *name); /* NULL if there is none */

/* Adds the whole file to a hash. */
void safetensors_hash(const safetensors *, sha256 *);

/* Elements first .. first+count-1 as f32 (f64 rounds to nearest). EUNSUPPORTED for types that are not
 * floating point. */
attn_status safetensor_to_f32(const safetensor *, int64_t first, int64_t count, float *out);
/* f64 stays, everything else becomes f32. */
attn_status safetensor_to_array(const safetensor *, data_array *out);

#endif
