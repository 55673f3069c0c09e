/* convolution.c - see convolution.h: y = F^-1 (F t . F x). Lengths have small factors only, for which FFTW
 * needs neither Rader's nor Bluestein's detour. FFTW allocates for itself; planning is serialised, executing
 * is not. */
#include "core/engines/toeplitz/convolution.h"

#include "core/engines/fftw_planner.h"

#include <fftw3.h>
#include <stdlib.h>

struct attn_convolution {
  int64_t length;
  fftw_plan forward, backward;
};

int64_t attn_convolution_length(int64_t n) {
  static const int64_t factors[] = {2, 3, 5};
  for (int64_t length = n;; length++) {
    int64_t left = length;
    for (int f = 0; f < 3; f++)
      while (left % factors[f] == 0) left /= factors[f];
    if (left == 1) return length;
  }
}

attn_status attn_convolution_create(int64_t length, attn_convolution **out) {
  if (length > INT32_MAX)
    return attn_fail(ATTN_EUNSUPPORTED, "convolution: length %lld is beyond FFTW's sizes", (long long)length);
  attn_convolution *c = calloc(1, sizeof *c);
  if (!c) return attn_fail(ATTN_ENOMEM, "no memory for a convolution");
  c->length = length;
  pthread_mutex_lock(&attn_fftw_planner);
  double *x = fftw_malloc((size_t)length * sizeof *x);
  fftw_complex *spectrum = fftw_malloc((size_t)(length / 2 + 1) * sizeof *spectrum);
  const bool memory = x && spectrum;
  if (memory) {
    c->forward = fftw_plan_dft_r2c_1d((int)length, x, spectrum, FFTW_ESTIMATE);
    c->backward = fftw_plan_dft_c2r_1d((int)length, spectrum, x, FFTW_ESTIMATE);
  }
  fftw_free(x);
  fftw_free(spectrum);
  pthread_mutex_unlock(&attn_fftw_planner);
  if (c->forward && c->backward) {
    *out = c;
    return ATTN_OK;
  }
  attn_convolution_destroy(c);
  return attn_fail(memory ? ATTN_EFOREIGN : ATTN_ENOMEM, "convolution: FFTW made no plan for length %lld",
                   (long long)length);
}

void attn_convolution_destroy(void *handle) {
  attn_convolution *c = handle;
  pthread_mutex_lock(&attn_fftw_planner);
  if (c->forward) fftw_destroy_plan(c->forward);
  if (c->backward) fftw_destroy_plan(c->backward);
  pthread_mutex_unlock(&attn_fftw_planner);
  free(c);
}

void attn_convolution_transform(const attn_convolution *c, double *x, double *spectrum) {
  fftw_execute_dft_r2c(c->forward, x, (fftw_complex *)(void *)spectrum);
}

void attn_convolve(const attn_convolution *c, const double *of_t, double *room, double *x) {
  attn_convolution_transform(c, x, room);
  for (int64_t r = 0; r < 2 * (c->length / 2 + 1); r += 2) {
    const double re = room[r], im = room[r + 1];
    room[r] = re * of_t[r] - im * of_t[r + 1];
    room[r + 1] = re * of_t[r + 1] + im * of_t[r];
  }
  fftw_execute_dft_c2r(c->backward, (fftw_complex *)(void *)room, x);
}
