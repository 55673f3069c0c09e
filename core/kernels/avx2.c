/* avx2.c - the vocabulary in AVX2 with FMA: 8 fp32 or 4 fp64 lanes, 16 registers. */
#include "core/kernels/common.h"

#include <immintrin.h>

#include "core/kernels/flush.h"

#define ISA_NAME "avx2"
#define MR 6
#define NR 2

/* Adds floor(x), within the normal range, to the exponent of p; a NaN x converts to an integer whose low bits
 * are 0. */
static inline __m256 scale2_f32(__m256 p, __m256 x) {
  __m256i e = _mm256_cvtps_epi32(_mm256_floor_ps(x));
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(e, 23)));
}
static inline __m256d scale2_f64(__m256d p, __m256d x) {
  __m256i e = _mm256_cvtepi32_epi64(_mm256_cvtpd_epi32(_mm256_floor_pd(x)));
  return _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(p), _mm256_slli_epi64(e, 52)));
}
static inline __m256 mask_f32(uint64_t bits) {
  const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return _mm256_castsi256_ps(
      _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)(bits & 255)), lane), lane));
}
static inline __m256d mask_f64(uint64_t bits) {
  const __m256i lane = _mm256_setr_epi64x(1, 2, 4, 8);
  return _mm256_castsi256_pd(
      _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_set1_epi64x((long long)(bits & 15)), lane), lane));
}

/* Lane i: the sum of s[i]. */
static inline __m256 sums_f32(const __m256 *s) {
  __m256 low = _mm256_hadd_ps(_mm256_hadd_ps(s[0], s[1]), _mm256_hadd_ps(s[2], s[3]));
  __m256 high = _mm256_hadd_ps(_mm256_hadd_ps(s[4], s[5]), _mm256_hadd_ps(s[6], s[7]));
  return _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31));
}
static inline __m256d sums_f64(const __m256d *s) {
  __m256d low = _mm256_hadd_pd(s[0], s[1]), high = _mm256_hadd_pd(s[2], s[3]);
  return _mm256_add_pd(_mm256_permute2f128_pd(low, high, 0x20), _mm256_permute2f128_pd(low, high, 0x31));
}

/* Interleaves; halves: 0x20 for the lower, 0x31 for the upper elements. */
#define zip_f32(a, b, halves) \
  _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), halves)
#define zip_f64(a, b, halves) \
  _mm256_permute2f128_pd(_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b), halves)

/* Parts of a plane (codes.h), l a multiple of 8. */
static inline __attribute__((always_inline)) __m256 codes_f32(const uint8_t *plane, int width, int l) {
  if (width == 1) {
    uint32_t word;
    memcpy(&word, plane, sizeof word);
    return _mm256_and_ps(mask_f32(word >> l), _mm256_set1_ps(1));
  }
  const __m128i bytes = _mm_loadl_epi64((const __m128i *)(plane + codes_byte(width, l)));
  const __m256i x = _mm256_srli_epi32(_mm256_cvtepu8_epi32(bytes), codes_bit(width, l));
  return _mm256_cvtepi32_ps(_mm256_and_si256(x, _mm256_set1_epi32((1 << width) - 1)));
}

static inline __m256 set_f16(const uint8_t *p) {
  uint16_t word;
  memcpy(&word, p, sizeof word);
  return _mm256_cvtph_ps(_mm_set1_epi16((short)word));
}
/* As codes_from_fp8. */
static inline __m256 fp8_f32(const uint8_t *p) {
  const __m128i x = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)p)), most = _mm_set1_epi16(0x7f),
                size = _mm_and_si128(x, most), none = _mm_cmpeq_epi16(size, most),
                finite = _mm_andnot_si128(none, _mm_slli_epi16(size, 7)),
                nan = _mm_and_si128(none, _mm_set1_epi16(CODES_NAN)),
                sign = _mm_slli_epi16(_mm_andnot_si128(most, x), 8);
  return _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(sign, _mm_or_si128(finite, nan))), _mm256_set1_ps(256));
}

static inline __m256 from_bf16(const uint16_t *p) {
  const __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
}
/* Eight bytes, of which the mask takes no bit that the shift brings from another. */
static inline __attribute__((always_inline)) __m128i field_f32(const uint8_t *p, int shift, int mask) {
  const __m128i x = _mm_loadl_epi64((const __m128i *)p),
                y = shift < 0 ? _mm_slli_epi16(x, -shift) : _mm_srli_epi16(x, shift);
  return _mm_and_si128(y, _mm_set1_epi8((char)mask));
}

/* Eight elements of IQ2_XXS without their factor. */
static inline __m256 directions_f32(const uint8_t *index, uint32_t w) {
  const __m128i signs = _mm_loadl_epi64((const __m128i *)&iq2_signs[w & 127]),
                sizes = _mm_loadl_epi64((const __m128i *)&iq2_lengths[*index]);
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_sub_epi8(_mm_xor_si128(sizes, signs), signs)));
}

#define REAL float
#define VEC __m256
#define VL 8
#define v_load(p) _mm256_loadu_ps(p)
#define v_load_part(p, n) _mm256_maskload_ps(p, _mm256_castps_si256(mask_f32((1u << (n)) - 1)))
#define v_store(p, x) _mm256_storeu_ps(p, x)
#define v_set(x) _mm256_set1_ps(x)
#define v_add(a, b) _mm256_add_ps(a, b)
#define v_sub(a, b) _mm256_sub_ps(a, b)
#define v_mul(a, b) _mm256_mul_ps(a, b)
#define v_div(a, b) _mm256_div_ps(a, b)
#define v_fma(a, b, c) _mm256_fmadd_ps(a, b, c)
#define v_max(a, b) _mm256_max_ps(a, b)
#define v_round(x) _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define v_fraction(x) _mm256_sub_ps(x, _mm256_floor_ps(x))
#define v_scale2(p, x) scale2_f32(p, x)
#define v_mask(bits) mask_f32(bits)
#define v_select(m, a, b) _mm256_blendv_ps(b, a, m)
#define v_sums(s) sums_f32(s)
#define v_below(x, y) _mm256_cmp_ps(x, y, _CMP_LT_OQ)
#define v_bits(m) ((uint64_t)_mm256_movemask_ps(m))
#define v_zip_low(a, b) zip_f32(a, b, 0x20)
#define v_zip_high(a, b) zip_f32(a, b, 0x31)
#define v_codes(p, width, l) codes_f32(p, width, l)
#define v_f16(p) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p)))
#define v_set_f16(p) set_f16(p)
#define v_fp8(p) fp8_f32(p)
#define v_signed(p) _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(p))))
#define v_bf16(p) from_bf16(p)
#define v_field(p, shift, mask) field_f32(p, shift, mask)
#define v_or(a, b) _mm_or_si128(a, b)
#define v_directions(index, w) directions_f32(index, w)
#define v_number(x) _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(x))
#define TABLE attn_kernels_avx2_f32
#include "core/kernels/f32.inc"

#define REAL double
#define VEC __m256d
#define VL 4
#define v_load(p) _mm256_loadu_pd(p)
#define v_load_part(p, n) _mm256_maskload_pd(p, _mm256_castpd_si256(mask_f64((1u << (n)) - 1)))
#define v_store(p, x) _mm256_storeu_pd(p, x)
#define v_set(x) _mm256_set1_pd(x)
#define v_add(a, b) _mm256_add_pd(a, b)
#define v_sub(a, b) _mm256_sub_pd(a, b)
#define v_mul(a, b) _mm256_mul_pd(a, b)
#define v_div(a, b) _mm256_div_pd(a, b)
#define v_fma(a, b, c) _mm256_fmadd_pd(a, b, c)
#define v_max(a, b) _mm256_max_pd(a, b)
#define v_round(x) _mm256_round_pd(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define v_fraction(x) _mm256_sub_pd(x, _mm256_floor_pd(x))
#define v_scale2(p, x) scale2_f64(p, x)
#define v_mask(bits) mask_f64(bits)
#define v_select(m, a, b) _mm256_blendv_pd(b, a, m)
#define v_sums(s) sums_f64(s)
#define v_below(x, y) _mm256_cmp_pd(x, y, _CMP_LT_OQ)
#define v_bits(m) ((uint64_t)_mm256_movemask_pd(m))
#define v_zip_low(a, b) zip_f64(a, b, 0x20)
#define v_zip_high(a, b) zip_f64(a, b, 0x31)
#define TABLE attn_kernels_avx2_f64
#include "core/kernels/f64.inc"
