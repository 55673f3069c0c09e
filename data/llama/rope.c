/* rope.c - rotary positions in Hugging Face's Llama convention (halves, not neighbours), and sinusoidal ones.
 *
 * (x_i, x_{i+d/2}) <- (x_i cos a - x_{i+d/2} sin a, x_{i+d/2} cos a + x_i sin a), a = position *
 * theta^(-2i/d) in fp64: an fp32 angle is off by 0.02 rad at position 10^6. */
#include "data/llama/rope.h"

#include <math.h>

#include "data/data.h"

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

void data_rope_f32(float *x, int64_t n, int64_t d, int64_t row_stride, int64_t first, double theta) {
  for (int64_t i = 0; i < d / 2; i++) {
    double frequency = pow(theta, -2 * (double)i / (double)d);
    for (int64_t r = 0; r < n; r++) {
      float *pair = x + r * row_stride + i;
      double angle = (double)(first + r) * frequency, c = cos(angle), s = sin(angle);
      double a = (double)pair[0], b = (double)pair[d / 2];
      pair[0] = (float)(a * c - b * s);
      pair[d / 2] = (float)(b * c + a * s);
    }
  }
}
