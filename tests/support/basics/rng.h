/* rng.h - the random numbers of a stream, from the first on. */
#ifndef TESTS_SUPPORT_BASICS_RNG_H
#define TESTS_SUPPORT_BASICS_RNG_H

#include "core/attn_arithmetic.h"

static inline attn_rng rng_of(uint64_t seed, uint64_t purpose, uint64_t index) {
  attn_rng rng;
  attn_rng_init(&rng, seed, purpose, index);
  return rng;
}

#endif
