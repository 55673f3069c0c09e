/* power.c - the laws of the datasets that give checks their power, each computed from the tensors alone. */
#include "tests/support/data_fixture.h"

#include <gsl/gsl_multifit.h>

TestSuite(data_power, .init = fixture_begin, .fini = fixture_end);

Test(data_power, flat_scores_are_equal_bit_by_bit_though_keys_differ) {
  enum { N = 50, D = 24, HEADS = 4 };
  const data_request r = {1, HEADS, 2, 20, N, D, 8, ATTN_F32, 5};
  data_qkv m = source_make("flat:std=3", &r);
  double square = 0;
  for (int h = 0; h < HEADS; h++)
    for (int i = 0; i < 20; i++) {
      const float *q = source_row(m.q, 20, D, h, i);
      const double score = source_dot(q, source_row(m.k, N, D, h / 2, 0), D);
      for (int j = 1; j < N; j++) cr_assert_eq(source_dot(q, source_row(m.k, N, D, h / 2, j), D), score);
      square += score * score / D;
    }
  /* Chi-square of 80 numbers, within five deviations. */
  cr_expect(fabs(square / (9 * HEADS * 20) - 1) <= 5 * sqrt(2.0 / (HEADS * 20)), "%g", square);
  for (int j = 1; j < N; j++)
    cr_assert(memcmp(source_row(m.k, N, D, 0, j), source_row(m.k, N, D, 0, j - 1), 4) != 0, "keys differ");
}

Test(data_power, peaked_scores_are_those_of_one_channel_and_exponential) {
  enum { N = 2048, D = 64, HEADS = 8, STD = 2 };
  const data_request r = source_request(HEADS, HEADS, N, D);
  data_qkv m = source_make("peaked:std=2", &r);
  int seen[D] = {0};
  for (int i = 0; i < N; i++) {
    const float *q = source_row(m.q, N, D, 3, i);
    int channel = -1;
    for (int j = 0; j < D; j++)
      if (q[j] != 0) {
        cr_assert_eq(channel, -1, "two channels");
        channel = j;
      }
    cr_assert(channel >= 0 && (double)q[channel] == STD * 8);
    seen[channel]++;
  }
  /* Multinomial counts of mean 32, each within six deviations. */
  for (int j = 0; j < D; j++) cr_expect(fabs(seen[j] - 32.0) <= 6 * sqrt(32), "channel %d: %d", j, seen[j]);

  /* The quarters of E ~ Exp(1), and the sum of squared weights of every column of scores. */
  double quarter[4] = {0}, squares = 0;
  for (int h = 0; h < HEADS; h++)
    for (int l = 0; l < D; l++) {
      double sum = 0, square = 0;
      for (int j = 0; j < N; j++) {
        const double e = (double)source_row(m.k, N, D, h, j)[l] + 1, weight = exp(STD * e);
        cr_assert(e >= 0);
        quarter[(int)(4 * -expm1(-e)) & 3]++;
        sum += weight;
        square += weight * weight;
      }
      squares += square / (sum * sum);
    }
  const double all = (double)N * D * HEADS;
  for (int c = 0; c < 4; c++)
    cr_expect(fabs(quarter[c] - all / 4) <= 5 * sqrt(all * 3 / 16), "quarter %d: %g", c, quarter[c]);
  /* A mean of 512 numbers in [0, 1], hence of deviation at most 1/2 each. */
  const double error = squares / (D * HEADS) - (1 - 1.0 / STD);
  cr_expect(fabs(error) <= 5 * 0.5 / sqrt(D * HEADS), "%g", error);
}

Test(data_power, duplicate_keys_repeat_and_nothing_else_does) {
  enum { N = 50, D = 8, DISTINCT = 12 };
  const data_request r = {2, 4, 2, 20, N, D, D, ATTN_F32, 5};
  data_qkv m = source_make("duplicate:distinct=12", &r);
  for (int h = 0; h < 4; h++)
    for (int i = 0; i < N; i++)
      for (int j = 0; j < i; j++) {
        const bool equal = memcmp(source_row(m.k, N, D, h, i), source_row(m.k, N, D, h, j), D * 4) == 0;
        cr_assert_eq(equal, (i - j) % DISTINCT == 0, "keys %d and %d", i, j);
        cr_assert(memcmp(source_row(m.v, N, D, h, i), source_row(m.v, N, D, h, j), 4) != 0,
                  "values are each its own");
      }
}

Test(data_power, outlier_channels_are_large_and_leave_the_scores_of_gaussian) {
  enum { N = 40, D = 16, HEADS = 4, CHANNELS = 3 };
  const data_request r = {1, HEADS, 2, 20, N, D, D, ATTN_F32, 5};
  data_qkv m = source_make("outlier:channels=3,factor=32", &r), plain = source_make("gaussian", &r);
  bool large[2][D];
  for (int h = 0; h < 2; h++) {
    int count = 0;
    for (int l = 0; l < D; l++) {
      large[h][l] = source_row(m.k, N, D, h, 0)[l] == 32 * source_row(plain.k, N, D, h, 0)[l];
      count += large[h][l];
      for (int j = 0; j < N; j++)
        cr_assert_eq(source_row(m.k, N, D, h, j)[l],
                     (large[h][l] ? 32 : 1) * source_row(plain.k, N, D, h, j)[l]);
    }
    cr_assert_eq(count, CHANNELS);
  }
  cr_assert(memcmp(large[0], large[1], sizeof large[0]) != 0, "heads have channels of their own");
  for (int h = 0; h < HEADS; h++)
    for (int i = 0; i < 20; i++)
      for (int j = 0; j < N; j++)
        cr_assert_eq(source_dot(source_row(m.q, 20, D, h, i), source_row(m.k, N, D, h / 2, j), D),
                     source_dot(source_row(plain.q, 20, D, h, i), source_row(plain.k, N, D, h / 2, j), D));
  cr_assert_arr_eq(m.v, plain.v, 2 * N * D * 4);
}

Test(data_power, outlier_channels_are_drawn_alike) {
  /* 2000 heads and 2 of 5 channels: each is large in 800, within five deviations of a binomial. */
  const data_request r = {1, 2000, 2000, 1, 1, 5, 1, ATTN_F32, 5};
  data_qkv m = source_make("outlier:channels=2", &r), plain = source_make("gaussian", &r);
  for (int l = 0; l < 5; l++) {
    int count = 0;
    for (int h = 0; h < 2000; h++)
      count += source_row(m.k, 1, 5, h, 0)[l] != source_row(plain.k, 1, 5, h, 0)[l];
    cr_expect(abs(count - 800) <= 5 * sqrt(2000 * 0.24), "channel %d: %d", l, count);
  }
}

/* The key at the smallest distance from q / length, and that distance. */
static int nearest(const float *q, double length, const data_qkv *m, int64_t head, double *distance) {
  int best = -1;
  for (int j = 0; j < m->n_kv; j++) {
    const float *k = source_row(m->k, m->n_kv, m->d_qk, head, j);
    double square = 0;
    for (int64_t l = 0; l < m->d_qk; l++) {
      const double from = (double)q[l] / length - (double)k[l];
      square += from * from;
    }
    if (sqrt(square) < *distance) {
      best = j;
      *distance = sqrt(square);
    }
  }
  return best;
}

Test(data_power, hopfield_queries_stand_near_a_visible_pattern) {
  enum { N_Q = 60, N_KV = 90, D = 16, HEADS = 4 };
  const data_request r = {1, HEADS, 2, N_Q, N_KV, D, D, ATTN_F32, 5};
  data_qkv m = source_make("hopfield:beta=30,noise=0.25", &r);
  cr_assert_arr_eq(m.k, m.v, 2 * N_KV * D * 4);
  for (int h = 0; h < 2; h++)
    for (int j = 0; j < N_KV; j++) {
      const float *k = source_row(m.k, N_KV, D, h, j);
      /* Every channel is rounded once: |x|^2 moves by 2 * 2^-24, and the second order. */
      cr_assert(fabs(source_dot(k, k, D) - 1) <= 0x1p-22);
    }
  double place = 0;
  for (int h = 0; h < HEADS; h++)
    for (int i = 0; i < N_Q; i++) {
      double distance = (double)INFINITY;
      const int t = nearest(source_row(m.q, N_Q, D, h, i), 30 * 4, &m, h / 2, &distance);
      cr_assert(t <= i + N_KV - N_Q, "query %d: pattern %d", i, t);
      /* Rounding of q, whose length is at most 1.25 beta sqrt(d). */
      cr_assert(fabs(distance - 0.25) <= 1.25 * 0x1p-23, "%.10g", distance);
      place += (t + 0.5) / (i + N_KV - N_Q + 1) - 0.5;
    }
  /* Uniform: variance 1/12 at most. */
  cr_expect(fabs(place / (HEADS * N_Q)) <= 5 * sqrt(1.0 / 12 / (HEADS * N_Q)));
}

/* The residual of y = X c, y and the rows of X read from f32 tensors, in units of |y|. */
static double residual(const float *y, int64_t step, const float *x, int n, int d) {
  gsl_matrix *a = gsl_matrix_alloc((size_t)n, (size_t)d),
             *covariance = gsl_matrix_alloc((size_t)d, (size_t)d);
  gsl_vector *b = gsl_vector_alloc((size_t)n), *c = gsl_vector_alloc((size_t)d);
  gsl_multifit_linear_workspace *work = gsl_multifit_linear_alloc((size_t)n, (size_t)d);
  double square = 0, norm = 0;
  for (int i = 0; i < n; i++) {
    gsl_vector_set(b, (size_t)i, (double)y[i * step]);
    norm += (double)y[i * step] * (double)y[i * step];
    for (int j = 0; j < d; j++) gsl_matrix_set(a, (size_t)i, (size_t)j, (double)x[i * d + j]);
  }
  cr_assert_eq(gsl_multifit_linear(a, b, c, covariance, &square, work), 0);
  gsl_multifit_linear_free(work);
  gsl_matrix_free(a);
  gsl_matrix_free(covariance);
  gsl_vector_free(b);
  gsl_vector_free(c);
  return sqrt(square / norm);
}

Test(data_power, gat_scores_are_sums_of_two_products_with_the_nodes) {
  enum { N = 60, D = 4, D_V = 7, HEADS = 4, N_Q = 40 };
  data_request r = {1, HEADS, 2, N, N, D, D_V, ATTN_F32, 5};
  data_qkv m = source_make("gat:std=3", &r);
  double square = 0;
  for (int h = 0; h < HEADS; h++) {
    const float *q = source_row(m.q, N, D, h, 0), *k = source_row(m.k, N, D, h / 2, 0),
                *v = source_row(m.v, N, D_V, h / 2, 0);
    for (int i = 0; i < N; i++) {
      cr_assert(q[i * D + 1] == 2 && q[i * D + 2] == 0 && q[i * D + 3] == 0, "(alpha, 1, 0, 0) sqrt(4)");
      cr_assert(k[i * D] == 1 && k[i * D + 2] == 0 && k[i * D + 3] == 0, "(1, beta, 0, 0)");
    }
    /* A combination of the node's features up to its rounding, 2^-24 of each element. */
    cr_assert(residual(q, D, v, N, D_V) <= 0x1p-24);
    cr_assert(residual(k + 1, D, v, N, D_V) <= 0x1p-24);
    /* Query heads of a group have vectors of their own, and so have queries and keys. */
    if (h % 2) cr_assert(fabsf(q[0] - q[-N * D]) > 0.01F);
    cr_assert(fabsf(q[0] / 2 - k[1]) > 0.01F);
    for (int i = 0; i < N; i++) square += (double)q[i * D] * (double)q[i * D] / 4;
  }
  /* |a|^2 is std^2 chi-square(7) / 7, in four heads; given it, 60 numbers each: five deviations. */
  cr_expect(fabs(square / (9 * HEADS * N) - 1) <= 5 * sqrt(2.0 / (D_V * HEADS) + 2.0 / (HEADS * N)));
  /* Fewer queries are the last nodes. */
  r.n_q = N_Q;
  data_qkv cross = source_make("gat:std=3", &r);
  for (int h = 0; h < HEADS; h++)
    cr_assert_arr_eq(source_row(cross.q, N_Q, D, h, 0), source_row(m.q, N, D, h, N - N_Q), N_Q * D * 4);
}

Test(data_power, a_needle_with_a_gap_leads_by_just_that) {
  enum { HEADS = 4, D = 16, N_Q = 100, N_KV = 130 };
  const data_request r = {1, HEADS, 2, N_Q, N_KV, D, D, ATTN_F32, 3};
  data_qkv m = source_make("needle:distance=17,gap=5,std=2", &r);
  for (int h = 0; h < HEADS; h++)
    for (int i = 0; i < N_Q; i++) {
      const int target = (i + N_KV - N_Q - 17 + N_KV) % N_KV;
      const float *q = source_row(m.q, N_Q, D, h, i);
      double best = -(double)INFINITY;
      for (int j = 0; j < N_KV; j++)
        if (j != target) best = fmax(best, source_dot(q, source_row(m.k, N_KV, D, h / 2, j), D));
      const double gap = (source_dot(q, source_row(m.k, N_KV, D, h / 2, target), D) - best) / sqrt(D);
      /* Rounding of q, 2^-24 |q|, times |k_t - k_j| of at most 2 sqrt(d). */
      cr_assert(fabs(gap - 5) <= 0x1p-22 * sqrt(source_dot(q, q, D)), "query %d: %.9g", i, gap);
    }
}
