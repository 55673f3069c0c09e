/* tensor.h - a tensor as a file holds it: a name, a shape, and elements in one of several formats. Internal
 * to data/. */
#ifndef DATA_FORMATS_TENSOR_H
#define DATA_FORMATS_TENSOR_H

#include "attn_arithmetic.h"
#include "data/data.h"

enum { TENSOR_RANK_MAX = 8 };

/* How elements are stored: in blocks, most of a single one. */
typedef struct tensor_format {
  const char *name;
  int64_t block, bytes; /* elements of a block, and its size */
  /* Blocks as f32; NULL: not floating point. */
  void (*widen)(const uint8_t *blocks, int64_t count, float *out);
  attn_weight_format stored; /* how products read it (attn_arithmetic.h) */
} tensor_format;

extern const tensor_format tensor_f32, tensor_f16, tensor_bf16, tensor_f64; /* tensor.c */

typedef struct tensor {
  const char *name, *file; /* file: for messages */
  const tensor_format *format;
  int rank;
  int64_t shape[TENSOR_RANK_MAX]; /* of the slowest axis first; rows are whole blocks */
  int64_t count;                  /* elements */
  size_t bytes;
  const uint8_t *at; /* any alignment, little-endian */
} tensor;

/* Elements first .. first+count-1, which are whole blocks, as f32 (f64 rounds to nearest). EUNSUPPORTED for
 * formats that are not floating point. */
attn_status tensor_to_f32(const tensor *, int64_t first, int64_t count, float *out);
/* f64 stays, everything else becomes f32. */
attn_status tensor_to_array(const tensor *, data_array *out);

/* IEEE 754 binary16, little-endian, widened exactly. */
float tensor_f16_to_f32(const uint8_t *at);

#endif
