/* baselines.c - null baselines fill every row that is compared, as they are defined. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "experiments/evidence/null.h"
#include "experiments/reference/census.h"
#include "tests/support/basics/kept.h"

enum { BATCH = 2, HEADS = 4, KV_HEADS = 2, N_Q = 700, N_KV = 800, D = 3, ROWS = BATCH * HEADS * N_Q };

static double *normals(int64_t count, uint64_t seed) {
  double *x = kept_memory(malloc((size_t)count * sizeof *x));
  attn_rng rng;
  attn_rng_init(&rng, seed, 1, 0);
  for (int64_t i = 0; i < count; i++) x[i] = attn_rng_normal(&rng);
  return x;
}

static void fill(const char *name, const evidence *e, double *o) {
  for (int64_t i = 0; i < ROWS * D; i++) o[i] = (double)NAN;
  cr_assert_eq(null_fill(null_find(name), e, o), ATTN_OK);
  for (int64_t i = 0; i < ROWS * D; i++) cr_assert(isfinite(o[i]), "%s: %lld", name, (long long)i);
}

/* The keys that a row sees. */
static int64_t keys_of(const evidence *e, int64_t r, bool masked) {
  const int64_t batch = r / (HEADS * N_Q), position = r % N_Q + N_KV - N_Q,
                last = masked ? (position / 48 + 1) * 48 : position + 1;
  return last < e->kv_len[batch] ? last : e->kv_len[batch];
}

/* All keys are drawn where there are no more than wanted, and others than all where there are. */
static void expect_draws(const evidence *e, const double *o, bool masked) {
  for (int64_t r = 0; r < ROWS; r++) {
    double far = 0;
    for (int64_t l = 0; l < D; l++) far = fmax(far, fabs(o[r * D + l] - e->exact->all[r * D + l]));
    const bool all = keys_of(e, r, masked) <= NULL_KEYS;
    cr_assert(all ? far < 1e-12 : far > 1e-6, "masked %d, row %lld: %g", masked, (long long)r, far);
  }
}

static void expect_means(const evidence *e, const double *o, bool masked) {
  double far = 0;
  for (int64_t r = 0; r < ROWS; r++) {
    const int64_t batch = r / (HEADS * N_Q), end = keys_of(e, r, masked);
    const double *v = (const double *)e->v + (batch * KV_HEADS + r / N_Q % HEADS / 2) * N_KV * D;
    for (int64_t l = 0; l < D; l++) {
      double sum = 0;
      for (int64_t j = 0; j < end; j++) sum += v[j * D + l];
      far = fmax(far, fabs(o[r * D + l] - sum / (double)end));
    }
  }
  cr_expect_lt(far, 1e-12, "masked %d: %g", masked, far);
}

Test(reference_baselines, every_row_is_filled) {
  double *q = normals(ROWS * D, 1), *k = normals(BATCH * KV_HEADS * N_KV * D, 2),
         *v = normals(BATCH * KV_HEADS * N_KV * D, 3), *o = kept_memory(malloc(ROWS * D * sizeof *o));
  for (int masked = 0; masked < 2; masked++) {
    attn_problem p = attn_problem_make(BATCH, HEADS, N_Q, D);
    const int64_t kv_len[] = {790, 333};
    exact_rows *x = NULL;
    p.kv_heads = KV_HEADS;
    p.n_kv = N_KV;
    p.dtype = ATTN_F64;
    p.causal = !masked;
    if (masked) p.mask = (attn_mask){.kind = ATTN_MASK_BLOCK_CAUSAL, .size = 48};
    cr_assert_eq(attn_problem_resolve(&p), ATTN_OK, "%s", attn_last_error());
    cr_assert_eq(exact_rows_compute(&p, q, k, v, kv_len, 3, &x), ATTN_OK, "%s", attn_last_error());
    cr_assert(!x->complete);
    cr_assert_eq(census_take(&p, q, k, v, kv_len, x), ATTN_OK, "%s", attn_last_error());
    const evidence e = {.problem = &p, .q = q, .k = k, .v = v, .kv_len = kv_len, .exact = x};
    fill("null_mean_v", &e, o);
    expect_means(&e, o, masked);
    fill("null_random_keys", &e, o);
    expect_draws(&e, o, masked);
    fill("null_zeros", &e, o);
    exact_rows_free(x);
  }
}
