/* rng.c - random numbers that are the same everywhere: xoshiro256** streams (Blackman and Vigna 2021), each
 * seeded through splitmix64 from (seed, purpose, index), so that a draw depends on what it is for and never
 * on the order in which heads, columns or trials are visited. */
#include "attn.h"

#include <math.h>

static uint64_t splitmix(uint64_t *state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

void attn_rng_init(attn_rng *r, uint64_t seed, uint64_t purpose, uint64_t index) {
  /* Each word is mixed in after the last one has passed the generator: nearby triples give unrelated states.
   */
  uint64_t s = seed;
  s = splitmix(&s) ^ purpose;
  s = splitmix(&s) ^ index;
  for (int i = 0; i < 4; i++) r->state[i] = splitmix(&s);
}

static uint64_t rotate(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

uint64_t attn_rng_bits(attn_rng *r) {
  uint64_t *s = r->state, result = rotate(s[1] * 5, 7) * 9, t = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= t;
  s[3] = rotate(s[3], 45);
  return result;
}

double attn_rng_uniform(attn_rng *r) { return ((double)(attn_rng_bits(r) >> 11) + 0.5) * 0x1p-53; }

double attn_rng_normal(attn_rng *r) {
  /* Marsaglia's polar method; the second deviate is dropped so that a stream has no hidden state. */
  for (;;) {
    double u = 2 * attn_rng_uniform(r) - 1, v = 2 * attn_rng_uniform(r) - 1, s = u * u + v * v;
    if (s > 0 && s < 1) return u * sqrt(-2 * log(s) / s);
  }
}

int64_t attn_rng_below(attn_rng *r, int64_t bound) {
  uint64_t n = (uint64_t)bound, limit = UINT64_MAX - UINT64_MAX % n;
  for (;;) {
    uint64_t x = attn_rng_bits(r);
    if (x < limit) return (int64_t)(x % n);
  }
}
