/* attn_kv_cache.h - keys and values that arrive once and are attended to many times, as a server decodes.
 * Which of them go when a budget is spent is a matter of attn_eviction.h. */
#ifndef ATTN_KV_CACHE_H
#define ATTN_KV_CACHE_H

#include "attn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attn_kv_cache attn_kv_cache;

/* problem: batch, heads, kv_heads, widths, types, scale, score, causal; n_kv is how many positions a sequence
 * may have, and n_q is not read. Tensors are contiguous; the cache copies what a plan copies. spec: a variant
 * that heeds positions and padding, which reads all keys ("tiled", "pages:budget=256"; see
 * attn_kv_cache_reads), or evict with its parameters, whose held keys are read by tiled; either may be
 * followed by a store ("evict:budget=512 | store:k=q8_0,v=q4_0"), in whose types the cache holds them, and
 * which alone is read by tiled. Or latent with a prompt: when a position behind the prompt arrives, its keys
 * and values, until then as they are given, make way for latents, to which all heads attend. All memory is
 * the options' allocator's; it grows with the sequences, by doubling, up to the keys that may be held.
 * EINVAL, EUNSUPPORTED as attn_plan_create, ENOMEM. EUNSUPPORTED, too: score.dense, whose rows are the
 * queries of one call. */
ATTN_API attn_status attn_kv_cache_create(attn_kv_cache **, const attn_problem *, const char *spec,
                                          const attn_options *);
ATTN_API void attn_kv_cache_destroy(attn_kv_cache *);
/* By what its plan lets be seen: does what a query reads depend on no other query, and on no later key? No
 * other variant reads a cache: keys that are drawn, of small weight, or chosen for a tile may be others for
 * each part in which a sequence arrives. */
struct attn_view;
ATTN_API bool attn_kv_cache_reads(const struct attn_view *);

/* Appends n positions to each sequence of the batch, or length[b] of them: k [batch, kv_heads, n, d_qk], v
 * [batch, kv_heads, n, d_v], and q [batch, heads, n, d_qk], which may be NULL where the policy looks at no
 * queries. Where it fails, the cache is as it was. The same bits for any split of the positions into calls.
 * EINVAL: a sequence would have more positions than n_kv. ENOMEM. */
ATTN_API attn_status attn_kv_cache_append(attn_kv_cache *, int64_t n, const int64_t *length, const void *q,
                                          const void *k, const void *v);

/* o [batch, heads, n, d_v], and lse [batch, heads, n] or NULL, of the queries of the last n positions of each
 * sequence, q [batch, heads, n, d_qk]. Memory is taken where n is another than in the call before, or the
 * cache has grown. EINVAL: a sequence has fewer positions; EUNSUPPORTED: keys that such a query saw are gone,
 * so that only later ones can be asked for. */
ATTN_API attn_status attn_kv_cache_attend(attn_kv_cache *, int64_t n, const void *q, void *o, double *lse);

/* Of a sequence: its positions so far, the keys of a kv head that are held, and where they stand, [held],
 * ascending, until the next call that changes the cache; NULL: at 0 ... held - 1. EINVAL: no such entry or
 * head. */
typedef struct attn_kv_cache_view {
  int64_t length, held;
  const int64_t *position;
} attn_kv_cache_view;
ATTN_API attn_status attn_kv_cache_look(const attn_kv_cache *, int64_t batch, int64_t kv_head,
                                        attn_kv_cache_view *);
ATTN_API size_t attn_kv_cache_bytes(const attn_kv_cache *); /* obtained from the allocator */

/* As if only the first length[b] positions of each sequence had been appended. EUNSUPPORTED: a key is gone
 * that was held then, or queries were looked at since; the cache is as it was. */
ATTN_API attn_status attn_kv_cache_truncate(attn_kv_cache *, const int64_t *length);
/* Another cache in the same state; neither sees what is done to the other. */
ATTN_API attn_status attn_kv_cache_copy(const attn_kv_cache *, attn_kv_cache **);

#ifdef __cplusplus
}
#endif
#endif
