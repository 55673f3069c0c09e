/* streaming_cache.c - a cache that holds keys before they turn, by its definition in complex numbers:
 * attention to what it holds at positions 0, 1, ... gives the outputs that the variant has of keys that are
 * turned already. */
#include "tests/support/core.h"

#include <complex.h>
#include <math.h>

enum { N = 60, D = 12, D_V = 5, SINK = 3, WINDOW = 9 };

/* x [D] at a position: pairs (l, l + dims/2) of the first dims components. */
static void place(const double *x, int64_t dims, int64_t position, double *to) {
  const double complex unit = (double complex)I;
  for (int l = 0; l < D; l++) to[l] = x[l];
  for (int64_t l = 0; l < dims / 2; l++) {
    const double complex z = (x[l] + x[l + dims / 2] * unit) *
                             cexp(unit * ((double)position / pow(100, 2 * (double)l / (double)dims)));
    to[l] = creal(z);
    to[l + dims / 2] = cimag(z);
  }
}

/* Row i of what the cache gives: q, k and v before they turn. */
static void attend(double q[N][D], double k[N][D], double v[N][D_V], int64_t dims, int64_t i, double o[D_V]) {
  double sum = 0, query[D], key[D];
  int64_t held = 0, at = 0;
  for (int64_t j = 0; j <= i; j++) held += j < SINK || j > i - WINDOW;
  place(q[i], dims, held - 1, query);
  for (int l = 0; l < D_V; l++) o[l] = 0;
  for (int64_t j = 0; j <= i; j++) {
    if (j >= SINK && j <= i - WINDOW) continue;
    double score = 0;
    place(k[j], dims, at++, key);
    for (int l = 0; l < D; l++) score += query[l] * key[l] / sqrt(D);
    sum += exp(score);
    for (int l = 0; l < D_V; l++) o[l] += exp(score) * v[j][l];
  }
  for (int l = 0; l < D_V; l++) o[l] /= sum;
}

/* 64 roundings of fp32 of values below 5: of scores, weights and sums of a few keys. */
Test(variants_streaming_cache, outputs_are_those_of_a_cache_that_turns_late) {
  static double q[N][D], k[N][D], v[N][D_V];
  float turned[2][N][D], values[N][D_V], o[N][D_V];
  for (int64_t dims = 8; dims <= D; dims += 4)
    for (int64_t first = 0; first < 2000; first += 1234) { /* the same wherever the text begins */
      double row[D], wanted[D_V];
      attn_rng rng = rng_of(7, 0, 0);
      for (int i = 0; i < N; i++) {
        for (int l = 0; l < D; l++) q[i][l] = attn_rng_normal(&rng), k[i][l] = attn_rng_normal(&rng);
        for (int l = 0; l < D_V; l++) v[i][l] = (double)(values[i][l] = (float)attn_rng_normal(&rng));
        for (int t = 0; t < 2; t++) {
          place(t ? k[i] : q[i], dims, first + i, row);
          for (int l = 0; l < D; l++) turned[t][i][l] = (float)row[l];
        }
      }
      attn_problem p = attn_problem_make(1, 1, N, D);
      p.d_v = D_V;
      p.causal = true;
      const char *spec = text_of("streaming_cache:sink=%d,window=%d,base=100,dims=%d", SINK, WINDOW,
                                 dims < D ? (int)dims : 0);
      cr_assert_eq(attn_attention(turned[0], turned[1], values, o, &p, spec), ATTN_OK, "%s",
                   attn_last_error());
      for (int i = 0; i < N; i++) {
        attend(q, k, v, dims, i, wanted);
        for (int l = 0; l < D_V; l++)
          cr_assert(fabs((double)o[i][l] - wanted[l]) <= 64 * 5 * 0x1p-24, "%s, row %d: %g, not %g", spec, i,
                    (double)o[i][l], wanted[l]);
      }
    }
}

Test(variants_streaming_cache, what_it_cannot_turn_is_refused) {
  attn_problem p = attn_problem_make(1, 1, 16, 7);
  p.causal = true;
  expect_no_plan(&p, "streaming_cache", ATTN_EUNSUPPORTED, "7 of 7 components");
  p.d_qk = 8;
  expect_no_plan(&p, "streaming_cache:dims=10", ATTN_EUNSUPPORTED, "");
  p.causal = false;
  expect_no_plan(&p, "streaming_cache", ATTN_EUNSUPPORTED, "only causal");
}
