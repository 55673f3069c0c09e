/* avx512.c - AVX-512: fp32, and the vocabulary for 8 lanes of fp64. */
#define ISA_NAME "avx512"
#define TABLE attn_kernels_avx512_f32
#include "core/kernels/avx512.inc"

/* Lane i: the sum of s[i]. */
static inline __attribute__((always_inline)) __m512d sums_f64(const __m512d *s) {
  __m512d t[2][2], u[2];
  for (int i = 0; i < 4; i++) {
    __m512d a = s[i / 2 * 4 + i % 2], b = s[i / 2 * 4 + i % 2 + 2];
    t[i / 2][i % 2] = _mm512_add_pd(_mm512_shuffle_f64x2(a, b, 0x44), _mm512_shuffle_f64x2(a, b, 0xee));
  }
  for (int i = 0; i < 2; i++)
    u[i] = _mm512_add_pd(_mm512_shuffle_f64x2(t[0][i], t[1][i], 0x88),
                         _mm512_shuffle_f64x2(t[0][i], t[1][i], 0xdd));
  return _mm512_add_pd(_mm512_unpacklo_pd(u[0], u[1]), _mm512_unpackhi_pd(u[0], u[1]));
}

/* Lanes first, 8 + first, first + 1, ... of two vectors. */
static inline __m512i zip_f64(int first) {
  return _mm512_add_epi64(_mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), _mm512_set1_epi64(first));
}

#define REAL double
#define VEC __m512d
#define VL 8
#define v_load(p) _mm512_loadu_pd(p)
#define v_load_part(p, n) _mm512_maskz_loadu_pd((__mmask8)((1 << (n)) - 1), p)
#define v_store(p, x) _mm512_storeu_pd(p, x)
#define v_set(x) _mm512_set1_pd(x)
#define v_add(a, b) _mm512_add_pd(a, b)
#define v_sub(a, b) _mm512_sub_pd(a, b)
#define v_mul(a, b) _mm512_mul_pd(a, b)
#define v_div(a, b) _mm512_div_pd(a, b)
#define v_fma(a, b, c) _mm512_fmadd_pd(a, b, c)
#define v_max(a, b) _mm512_max_pd(a, b)
#define v_round(x) _mm512_roundscale_pd(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define v_fraction(x) _mm512_reduce_pd(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)
#define v_scale2(p, x) _mm512_scalef_pd(p, x)
#define v_mask(bits) ((__mmask8)(bits))
#define v_select(m, a, b) _mm512_mask_blend_pd(m, b, a)
#define v_sums(s) sums_f64(s)
#define v_below(x, y) _mm512_cmp_pd_mask(x, y, _CMP_LT_OQ)
#define v_bits(m) ((uint64_t)(m))
#define v_zip_low(a, b) _mm512_permutex2var_pd(a, zip_f64(0), b)
#define v_zip_high(a, b) _mm512_permutex2var_pd(a, zip_f64(4), b)
#define TABLE attn_kernels_avx512_f64
#include "core/kernels/f64.inc"
