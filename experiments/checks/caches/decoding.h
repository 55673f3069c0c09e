/* decoding.h - the first positions of a run as they arrive in a cache (core/cache/attn_kv_cache.h), and exact
 * rows of what is read then. */
#ifndef EXPERIMENTS_CHECKS_CACHES_DECODING_H
#define EXPERIMENTS_CHECKS_CACHES_DECODING_H

#include "core/cache/attn_kv_cache.h"
#include "experiments/evidence/latent_copies.h"
#include "experiments/evidence/rows.h"

enum { DECODED_ENTRIES = 2 };

/* The first batch entries of a run, up to 192 positions of each or some more than a cache under a rule holds,
 * fewer where that is too much work. Where queries are fewer than keys they are repeated. */
typedef struct decoding {
  const evidence *e;
  const char *spec;
  attn_problem problem; /* contiguous, n_q = n_kv positions */
  attn_options options;
  char *q, *k, *v; /* [batch, heads, n, d], as they arrive */
  bool finite;
  stored_copies kept; /* k and v by the law of the store */
  latent_run latents; /* of a cache of latents: by their factors */
  attn_plan *plan;    /* of the spec without its store, for these */
  attn_view view;
  attn_rounding rounding; /* of what reads the cache */
} decoding;

/* Positions of which a cache gives up no key and factors none; 0: it does neither. */
static inline int64_t decoding_whole(const attn_view *v) {
  return v->latent ? v->latent->prompt : v->cache ? attn_kv_first(v->cache) : 0;
}

/* EUNSUPPORTED, EINVAL: no cache decodes the run, for the recorded reason. decoding_free also where it
 * fails. */
attn_status decoding_make(const evidence *, decoding *);
void decoding_free(decoding *);

attn_status decoding_cache(const decoding *, const attn_allocator *, attn_kv_cache **);
/* Positions from[b] ... from[b] + count[b] - 1 of each sequence arrive. */
attn_status decoding_append(const decoding *, attn_kv_cache *, const int64_t *from, const int64_t *count);
/* o [batch, heads, n, d_v] of queries from[b] ... from[b] + n - 1, at the last n positions of the cache. */
attn_status decoding_attend(const decoding *, attn_kv_cache *, const int64_t *from, int64_t n, void *o);

/* What a cache did whose positions arrived in drawn parts, and which was attended to after each. */
typedef struct decoded {
  int64_t length[DECODED_ENTRIES]; /* in the end, another for each sequence */
  bool *asked;                     /* [batch, n]: was the query attended to? */
  bool *held;                      /* [batch, kv_heads, n, n]: of such a query and a key */
  char *o, *last; /* [batch, heads, n, d_v] of such queries; [batch, heads, d_v] of the last */
  size_t wrong;   /* bytes by which a report was off what the allocator gave, at most */
} decoded;
/* decoded_free also where it fails. */
attn_status decoding_run(const decoding *, decoded *);
void decoded_free(decoded *);

/* The worst of the rows against exact attention to the keys that were held, or that the plan sees on the
 * whole sequence; text says which row it is. */
attn_status decoding_judge(const decoding *, const decoded *, bool by_held, outcome *worst, char *text,
                           size_t size);

#endif
