/* lsh_tail.c - the variant lsh_tail: keys that others own or a bias hides, vectors without a direction, and
 * settings at which it is exact attention. What is kept, and with which weights, is for LAW-1 to LAW-5
 * (experiments/checks). */
#include "tests/variants/samples.h"

enum { N_Q = 41, N_KV = 90, D = 16 };

/* Keys that others own change nothing but that they are not taken. */
Test(variants_lsh_tail, keys_that_others_own_are_left_to_them) {
  inputs in = inputs_shaped((case_shape){1, 1, 1, N_Q, N_KV, D, 7, true, false}, ATTN_F32, 23, 1);
  sampler x = sampler_of("lsh_tail:k=2,l=4,window=5", &in);
  attn_run runs[] = {{0, 20, 1}, {40, 3, 1}, {83, 5, 1}};
  const attn_picks owned = {.max_runs = 3, .runs = runs, .counts = (int64_t[]){3}};
  double free_weights[N_KV], weights[N_KV];
  int left = 0, taken = 0;
  sample_weights(&x, 0, 0, 35, NULL, free_weights);
  sample_weights(&x, 0, 0, 35, &owned, weights);
  for (int64_t j = 0; j < N_KV; j++) {
    const bool own = j < 20 || (j >= 40 && j < 43) || (j >= 83 && j < 88);
    left += own && free_weights[j] > 0;
    taken += weights[j] > 0;
    if (fabs(weights[j] - (own ? 0 : free_weights[j])) > 0)
      note_failure("key %d has the weight %g", (int)j, weights[j]);
  }
  EXPECT(left > 5 && taken > 5);
  sampler_free(&x);
}

/* The moments, and weights, of three keys in a plane before a query (q, 0). */
static void expect_moments(const char *spec, double q, const double at[3][2], const double want[9],
                           double weights[3]) {
  attn_problem p = attn_problem_make(1, 1, 3, 2);
  p.n_q = 1;
  p.dtype = ATTN_F64;
  inputs in = inputs_make(&p, false, 7, 1);
  for (int64_t l = 0; l < 2; l++) {
    inputs_set(&in, TENSOR_Q, 0, 0, 0, l, l == 0 ? q : 0);
    for (int64_t j = 0; j < 3; j++) inputs_set(&in, TENSOR_K, 0, 0, j, l, at[j][l]);
  }
  sampler x = sampler_of(spec, &in);
  double m[9];
  x.view.selector->moments(x.view.selector->state, &(attn_query){.call = &x.call}, (int64_t[]){0, 1, 2}, 3,
                           m);
  for (int a = 0; a < 9; a++)
    if (!(fabs(m[a] - want[a]) < 1e-12)) note_failure("moment %d is %g", a, m[a]);
  sample_weights(&x, 0, 0, 0, NULL, weights);
  sampler_free(&x);
}

/* Three vectors by angles in a plane: all have one sign but where a line cuts between them. */
Test(variants_lsh_tail, vectors_of_no_length_are_at_right_angles) {
  const double at[3][2] = {{1, 0}, {0, 0}, {0, 2}}, want[9] = {1, 1, 1, 1, 2, 1, 1, 1, 2};
  double weights[3];
  expect_moments("lsh_tail:k=1,l=1,hits=1,centre=no,window=0", 1, at, want, weights);
}

/* Both have the sign + everywhere; another vector meets a query of no length as often as it meets any
 * direction. */
Test(variants_lsh_tail, two_vectors_of_no_length_always_meet) {
  const double at[3][2] = {{0, 0}, {1, 0}, {-0.0, 0}}, want[9] = {1, 1, 1, 1, 4, 1, 1, 1, 1};
  double weights[3];
  expect_moments("lsh_tail:k=2,l=1,hits=1,centre=no,window=0", 0, at, want, weights);
  EXPECT(fabs(weights[0] - 1) < 1e-12 && fabs(weights[2] - 1) < 1e-12);
}

/* Less their mean they are 0, not what rounding leaves, which may be opposite to every query. */
Test(variants_lsh_tail, keys_all_alike_have_no_direction) {
  for (int64_t n = 2; n < 60; n++) {
    attn_problem p = attn_problem_make(1, 1, n, 3);
    p.n_q = 1;
    p.dtype = ATTN_F64;
    inputs in = inputs_make(&p, false, 7, 1);
    for (int64_t l = 0; l < 3; l++) {
      inputs_set(&in, TENSOR_Q, 0, 0, 0, l, 1);
      for (int64_t j = 0; j < n; j++) inputs_set(&in, TENSOR_K, 0, 0, j, l, 0.1 + 0.7 * (double)n);
    }
    sampler x = sampler_of("lsh_tail:k=2,l=1,hits=1,window=0", &in);
    double m;
    x.view.selector->moments(x.view.selector->state, &(attn_query){.call = &x.call}, (int64_t[]){1}, 1, &m);
    if (!(fabs(m - 4) < 1e-12)) note_failure("of %d keys: moment %g", (int)n, m);
    sampler_free(&x);
    inputs_free(&in);
  }
}

Test(variants_lsh_tail, more_hits_than_tables_are_refused) {
  attn_problem p = attn_problem_make(1, 1, 4, 4);
  expect_no_plan(&p, "lsh_tail:l=1,hits=2", ATTN_EINVAL, "hits = 2 > l = 1");
  expect_no_plan(&p, "lsh_tail:hits=3", ATTN_EINVAL, "");
}

Test(variants_lsh_tail, no_signs_are_exact_attention) { expect_exact_bits("lsh_tail:k=0"); }

/* The window's keys are those that the query sees: with one of them a row has weights that add up to 1. */
Test(variants_lsh_tail, a_window_counts_no_hidden_keys) {
  enum { N_KEYS = 24 };
  attn_problem p = attn_problem_make(1, 1, N_KEYS, 4);
  p.causal = true;
  double bias[N_KEYS * N_KEYS];
  for (int64_t at = 0; at < N_KEYS * N_KEYS; at++) bias[at] = at % N_KEYS % 3 ? -(double)INFINITY : 0;
  p.score.dense = (attn_bias){.at = bias, .dtype = ATTN_F64, .row = N_KEYS};
  inputs in = inputs_make(&p, false, 7, 1);
  for (int64_t i = 0; i < N_KEYS * 4; i++) attn_set(in.v, i, p.dtype, 1);
  /* Hardly any key is hit by chance. */
  static const char *const specs[] = {"lsh_tail:k=32,l=1,window=2", "lsh:rounds=1,buckets=4096,window=2"};
  for (size_t s = 0; s < 2; s++) {
    attn_plan *plan = plan_or_note(&p, specs[s], NULL);
    float *o = run_plain(plan, &in);
    for (int64_t i = 0; i < N_KEYS; i++)
      if (!(fabsf(o[i * 4] - 1) < 1e-6F))
        note_failure("%s, row %d: weights add up to %g", specs[s], (int)i, (double)o[i * 4]);
    attn_plan_destroy(plan);
    free(o);
  }
}
