/* pooling.h - what the files of the engine of pooled keys share: its plan, and its work memory. */
#ifndef CORE_ENGINES_POOLING_POOLING_H
#define CORE_ENGINES_POOLING_POOLING_H

#include "core/internal.h"

/* Inner plans: the last keys one by one, and the entries. */
enum { POOLING_LAST, POOLING_ENTRIES, POOLING_PARTS };

typedef struct pooling_state {
  const attn_pooling *law;
  const attn_plan *plans[POOLING_PARTS];
  int64_t *positions; /* of entries */
} pooling_state;

typedef struct pooling_layout {
  void *o[POOLING_PARTS], *k, *v, *work; /* outputs [batch, heads, n_q, d_v] */
  void *index; /* index_k of entries, [batch, n_kv, width]; of entries alone it has rows */
  double *lse[POOLING_PARTS];
  int64_t *lengths; /* entries of each batch entry */
  attn_slices sums; /* of each thread, [d] */
} pooling_layout;

static inline int pooling_first_part(const attn_pooling *x) {
  return x->window ? POOLING_LAST : POOLING_ENTRIES;
}
/* Entries of this many keys. */
static inline int64_t pooling_entries(const attn_pooling *x, int64_t keys) {
  return attn_max(keys / x->block - x->first, 0);
}
/* The keys of an entry: from *first on. Returns the one behind them. */
static inline int64_t pooling_keys(const attn_pooling *x, int64_t entry, int64_t *first) {
  const int64_t block = (entry + x->first) * x->block;
  *first = attn_max(block - x->overlap, 0);
  return block + x->block;
}

pooling_layout pooling_lay_out(const attn_context *, const attn_pooling *, size_t work, attn_carver *);
size_t pooling_work(const pooling_state *); /* of either part */
/* Both parts, joined in the first: its output and log-sum-exp are then those of all. *inner: the call on the
 * entries, with `index`. */
attn_status pooling_attend(const pooling_state *, const attn_call *, const pooling_layout *, attn_call *inner,
                           attn_extra index[3]);

attn_status pooling_backward_size(const void *state, const attn_context *, const attn_parts *, size_t *bytes);
attn_status pooling_backward(const void *state, const attn_call *, const attn_gradients *);

#endif
