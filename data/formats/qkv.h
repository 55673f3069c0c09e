/* qkv.h - how three tensors become a data_qkv. Internal to data/. */
#ifndef DATA_FORMATS_QKV_H
#define DATA_FORMATS_QKV_H

#include "data/data.h"
#include "data/formats/hdf5_write.h"

/* "[2,3]" */
void array_print_shape(const data_array *, char text[96]);

/* The names of the three tensors. Release with qkv_names_free. */
typedef struct qkv_names {
  char *text;
  const char *of[3];
} qkv_names;
attn_status qkv_names_parse(const char *text, qkv_names *);
void qkv_names_free(qkv_names *);

/* The axis of positions. */
int qkv_axis(const data_array *, data_layout);

/* Checks that three arrays (only dtype, rank and shape are looked at; v with rank 0 is absent) fit together
 * and hold `limit` positions, and sets every number of *out but no tensor. where and names go into the
 * message. */
attn_status qkv_match(const char *where, const char *const names[3], const data_array array[3],
                      const data_reading *, data_qkv *out);

/* Allocates the tensors of the numbers in *x; v if d_v > 0. On failure nothing stays allocated. */
attn_status qkv_alloc(data_qkv *x);

/* Moves an array into x as extra tensor number `which`; EINVAL: it does not fit. The tensors of the files
 * that are named; those that x has, cut to its n_kv, or to its n_q from the query `first' of the file on. */
attn_status qkv_put_extra(const char *where, int which, data_array *, data_qkv *x);
attn_status qkv_read_extras(const data_reading *, data_qkv *x);
void qkv_cut_extras(data_qkv *, int64_t first);

/* The first `rows` positions of an array, as [batch, heads, rows, d]. */
void qkv_copy(void *to, int64_t rows, const data_array *from, data_layout);

/* Writes root datasets q, k, v [heads, n, d] of a batch of one and root attributes; the file appears
 * whole. */
attn_status hdf5_write_qkv(const char *path, const data_qkv *, const hdf5_attribute *, size_t count);

/* "MODEL layer 2" from the attributes of a capture; EINVAL if the file is not one. Release with free. */
attn_status hdf5_read_origin(const char *path, char **out);

#endif
