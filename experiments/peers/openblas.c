/* openblas.c - OpenBLAS as a peer: exact attention as PyTorch computes it on CPUs, and plain matrix products.
 *
 * flash: online softmax (Dao et al. 2022) over blocks of 256 queries and 512 keys, as in ATen's
 * cpu_flash_attention: S = Q K^T and O += P V by sgemm, one thread per (head, query block), softmax between.
 * Compiled for this machine, its exponential in vectors: the loop is meant to be as good as this design gets.
 * products: O = (Q K^T) V with the n x n matrix in memory, one thread per head and rows block. */
#include <cblas.h>
#include <float.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/peers/peer.h"

enum {
  QUERIES = 256,
  KEYS = 512,
  PRODUCT_ROWS = 512, /* 128 is slower, 256 and more are alike */
};

/* exp for x <= 0: 2^k times a polynomial of degree 6 in r, |r| <= ln(2) / 2 (Taylor, error below 2e-7). Below
 * the smallest normal it gives 0. */
static inline float exponential(float x) {
  float k = rintf(x * 0x1.715476p+0f), r = fmaf(k, -0x1.62e400p-1f, x);
  r = fmaf(k, -0x1.7f7d1cp-20f, r);
  float p = 1.0f / 720;
  p = fmaf(p, r, 1.0f / 120);
  p = fmaf(p, r, 1.0f / 24);
  p = fmaf(p, r, 1.0f / 6);
  p = fmaf(p, r, 0.5f);
  p = fmaf(p, r, 1.0f);
  p = fmaf(p, r, 1.0f);
  union {
    int32_t bits;
    float value;
  } power = {.bits = (int32_t)(k + 127) * (1 << 23)};
  return x < -87.0f ? 0.0f : p * power.value;
}

/* x <- exp(scale x - max), returns the sum */
static float exponentials(int count, float *x, float scale, float max) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int j = 0; j < count; j++) {
    x[j] = exponential(fmaf(scale, x[j], -max));
    sum += x[j];
  }
  return sum;
}

static float maximum(int count, const float *x) {
  float max = -FLT_MAX;
#pragma omp simd reduction(max : max)
  for (int j = 0; j < count; j++) max = x[j] > max ? x[j] : max;
  return max;
}

static void multiply(float *x, int count, float factor) {
#pragma omp simd
  for (int j = 0; j < count; j++) x[j] *= factor;
}

/* What a thread needs for its block of queries. */
typedef struct block {
  float s[QUERIES * KEYS];
  float max[QUERIES], sum[QUERIES];
} block;

/* Keys j0 .. j0 + keys for queries i0 .. i0 + rows. */
static void online_step(const peer_problem *p, block *b, const float *q, const float *k, const float *v,
                        float *o, int i0, int rows, int j0, int keys) {
  const int d = (int)p->in.d_qk, d_v = (int)p->in.d_v;
  const float scale = 1 / sqrtf((float)d);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, keys, d, 1, q, d, k + (int64_t)j0 * d, d, 0,
              b->s, KEYS);
  for (int i = 0; i < rows; i++) {
    float *s = b->s + i * KEYS;
    int seen = p->causal && i0 + i + 1 - j0 < keys ? i0 + i + 1 - j0 : keys;
    if (seen < 0) seen = 0;
    float max = fmaxf(b->max[i], scale * maximum(seen, s)), old = exponential(b->max[i] - max);
    b->sum[i] = old * b->sum[i] + exponentials(seen, s, scale, max);
    b->max[i] = max;
    memset(s + seen, 0, (size_t)(keys - seen) * sizeof *s);
    if (j0 > 0) multiply(o + i * d_v, d_v, old);
  }
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, d_v, keys, 1, b->s, KEYS,
              v + (int64_t)j0 * d_v, d_v, j0 > 0, o, d_v);
}

static block *blocks; /* one a thread */

static attn_status flash(const peer_problem *p) {
  const int n_q = (int)p->in.n_q, n_kv = (int)p->in.n_kv, d = (int)p->in.d_qk, d_v = (int)p->in.d_v;
  const int per_head = (n_q + QUERIES - 1) / QUERIES;
#pragma omp parallel for num_threads(p->threads) schedule(dynamic, 1)
  for (int task = (int)p->in.heads * per_head - 1; task >= 0; task--) {
    block *b = blocks + omp_get_thread_num();
    int64_t head = task / per_head;
    int i0 = task % per_head * QUERIES, rows = n_q - i0 < QUERIES ? n_q - i0 : QUERIES;
    int limit = p->causal && i0 + rows < n_kv ? i0 + rows : n_kv;
    float *o = p->o + (head * n_q + i0) * d_v;
    for (int i = 0; i < rows; i++) b->max[i] = -FLT_MAX, b->sum[i] = 0;
    for (int j0 = 0; j0 < limit; j0 += KEYS)
      online_step(p, b, (const float *)p->in.q + (head * n_q + i0) * d,
                  (const float *)p->in.k + head * n_kv * d, (const float *)p->in.v + head * n_kv * d_v, o, i0,
                  rows, j0, limit - j0 < KEYS ? limit - j0 : KEYS);
    for (int i = 0; i < rows; i++) multiply(o + i * d_v, d_v, 1 / b->sum[i]);
  }
  return ATTN_OK;
}

static float *matrix; /* [heads, n_q, n_kv] */

static attn_status products(const peer_problem *p) {
  const int n_q = (int)p->in.n_q, n_kv = (int)p->in.n_kv, d = (int)p->in.d_qk, d_v = (int)p->in.d_v;
  const int per_head = (n_q + PRODUCT_ROWS - 1) / PRODUCT_ROWS;
#pragma omp parallel for num_threads(p->threads) schedule(dynamic, 1)
  for (int task = 0; task < (int)p->in.heads * per_head; task++) {
    int64_t head = task / per_head;
    int i0 = task % per_head * PRODUCT_ROWS, rows = n_q - i0 < PRODUCT_ROWS ? n_q - i0 : PRODUCT_ROWS;
    float *s = matrix + (head * n_q + i0) * n_kv;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, n_kv, d, 1,
                (const float *)p->in.q + (head * n_q + i0) * d, d, (const float *)p->in.k + head * n_kv * d,
                d, 0, s, n_kv);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, d_v, n_kv, 1, s, n_kv,
                (const float *)p->in.v + head * n_kv * d_v, d_v, 0, p->o + (head * n_q + i0) * d_v, d_v);
  }
  return ATTN_OK;
}

/* "OpenBLAS 0.3.21 SkylakeX"; its length */
static int describe(char description[PEER_TEXT]) {
  const char *configuration = openblas_get_config(), *version = strchr(configuration, ' ');
  const int name = version ? (int)(version - configuration + 1 + (int)strcspn(version + 1, " ")) : 0;
  return snprintf(description, PEER_TEXT, "%.*s %s", name, configuration, openblas_get_corename());
}

static attn_status load(const peer_problem *p, char description[PEER_TEXT]) {
  openblas_set_num_threads(1); /* its callers are the threads */
  blocks = aligned_alloc(64, (size_t)p->threads * sizeof *blocks);
  const int used = describe(description);
  snprintf(description + used, (size_t)(PEER_TEXT - used), ", query block %d, key block %d", QUERIES, KEYS);
  return blocks ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory");
}

static attn_status load_products(const peer_problem *p, char description[PEER_TEXT]) {
  openblas_set_num_threads(1);
  if (p->causal) return attn_fail(ATTN_EUNSUPPORTED, "products: not causal");
  matrix = malloc((size_t)(p->in.heads * p->in.n_q * p->in.n_kv) * sizeof *matrix);
  describe(description);
  return matrix ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory");
}

static void unload(void) {
  free(blocks);
  free(matrix);
  blocks = NULL, matrix = NULL;
}

int main(int count, char **arguments) {
  const char *what = count == 2 ? arguments[1] : "";
  if (!strcmp(what, "flash")) return peer_serve(&(peer_methods){load, flash, unload});
  if (!strcmp(what, "products")) return peer_serve(&(peer_methods){load_products, products, unload});
  fputs("Usage: peer_openblas flash|products\n", stderr);
  return 2;
}
