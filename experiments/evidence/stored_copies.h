/* stored_copies.h - keys and values as a store holds them by the definitions of its types, or as its schemes
 * decode them, for judges of what reads them. */
#ifndef EXPERIMENTS_EVIDENCE_STORED_COPIES_H
#define EXPERIMENTS_EVIDENCE_STORED_COPIES_H

#include "attn_variant.h"
#include "experiments/support/region.h"

/* The keys (side 0) or values (side 1) of a store. */
typedef struct stored_side {
  attn_dtype type, arithmetic;
  const attn_kv_scheme *scheme;
  int64_t d;
} stored_side;
stored_side stored_side_of(const attn_problem *, const attn_kv_store *, int side);
/* kept [d] of x [d], as what reads them computes with them; room [d]. */
void stored_row(const stored_side *, const double *x, double *kept, double *room);

/* Keys that are coded in groups: kept [keys, d] of the keys x [keys, d] of a head, by the definition. With a
 * residual those of a group that is not complete are as they are given. room: [3 group + d]. */
void stored_groups(const attn_kv_store *, int64_t d, int64_t keys, const double *x, double *kept,
                   double *room);
/* Keys (side 0) or values below this are coded for query i, of `keys` that exist; INT64_MAX without a
 * residual. */
int64_t stored_before(const attn_problem *, const attn_kv_store *, int side, int64_t i, int64_t keys);

typedef struct stored_copies {
  const void *k, *v; /* contiguous, in the problem's dtype */
  void *own_k, *own_v;
  region memory;
  struct stored_versions *versions; /* of a store with a residual; else NULL */
} stored_copies;

/* k, v: tensors of the problem, by its strides. Those that are contiguous and not stored are their own
 * copies. store: NULL for none; kv_len: as in attn_plan_execute. With a residual k and v are as they are
 * given until a query asks. Release with stored_copies_free, also where it fails. */
attn_status stored_copies_make(const attn_problem *, const attn_kv_store *, const void *k, const void *v,
                               const int64_t *kv_len, stored_copies *);
/* Of line batch kv_heads + kv head k and v are what query i reads from now on. Nothing without a residual. */
void stored_copies_see(const stored_copies *, int64_t line, int64_t i);
void stored_copies_free(stored_copies *);

/* A plan of what reads the store of a plan, by the spec of that, for copies: with its options. */
attn_status stored_reader_plan(const attn_plan *, attn_plan **out);

#endif
