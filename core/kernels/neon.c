/* neon.c - the vocabulary in AArch64 NEON: 4 fp32 or 2 fp64 lanes, 32 registers. */
#include "core/kernels/common.h"

#include <arm_neon.h>

#define ISA_NAME "neon"
#define MR 4
#define NR 4

/* 2^floor(x) by its exponent bits. x is clamped to the normal range; NaN passes through p. */
static inline float32x4_t scale2_f32(float32x4_t p, float32x4_t x) {
  int32x4_t e = vcvtmq_s32_f32(vmaxnmq_f32(x, vdupq_n_f32(-126)));
  return vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(e, vdupq_n_s32(127)), 23)));
}
static inline float64x2_t scale2_f64(float64x2_t p, float64x2_t x) {
  int64x2_t e = vcvtmq_s64_f64(vmaxnmq_f64(x, vdupq_n_f64(-1022)));
  return vmulq_f64(p, vreinterpretq_f64_s64(vshlq_n_s64(vaddq_s64(e, vdupq_n_s64(1023)), 52)));
}
static inline uint32x4_t mask_lanes_f32(void) {
  static const uint32_t lane[4] = {1, 2, 4, 8};
  return vld1q_u32(lane);
}
static inline uint64x2_t mask_lanes_f64(void) {
  static const uint64_t lane[2] = {1, 2};
  return vld1q_u64(lane);
}
static inline uint32x4_t mask_f32(uint64_t bits) {
  return vtstq_u32(vdupq_n_u32((uint32_t)bits), mask_lanes_f32());
}
static inline uint64x2_t mask_f64(uint64_t bits) { return vtstq_u64(vdupq_n_u64(bits), mask_lanes_f64()); }

/* The first n < VL elements, and zeros. */
static inline float32x4_t load_part_f32(const float *p, int64_t n) {
  float whole[4] = {0};
  memcpy(whole, p, (size_t)n * sizeof *p);
  return vld1q_f32(whole);
}
static inline float64x2_t load_part_f64(const double *p, int64_t n) {
  double whole[2] = {0};
  memcpy(whole, p, (size_t)n * sizeof *p);
  return vld1q_f64(whole);
}

static inline float32x4_t codes_f32(const uint8_t *plane, int width, int l) {
  float x[4];
  for (int i = 0; i < 4; i++) x[i] = (float)codes_at(plane, width, l + i);
  return vld1q_f32(x);
}
static inline float32x4_t fp8_f32(const uint8_t *p) {
  float x[4];
  for (int i = 0; i < 4; i++) x[i] = codes_from_fp8(p[i]);
  return vld1q_f32(x);
}
static inline float32x4_t signed_f32(const uint8_t *p) {
  float x[4];
  for (int i = 0; i < 4; i++) x[i] = (float)(int8_t)p[i];
  return vld1q_f32(x);
}

static inline uint32x4_t field_f32(const uint8_t *p, int shift, int mask) {
  const uint8x8_t bytes = vreinterpret_u8_u32(vdup_n_u32(weights_word(p)));
  const uint32x4_t x = vmovl_u16(vget_low_u16(vmovl_u8(bytes)));
  return vandq_u32(vshlq_u32(x, vdupq_n_s32(-shift)), vdupq_n_u32((uint32_t)mask));
}

#define REAL float
#define VEC float32x4_t
#define VL 4
#define v_load(p) vld1q_f32(p)
#define v_load_part(p, n) load_part_f32(p, n)
#define v_store(p, x) vst1q_f32(p, x)
#define v_set(x) vdupq_n_f32(x)
#define v_add(a, b) vaddq_f32(a, b)
#define v_sub(a, b) vsubq_f32(a, b)
#define v_mul(a, b) vmulq_f32(a, b)
#define v_div(a, b) vdivq_f32(a, b)
#define v_fma(a, b, c) vfmaq_f32(c, a, b)
#define v_max(a, b) vbslq_f32(vcgtq_f32(a, b), a, b)
#define v_round(x) vrndnq_f32(x)
#define v_fraction(x) vsubq_f32(x, vrndmq_f32(x))
#define v_scale2(p, x) scale2_f32(p, x)
#define v_mask(bits) mask_f32(bits)
#define v_select(m, a, b) vbslq_f32(m, a, b)
#define v_sums(s) vpaddq_f32(vpaddq_f32((s)[0], (s)[1]), vpaddq_f32((s)[2], (s)[3]))
#define v_below(x, y) vcltq_f32(x, y)
#define v_bits(m) ((uint64_t)vaddvq_u32(vandq_u32(m, mask_lanes_f32())))
#define v_zip_low(a, b) vzip1q_f32(a, b)
#define v_zip_high(a, b) vzip2q_f32(a, b)
#define v_codes(p, width, l) codes_f32(p, width, l)
#define v_f16(p) vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)))
#define v_set_f16(p) vdupq_n_f32(codes_half(p))
#define v_fp8(p) fp8_f32(p)
#define v_signed(p) signed_f32(p)
#define v_bf16(p) vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16))
#define v_field(p, shift, mask) field_f32(p, shift, mask)
#define v_or(a, b) vorrq_u32(a, b)
#define v_number(x) vcvtq_f32_u32(x)
#define TABLE attn_kernels_neon_f32
#include "core/kernels/f32.inc"

#define REAL double
#define VEC float64x2_t
#define VL 2
#define v_load(p) vld1q_f64(p)
#define v_load_part(p, n) load_part_f64(p, n)
#define v_store(p, x) vst1q_f64(p, x)
#define v_set(x) vdupq_n_f64(x)
#define v_add(a, b) vaddq_f64(a, b)
#define v_sub(a, b) vsubq_f64(a, b)
#define v_mul(a, b) vmulq_f64(a, b)
#define v_div(a, b) vdivq_f64(a, b)
#define v_fma(a, b, c) vfmaq_f64(c, a, b)
#define v_max(a, b) vbslq_f64(vcgtq_f64(a, b), a, b)
#define v_round(x) vrndnq_f64(x)
#define v_fraction(x) vsubq_f64(x, vrndmq_f64(x))
#define v_scale2(p, x) scale2_f64(p, x)
#define v_mask(bits) mask_f64(bits)
#define v_select(m, a, b) vbslq_f64(m, a, b)
#define v_sums(s) vpaddq_f64((s)[0], (s)[1])
#define v_below(x, y) vcltq_f64(x, y)
#define v_bits(m) vaddvq_u64(vandq_u64(m, mask_lanes_f64()))
#define v_zip_low(a, b) vzip1q_f64(a, b)
#define v_zip_high(a, b) vzip2q_f64(a, b)
#define TABLE attn_kernels_neon_f64
#include "core/kernels/f64.inc"
