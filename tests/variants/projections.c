/* projections.c - what linformer draws, seen through attn_view: the entries that its projections' names
 * promise; and the generator below all draws. */
#include "tests/support/core.h"

enum { K = 8, N = 32 };

/* E or F of a head [K, N] as the projection makes it of the identity, in fp64. */
static void projection_of(const char *settings, int64_t n, tensor side, int64_t head, double *e) {
  char spec[128];
  snprintf(spec, sizeof spec, "linformer:k=%d,%s", K, settings);
  attn_problem p = shape_problem((case_shape){1, 2, 2, 4, n, n, n, false, false}, ATTN_F64);
  attn_view view;
  attn_plan *plan = plan_inspected(&p, spec, NULL, &view);
  const attn_projection *x = view.projection;
  const attn_context *c = attn_plan_context(plan);
  double *identity = calloc((size_t)(n * n), sizeof *identity);
  void *scratch = aligned_alloc(64, x->scratch / 64 * 64 + 64);
  cr_assert(identity && scratch);
  for (int64_t i = 0; i < n; i++) identity[i * n + i] = 1;
  attn_slab slab = {.head = head,
                    .side = side == TENSOR_K ? ATTN_KEY : ATTN_VALUE,
                    .x = identity,
                    .x_row = n,
                    .rows = n,
                    .d = n,
                    .y = e,
                    .y_row = n};
  EXPECT(x->project(x->state, c, &slab, scratch) == K);
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

Test(variants_projections, linformer_sharing) {
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
}

/* Entries: +-1/sqrt(k) rounded to fp32 (rademacher), +-1/sqrt(k) by the transform (srht). Rows: orthogonal
 * with squares N/k where the transform has N columns, within N roundings. */
Test(variants_projections, linformer_entries) {
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
}

/* srht on 20 keys: the transform of order 32 with the columns of absent keys left out, not rescaled. */
Test(variants_projections, linformer_srht_of_other_lengths) {
  double e[K * 20], entry = 1 / sqrt(K);
  projection_of("projection=srht", 20, TENSOR_V, 0, e);
  for (int k = 0; k < K * 20; k++) EXPECT(fabs(fabs(e[k]) - entry) <= entry * 16 * 0x1p-52);
}

/* Each row of dct is a row of the DCT-II up to the sign of each column; signs agree between rows, and are
 * fair coins: 4 or fewer of 32 alike are a chance of 2e-5. */
Test(variants_projections, linformer_dct_is_the_dct) {
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
  double sum = 0;
  for (int j = 0; j < N; j++) sum += signs[j];
  EXPECT(fabs(sum) < N - 8);
}

/* N(0, 1/k): the mean of N k squares has deviation sqrt(2/(N k)) of its mean; 6 of them are a chance of 1e-7
 * or so (the tail of chi^2_256). Fourth moment 3, deviation sqrt(96/(N k)). Odd moments vanish. */
Test(variants_projections, linformer_gaussian_moments) {
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
}

/* Means of consecutive, nearly equal blocks that cover every key once. */
Test(variants_projections, linformer_pool_blocks) {
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
}

/* Sequences of several slices, cut into parts and, for transforms and pooling, blocks of columns: the parts'
 * sums are the projection of the whole, for any number of threads. */
Test(variants_projections, linformer_parts) {
  static const char *const specs[] = {"linformer:k=20", "linformer:k=20,share=none,share_heads=no",
                                      "linformer:k=20,projection=dct", "linformer:k=20,projection=srht",
                                      "linformer:k=20,projection=pool"};
  static const case_shape shapes[] = {{1, 1, 1, 5, 1025, 17, 35, false, false},
                                      {2, 4, 2, 5, 1100, 6, 20, false, true}};
  for (size_t k = 0; k < sizeof specs / sizeof *specs; k++)
    for (size_t t = 0; t < sizeof shapes / sizeof *shapes; t++)
      for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F64; dtype++) {
        attn_problem p = shape_problem(shapes[t], dtype);
        inputs in = inputs_make(&p, shapes[t].padded, 3, 0.5);
        attn_plan *plan = plan_or_note(&p, specs[k], &(attn_options){.threads = 1});
        cr_assert_not_null(plan);
        note_context("%s of %d keys", specs[k], (int)p.n_kv);
        oracle expected = oracle_of_run(plan, &in);
        void *one = run_plain(plan, &in), *three = run_spec(specs[k], &(attn_options){.threads = 3}, &in);
        expect_within(&p, one, &expected, "parts");
        expect_same(&p, one, three, "three threads");
        oracle_free(&expected);
        free(one);
        free(three);
        attn_plan_destroy(plan);
        inputs_free(&in);
      }
}

/* -- the generator -- */

Test(variants_projections, streams) {
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
}

/* Normal draws in CELLS cells of equal probability: the sum of (count - mean)^2 / mean has mean CELLS - 1 and
 * deviation sqrt(2 (CELLS - 1)). Edges fall inside every layer of the ziggurat, and the outer cells lie in
 * its tail. */
Test(variants_projections, normal_cells) {
  enum { CELLS = 4000, DRAWS = 4000000 };
  static int counts[CELLS];
  attn_rng rng;
  attn_rng_init(&rng, 5, 6, 7);
  for (int k = 0; k < DRAWS; k++) {
    double u = erfc(-attn_rng_normal(&rng) / sqrt(2)) / 2;
    int cell = (int)(u * CELLS);
    counts[cell < CELLS ? cell : CELLS - 1]++;
  }
  double sum = 0, mean = (double)DRAWS / CELLS;
  for (int c = 0; c < CELLS; c++) sum += (counts[c] - mean) * (counts[c] - mean) / mean;
  if (!(fabs(sum - (CELLS - 1)) <= 6 * sqrt(2.0 * (CELLS - 1)))) note_failure("chi^2 is %g", sum);
}
