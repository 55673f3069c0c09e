/* emulated.c - emulated.inc in plain C, for processors that cannot flush as the tile product does; and dot
 * products of pairs. */
#include "core/kernels/kernels.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { SIDE = 16 };

static float flushed(float x) { return fabsf(x) < FLT_MIN ? copysignf(0.0f, x) : x; }

static float widened(uint32_t upper) {
  float x;
  memcpy(&x, &upper, sizeof x);
  return flushed(x);
}

/* a b + c, rounded once, for flushed operands. The sum in fp64 is exact unless its terms are so far apart
 * (2^28) that the smaller one cannot change the larger, which then is a float: rounding twice does no harm.
 * Tiny is what rounds below FLT_MIN with an unbounded exponent. */
static float multiply_add(float a, float b, float c) {
  double sum = (double)a * (double)b + (double)c;
  return fabs(sum) < 0x1.ffffffp-127 ? (float)copysign(0, sum) : (float)sum;
}

void attn_emulated_product(float *c, const uint32_t *a, const uint32_t *b) {
  float factor[2][SIDE * SIDE];
  for (int i = 0; i < SIDE * SIDE; i++) {
    factor[0][i] = widened(b[i] << 16);
    factor[1][i] = widened(b[i] & 0xffff0000);
  }
  for (int m = 0; m < SIDE; m++) {
    float sum[2][SIDE] = {{0}};
    for (int k = 0; k < SIDE; k++) {
      float low = widened(a[m * SIDE + k] << 16), high = widened(a[m * SIDE + k] & 0xffff0000);
      for (int n = 0; n < SIDE; n++) {
        sum[0][n] = multiply_add(low, factor[0][k * SIDE + n], sum[0][n]);
        sum[1][n] = multiply_add(high, factor[1][k * SIDE + n], sum[1][n]);
      }
    }
    for (int n = 0; n < SIDE; n++) {
      float *at = c + m * SIDE + n;
      *at = flushed(flushed(*at) + flushed(sum[0][n] + sum[1][n]));
    }
  }
}

/* Per element of C and pair of words: the product of the upper elements, then that of the lower ones, each
 * added to C and rounded once (Intel's manual, vol. 2, VDPBF16PS). */
void attn_emulated_dots(float *c, const uint32_t *a, const uint32_t *b) {
  for (int m = 0; m < SIDE; m++)
    for (int n = 0; n < SIDE; n++) {
      float sum = flushed(c[m * SIDE + n]);
      for (int k = 0; k < SIDE; k++) {
        const uint32_t x = a[m * SIDE + k], y = b[k * SIDE + n];
        sum = multiply_add(widened(x & 0xffff0000), widened(y & 0xffff0000), sum);
        sum = multiply_add(widened(x << 16), widened(y << 16), sum);
      }
      c[m * SIDE + n] = sum;
    }
}
