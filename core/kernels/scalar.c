/* scalar.c - the vocabulary in plain C: one lane, any machine. A multiply-add is two roundings. */
#include "core/kernels/common.h"

#define ISA_NAME "scalar"

static inline float scale2_f32(float p, float x) { return ldexpf(p, (int)floorf(x)); }
static inline double scale2_f64(double p, double x) { return ldexp(p, (int)floor(x)); }

#define REAL float
#define VEC float
#define VL 1
#define MR 4
#define NR 4
#define v_load(p) (*(p))
#define v_load_part(p, n) v_load(p)
#define v_store(p, x) (void)(*(p) = (x))
#define v_set(x) ((float)(x))
#define v_add(a, b) ((a) + (b))
#define v_sub(a, b) ((a) - (b))
#define v_mul(a, b) ((a) * (b))
#define v_div(a, b) ((a) / (b))
#define v_fma(a, b, c) ((a) * (b) + (c))
#define v_max(a, b) ((a) > (b) ? (a) : (b))
#define v_round(x) rintf(x)
#define v_fraction(x) ((x)-floorf(x))
#define v_scale2(p, x) scale2_f32(p, v_max(x, -126.0f))
#define v_mask(bits) ((int)((bits)&1))
#define v_select(m, a, b) ((m) ? (a) : (b))
#define v_sums(s) ((s)[0])
#define v_below(x, y) ((x) < (y))
#define v_bits(m) ((uint64_t)(m))
#define v_zip_low(a, b) ((void)(b), (a))
#define v_zip_high(a, b) ((void)(a), (b))
#define v_codes(p, width, l) ((float)codes_at(p, width, l))
#define v_f16(p) half_from_f16(*(p))
#define v_set_f16(p) codes_half(p)
#define v_fp8(p) codes_from_fp8(*(p))
#define v_signed(p) ((float)*(const int8_t *)(p))
#define v_bf16(p) half_from_bf16(*(p))
#define v_field(p, shift, mask) (((shift) < 0 ? *(p) << (-(shift)&7) : *(p) >> ((shift)&7)) & (mask))
#define v_or(a, b) ((a) | (b))
#define v_number(x) ((float)(x))
#define TABLE attn_kernels_scalar_f32
#include "core/kernels/f32.inc"

#define REAL double
#define VEC double
#define VL 1
#define v_load(p) (*(p))
#define v_load_part(p, n) v_load(p)
#define v_store(p, x) (void)(*(p) = (x))
#define v_set(x) ((double)(x))
#define v_add(a, b) ((a) + (b))
#define v_sub(a, b) ((a) - (b))
#define v_mul(a, b) ((a) * (b))
#define v_div(a, b) ((a) / (b))
#define v_fma(a, b, c) ((a) * (b) + (c))
#define v_max(a, b) ((a) > (b) ? (a) : (b))
#define v_round(x) rint(x)
#define v_fraction(x) ((x)-floor(x))
#define v_scale2(p, x) scale2_f64(p, v_max(x, -1022.0))
#define v_mask(bits) ((int)((bits)&1))
#define v_select(m, a, b) ((m) ? (a) : (b))
#define v_sums(s) ((s)[0])
#define v_below(x, y) ((x) < (y))
#define v_bits(m) ((uint64_t)(m))
#define v_zip_low(a, b) ((void)(b), (a))
#define v_zip_high(a, b) ((void)(a), (b))
#define TABLE attn_kernels_scalar_f64
#include "core/kernels/f64.inc"
