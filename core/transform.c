/* transform.c - fast orthogonal transforms of the rows of a matrix: DCT-II by FFTW (Frigo and Johnson 2005)
 * and the Walsh-Hadamard transform by butterflies. FFTW allocates for itself; planning is serialised,
 * executing is not. */
#include "internal.h"

#include <fftw3.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

/* FFTW's planner is not thread-safe. */
static pthread_mutex_t planner = PTHREAD_MUTEX_INITIALIZER;

struct attn_dct {
  attn_dtype dtype;
  int64_t n, columns;
  fftwf_plan f32;
  fftw_plan f64;
};

attn_status attn_dct_create(attn_dct **out, int64_t n, int64_t columns, attn_dtype dtype) {
  if (n > INT32_MAX || columns > INT32_MAX)
    return attn_fail(ATTN_EUNSUPPORTED, "dct: %lld x %lld is beyond FFTW's sizes", (long long)n,
                     (long long)columns);
  attn_dct *dct = calloc(1, sizeof *dct);
  if (!dct) return attn_fail(ATTN_ENOMEM, "dct: no memory for a plan");
  *dct = (attn_dct){.dtype = dtype, .n = n, .columns = columns};
  int length[] = {(int)n}, count = (int)columns;
  pthread_mutex_lock(&planner);
  /* ESTIMATE looks at the alignment of the array and not at its content; the same plan every time. */
  void *array = fftw_malloc((size_t)n * (size_t)columns * attn_dtype_size(dtype));
  if (array && dtype == ATTN_F64)
    dct->f64 = fftw_plan_many_r2r(1, length, count, array, NULL, count, 1, array, NULL, count, 1,
                                  &(fftw_r2r_kind){FFTW_REDFT10}, FFTW_ESTIMATE | FFTW_UNALIGNED);
  else if (array)
    dct->f32 = fftwf_plan_many_r2r(1, length, count, array, NULL, count, 1, array, NULL, count, 1,
                                   &(fftwf_r2r_kind){FFTW_REDFT10}, FFTW_ESTIMATE | FFTW_UNALIGNED);
  fftw_free(array);
  pthread_mutex_unlock(&planner);
  if (!dct->f32 && !dct->f64) {
    free(dct);
    return attn_fail(array ? ATTN_EFOREIGN : ATTN_ENOMEM, "dct: FFTW made no plan for length %lld",
                     (long long)n);
  }
  *out = dct;
  return ATTN_OK;
}

void attn_dct_destroy(attn_dct *dct) {
  if (!dct) return;
  pthread_mutex_lock(&planner);
  if (dct->f64) fftw_destroy_plan(dct->f64);
  if (dct->f32) fftwf_destroy_plan(dct->f32);
  pthread_mutex_unlock(&planner);
  free(dct);
}

void attn_dct_execute(const attn_dct *dct, void *x) {
  if (dct->dtype == ATTN_F64)
    fftw_execute_r2r(dct->f64, x, x);
  else
    fftwf_execute_r2r(dct->f32, x, x);
}

double attn_dct_scale(const attn_dct *dct, int64_t row) {
  return row ? 1 / sqrt(2.0 * (double)dct->n) : 1 / sqrt(4.0 * (double)dct->n);
}

#define BUTTERFLIES(NAME, REAL)                                         \
  static void NAME(int64_t n, int64_t columns, REAL *x) {               \
    for (int64_t half = 1; half < n; half *= 2)                         \
      for (int64_t i = 0; i < n; i += 2 * half)                         \
        for (int64_t j = 0; j < half * columns; j++) {                  \
          REAL a = x[i * columns + j], b = x[(i + half) * columns + j]; \
          x[i * columns + j] = a + b;                                   \
          x[(i + half) * columns + j] = a - b;                          \
        }                                                               \
  }
BUTTERFLIES(butterflies_f32, float)
BUTTERFLIES(butterflies_f64, double)

void attn_wht(int64_t n, int64_t columns, void *x, attn_dtype dtype) {
  if (dtype == ATTN_F64)
    butterflies_f64(n, columns, x);
  else
    butterflies_f32(n, columns, x);
}
