/* npy.h - an .npy file, mapped, with elements of one of the types that data/ reads. Internal to data/. */
#ifndef DATA_FORMATS_NPY_H
#define DATA_FORMATS_NPY_H

#include "data/data.h"
#include "data/support/file.h"

enum { NPY_DESCR_MAX = 16 };

typedef struct npy_array {
  file_map map;
  char descr[NPY_DESCR_MAX]; /* "<f4", "<f8", "<i4", "<i8", "|u1" or "|b1" */
  int rank;
  int64_t shape[DATA_RANK_MAX];
  size_t element, bytes; /* of one element, of all */
  const uint8_t *at;     /* any alignment */
} npy_array;

/* Checks the header, and that the elements are there and nothing else. */
attn_status npy_open(const char *path, npy_array *);
void npy_close(npy_array *);
bool npy_is(const npy_array *, const char *descr);

#endif
