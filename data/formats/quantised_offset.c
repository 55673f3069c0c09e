/* quantised_offset.c - codes of 3 to 5 bits with an offset, as GGUF files hold them
 * (https://github.com/ggml-org/ggml): a scale d and in some a least value m, both binary16.
 *
 *   Q4_1   32 elements in  20 bytes   d, m, u8 b[16]                    x_e = d c_e + m
 *   Q5_0   32              22         d, u32 h, u8 b[16]                x_e = d (c_e - 16)
 *   Q5_1   32              24         d, m, u32 h, u8 b[16]             x_e = d c_e + m
 *   Q3_K   256             110        u8 h[32], b[64], p[12], d         x_e = d (s_g - 32) (c_e - 4)
 *
 * Bytes in this order. Of the first three the code c_e of e = 16 k + l, l < 16, is half k of b_l, and with h
 * bit e of h above it. Of Q3_K g = e / 16, and with e = 128 a + 32 k + l, l < 32, k < 4 the code is bits 2k,
 * 2k + 1 of b[32 a + l], then bit e / 32 of h_l; s_g is half g div 8 of p[g mod 8], then bits 2 (g div 4), 2
 * (g div 4) + 1 of p[8 + g mod 4].
 *
 * d, s - 32 and c have at most 11, 6 and 5 bits: products are exact in f32, and x_e is rounded once. */
#include "data/formats/quantised.h"

/* m NULL: c_e has `offset` taken away. */
static void widen_32(const uint8_t *b, const uint8_t *h, float d, const uint8_t *m, int offset, float *out) {
  const float least = m ? tensor_f16_to_f32(m) : 0;
  for (int e = 0; e < 32; e++) {
    int c = b[e % 16] >> e / 16 * 4 & 15;
    if (h) c |= (h[e / 8] >> e % 8 & 1) << 4;
    out[e] = d * (float)(c - offset);
    if (m) out[e] += least;
  }
}

static void widen_q4_1(const uint8_t *at, int64_t count, float *out) {
  for (int64_t i = 0; i < count; i++, at += 20, out += 32)
    widen_32(at + 4, NULL, tensor_f16_to_f32(at), at + 2, 0, out);
}

static void widen_q5_0(const uint8_t *at, int64_t count, float *out) {
  for (int64_t i = 0; i < count; i++, at += 22, out += 32)
    widen_32(at + 6, at + 2, tensor_f16_to_f32(at), NULL, 16, out);
}

static void widen_q5_1(const uint8_t *at, int64_t count, float *out) {
  for (int64_t i = 0; i < count; i++, at += 24, out += 32)
    widen_32(at + 8, at + 4, tensor_f16_to_f32(at), at + 2, 0, out);
}

static void widen_q3_k(const uint8_t *at, int64_t count, float *out) {
  for (int64_t i = 0; i < count; i++, at += 110) {
    const uint8_t *h = at, *b = at + 32, *p = at + 96;
    const float d = tensor_f16_to_f32(at + 108);
    for (int e = 0; e < 256; e++) {
      const int g = e / 16, s = (p[g % 8] >> g / 8 * 4 & 15) | (p[8 + g % 4] >> g / 4 * 2 & 3) << 4;
      const int c = (b[e / 128 * 32 + e % 32] >> e / 32 % 4 * 2 & 3) | (h[e % 32] >> e / 32 & 1) << 2;
      *out++ = d * (float)(s - 32) * (float)(c - 4);
    }
  }
}

const tensor_format tensor_q4_1 = {"Q4_1", 32, 20, widen_q4_1, ATTN_WEIGHT_Q4_1},
                    tensor_q5_0 = {"Q5_0", 32, 22, widen_q5_0, ATTN_WEIGHT_NONE},
                    tensor_q5_1 = {"Q5_1", 32, 24, widen_q5_1, ATTN_WEIGHT_NONE},
                    tensor_q3_k = {"Q3_K", 256, 110, widen_q3_k, ATTN_WEIGHT_Q3_K};
