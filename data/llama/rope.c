/* rope.c - rotary positions in Hugging Face's Llama convention (halves, not neighbours), and sinusoidal ones.
 *
 * (x_i, x_{i+d/2}) <- (x_i cos a - x_{i+d/2} sin a, x_{i+d/2} cos a + x_i sin a), a = position *
 * theta^(-2i/d) in fp64: an fp32 angle is off by 0.02 rad at position 10^6. */
#include "data/llama/rope.h"

#include <math.h>

void rope_frequencies(int64_t d, double theta, double *frequency) {
  for (int64_t i = 0; i < d / 2; i++) frequency[i] = pow(theta, -2 * (double)i / (double)d);
}

void rope_rotate(int64_t d, const double *frequency, int64_t position, double *x) {
  for (int64_t i = 0; i < d / 2; i++) {
    double angle = (double)position * frequency[i], c = cos(angle), s = sin(angle), a = x[i],
           b = x[i + d / 2];
    x[i] = a * c - b * s;
    x[i + d / 2] = b * c + a * s;
  }
}

void rope_add_sinusoid(int64_t d, const double *frequency, int64_t position, double *x) {
  for (int64_t i = 0; i < d / 2; i++) {
    double angle = (double)position * frequency[i];
    x[2 * i] += sin(angle);
    x[2 * i + 1] += cos(angle);
  }
}

void rope_cos_sin(int64_t d, const double *frequency, int64_t position, double attention, double *turns) {
  for (int64_t i = 0; i < d / 2; i++) {
    const double angle = (double)position * frequency[i];
    turns[2 * i] = attention * cos(angle);
    turns[2 * i + 1] = attention * sin(angle);
  }
}

static void turn(const double at[2], float *a, float *b) {
  const double x = (double)*a, y = (double)*b;
  *a = (float)(x * at[0] - y * at[1]);
  *b = (float)(y * at[0] + x * at[1]);
}

void rope_turn(int64_t d, const double *turns, float *x) {
  for (int64_t i = 0; i < d / 2; i++) turn(turns + 2 * i, x + i, x + i + d / 2);
}

void data_rope_f32(float *x, int64_t n, int64_t d, int64_t row_stride, int64_t first, const double *frequency,
                   double attention) {
  double turns[2];
  for (int64_t i = 0; i < d / 2; i++)
    for (int64_t r = 0; r < n; r++) {
      rope_cos_sin(2, frequency + i, first + r, attention, turns);
      turn(turns, x + r * row_stride + i, x + r * row_stride + i + d / 2);
    }
}
