/* half.h - elements of 16 bits: IEEE 754 binary16 (f16) and bfloat16, from and to fp32 and fp64.
 *
 * Conversions to 16 bits round to nearest, ties to even, in one step; what is too large becomes Inf,
 * subnormals are kept, and a NaN stays a NaN, quiet, with the first bits of its payload. Branch-free, so that
 * loops are vectors. */
#ifndef ATTN_CORE_KERNELS_HALF_H
#define ATTN_CORE_KERNELS_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t half_word_of(float x) {
  uint32_t word;
  memcpy(&word, &x, sizeof word);
  return word;
}
static inline float half_float_of(uint32_t word) {
  float x;
  memcpy(&x, &word, sizeof x);
  return x;
}

/* Exponent and fraction stand 13 bits higher in fp32, and the exponent's bias is greater by 112. */
static inline float half_from_f16(uint16_t x) {
  const uint32_t magnitude = half_word_of(half_float_of((x & 0x7fffu) << 13) * 0x1p112f),
                 special = (x & 0x7c00u) == 0x7c00u ? 0x7f800000u | (x & 0x3ffu) << 13 : magnitude;
  return half_float_of(special | (x & 0x8000u) << 16);
}
static inline float half_from_bf16(uint16_t x) { return half_float_of((uint32_t)x << 16); }

static inline uint16_t half_to_f16(float value) {
  const uint32_t word = half_word_of(value), x = word & 0x7fffffffu,
                 normal = (x - 0x38000000u + 0xfffu + (x >> 13 & 1)) >> 13,
                 /* The sum with 1/2 has the unit 2^-24, the least of f16. */
      small = half_word_of(half_float_of(x) + 0.5f) - 0x3f000000u,
                 finite = x < 0x38800000u   ? small
                          : x < 0x477ff000u ? normal
                                            : 0x7c00u,
                 nan = 0x7e00u | (x >> 13 & 0x3ffu);
  return (uint16_t)((x > 0x7f800000u ? nan : finite) | (word >> 16 & 0x8000u));
}
static inline uint16_t half_to_bf16(float value) {
  const uint32_t word = half_word_of(value), nearest = (word + 0x7fffu + (word >> 16 & 1)) >> 16,
                 nan = word >> 16 | 0x40u;
  return (uint16_t)((word & 0x7fffffffu) > 0x7f800000u ? nan : nearest);
}

/* fp64 to fp32 by rounding to odd: cut off, the last bit set where something was lost. What is rounded to
 * nearest afterwards, to two bits fewer or less, is rounded as if in one step (Boldo and Melquiond 2008). */
static inline float half_odd(double value) {
  const float near = (float)value;
  const double back = (double)near, size = back < 0 ? -back : back, own = value < 0 ? -value : value;
  uint32_t word = half_word_of(near);
  word -= size > own; /* not below 0: something was lost, and 0 is not above its magnitude */
  word |= size > own || size < own;
  return half_float_of(word);
}

#endif
