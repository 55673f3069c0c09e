/* kv_inputs.h - small tensors of two batch entries, in which four query heads share two kv heads, and
 * attention to the keys that are held: for tests of policies and of caches. */
#ifndef TESTS_SUPPORT_KV_INPUTS_H
#define TESTS_SUPPORT_KV_INPUTS_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "attn_variant.h"
#include "tests/support/basics/kept.h"
#include "tests/support/basics/rng.h"

enum { BATCH = 2, HEADS = 4, KV_HEADS = 2, GROUP = HEADS / KV_HEADS, N = 90, D = 8, D_V = 5 };

typedef struct inputs {
  float q[BATCH][HEADS][N][D], k[BATCH][KV_HEADS][N][D], v[BATCH][KV_HEADS][N][D_V];
} inputs;

static inline void draw(float *x, size_t count, uint64_t seed) {
  attn_rng rng = rng_of(seed, 1, 0);
  for (size_t i = 0; i < count; i++) x[i] = (float)attn_rng_normal(&rng);
}

static inline double filter(int h, int l) { return sin(1 + 3 * h + l); }

/* The file "f" has them, "g" those of a head too many. */
static inline attn_status read_filters(const char *path, int64_t *rows, int64_t *columns, double **values) {
  *rows = KV_HEADS + (*path == 'g');
  *columns = D;
  *values = malloc((size_t)(*rows * D) * sizeof **values);
  for (int i = 0; i < *rows * D; i++) (*values)[i] = filter(i / D, i % D);
  return ATTN_OK;
}

/* They go with the process. */
static inline inputs *inputs_make(void) {
  inputs *x = kept_memory(malloc(sizeof *x));
  attn_matrix_reader_set(read_filters);
  draw(&x->q[0][0][0][0], sizeof x->q / sizeof(float), 1);
  draw(&x->k[0][0][0][0], sizeof x->k / sizeof(float), 2);
  draw(&x->v[0][0][0][0], sizeof x->v / sizeof(float), 3);
  return x;
}

static inline attn_problem problem_of(int64_t n_q) {
  attn_problem p = attn_problem_make(BATCH, HEADS, N, D);
  p.n_q = n_q;
  p.kv_heads = KV_HEADS;
  p.d_v = D_V;
  p.causal = true;
  return p;
}

static inline double dot(const float *a, const float *b) {
  double sum = 0;
  for (int l = 0; l < D; l++) sum += (double)a[l] * (double)b[l];
  return sum;
}

static inline void check_row(const inputs *x, const bool *held, int b, int head, int64_t t, const float *o) {
  double sum = 0, value[D_V] = {0};
  for (int64_t j = 0; j <= t; j++) {
    const double own = held[j] ? exp(dot(x->q[b][head][t], x->k[b][head / GROUP][j]) / sqrt(D)) : 0;
    sum += own;
    for (int l = 0; l < D_V; l++) value[l] += own * (double)x->v[b][head / GROUP][j][l];
  }
  for (int l = 0; l < D_V; l++)
    cr_expect(fabs((double)o[l] - value[l] / sum) < 1e-5, "entry %d head %d row %d", b, head, (int)t);
}

#endif
