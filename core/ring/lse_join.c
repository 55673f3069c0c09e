/* lse_join.c - o = sum_b w_b o_b / sum_b w_b with w_b = exp(lse_b - max lse), part by part with a running
 * maximum. Each row is one thread's, so that the number of threads changes nothing. */
#include "core/ring/lse_join.h"
#include "attn_variant.h"

#include <math.h>

void ring_sums_clear(ring_sums s, int64_t rows) {
  for (int64_t i = 0; i < rows; i++) {
    s.max[i] = -(double)INFINITY;
    s.sum[i] = 0;
    for (int64_t l = 0; l < s.d_v; l++) s.o[i * s.d_v + l] = 0;
  }
}

void ring_sums_add(ring_sums s, int64_t first, int64_t rows, const void *o, const double *lse, attn_dtype t,
                   int threads) {
#pragma omp parallel num_threads(threads)
  {
    fenv_t outer;
    attn_float_enter(&outer);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < rows; i++) {
      double *to = s.o + (first + i) * s.d_v, *max = &s.max[first + i], *sum = &s.sum[first + i];
      /* Nothing is seen here, or no score is above -Inf: a weight of 0, and an output that may be NaN. */
      if (isinf(lse[i]) && lse[i] < 0) continue;
      double m = lse[i] <= *max || isnan(*max) ? *max : lse[i]; /* a NaN stays a NaN */
      double old = exp(*max - m), w = exp(lse[i] - m);
      *max = m;
      *sum = old * *sum + w;
      for (int64_t l = 0; l < s.d_v; l++) to[l] = old * to[l] + w * attn_get(o, i * s.d_v + l, t);
    }
    attn_float_leave(&outer);
  }
}

void ring_sums_finish(ring_sums s, int64_t rows, void *out, attn_dtype t, int threads) {
#pragma omp parallel num_threads(threads)
  {
    fenv_t outer;
    attn_float_enter(&outer);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < rows; i++)
      for (int64_t l = 0; l < s.d_v; l++) attn_set(out, i * s.d_v + l, t, s.o[i * s.d_v + l] / s.sum[i]);
    attn_float_leave(&outer);
  }
}
