/* stored_copies.h - keys and values as a store holds them by the definitions of its types, for judges of what
 * reads them. */
#ifndef EXPERIMENTS_EVIDENCE_STORED_COPIES_H
#define EXPERIMENTS_EVIDENCE_STORED_COPIES_H

#include "attn_variant.h"

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
