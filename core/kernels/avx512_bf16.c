/* avx512_bf16.c - AVX-512 in fp32 with dot products of pairs of bf16 in the place of tile products
 * (AVX512_BF16; Intel SDM vol. 2, VDPBF16PS): twice as many multiply-adds as in fp32, so that operands
 * rounded to bf16 are faster and six products of terms are not. */
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define PRODUCTS attn_products_avx512_bf16
#define OTHERS attn_kernels_avx512_f32
#define EMULATED false
#define SPLIT_PAYS false

enum { ROWS = 16 };

/* The nearest bf16 of x and of y, in words: the processor's own order has all of x first. */
static inline __attribute__((always_inline)) __m512i dots_pair(__m512 x, __m512 y) {
  const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                order = _mm512_or_si512(
                    first, _mm512_slli_epi32(_mm512_add_epi32(first, _mm512_set1_epi32(ROWS)), 16));
  const __m512bh both = _mm512_cvtne2ps_pbh(y, x);
  __m512i z;
  memcpy(&z, &both, sizeof z);
  return _mm512_permutexvar_epi16(order, z);
}

/* A tile of C; or of an operand, where it is. */
typedef struct dots_tile {
  float c[ROWS * ROWS];
  const uint32_t *words;
} dots_tile;

static inline __attribute__((always_inline)) __m512bh dots_words(__m512i x) {
  __m512bh y;
  memcpy(&y, &x, sizeof y);
  return y;
}

/* c[16][16], rows c_row apart, = (add: +=) the sum of `depth` products of tiles, which stand `stride` words
 * apart. Called, not inlined: its loops are unrolled once. */
static __attribute__((noinline)) void dots_product(int64_t depth, const uint32_t *a, const uint32_t *b,
                                                   int64_t stride, bool add, float *c, int64_t c_row) {
  __m512 sum[ROWS];
  for (int m = 0; m < ROWS; m++) sum[m] = add ? _mm512_loadu_ps(c + m * c_row) : _mm512_setzero_ps();
  for (int64_t i = 0; i < depth; i++, a += stride, b += stride)
    for (int k = 0; k < ROWS; k++) {
      const __m512bh y = dots_words(_mm512_loadu_si512(b + k * ROWS));
      for (int m = 0; m < ROWS; m++)
        sum[m] = _mm512_dpbf16_ps(sum[m], y, dots_words(_mm512_set1_epi32((int)a[m * ROWS + k])));
    }
  for (int m = 0; m < ROWS; m++) _mm512_storeu_ps(c + m * c_row, sum[m]);
}

/* c[32][32] = the sum over depth of products of blocks of 2 x 2 tiles. */
static inline void dots_block(int64_t depth, const uint32_t *a, const uint32_t *b, float *c) {
  enum { TILE = ROWS * ROWS };
  for (int i = 0; i < 4; i++)
    dots_product(depth, a + i / 2 * TILE, b + i % 2 * TILE, 2 * TILE, false,
                 c + i / 2 * ROWS * 2 * ROWS + i % 2 * ROWS, 2 * ROWS);
}

static inline void dots_store(const float *c, float *out, int64_t row) {
  for (int m = 0; m < ROWS; m++) memcpy(out + m * row, c + m * ROWS, ROWS * sizeof *c);
}

#define v_pair(x, y) ((words_f32)dots_pair(x, y))
#define t_room dots_tile tiles[8]
#define t_enter() (void)0
#define t_leave() (void)0
#define t_zero(i) memset(tiles[i].c, 0, sizeof tiles[i].c)
#define t_load(i, p) ((i) < 4 ? (void)memcpy(tiles[i].c, p, sizeof tiles[i].c) : (void)(tiles[i].words = (p)))
#define t_store(i, p, row) dots_store(tiles[i].c, p, row)
#define t_product(i, j, k) dots_product(1, tiles[j].words, tiles[k].words, 0, true, tiles[i].c, ROWS)
#define t_block(depth, a, b, c) dots_block(depth, a, b, c)

#include "core/kernels/avx512.inc"
