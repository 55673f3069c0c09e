/* caches.h - caches of keys and values that fit into a number of bytes: policies that hold as many keys as
 * fit, in each of several types. */
#ifndef EXPERIMENTS_ADVICE_CACHES_H
#define EXPERIMENTS_ADVICE_CACHES_H

#include "attn_variant.h"

enum { ADVICE_TYPES = 6, ADVICE_POLICIES = 10 };

typedef struct advice_caches {
  char *spec[ADVICE_TYPES * ADVICE_POLICIES];
  int count;
} advice_caches;

/* policies: specs of rules (attn_view.cache) without a budget; none: those of the library that a cache can
 * ask. bytes: of the keys and values of all kv heads and batch entries after the last position, in codes with
 * their scales. Where all positions fit in a type, no key goes. EINVAL: no key fits, or all do as they are; a
 * spec is no such policy, or names its budget; they are too many. Released by advice_caches_free, also after
 * a failure. */
attn_status advice_caches_make(const attn_problem *, int64_t bytes, const char *const *policies, int count,
                               advice_caches *);
void advice_caches_free(advice_caches *);

#endif
