/* npy.h - an .npy file, or a member of an .npz archive, with elements of one of the types that data/ reads.
 * Internal to data/. */
#ifndef DATA_FORMATS_NPY_H
#define DATA_FORMATS_NPY_H

#include "data/data.h"
#include "data/support/zip.h"

enum { NPY_DESCR_MAX = 16, NPY_HEADER_MAX = 1 << 20 };

typedef struct npy_header {
  char descr[NPY_DESCR_MAX];
  bool fortran;
  int rank;
  int64_t shape[DATA_RANK_MAX];
  size_t offset; /* of the elements */
} npy_header;

/* bytes: from the beginning of the file, the whole header among them. path: for messages. */
attn_status npy_header_parse(const char *path, const uint8_t *at, size_t bytes, npy_header *);

/* Elements in C order, little-endian, whatever the file has. */
typedef struct npy_array {
  file_map map;
  uint8_t *owned;            /* elements that are not as the file has them, or NULL */
  char descr[NPY_DESCR_MAX]; /* "<f2", "<f4", "<f8", "<i4", "<i8", "<u2", "<i2", "|V2", "|u1" or "|b1" */
  int rank;
  int64_t shape[DATA_RANK_MAX];
  size_t element, bytes; /* of one element, of all */
  const uint8_t *at;     /* any alignment */
} npy_array;

/* Checks the header, and that the elements are there and nothing else. path: of an .npy file, or of a member:
 * "qkv.npz:q". */
attn_status npy_open(const char *path, npy_array *);
void npy_close(npy_array *);
bool npy_is(const npy_array *, const char *descr);

/* data_npy_read; bf16: elements are two bytes without a type of their own (V2, uint16, int16), which are
 * bfloat16. */
attn_status npy_read(const char *path, bool bf16, data_array *out);

/* -- npz.c -- */

/* "qkv.npz:q": the ':'; NULL: the path of a file. */
const char *npz_find_separator(const char *path);
/* The path of the file, to be freed; NULL (recorded) without memory. */
char *npz_file(const char *path);
/* Finds member NAME.npy of an archive and parses its header. *to is its content, to be freed, where it is
 * deflated, else NULL; *at and *bytes are the content. */
attn_status npz_member(const char *path, const file_map *, npy_header *, uint8_t **to, const uint8_t **at,
                       size_t *bytes);
/* Refuses a file of torch.save with the line of Python that converts it, single: to one array; otherwise
 * ATTN_OK. */
attn_status npz_refuse_pickle(const char *path, const file_map *, bool single);

#endif
