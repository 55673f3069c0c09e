/* compression.h - what the files of the compression engine share. */
#ifndef ATTN_CORE_ENGINES_COMPRESSION_COMPRESSION_H
#define ATTN_CORE_ENGINES_COMPRESSION_COMPRESSION_H

#include "core/internal.h"

typedef struct compression {
  const attn_projection *projection; /* the parts' */
  attn_problem inner;                /* n_kv = slots, contiguous keys and values */
  void *softmax;
} compression;

/* Of a sequence into parts of `rows` keys, of columns into blocks; depends on the problem alone. */
typedef struct compression_division {
  int64_t parts, rows, blocks;
} compression_division;
compression_division compression_divide(const attn_problem *, const attn_projection *);

/* Slots of K and V, first of all keys, then the other parts' sums; the slots in use, then either the
 * projections' scratch or what attends. */
typedef struct compression_layout {
  void *k, *v;
  int64_t *used; /* of each batch entry */
  char *rest;
  size_t scratch, rows; /* of one projection; of these, for rows that are stored in another type */
} compression_layout;

/* attending: the bytes that what attends needs. */
compression_layout compression_lay_out(const attn_context *, const attn_projection *, size_t attending,
                                       attn_carver *);
/* Fills the slots, and says which are in use. */
attn_status compression_project(const compression *, const attn_call *, const compression_layout *);

/* attn_method.backward_size and .backward (slot_gradients.c). */
attn_status compression_backward_size(const void *state, const attn_context *, const attn_parts *,
                                      size_t *bytes);
attn_status compression_backward(const void *state, const attn_call *, const attn_gradients *);

/* The variant's project under attn_plan_verify: what it leaves unwritten, and what it writes elsewhere.
 * Returns what project returns. */
int64_t compression_project_watched(const attn_projection *, const attn_call *, const attn_slab *);

#endif
