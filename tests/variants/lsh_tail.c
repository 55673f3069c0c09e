/* lsh_tail.c - the variant lsh_tail against its definition: tables in long double from the streams that its
 * head names, the weights from the formula, and what is drawn against the stated moments. */
#include "tests/variants/samples.h"

enum { BATCH = 2, HEADS = 4, N_Q = 41, N_KV = 90, D = 16, MOST_TABLES = 40 };

static const long double margin = 1e-3L, pi = 3.141592653589793238462643383279502884L;

/* The word of a vector in a table. *sure: no sign depends on rounding. */
static uint32_t word_of(const long double *x, uint64_t seed, int64_t table, int64_t k, bool *sure) {
  uint32_t word = 0;
  *sure = true;
  for (int64_t b = 0; b < k; b++) {
    long double y = 0;
    attn_rng rng;
    attn_rng_init(&rng, seed, 0x15b7a11, (uint64_t)(table << 32 | b));
    for (int64_t l = 0; l < D; l++) y += x[l] * (long double)(float)attn_rng_normal(&rng);
    word |= (uint32_t)(y >= 0) << b;
    *sure &= fabsl(y) > margin;
  }
  return word;
}

static long double angle_of(const long double *x, const long double *y) {
  long double xx = 0, xy = 0, yy = 0;
  for (int64_t l = 0; l < D; l++) xx += x[l] * x[l], xy += x[l] * y[l], yy += y[l] * y[l];
  return acosl(fmaxl(-1, fminl(1, xy / sqrtl(xx * yy))));
}

/* The chance of at least `hits` of l tables, from the chance that there are fewer. */
static long double chance_of(long double angle, int64_t k, int64_t l, int64_t hits) {
  const long double p = powl(1 - angle / pi, (long double)k), none = powl(1 - p, (long double)l);
  return hits == 1 ? 1 - none : 1 - none - (long double)l * p * powl(1 - p, (long double)(l - 1));
}

typedef struct setting {
  int64_t k, l, hits;
  bool centre;
  int64_t window;
} setting;

static void spec_of(const setting *s, int seed, char *to, size_t size) {
  snprintf(to, size, "lsh_tail:k=%d,l=%d,hits=%d,centre=%s,window=%d,seed=%d", (int)s->k, (int)s->l,
           (int)s->hits, s->centre ? "yes" : "no", (int)s->window, seed);
}

static void check_definition(setting s, attn_dtype t, bool causal) {
  attn_problem p = shape_problem((case_shape){BATCH, HEADS, 2, N_Q, N_KV, D, 7, causal, true}, t);
  inputs in = inputs_make(&p, true, 23, 1);
  char spec[96];
  spec_of(&s, 5, spec, sizeof spec);
  note_context("%s%s %s", spec, causal ? " causal" : "", t == ATTN_F64 ? "f64" : "f32");
  sampler x = sampler_of(spec, &in);
  int64_t keys[N_KV], wrong = 0, decided = 0, kept = 0;
  double off = 0, weights[N_KV];
  static long double k[N_KV][D];
  static uint32_t words[MOST_TABLES][N_KV];
  static bool sure[MOST_TABLES][N_KV];
  for (int64_t b = 0; b < BATCH; b++)
    for (int64_t h = 0; h < HEADS; h++) {
      const int64_t exist = in.padded ? in.kv_len[b] : N_KV;
      long double mean[D] = {0};
      for (int64_t j = 0; s.centre && j < exist; j++)
        for (int64_t l = 0; l < D; l++)
          mean[l] += (long double)inputs_get(&in, TENSOR_K, b, h / 2, j, l) / (long double)exist;
      for (int64_t j = 0; j < exist; j++) {
        for (int64_t l = 0; l < D; l++)
          k[j][l] = (long double)inputs_get(&in, TENSOR_K, b, h / 2, j, l) - mean[l];
        for (int64_t r = 0; r < s.l; r++) words[r][j] = word_of(k[j], 5, r, s.k, &sure[r][j]);
      }
      for (int64_t i = 0; i < N_Q; i += 5) {
        long double q[D];
        const int64_t count = oracle_keys(&in, NULL, b, h, i, keys);
        for (int64_t l = 0; l < D; l++) q[l] = (long double)inputs_get(&in, TENSOR_Q, b, h, i, l);
        sample_weights(&x, b, h, i, NULL, weights);
        for (int64_t a = 0; a < count; a++) {
          int64_t least = 0, most = 0;
          for (int64_t r = 0; r < s.l; r++) {
            bool own_sure;
            const bool met = word_of(q, 5, r, s.k, &own_sure) == words[r][keys[a]];
            own_sure &= sure[r][keys[a]];
            least += met && own_sure;
            most += met || !own_sure;
          }
          const double got = weights[keys[a]];
          weights[keys[a]] = 0;
          if (a >= count - s.window) {
            wrong += fabs(got - 1) > 0;
            continue;
          }
          if (got > 0)
            off = fmax(off, fabs(got * (double)chance_of(angle_of(q, k[keys[a]]), s.k, s.l, s.hits) - 1));
          if (least < s.hits && most >= s.hits) continue;
          decided++;
          kept += got > 0;
          wrong += (got > 0) != (least >= s.hits);
        }
        for (int64_t j = 0; j < N_KV; j++) wrong += weights[j] > 0; /* not visible */
      }
    }
  if (wrong) note_failure("%d of %d keys", (int)wrong, (int)decided);
  if (!(off <= 1e-10)) note_failure("weights off by %g", off);
  if (decided < HEADS * N_Q * 4 || kept < decided / 50 || kept > decided * 49 / 50)
    note_failure("%d keys of %d say little", (int)kept, (int)decided);
  sampler_free(&x);
  inputs_free(&in);
}

Test(variants_lsh_tail, keys_that_meet_the_query_in_tables_are_kept_and_weighted) {
  for (attn_dtype t = ATTN_F32; t <= ATTN_F64; t++)
    for (int causal = 0; causal <= 1; causal++) {
      check_definition((setting){4, 40, 2, true, 0}, t, causal);
      check_definition((setting){2, 3, 2, false, 3}, t, causal);
      check_definition((setting){9, 40, 1, true, 0}, t, causal);
      check_definition((setting){1, 1, 1, false, 0}, t, causal);
    }
}

/* Fresh tables by the seed: the means of weights and of their products within 5 standard deviations of the
 * law's, which are those of draws that are as often what they are not (a product of weights is seldom, and
 * then large). */
static void check_law(setting s) {
  enum { SEEDS = 6000, KEYS = 6 };
  attn_problem p = attn_problem_make(1, 1, KEYS, D);
  p.n_q = 1;
  p.dtype = ATTN_F64;
  inputs in = inputs_make(&p, false, 7, 1);
  for (int64_t j = 0; j < KEYS; j++)
    for (int64_t l = 0; l < D; l++)
      inputs_set(&in, TENSOR_K, 0, 0, j, l,
                 (j == KEYS - 1 ? -1 : 1) * inputs_get(&in, TENSOR_Q, 0, 0, 0, l) +
                     (0.3 + 0.3 * (double)j) * inputs_get(&in, TENSOR_K, 0, 0, j, l) +
                     (j % 2 ? 0.5 * inputs_get(&in, TENSOR_K, 0, 0, 0, l) : 0));
  static double sum[KEYS][KEYS];
  double law[KEYS * KEYS], weights[KEYS];
  int64_t keys[KEYS];
  char spec[96];
  memset(sum, 0, sizeof sum);
  spec_of(&s, 0, spec, sizeof spec);
  note_context("%s", spec);
  for (int seed = 0; seed < SEEDS; seed++) {
    spec_of(&s, seed, spec, sizeof spec);
    sampler x = sampler_of(spec, &in);
    const attn_query query = {.call = &x.call};
    sample_weights(&x, 0, 0, 0, NULL, weights);
    for (int64_t a = 0; a < KEYS; a++)
      for (int64_t b = 0; b < KEYS; b++) sum[a][b] += weights[a] * weights[b] / SEEDS;
    if (!seed) {
      for (int64_t a = 0; a < KEYS; a++) keys[a] = a;
      x.view.selector->moments(x.view.selector->state, &query, keys, KEYS, law);
      for (int64_t a = 0; a < KEYS; a++) {
        const double weight = exp(x.view.selector->log_weight(x.view.selector->state, &query, a));
        if (!(fabs(weight / law[a * KEYS + a] - 1) < 1e-12))
          note_failure("weight %g of key %d", weight, (int)a);
        if (weights[a] > 0 && !(fabs(weights[a] / weight - 1) < 1e-10))
          note_failure("key %d has the weight %g, by the law %g", (int)a, weights[a], weight);
      }
    }
    sampler_free(&x);
  }
  for (int64_t a = 0; a < KEYS; a++)
    for (int64_t b = 0; b < KEYS; b++) {
      /* A product is 1 / (u_a u_b) with probability J, else 0. */
      const double each = law[a * KEYS + a] * law[b * KEYS + b], want = law[a * KEYS + b],
                   deviation = sqrt((each - want) * want / SEEDS);
      if (!(fabs(sum[a][b] - want) <= 5 * deviation + 1e-9))
        note_failure("keys %d, %d: %g, expected %g +- %g", (int)a, (int)b, sum[a][b], want, deviation);
      if (a != b && !(want > 0 && want <= sqrt(each))) note_failure("moment %g", want);
    }
  inputs_free(&in);
}

Test(variants_lsh_tail, draws_follow_the_moments) {
  check_law((setting){2, 5, 2, false, 1});
  check_law((setting){3, 6, 1, false, 0});
  check_law((setting){1, 2, 2, true, 0});
  check_law((setting){7, 20, 2, false, 0});
}

/* Keys that others own change nothing but that they are not taken. */
Test(variants_lsh_tail, keys_that_others_own_are_left_to_them) {
  attn_problem p = shape_problem((case_shape){1, 1, 1, N_Q, N_KV, D, 7, true, false}, ATTN_F32);
  inputs in = inputs_make(&p, false, 23, 1);
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
  inputs_free(&in);
}

/* Three vectors by angles in a plane: all have one sign but where a line cuts between them. */
Test(variants_lsh_tail, vectors_of_no_length_are_at_right_angles) {
  attn_problem p = attn_problem_make(1, 1, 3, 2);
  p.n_q = 1;
  p.dtype = ATTN_F64;
  inputs in = inputs_make(&p, false, 7, 1);
  const double at[3][2] = {{1, 0}, {0, 0}, {0, 2}};
  for (int64_t l = 0; l < 2; l++) {
    inputs_set(&in, TENSOR_Q, 0, 0, 0, l, l == 0);
    for (int64_t j = 0; j < 3; j++) inputs_set(&in, TENSOR_K, 0, 0, j, l, at[j][l]);
  }
  sampler x = sampler_of("lsh_tail:k=1,l=1,hits=1,centre=no,window=0", &in);
  double m[9];
  x.view.selector->moments(x.view.selector->state, &(attn_query){.call = &x.call}, (int64_t[]){0, 1, 2}, 3,
                           m);
  const double want[9] = {1, 1, 1, 1, 2, 1, 1, 1, 2};
  for (int a = 0; a < 9; a++)
    if (!(fabs(m[a] - want[a]) < 1e-12)) note_failure("moment %d is %g", a, m[a]);
  sampler_free(&x);
  inputs_free(&in);
}

/* Both have the sign + everywhere; another vector meets a query of no length as often as it meets any
 * direction. */
Test(variants_lsh_tail, two_vectors_of_no_length_always_meet) {
  attn_problem p = attn_problem_make(1, 1, 3, 2);
  p.n_q = 1;
  p.dtype = ATTN_F64;
  inputs in = inputs_make(&p, false, 7, 1);
  const double at[3][2] = {{0, 0}, {1, 0}, {-0.0, 0}};
  for (int64_t l = 0; l < 2; l++) {
    inputs_set(&in, TENSOR_Q, 0, 0, 0, l, 0);
    for (int64_t j = 0; j < 3; j++) inputs_set(&in, TENSOR_K, 0, 0, j, l, at[j][l]);
  }
  sampler x = sampler_of("lsh_tail:k=2,l=1,hits=1,centre=no,window=0", &in);
  double m[9], weights[3];
  x.view.selector->moments(x.view.selector->state, &(attn_query){.call = &x.call}, (int64_t[]){0, 1, 2}, 3,
                           m);
  const double want[9] = {1, 1, 1, 1, 4, 1, 1, 1, 1};
  for (int a = 0; a < 9; a++)
    if (!(fabs(m[a] - want[a]) < 1e-12)) note_failure("moment %d is %g", a, m[a]);
  sample_weights(&x, 0, 0, 0, NULL, weights);
  EXPECT(fabs(weights[0] - 1) < 1e-12 && fabs(weights[2] - 1) < 1e-12);
  sampler_free(&x);
  inputs_free(&in);
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
  attn_plan *plan = NULL;
  EXPECT_STATUS(attn_plan_create(&plan, &p, "lsh_tail:l=1,hits=2", NULL), ATTN_EINVAL);
  EXPECT(strstr(attn_last_error(), "hits = 2 > l = 1"));
  EXPECT_STATUS(attn_plan_create(&plan, &p, "lsh_tail:hits=3", NULL), ATTN_EINVAL);
}

Test(variants_lsh_tail, no_signs_are_exact_attention) {
  for (int causal = 0; causal <= 1; causal++) {
    attn_problem p = shape_problem((case_shape){BATCH, HEADS, 2, N_Q, N_KV, D, 7, causal, true}, ATTN_F32);
    inputs in = inputs_make(&p, true, 23, 1);
    attn_plan *tiled = plan_or_note(&p, "tiled", NULL), *own = plan_or_note(&p, "lsh_tail:k=0", NULL);
    void *want = run_plain(tiled, &in), *got = run_plain(own, &in);
    EXPECT(!memcmp(want, got, tensor_bytes(&p, TENSOR_O)));
    free(want);
    free(got);
    attn_plan_destroy(tiled);
    attn_plan_destroy(own);
    inputs_free(&in);
  }
}

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
    float o[N_KEYS * 4];
    void *work = malloc(attn_plan_work_size(plan) + 1);
    EXPECT_STATUS(attn_plan_execute(plan, in.q, in.k, in.v, NULL, o, work), ATTN_OK);
    for (int64_t i = 0; i < N_KEYS; i++)
      if (!(fabsf(o[i * 4] - 1) < 1e-6F))
        note_failure("%s, row %d: weights add up to %g", specs[s], (int)i, (double)o[i * 4]);
    attn_plan_destroy(plan);
    free(work);
  }
  inputs_free(&in);
}
