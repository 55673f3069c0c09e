/* quantised_values.c - codes that name one of a few values, as GGUF files hold them
 * (https://github.com/ggml-org/ggml), and floating point of 8 bits as safetensors files do.
 *
 *   IQ4_NL  32 elements in  18 bytes   d, u8 b[16]                      x_e = d v(c_e)
 *   IQ4_XS  256             136        d, u16 h, u8 p[4], b[128]        x_e = d (s_g - 32) v(c_e)
 *   MXFP4   32              17         u8 t, b[16]                      x_e = 2^(t - 128) w(c_e)
 *   TQ1_0   256             54         u8 b[48], q[4], d                x_e = d (c_e - 1)
 *   TQ2_0   256             66         u8 b[64], d                      x_e = d (c_e - 1)
 *
 * v are the 16 values below; w are twice those of E2M1, 0, 1/2, 1, 3/2, 2, 3, 4 and 6, then the same negative
 * (OCP Microscaling Formats 1.0, 2023). c_e is half k of b_l, e = 32 g + 16 k + l, l < 16, b of 16 bytes for
 * each g; s_g is half g mod 2 of p[g div 2], then bits 2g, 2g + 1 of h. TQ2_0: bits 2k, 2k + 1 of
 * b[32 a + l], e = 128 a + 32 k + l, l < 32. TQ1_0: a byte is five digits of base 3 as a fraction, rounded
 * up: digit k of it is the whole part of 3 (3^k byte mod 256) / 256; of e = 32 k + l < 160 those of b_l, l <
 * 32; of e = 160 + 16 k + l < 240 those of b[32 + l], l < 16; of e = 240 + 4 k + l those of q_l.
 *
 *   F8_E4M3, F8_E5M2   sign, exponent, fraction (Micikevicius et al. 2022, arXiv:2209.05433); E4M3 has no
 *   infinity, and is NaN where all bits but the sign are ones
 *
 * Every element is exact in f32. */
#include <math.h>

#include "data/formats/quantised.h"

static const int8_t uneven[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const int8_t twice_e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static void name_values(const uint8_t *b, float d, const int8_t *values, float *out) {
  for (int e = 0; e < 32; e++) out[e] = d * (float)values[b[e % 16] >> e / 16 * 4 & 15];
}

static void widen_iq4_nl(const uint8_t *at, int64_t count, float *out) {
  for (int64_t i = 0; i < count; i++, at += 18, out += 32)
    name_values(at + 2, tensor_f16_to_f32(at), uneven, out);
}

static void widen_iq4_xs(const uint8_t *at, int64_t count, float *out) {
  for (int64_t i = 0; i < count; i++, at += 136)
    for (int g = 0; g < 8; g++, out += 32) {
      const int s = (at[4 + g / 2] >> g % 2 * 4 & 15) | (at[2 + g / 4] >> g % 4 * 2 & 3) << 4;
      name_values(at + 8 + 16 * g, tensor_f16_to_f32(at) * (float)(s - 32), uneven, out);
    }
}

static void widen_mxfp4(const uint8_t *at, int64_t count, float *out) {
  for (int64_t i = 0; i < count; i++, at += 17, out += 32)
    name_values(at + 1, ldexpf(1, at[0] - 128), twice_e2m1, out);
}

/* Digits of `bytes` bytes, digit by digit. Returns what is behind them. */
static float *put_digits(const uint8_t *b, int bytes, int digits, float d, float *out) {
  for (int k = 0, power = 1; k < digits; k++, power *= 3)
    for (int l = 0; l < bytes; l++) *out++ = d * (float)(((b[l] * power & 255) * 3 >> 8) - 1);
  return out;
}

static void widen_tq1_0(const uint8_t *at, int64_t count, float *out) {
  for (int64_t i = 0; i < count; i++, at += 54) {
    const float d = tensor_f16_to_f32(at + 52);
    out = put_digits(at, 32, 5, d, out);
    out = put_digits(at + 32, 16, 5, d, out);
    out = put_digits(at + 48, 4, 4, d, out);
  }
}

static void widen_tq2_0(const uint8_t *at, int64_t count, float *out) {
  for (int64_t i = 0; i < count; i++, at += 66)
    for (int e = 0; e < 256; e++)
      *out++ = tensor_f16_to_f32(at + 64) * (float)((at[e / 128 * 32 + e % 32] >> e / 32 % 4 * 2 & 3) - 1);
}

static void widen_e4m3(const uint8_t *at, int64_t count, float *out) {
  for (int64_t i = 0; i < count; i++) {
    const int e = at[i] >> 3 & 15, f = at[i] & 7;
    const float x = e == 15 && f == 7 ? NAN : ldexpf((float)(e ? 8 + f : f), (e ? e : 1) - 10);
    out[i] = at[i] & 128 ? -x : x;
  }
}

/* The upper byte of a binary16 number. */
static void widen_e5m2(const uint8_t *at, int64_t count, float *out) {
  for (int64_t i = 0; i < count; i++) out[i] = tensor_f16_to_f32((const uint8_t[]){0, at[i]});
}

const tensor_format tensor_iq4_nl = {"IQ4_NL", 32, 18, widen_iq4_nl, ATTN_WEIGHT_NONE},
                    tensor_iq4_xs = {"IQ4_XS", 256, 136, widen_iq4_xs, ATTN_WEIGHT_NONE},
                    tensor_mxfp4 = {"MXFP4", 32, 17, widen_mxfp4, ATTN_WEIGHT_NONE},
                    tensor_tq1_0 = {"TQ1_0", 256, 54, widen_tq1_0, ATTN_WEIGHT_NONE},
                    tensor_tq2_0 = {"TQ2_0", 256, 66, widen_tq2_0, ATTN_WEIGHT_NONE},
                    tensor_e4m3 = {"F8_E4M3", 1, 1, widen_e4m3, ATTN_WEIGHT_NONE},
                    tensor_e5m2 = {"F8_E5M2", 1, 1, widen_e5m2, ATTN_WEIGHT_NONE};
