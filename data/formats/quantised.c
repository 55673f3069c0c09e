/* quantised.c - quantised elements in blocks, as GGUF files hold them (https://github.com/ggml-org/ggml): a
 * code of a few bits for each element, a scale d and in some a second factor m for all, both binary16.
 *
 *   Q8_0   32 elements in  34 bytes   d, i8 c[32]                      x_e = d c_e
 *   Q4_0   32              18         d, u8 b[16]                      x_e = d (c_e - 8)
 *   Q2_K   256             84         u8 s[16], b[64], d, m            x_e = d (s_g & 15) c_e - m (s_g >> 4)
 *   Q4_K   256             144        d, m, u8 p[12], b[128]           x_e = d s_g c_e - m t_g
 *   Q5_K   256             176        d, m, u8 p[12], h[32], b[128]    x_e = d s_g c_e - m t_g
 *   Q6_K   256             210        u8 b[128], h[64], i8 s[16], d    x_e = d s_g (c_e - 32)
 *
 * Bytes in this order; g = e / 16 in Q2_K and Q6_K, e / 32 in Q4_K and Q5_K. With e = 128 a + 32 k + l, l <
 * 32, k < 4 (Q4_0: e = 16 k + l) the code c_e is, of lowest bit first,
 *
 *   Q4_0   half k of b_l
 *   Q2_K   bits 2k, 2k + 1 of b[32 a + l]
 *   Q4_K   half k mod 2 of b[64 a + 32 (k div 2) + l]
 *   Q5_K   the same, then bit g of h_l
 *   Q6_K   half k div 2 of b[64 a + 32 (k mod 2) + l], then bits 2k, 2k + 1 of h[32 a + l]
 *
 * where half 0 of a byte is its low four bits. p holds eight s and eight t of six bits: s_g and t_g are the
 * low six of p_g and p_{g+4} for g < 4, and for the others the two halves of p_{g+4}, with the two bits left
 * over in p_{g-4} and p_g above them.
 *
 * d, s and c have at most 11, 7 and 5 bits, so that their products are exact in f32: x_e is rounded once,
 * where two of them are subtracted. */
#include "data/formats/quantised.h"

static void widen_q8_0(const uint8_t *at, int64_t count, float *out) {
  for (int64_t i = 0; i < count; i++, at += 34, out += 32) {
    float d = tensor_f16_to_f32(at);
    for (int e = 0; e < 32; e++) out[e] = d * (float)(int8_t)at[2 + e];
  }
}

static void widen_q4_0(const uint8_t *at, int64_t count, float *out) {
  for (int64_t i = 0; i < count; i++, at += 18, out += 32) {
    float d = tensor_f16_to_f32(at);
    for (int l = 0; l < 16; l++) {
      out[l] = d * (float)((at[2 + l] & 15) - 8);
      out[16 + l] = d * (float)((at[2 + l] >> 4) - 8);
    }
  }
}

static void widen_q2_k(const uint8_t *at, int64_t count, float *out) {
  for (int64_t i = 0; i < count; i++, at += 84) {
    const uint8_t *s = at, *b = at + 16;
    float d = tensor_f16_to_f32(at + 80), m = tensor_f16_to_f32(at + 82);
    for (int g = 0; g < 16; g++) {
      const uint8_t *code = b + g / 8 * 32 + g % 2 * 16;
      int shift = g % 8 / 2 * 2;
      float scale = d * (float)(s[g] & 15), least = m * (float)(s[g] >> 4);
      for (int l = 0; l < 16; l++) *out++ = scale * (float)(code[l] >> shift & 3) - least;
    }
  }
}

/* s_g and t_g of p. */
static void unpack(const uint8_t p[12], int g, float *s, float *t) {
  int low = g < 4 ? p[g] & 63 : (p[g + 4] & 15) | p[g - 4] >> 6 << 4;
  int high = g < 4 ? p[g + 4] & 63 : p[g + 4] >> 4 | p[g] >> 6 << 4;
  *s = (float)low;
  *t = (float)high;
}

/* Codes of 4 bits; those of Q5_K have a fifth, in the 32 bytes before them. */
static inline void widen_k(const uint8_t *at, int64_t count, bool fifth, float *out) {
  for (int64_t i = 0; i < count; i++, at += fifth ? 176 : 144) {
    const uint8_t *h = at + 16;
    float d = tensor_f16_to_f32(at), m = tensor_f16_to_f32(at + 2);
    for (int g = 0; g < 8; g++) {
      const uint8_t *code = h + (fifth ? 32 : 0) + g / 2 * 32;
      float s, t;
      unpack(at + 4, g, &s, &t);
      float scale = d * s, least = m * t;
      for (int l = 0; l < 32; l++) {
        int c = code[l] >> g % 2 * 4 & 15;
        if (fifth) c |= (h[l] >> g & 1) << 4;
        *out++ = scale * (float)c - least;
      }
    }
  }
}

static void widen_q4_k(const uint8_t *at, int64_t count, float *out) { widen_k(at, count, false, out); }

static void widen_q5_k(const uint8_t *at, int64_t count, float *out) { widen_k(at, count, true, out); }

static void widen_q6_k(const uint8_t *at, int64_t count, float *out) {
  for (int64_t i = 0; i < count; i++, at += 210) {
    float d = tensor_f16_to_f32(at + 208);
    for (int g = 0; g < 16; g++) {
      int a = g / 8, k = g % 8 / 2, first = g % 2 * 16;
      const uint8_t *code = at + a * 64 + k % 2 * 32 + first, *h = at + 128 + a * 32 + first;
      float scale = d * (float)(int8_t)at[192 + g];
      for (int l = 0; l < 16; l++) {
        int c = (code[l] >> k / 2 * 4 & 15) | (h[l] >> 2 * k & 3) << 4;
        *out++ = scale * (float)(c - 32);
      }
    }
  }
}

const tensor_format tensor_q8_0 = {"Q8_0", 32, 34, widen_q8_0, ATTN_WEIGHT_Q8_0},
                    tensor_q4_0 = {"Q4_0", 32, 18, widen_q4_0, ATTN_WEIGHT_Q4_0},
                    tensor_q2_k = {"Q2_K", 256, 84, widen_q2_k, ATTN_WEIGHT_Q2_K},
                    tensor_q4_k = {"Q4_K", 256, 144, widen_q4_k, ATTN_WEIGHT_Q4_K},
                    tensor_q5_k = {"Q5_K", 256, 176, widen_q5_k, ATTN_WEIGHT_Q5_K},
                    tensor_q6_k = {"Q6_K", 256, 210, widen_q6_k, ATTN_WEIGHT_Q6_K};
