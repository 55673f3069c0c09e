/* product.h - the linear layers of a model: weights widened to f32 and packed for products once, for many
 * rows; or read where the file has them, for few. Products are the library's; their bits are the same for
 * any number of threads. Internal to data/. */
#ifndef DATA_WEIGHTS_PRODUCT_H
#define DATA_WEIGHTS_PRODUCT_H

#include "attn_variant.h"
#include "data/formats/tensor.h"

/* Where W and b are stored: row r of W is row first + r / run * stride + r % run of a tensor, or its
 * column. */
typedef struct product_rows {
  const tensor *weight, *bias; /* bias NULL: none */
  int64_t rows, columns;       /* of W */
  int64_t first, run, stride;
  bool transposed; /* the tensor is [columns, its rows]; of one element a block */
  int64_t expert;  /* which of [experts, ...] of the tensor, and of the bias; 0: they may be one */
  /* What the tensor is times, a number for each block of its rows and columns; NULL: nothing. Not of
   * transposed ones. */
  const tensor *scale;
  int64_t scale_rows, scale_columns; /* of a block */
  /* turned: 0, or how many rows of each `head`, the first, are pairs: 2i and 2i + 1 become i and i +
   * turned/2. */
  int64_t head, turned;
} product_rows;

/* W [rows, columns], packed in slices of whole rows, or (at NULL) where it is stored; and b [rows] or
 * NULL. */
typedef struct product_matrix {
  int64_t rows, columns, slice;
  size_t stride; /* bytes of a slice */
  char *at;
  product_rows place;
  float *bias;
} product_matrix;

/* What products are computed with. */
typedef struct product_tools {
  const attn_kernels *kernels;
  int threads;
  size_t scratch_bytes; /* of one thread */
  char *scratch;
} product_tools;

/* rows, columns, size > 0; *out is aligned to 64 bytes, free() it. */
attn_status product_allocate(const char *what, int64_t rows, int64_t columns, size_t size, void *out);

attn_status product_tools_make(const attn_kernels *, product_tools *);
void product_tools_free(product_tools *);

/* Both: in place of what was there, zeroed at first; its shape must have been the same. */
attn_status product_vector_load(const tensor *, float **);
attn_status product_matrix_load(const product_tools *, const product_rows *, product_matrix *);
/* Keeps W where it is stored, in memory that `from` points to; packs it only if it is transposed. */
attn_status product_matrix_place(const product_tools *, const product_rows *from, product_matrix *);
/* The rows without packing, [rows, columns]. */
attn_status product_rows_widen(const product_rows *, float *);
void product_matrix_free(product_matrix *);

/* y[n, rows of W] (+)= x[n, columns of W] W^T + b */
void product_multiply(const product_tools *, const product_matrix *, int64_t n, const float *x,
                      bool accumulate, float *y);

#endif
