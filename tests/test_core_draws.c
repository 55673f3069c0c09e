/* test_core_draws.c - what performer and linformer draw, seen through attn_view: kernels estimated without bias and
 * with the published variance (FAV-1), projections with the entries their names promise.
 *
 * Statistical tolerances: T2 of bounds.md, |median of group means - mean| <= sigma sqrt(32 ln(1/alpha) / T), with the
 * exact sigma and alpha = 1e-6 per test; the seeds are fixed, so a pass stays a pass. */
#include "cases.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { D = 8, FEATURES = 8 };

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median_of_means(const double *x, int count) {
  double means[112]; /* ceil(8 ln 1e6) = 111 groups */
  int groups = 111, size = count / groups;
  for (int g = 0; g < groups; g++) {
    means[g] = 0;
    for (int k = 0; k < size; k++) means[g] += x[g * size + k] / size;
  }
  qsort(means, (size_t)groups, sizeof *means, ascending);
  return means[groups / 2];
}

/* (1/m) sum_r phi_r(x) phi_r(y) for one seed, in fp64, scale 1: x = q, y = k. */
static double estimate(const char *spec, const double *x, const double *y) {
  attn_problem p = shape_problem((case_shape){1, 1, 1, 1, 1, D, 1, false, false}, ATTN_F64);
  p.scale = 1;
  attn_plan *plan = plan_or_note(&p, spec, NULL);
  cr_assert_not_null(plan);
  attn_view view;
  attn_plan_inspect(plan, &view);
  const attn_feature_map *map = view.features;
  const attn_context *c = attn_plan_context(plan);
  double fq[2 * FEATURES], fk[2 * FEATURES], sq, sk, sum = 0;
  cr_assert_leq(map->columns, 2 * FEATURES);
  void *scratch = aligned_alloc(64, map->scratch(map->state, c, 1) / 64 * 64 + 64);
  map->map(map->state, c, 0, ATTN_QUERY, x, D, 1, fq, &sq, scratch);
  map->map(map->state, c, 0, ATTN_KEY, y, D, 1, fk, &sk, scratch);
  for (int64_t r = 0; r < map->columns; r++) sum += fq[r] * fk[r];
  free(scratch);
  attn_plan_destroy(plan);
  return exp(sq + sk) * sum;
}

typedef struct expectation {
  const char *settings;
  double terms;  /* of the mean: features, or pairs of them */
  double mean;   /* A */
  double sigma2; /* variance of one estimate, or an upper bound */
} expectation;

static void expect_mean(const expectation *e, const double *x, const double *y) {
  enum { DRAWS = 5550 };
  double *a = malloc(DRAWS * sizeof *a), squares = 0;
  cr_assert_not_null(a);
  for (int t = 0; t < DRAWS; t++) {
    char spec[160];
    snprintf(spec, sizeof spec, "performer:features=%d,%s,seed=%d", FEATURES, e->settings, t);
    a[t] = estimate(spec, x, y) / e->terms;
    squares += pow(a[t] - e->mean, 2) / DRAWS;
  }
  double got = median_of_means(a, DRAWS), room = sqrt(e->sigma2 * 32 * log(1e6) / DRAWS);
  if (!(fabs(got - e->mean) <= room))
    note_failure("%s: mean %g, expected %g within %g", e->settings, got, e->mean, room);
  /* With a kurtosis below 20 the mean of squares is within 6 % of sigma^2; orthogonal draws vary less. */
  if (!(squares <= 2 * e->sigma2))
    note_failure("%s: variance %g, expected at most %g", e->settings, squares, e->sigma2);
  free(a);
}

/* x = y along the first axis, where an orthogonal draw without the sign step shows most (FAV-3: -19 %, and the room is
 * 13 %); Z = 1. */
Test(core_draws, performer_positive) {
  double x[D] = {0.5}, y[D] = {0.5};
  double z = 1, a = exp(0.25), kappa2 = exp(-0.5), iid = kappa2 * (exp(2 * z) - exp(z)) / FEATURES;
  const expectation cases[] = {{"orthogonal=no", FEATURES, a, iid}, {"orthogonal=yes", FEATURES, a, iid}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) expect_mean(&cases[k], x, y);
  cr_assert(failures_noted() == 0);
}

Test(core_draws, performer_even_kernels) {
  double x[D] = {0.4, 0.3}, y[D] = {0.1, -0.5, 0.2}, dot = 0, xx = 0, yy = 0;
  for (int l = 0; l < D; l++) dot += x[l] * y[l], xx += x[l] * x[l], yy += y[l] * y[l];
  double z = xx + yy + 2 * dot, delta = xx + yy - 2 * dot, kappa2 = exp(-xx - yy), a = exp(dot);
  double hyperbolic = kappa2 * pow(exp(z) - 1, 2) / (2 * FEATURES);
  double trig = pow(1 - exp(-delta), 2) / kappa2 / (2 * FEATURES);
  double angle = acos(dot / sqrt(xx * yy));
  double relu = sqrt(xx * yy) * (sin(angle) + (3.141592653589793 - angle) * cos(angle)) / 6.283185307179586;
  const expectation cases[] = {
      {"kernel=hyperbolic,orthogonal=no", 2 * FEATURES, a, hyperbolic},
      {"kernel=hyperbolic,orthogonal=yes", 2 * FEATURES, a, hyperbolic},
      {"kernel=trig,orthogonal=no", FEATURES, a, trig},
      {"kernel=trig,orthogonal=yes", FEATURES, a, trig},
      /* E (w.x)^2 (w.y)^2 = |x|^2 |y|^2 + 2 (x.y)^2 (Isserlis) */
      {"kernel=relu,orthogonal=no", FEATURES, relu, (xx * yy + 2 * dot * dot) / FEATURES},
  };
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) expect_mean(&cases[k], x, y);
  cr_assert(failures_noted() == 0);
}

/* Norms sqrt(d): the kernel SMREG = kappa 0F1(; d/2; d Z/4), smaller than the softmax kernel. */
Test(core_draws, performer_fixed_norms) {
  double x[D] = {0.9}, y[D] = {0.9}, z = 3.24, sum = 1, term = 1;
  for (int k = 1; k < 60; k++) sum += term *= D * z / 4 / ((D / 2.0 + k - 1) * k);
  const expectation regular = {"norm=sqrt_d", FEATURES, exp(-0.81) * sum,
                               exp(-1.62) * (exp(2 * z) - exp(z)) / FEATURES};
  cr_assert(regular.mean < exp(0.81));
  expect_mean(&regular, x, y);
  cr_assert(failures_noted() == 0);
}

/* FAV-4(b) over seeds: with iid features, P(|o~ - o| > 2 v sqrt(2 / (m alpha))) <= alpha once m >= 8 rho ln(2/alpha),
 * which falls as m^(-1/2). At alpha = 0.1 more than 17 of 30 failures have a chance below 1e-10. Both zeros and the
 * mean of V are further off than the bound at the largest m, on this input. */
Test(core_draws, performer_error_falls_with_features) {
  enum { KEYS = 24, SEEDS = 30 };
  static const int features[] = {1024, 4096, 16384};
  attn_problem p = shape_problem((case_shape){1, 1, 1, 1, KEYS, D, 1, false, false}, ATTN_F64);
  p.scale = 1;
  inputs in = inputs_make(&p, false, 77, 0.45);
  double w[KEYS], v[KEYS], o = 0, den = 0, mean = 0, rho = 0, v2 = 0, xx = 0;
  for (int l = 0; l < D; l++) xx += pow(inputs_get(&in, TENSOR_Q, 0, 0, 0, l), 2);
  for (int j = 0; j < KEYS; j++) {
    double s = 0;
    for (int l = 0; l < D; l++)
      s += inputs_get(&in, TENSOR_Q, 0, 0, 0, l) * inputs_get(&in, TENSOR_K, 0, 0, j, l);
    w[j] = exp(s);
    inputs_set(&in, TENSOR_V, 0, 0, j, 0,
               2 + s); /* values follow the scores: the mean of V is wrong by design */
    v[j] = 2 + s;
    den += w[j];
    o += w[j] * v[j];
    mean += v[j] / KEYS;
  }
  o /= den;
  for (int i = 0; i < KEYS; i++)
    for (int j = 0; j < KEYS; j++) {
      double yy = 0;
      for (int l = 0; l < D; l++)
        yy += inputs_get(&in, TENSOR_K, 0, 0, i, l) * inputs_get(&in, TENSOR_K, 0, 0, j, l);
      double g = exp(xx + yy) * w[i] * w[j] * w[i] * w[j] / (den * den);
      rho += g;
      v2 += g * (v[i] - o) * (v[j] - o);
    }
  double alpha = 0.1;
  for (size_t k = 0; k < sizeof features / sizeof *features; k++) {
    double m = features[k], bound = 2 * sqrt(2 * v2 / (m * alpha));
    int failed = 0;
    cr_assert(m >= 8 * rho * log(2 / alpha), "rho %g", rho);
    for (int seed = 0; seed < SEEDS; seed++) {
      char spec[96];
      snprintf(spec, sizeof spec, "performer:features=%d,orthogonal=no,seed=%d", features[k], seed);
      double *got = run_spec(spec, NULL, &in);
      failed += !(got && fabs(got[0] - o) <= bound);
      free(got);
    }
    note_context("%d features", features[k]);
    EXPECT(failed <= 17);
    if (k == 2) EXPECT(fabs(o) > bound && fabs(mean - o) > bound);
  }
  inputs_free(&in);
  cr_assert(failures_noted() == 0);
}

/* -- linformer -- */

enum { K = 8, N = 32 };

/* E or F of a head [K, N] as the projection makes it of the identity, in fp64. */
static void projection_of(const char *settings, int64_t n, tensor side, int64_t head, double *e) {
  char spec[128];
  snprintf(spec, sizeof spec, "linformer:k=%d,%s", K, settings);
  attn_problem p = shape_problem((case_shape){1, 2, 2, 4, n, n, n, false, false}, ATTN_F64);
  attn_plan *plan = plan_or_note(&p, spec, NULL);
  cr_assert_not_null(plan);
  attn_view view;
  attn_plan_inspect(plan, &view);
  const attn_projection *x = view.projection;
  const attn_context *c = attn_plan_context(plan);
  double *identity = calloc((size_t)(n * n), sizeof *identity);
  void *scratch = aligned_alloc(64, x->scratch(x->state, c, n) / 64 * 64 + 64);
  cr_assert(identity && scratch);
  for (int64_t i = 0; i < n; i++) identity[i * n + i] = 1;
  EXPECT(x->project(x->state, c, head, side == TENSOR_K ? ATTN_KEY : ATTN_VALUE, identity, n, n, n, e,
                    scratch) == K);
  free(identity);
  free(scratch);
  attn_plan_destroy(plan);
}

static double row_product(const double *e, int64_t n, int64_t a, int64_t b) {
  double sum = 0;
  for (int64_t j = 0; j < n; j++) sum += e[a * n + j] * e[b * n + j];
  return sum;
}

static bool same_matrix(const double *a, const double *b) {
  for (int k = 0; k < K * N; k++)
    if (!(a[k] <= b[k] && a[k] >= b[k])) return false;
  return true;
}

Test(core_draws, linformer_sharing) {
  static const char *const kinds[] = {"gaussian", "rademacher", "srht", "dct"};
  for (int kind = 0; kind < 4; kind++)
    for (int share = 0; share < 2; share++)
      for (int heads = 0; heads < 2; heads++) {
        double e[K * N], f[K * N], e1[K * N], other[K * N];
        char settings[96];
        snprintf(settings, sizeof settings, "projection=%s,share=%s,share_heads=%s,seed=3", kinds[kind],
                 share ? "kv" : "none", heads ? "yes" : "no");
        note_context("%s", settings);
        projection_of(settings, N, TENSOR_K, 0, e);
        projection_of(settings, N, TENSOR_V, 0, f);
        projection_of(settings, N, TENSOR_K, 1, e1);
        EXPECT(same_matrix(e, f) == (share == 1));
        EXPECT(same_matrix(e, e1) == (heads == 1));
        snprintf(settings, sizeof settings, "projection=%s,share=%s,share_heads=%s,seed=4", kinds[kind],
                 share ? "kv" : "none", heads ? "yes" : "no");
        projection_of(settings, N, TENSOR_K, 0, other);
        EXPECT(!same_matrix(e, other));
      }
  cr_assert(failures_noted() == 0);
}

/* Entries: +-1/sqrt(k) rounded to fp32 (rademacher), +-1/sqrt(k) by the transform (srht). Rows: orthogonal with
 * squares N/k where the transform has N columns, within N roundings. */
Test(core_draws, linformer_entries) {
  double e[K * N], entry = 1 / sqrt(K);
  projection_of("projection=rademacher", N, TENSOR_K, 0, e);
  for (int k = 0; k < K * N; k++) EXPECT(fabs(fabs(e[k]) - entry) <= entry * 0x1p-24);
  static const char *const transforms[] = {"projection=srht", "projection=dct"};
  for (int t = 0; t < 2; t++) {
    note_context("%s", transforms[t]);
    projection_of(transforms[t], N, TENSOR_K, 0, e);
    for (int a = 0; a < K; a++)
      for (int b = 0; b < K; b++)
        EXPECT(fabs(row_product(e, N, a, b) - (a == b ? (double)N / K : 0)) <=
               (double)N / K * (N + 16) * 0x1p-52);
    for (int k = 0; t == 0 && k < K * N; k++) EXPECT(fabs(fabs(e[k]) - entry) <= entry * 16 * 0x1p-52);
  }
  cr_assert(failures_noted() == 0);
}

/* srht on 20 keys: the transform of order 32 with the columns of absent keys left out, not rescaled. */
Test(core_draws, linformer_srht_of_other_lengths) {
  double e[K * 20], entry = 1 / sqrt(K);
  projection_of("projection=srht", 20, TENSOR_V, 0, e);
  for (int k = 0; k < K * 20; k++) EXPECT(fabs(fabs(e[k]) - entry) <= entry * 16 * 0x1p-52);
  cr_assert(failures_noted() == 0);
}

/* Each row of dct is a row of the DCT-II up to the sign of each column; signs agree between rows. */
Test(core_draws, linformer_dct_is_the_dct) {
  double e[K * N], signs[N] = {0};
  projection_of("projection=dct,seed=2", N, TENSOR_K, 0, e);
  for (int a = 0; a < K; a++) {
    int found = -1;
    for (int i = 0; i < N && found < 0; i++) {
      bool fits = true;
      for (int j = 0; j < N; j++) {
        double c = cos(3.141592653589793 * (2 * j + 1) * i / (2.0 * N)) * sqrt((i ? 2.0 : 1.0) / K);
        double sign = e[a * N + j] * c < 0 ? -1 : 1;
        fits &= fabs(fabs(e[a * N + j]) - fabs(c)) <= (N + 16) * 0x1p-52;
        if (fits && fabs(c) > 1e-9 && signs[j] * sign < 0) fits = false;
      }
      if (fits) found = i;
    }
    if (found < 0) note_failure("row %d is no row of the transform", a);
    for (int j = 0; j < N && found >= 0; j++) {
      double c = cos(3.141592653589793 * (2 * j + 1) * found / (2.0 * N));
      if (fabs(c) > 1e-9) signs[j] = e[a * N + j] * c < 0 ? -1 : 1;
    }
  }
  cr_assert(failures_noted() == 0);
}

/* N(0, 1/k): the mean of N k squares has deviation sqrt(2/(N k)) of its mean; 6 of them are a chance of 1e-7 or so
 * (the tail of chi^2_256). Fourth moment 3, deviation sqrt(96/(N k)). Odd moments vanish. */
Test(core_draws, linformer_gaussian_moments) {
  double e[K * N], mean = 0, square = 0, fourth = 0, count = K * N;
  projection_of("projection=gaussian,seed=11", N, TENSOR_K, 0, e);
  for (int k = 0; k < K * N; k++) {
    double x = e[k] * sqrt(K);
    mean += x / count;
    square += x * x / count;
    fourth += x * x * x * x / count;
  }
  EXPECT(fabs(mean) <= 6 / sqrt(count));
  EXPECT(fabs(square - 1) <= 6 * sqrt(2 / count));
  EXPECT(fabs(fourth - 3) <= 6 * sqrt(96 / count));
  cr_assert(failures_noted() == 0);
}

/* Means of consecutive, nearly equal blocks that cover every key once. */
Test(core_draws, linformer_pool_blocks) {
  static const int64_t lengths[] = {8, 9, 15, 16, 29, 32};
  for (size_t t = 0; t < sizeof lengths / sizeof *lengths; t++) {
    int64_t n = lengths[t], next = 0;
    double e[K * N];
    note_context("pool of %d", (int)n);
    projection_of("projection=pool", n, TENSOR_V, 0, e);
    for (int a = 0; a < K; a++) {
      int64_t count = 0;
      while (next + count < n && e[a * n + next + count] > 0) count++;
      EXPECT(count == n / K || count == n / K + 1);
      for (int64_t j = 0; j < n; j++) {
        double want = j >= next && j < next + count ? 1 / (double)count : 0;
        EXPECT(fabs(e[a * n + j] - want) <= want * 4 * 0x1p-53);
      }
      next += count;
    }
    EXPECT(next == n);
  }
  cr_assert(failures_noted() == 0);
}

/* -- the generator -- */

Test(core_draws, streams) {
  attn_rng a, b;
  enum { DRAWS = 100000 };
  attn_rng_init(&a, 1, 2, 3);
  attn_rng_init(&b, 1, 2, 3);
  for (int k = 0; k < 100; k++) EXPECT(attn_rng_bits(&a) == attn_rng_bits(&b));
  static const uint64_t others[][3] = {{2, 2, 3}, {1, 3, 3}, {1, 2, 4}, {3, 2, 1}, {2, 1, 3}};
  for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
    int equal = 0;
    attn_rng_init(&a, 1, 2, 3);
    attn_rng_init(&b, others[k][0], others[k][1], others[k][2]);
    for (int t = 0; t < 100; t++) equal += attn_rng_bits(&a) == attn_rng_bits(&b);
    EXPECT(equal == 0);
  }
  double mean = 0, square = 0, uniform = 0;
  int counts[7] = {0};
  for (int k = 0; k < DRAWS; k++) {
    double x = attn_rng_normal(&a), u = attn_rng_uniform(&a);
    int64_t below = attn_rng_below(&a, 7);
    mean += x / DRAWS;
    square += x * x / DRAWS;
    uniform += u / DRAWS;
    EXPECT(u > 0 && u < 1 && below >= 0 && below < 7);
    counts[below]++;
  }
  /* Six deviations each. */
  EXPECT(fabs(mean) <= 6 / sqrt(DRAWS) && fabs(square - 1) <= 6 * sqrt(2.0 / DRAWS));
  EXPECT(fabs(uniform - 0.5) <= 6 * sqrt(1.0 / 12 / DRAWS));
  for (int k = 0; k < 7; k++) EXPECT(fabs(counts[k] - DRAWS / 7.0) <= 6 * sqrt(DRAWS * 6.0 / 49));
  EXPECT(attn_rng_below(&a, 1) == 0);
  cr_assert(failures_noted() == 0);
}
