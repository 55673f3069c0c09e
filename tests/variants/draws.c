/* draws.c - what performer draws, seen through attn_view: random vectors with the angles, norms and signs of
 * FAV-3, kernels estimated without bias and with the published variance (FAV-1), outputs that converge
 * (FAV-4).
 *
 * Statistical tolerances: the median of K = 8 ln(1/alpha) group means of T draws has |median - mean| <= sigma
 * sqrt(32 ln(1/alpha) / T) with probability 1 - alpha (Chebyshev per group, Hoeffding on their count), with
 * the exact sigma and alpha = 1e-6 per test; the seeds are fixed, so a pass stays a pass. */
#include "tests/support/core.h"

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

/* One query, one key, fp64, scale 1. */
static attn_plan *plan_of_one(const char *spec, attn_view *view) {
  attn_problem p = shape_problem((case_shape){1, 1, 1, 1, 1, D, 1, false, false}, ATTN_F64);
  p.scale = 1;
  return plan_inspected(&p, spec, NULL, view);
}

/* (1/m) sum_r phi_r(x) phi_r(y) for one seed, in fp64, scale 1: x = q, y = k. */
static double estimate(const char *spec, const double *x, const double *y) {
  attn_view view;
  attn_plan *plan = plan_of_one(spec, &view);
  const attn_feature_map *map = view.features;
  const attn_context *c = attn_plan_context(plan);
  double fq[2 * FEATURES], fk[2 * FEATURES], sq, sk, sum = 0;
  cr_assert_leq(map->columns, 2 * FEATURES);
  map->map(map->state, c, &(attn_feature_rows){0, ATTN_QUERY, x, D, 0, 1}, fq, map->columns, &sq);
  map->map(map->state, c, &(attn_feature_rows){0, ATTN_KEY, y, D, 0, 1}, fk, map->columns, &sk);
  for (int64_t r = 0; r < map->columns; r++) sum += fq[r] * fk[r];
  attn_plan_destroy(plan);
  return exp(sq + sk) * sum;
}

/* -- the random vectors: w_r.x = (log phi_r(x) - log phi_r(-x)) / 2 for positive features, x along each
 * axis */

enum { ROWS = 12 }; /* a block of D and a part of one */

static void vectors_of(const char *settings, int seed, double w[ROWS][D]) {
  char spec[160];
  snprintf(spec, sizeof spec, "performer:features=%d,%s,seed=%d", ROWS, settings, seed);
  attn_view view;
  attn_plan *plan = plan_of_one(spec, &view);
  const attn_feature_map *map = view.features;
  const attn_context *c = attn_plan_context(plan);
  for (int l = 0; l < D; l++) {
    double x[2][D] = {{0}, {0}}, f[2 * ROWS], scale[2];
    x[0][l] = 1, x[1][l] = -1;
    map->map(map->state, c, &(attn_feature_rows){0, ATTN_KEY, x, D, 0, 2}, f, ROWS, scale);
    for (int r = 0; r < ROWS; r++) w[r][l] = (log(f[r]) + scale[0] - log(f[ROWS + r]) - scale[1]) / 2;
  }
  attn_plan_destroy(plan);
}

static double inner(const double *a, const double *b) {
  double sum = 0;
  for (int l = 0; l < D; l++) sum += a[l] * b[l];
  return sum;
}

/* Draws are rounded to fp32: 2^-24 for each factor, and D terms. */
Test(variants_draws, performer_vectors) {
  enum { DRAWS = 400 };
  int positive[ROWS][D] = {{0}}, blocks_apart = 0;
  double square = 0, count = DRAWS * ROWS;
  for (int t = 0; t < DRAWS; t++) {
    double w[ROWS][D], fixed[ROWS][D];
    vectors_of("orthogonal=yes", t, w);
    vectors_of("norm=sqrt_d", t, fixed);
    for (int r = 0; r < ROWS; r++) {
      square += inner(w[r], w[r]) / count;
      EXPECT(fabs(inner(fixed[r], fixed[r]) - D) <= 4 * D * 0x1p-24);
      for (int l = 0; l < D; l++) positive[r][l] += w[r][l] > 0;
      for (int s = 0; s < r; s++) {
        double cosine = fabs(inner(w[r], w[s])) / sqrt(inner(w[r], w[r]) * inner(w[s], w[s]));
        if (r / D == s / D)
          EXPECT(cosine <= 4 * D * 0x1p-24);
        else
          blocks_apart += cosine > 1e-3;
      }
    }
  }
  EXPECT(blocks_apart > DRAWS); /* blocks are independent, not orthogonal to one another */
  /* |w|^2 has mean D and variance 2 D; signs are fair coins: six deviations each. */
  EXPECT(fabs(square - D) <= 6 * sqrt(2 * D / count));
  for (int r = 0; r < ROWS; r++)
    for (int l = 0; l < D; l++)
      if (!(fabs(positive[r][l] - DRAWS / 2.0) <= 3 * sqrt(DRAWS)))
        note_failure("w[%d][%d] is positive in %d of %d draws", r, l, positive[r][l], DRAWS);
}

/* -- kernels -- */

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

/* x = y, Z = 1. */
Test(variants_draws, performer_positive) {
  double x[D] = {0.5}, y[D] = {0.5};
  double z = 1, a = exp(0.25), kappa2 = exp(-0.5), iid = kappa2 * (exp(2 * z) - exp(z)) / FEATURES;
  const expectation cases[] = {{"orthogonal=no", FEATURES, a, iid}, {"orthogonal=yes", FEATURES, a, iid}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) expect_mean(&cases[k], x, y);
}

/* Of weights exp(2a |w|^2), a optimal at Z = 1: E of the square of one product is (1-4a)^d (1-8a)^(-d/2)
 * exp(2 (1-4a) / (1-8a) Z) kappa^2. */
Test(variants_draws, performer_optimal) {
  double x[D] = {0.5}, y[D] = {0.5}, z = 1;
  double a = (D - 2 * z - sqrt((D + 2 * z) * (D + 2 * z) + 8 * D * z)) / (16 * D);
  double square = pow(1 - 4 * a, D) * pow(1 - 8 * a, -D / 2.0) * exp(2 * (1 - 4 * a) / (1 - 8 * a) * z);
  double iid = exp(-0.5) * (square - exp(z)) / FEATURES;
  const expectation cases[] = {{"kernel=optimal,z=1,orthogonal=no", FEATURES, exp(0.25), iid},
                               {"kernel=optimal,z=1,orthogonal=yes", FEATURES, exp(0.25), iid}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) expect_mean(&cases[k], x, y);
}

/* At z = 0 no vector is weighted: bitwise kernel=positive. */
Test(variants_draws, performer_optimal_at_zero) {
  static const char *const pairs[][2] = {
      {"performer:features=40,kernel=optimal,z=0", "performer:features=40"},
      {"performer:features=40,kernel=optimal,z=0,norm=sqrt_d,eps=1e-3",
       "performer:features=40,norm=sqrt_d,eps=1e-3"}};
  attn_problem p = shape_problem((case_shape){1, 2, 1, 60, 60, D, 5, true, false}, ATTN_F32);
  inputs in = inputs_make(&p, false, 3, 1);
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    float *got = run_spec(pairs[i][0], NULL, &in), *want = run_spec(pairs[i][1], NULL, &in);
    cr_assert(got && want);
    cr_assert_arr_eq(got, want, output_count(&p) * sizeof *got, "%s", pairs[i][0]);
    free(got);
    free(want);
  }
  inputs_free(&in);
}

Test(variants_draws, performer_even_kernels) {
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
}

/* Norms sqrt(d): the kernel SMREG = kappa 0F1(; d/2; d Z/4), smaller than the softmax kernel. */
Test(variants_draws, performer_fixed_norms) {
  double x[D] = {0.9}, y[D] = {0.9}, z = 3.24, sum = 1, term = 1;
  for (int k = 1; k < 60; k++) sum += term *= D * z / 4 / ((D / 2.0 + k - 1) * k);
  const expectation regular = {"norm=sqrt_d", FEATURES, exp(-0.81) * sum,
                               exp(-1.62) * (exp(2 * z) - exp(z)) / FEATURES};
  cr_assert(regular.mean < exp(0.81));
  expect_mean(&regular, x, y);
}

/* FAV-4(b) over seeds: with iid features, P(|o~ - o| > 2 v sqrt(2 / (m alpha))) <= alpha once m >= 8 rho
 * ln(2/alpha), which falls as m^(-1/2). At alpha = 0.1 more than 17 of 30 failures have a chance below 1e-10.
 * Both zeros and the mean of V are further off than the bound at the largest m, on this input. */
Test(variants_draws, performer_error_falls_with_features) {
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
}
