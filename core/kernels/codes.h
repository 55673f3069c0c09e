/* codes.h - rows of fp32 in few bits: 32 elements are a block, which is read alone. The last block of a row
 * may be partly in use.
 *
 *   q8_0, q4_0  llama.cpp's: a scale in f16, then signed integers of 8 or 4 bits. x ~ scale code. 8 bits:
 *               the scale is max|x| / 127, the code round(x / scale), halves away from 0; 4 bits: the scale
 *               is that x / -8 which is largest in magnitude, the code trunc(x / scale + 8.5) - 8, at most 7.
 *               Codes follow from the scale before it is rounded to f16
 *   int1 ... 8  a scale and a least value in f16, then unsigned integers: x ~ least + scale code, scale =
 *               (max x - min x) / (2^bits - 1). KIVI's codes (Liu et al. 2024, arXiv:2402.02750), of groups
 *               of 32 channels; the code is the nearest by the scale and the least value as they are stored
 *   fp8         e4m3 without a scale (Micikevicius et al. 2022, arXiv:2209.05433), saturating at 448
 *
 * Codes of w = 8, 4 or 2 bits are a plane of 4 w bytes: element j is in byte j mod 4 w, from bit
 * w (j div 4 w) on; of 1 bit, bit j of the plane. 3, 5, 6, 7 bits are two or three planes, the low bits
 * first. A block with a number that is not finite, or whose scale or least value f16 cannot hold, is NaN. */
#ifndef ATTN_CORE_KERNELS_CODES_H
#define ATTN_CORE_KERNELS_CODES_H

#include "core/kernels/half.h"

#include <math.h>

enum { CODES_BLOCK = 32, CODES_NAN = 0x7e00 };

/* The types (attn.h), with the bytes of a block. */
#define CODES_OF(X) \
  X(FP8, fp8, 32)   \
  X(Q8_0, q8_0, 34) \
  X(Q4_0, q4_0, 18) \
  X(INT1, int1, 8)  \
  X(INT2, int2, 12) \
  X(INT3, int3, 16) \
  X(INT4, int4, 20) X(INT5, int5, 24) X(INT6, int6, 28) X(INT7, int7, 32) X(INT8, int8, 36)

/* ---- planes of bits ------------------------------------------------------------------------------------ */

/* Where element j of a plane stands. */
static inline int codes_byte(int width, int j) { return width == 1 ? j / 8 : j % (4 * width); }
static inline int codes_bit(int width, int j) { return width == 1 ? j % 8 : j / (4 * width) * width; }

static inline int codes_at(const uint8_t *plane, int width, int j) {
  return plane[codes_byte(width, j)] >> codes_bit(width, j) & ((1 << width) - 1);
}

static inline void codes_write(uint8_t *at, int bits, const uint8_t *codes) {
  memset(at, 0, (size_t)(4 * bits));
  for (int shift = 0, width = 1; width <= bits; width *= 2)
    if (bits & width) {
      const int mask = (1 << width) - 1;
      for (int j = 0; j < CODES_BLOCK; j++) {
        uint8_t *byte = &at[4 * shift + codes_byte(width, j)];
        *byte = (uint8_t)(*byte | (codes[j] >> shift & mask) << codes_bit(width, j));
      }
      shift += width;
    }
}

static inline float codes_half(const uint8_t *at) {
  uint16_t word;
  memcpy(&word, at, sizeof word);
  return half_from_f16(word);
}

/* false: f16 has no such number. */
static inline int codes_set_half(uint8_t *at, float x) {
  const uint16_t word = half_to_f16(x);
  memcpy(at, &word, sizeof word);
  return (word & 0x7c00u) != 0x7c00u;
}

static inline void codes_set_nan(uint8_t *at, int bytes) {
  const uint16_t word = CODES_NAN;
  memset(at, 0, (size_t)bytes);
  memcpy(at, &word, sizeof word);
}

static inline int codes_finite(const float *x) {
  int finite = 1;
  for (int i = 0; i < CODES_BLOCK; i++) finite &= (half_word_of(x[i]) & 0x7f800000u) != 0x7f800000u;
  return finite;
}

/* ---- blocks: 32 numbers to codes; convert.inc has the way back ---------------------------------------- */

static inline void codes_to_q8_0(const float *x, uint8_t *at) {
  float most = 0;
  for (int i = 0; i < CODES_BLOCK; i++) most = fmaxf(most, fabsf(x[i]));
  const float scale = most / 127, inverse = scale > 0 ? 1 / scale : 0;
  if (!codes_finite(x) || !codes_set_half(at, scale)) {
    codes_set_nan(at, 2 + CODES_BLOCK);
    return;
  }
  for (int i = 0; i < CODES_BLOCK; i++)
    at[2 + i] = (uint8_t)(int8_t)roundf(isfinite(inverse) ? x[i] * inverse : 0);
}

static inline void codes_to_q4_0(const float *x, uint8_t *at) {
  float most = 0;
  uint8_t codes[CODES_BLOCK];
  for (int i = 0; i < CODES_BLOCK; i++)
    if (fabsf(x[i]) > fabsf(most)) most = x[i];
  const float scale = most / -8, own = 1 / scale, inverse = scale != 0 && isfinite(own) ? own : 0;
  if (!codes_finite(x) || !codes_set_half(at, scale)) {
    codes_set_nan(at, 2 + CODES_BLOCK / 2);
    return;
  }
  for (int i = 0; i < CODES_BLOCK; i++) codes[i] = (uint8_t)fminf(15, x[i] * inverse + 8.5f);
  codes_write(at + 2, 4, codes);
}

static inline void codes_to_int(const float *x, int bits, uint8_t *at) {
  const float top = (float)((1 << bits) - 1);
  float most = x[0], least = x[0];
  uint8_t codes[CODES_BLOCK];
  for (int i = 1; i < CODES_BLOCK; i++) most = fmaxf(most, x[i]), least = fminf(least, x[i]);
  if (!codes_finite(x) || !codes_set_half(at, (most - least) / top) || !codes_set_half(at + 2, least)) {
    codes_set_nan(at, 4 + 4 * bits);
    return;
  }
  const float scale = codes_half(at), from = codes_half(at + 2);
  for (int i = 0; i < CODES_BLOCK; i++)
    codes[i] = (uint8_t)(scale > 0 ? fminf(top, fmaxf(0, rintf((x[i] - from) / scale))) : 0);
  codes_write(at + 4, bits, codes);
}

#define CODES_INT(bits) \
  static inline void codes_to_int##bits(const float *x, uint8_t *at) { codes_to_int(x, bits, at); }
CODES_INT(1)
CODES_INT(2)
CODES_INT(3)
CODES_INT(4)
CODES_INT(5)
CODES_INT(6)
CODES_INT(7)
CODES_INT(8)

/* The bits of fp8 are those of f16 up to a factor of 2^8 and the place of the fraction, but NaN is 0x7f. */
static inline uint16_t codes_f16_of_fp8(uint8_t x) {
  return (uint16_t)((x & 0x80u) << 8 | ((x & 0x7fu) == 0x7fu ? CODES_NAN : (x & 0x7fu) << 7));
}
static inline float codes_from_fp8(uint8_t x) { return half_from_f16(codes_f16_of_fp8(x)) * 0x1p8f; }

static inline void codes_to_fp8(const float *x, uint8_t *at) {
  for (int i = 0; i < CODES_BLOCK; i++) {
    const uint32_t word = half_word_of(x[i]), own = word & 0x7fffffffu,
                   capped = own > 0x43e00000u ? 0x43e00000u : own,
                   /* The sum with 2^14 has the unit 2^-9, the least of e4m3. */
        small = half_word_of(half_float_of(capped) + 0x1p14f) - 0x46800000u,
                   normal = (capped - 0x3c000000u + 0x7ffffu + (capped >> 20 & 1)) >> 20,
                   finite = capped < 0x3c800000u ? small : normal;
    at[i] = (uint8_t)((own >= 0x7f800000u ? 0x7fu : finite) | (word >> 24 & 0x80u));
  }
}

#endif
