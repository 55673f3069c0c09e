/* avx512_bf16.c - AVX-512 in fp32 with dot products of pairs of bf16 in the place of tile products
 * (AVX512_BF16; Intel SDM vol. 2, VDPBF16PS): twice as many multiply-adds as in fp32, so that operands
 * rounded to bf16 are faster and six products of terms are not. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define ISA_NAME "avx512_bf16"
#define TABLE attn_kernels_avx512_bf16_f32
#define EMULATED false
#define SPLIT_PAYS false

enum { ROWS = 16 };

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

/* Called, not inlined: its loops are unrolled once. */
static __attribute__((noinline)) void dots_product(float *c, const uint32_t *a, const uint32_t *b) {
  __m512 sum[ROWS];
  for (int m = 0; m < ROWS; m++) sum[m] = _mm512_loadu_ps(c + m * ROWS);
  for (int k = 0; k < ROWS; k++) {
    const __m512bh y = dots_words(_mm512_loadu_si512(b + k * ROWS));
    for (int m = 0; m < ROWS; m++)
      sum[m] = _mm512_dpbf16_ps(sum[m], y, dots_words(_mm512_set1_epi32((int)a[m * ROWS + k])));
  }
  for (int m = 0; m < ROWS; m++) _mm512_storeu_ps(c + m * ROWS, sum[m]);
}

static inline void dots_store(const float *c, float *out, int64_t row) {
  for (int m = 0; m < ROWS; m++) memcpy(out + m * row, c + m * ROWS, ROWS * sizeof *c);
}

#define t_room dots_tile tiles[8]
#define t_enter() (void)0
#define t_leave() (void)0
#define t_zero(i) memset(tiles[i].c, 0, sizeof tiles[i].c)
#define t_load(i, p) ((i) < 4 ? (void)memcpy(tiles[i].c, p, sizeof tiles[i].c) : (void)(tiles[i].words = (p)))
#define t_store(i, p, row) dots_store(tiles[i].c, p, row)
#define t_product(i, j, k) dots_product(tiles[i].c, tiles[j].words, tiles[k].words)

#include "core/kernels/avx512.inc"
