/* kernels_avx512.c - the vocabulary in AVX-512 (F, DQ): 16 fp32 or 8 fp64 lanes, 32 registers. */
#include "kernels_common.h"

#include <immintrin.h>

#define ISA_NAME "avx512"
#define MR 6
#define NR 4

#define REAL float
#define VEC __m512
#define VL 16
#define v_load(p) _mm512_loadu_ps(p)
#define v_store(p, x) _mm512_storeu_ps(p, x)
#define v_set(x) _mm512_set1_ps(x)
#define v_add(a, b) _mm512_add_ps(a, b)
#define v_sub(a, b) _mm512_sub_ps(a, b)
#define v_mul(a, b) _mm512_mul_ps(a, b)
#define v_div(a, b) _mm512_div_ps(a, b)
#define v_fma(a, b, c) _mm512_fmadd_ps(a, b, c)
#define v_max(a, b) _mm512_max_ps(a, b)
#define v_round(x) _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define v_scale2(p, n) _mm512_scalef_ps(p, n)
#define v_mask(bits) ((__mmask16)(bits))
#define v_select(m, a, b) _mm512_mask_blend_ps(m, b, a)
#define v_below(x, y) _mm512_cmp_ps_mask(x, y, _CMP_LT_OQ)
#define NAME(x) x##_f32
#define TABLE attn_kernels_avx512_f32
#define DTYPE ATTN_F32
#define REAL_MAX FLT_MAX
#define EXP_COEFFICIENTS EXP_COEFFICIENTS_F32
#define EXP_LOW (-126.0f)
#define EXP_ERROR EXP_ERROR_F32
#include "kernels_body.inc"

#define REAL double
#define VEC __m512d
#define VL 8
#define v_load(p) _mm512_loadu_pd(p)
#define v_store(p, x) _mm512_storeu_pd(p, x)
#define v_set(x) _mm512_set1_pd(x)
#define v_add(a, b) _mm512_add_pd(a, b)
#define v_sub(a, b) _mm512_sub_pd(a, b)
#define v_mul(a, b) _mm512_mul_pd(a, b)
#define v_div(a, b) _mm512_div_pd(a, b)
#define v_fma(a, b, c) _mm512_fmadd_pd(a, b, c)
#define v_max(a, b) _mm512_max_pd(a, b)
#define v_round(x) _mm512_roundscale_pd(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define v_scale2(p, n) _mm512_scalef_pd(p, n)
#define v_mask(bits) ((__mmask8)(bits))
#define v_select(m, a, b) _mm512_mask_blend_pd(m, b, a)
#define v_below(x, y) _mm512_cmp_pd_mask(x, y, _CMP_LT_OQ)
#define NAME(x) x##_f64
#define TABLE attn_kernels_avx512_f64
#define DTYPE ATTN_F64
#define REAL_MAX DBL_MAX
#define EXP_COEFFICIENTS EXP_COEFFICIENTS_F64
#define EXP_LOW (-1022.0)
#define EXP_ERROR EXP_ERROR_F64
#include "kernels_body.inc"
