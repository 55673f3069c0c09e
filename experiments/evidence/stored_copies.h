/* stored_copies.h - keys and values as a store holds them by the definitions of its types, or as its schemes
 * decode them, for judges of what reads them. */
#ifndef EXPERIMENTS_EVIDENCE_STORED_COPIES_H
#define EXPERIMENTS_EVIDENCE_STORED_COPIES_H

#include "attn_variant.h"

/* The keys (side 0) or values (side 1) of a store. */
typedef struct stored_side {
  attn_dtype type, arithmetic;
  const attn_kv_scheme *scheme;
  int64_t d;
} stored_side;
stored_side stored_side_of(const attn_problem *, const attn_kv_store *, int side);
/* kept [d] of x [d], as what reads them computes with them; room [2 d]. */
void stored_row(const stored_side *, const double *x, double *kept, double *room);

typedef struct stored_copies {
  const void *k, *v; /* contiguous, in the problem's dtype */
  void *own_k, *own_v;
} stored_copies;

/* k, v: tensors of the problem, by its strides. Those that are contiguous and not stored are their own
 * copies. store: NULL for none. Release with stored_copies_free, also where it fails. */
attn_status stored_copies_make(const attn_problem *, const attn_kv_store *, const void *k, const void *v,
                               stored_copies *);
void stored_copies_free(stored_copies *);

/* A plan of what reads the store of a plan, by the spec of that, for copies: with its options. */
attn_status stored_reader_plan(const attn_plan *, attn_plan **out);

#endif
