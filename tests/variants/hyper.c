/* hyper.c - the variant hyper against its definition: hashes in long double and draws from the streams that
 * its head names, places by counting; and its weights over seeds against the law that it states. */
#include "tests/support/core.h"

enum { BATCH = 2, HEADS = 4, N_Q = 75, N_KV = 90, D = 16, D_V = 7, BITS = 4, MOST = 256 };

typedef struct setting {
  int64_t block, sample;
  bool values, exclude;
} setting;

static void spec_of(const setting *s, int64_t exact, int seed, char *to, size_t size) {
  snprintf(to, size,
           "hyper:bits=%d,block=%d,sample=%d,exact_below=%d,sampling=%s,exclude=%s,hash_seed=4,seed=%d", BITS,
           (int)s->block, (int)s->sample, (int)exact, s->values ? "values" : "uniform",
           s->exclude ? "yes" : "no", seed);
}

/* The place of a row among those of a head by the Gray code of its hash and its number. */
static void places_of(const inputs *in, tensor of, int64_t batch, int64_t head, int64_t rows,
                      int64_t *place) {
  int64_t gray[MOST];
  for (int64_t i = 0; i < rows; i++) {
    int hash = 0;
    for (int bit = 0; bit < BITS; bit++) {
      attn_rng rng;
      long double y = 0;
      attn_rng_init(&rng, 4, 0x4197e, (uint64_t)bit);
      for (int64_t l = 0; l < D; l++)
        y += (long double)inputs_get(in, of, batch, head, i, l) * (long double)(float)attn_rng_normal(&rng);
      hash |= (y > 0) << bit;
    }
    for (gray[i] = 0; (gray[i] ^ gray[i] / 2) != hash; gray[i]++) continue;
  }
  for (int64_t i = 0; i < rows; i++) {
    place[i] = 0;
    for (int64_t j = 0; j < rows; j++) place[i] += gray[j] < gray[i] || (gray[j] == gray[i] && j < i);
  }
}

/* pi, with |V'|_2 by the power method on V' itself. */
static void chances(const inputs *in, int64_t batch, int64_t head, int64_t keys, bool values, double *pi) {
  double length[N_KV], x[D_V + 1] = {0}, norm = 0, sum = 0;
  x[D_V] = 1;
  for (int step = 0; step < 32; step++) {
    double next[D_V + 1] = {0};
    for (int64_t j = 0; j < keys; j++) {
      double along = x[D_V];
      for (int64_t l = 0; l < D_V; l++) along += x[l] * inputs_get(in, TENSOR_V, batch, head, j, l);
      for (int64_t l = 0; l < D_V; l++) next[l] += along * inputs_get(in, TENSOR_V, batch, head, j, l);
      next[D_V] += along;
    }
    norm = 0;
    for (int64_t l = 0; l <= D_V; l++) norm += next[l] * next[l];
    norm = sqrt(norm);
    for (int64_t l = 0; l <= D_V; l++) x[l] = next[l] / norm;
  }
  for (int64_t j = 0; j < keys; j++) {
    length[j] = 1;
    for (int64_t l = 0; l < D_V; l++) length[j] += pow(inputs_get(in, TENSOR_V, batch, head, j, l), 2);
    pi[j] = values ? sqrt(length[j]) / sqrt(norm) + 1.0 / (double)keys : 1;
    sum += pi[j];
  }
  for (int64_t j = 0; j < keys; j++) pi[j] /= sum;
}

static void tail_of(const setting *s, const double *pi, int64_t head, int64_t keys, double *tail) {
  attn_rng rng;
  attn_rng_init(&rng, 9, 0x4197d, (uint64_t)head);
  for (int64_t j = 0; j < keys; j++) tail[j] = 0;
  for (int64_t i = 0; i < s->sample; i++) {
    int64_t key = 0;
    if (s->values) {
      const double at = attn_rng_uniform(&rng);
      for (double sum = pi[0]; sum <= at && key < keys - 1; sum += pi[++key]) continue;
    } else
      key = attn_rng_below(&rng, keys);
    tail[key] += 1 / ((double)s->sample * pi[key]);
  }
}

static void check_weights(setting s, attn_dtype t) {
  attn_problem p = shape_problem((case_shape){BATCH, HEADS, 2, N_Q, N_KV, D, D_V, false, true}, t);
  inputs in = inputs_make(&p, true, 23, 1);
  char spec[160];
  spec_of(&s, 0, 9, spec, sizeof spec);
  note_context("%s %s", spec, t == ATTN_F64 ? "f64" : "f32");
  attn_plan *plan = plan_or_note(&p, spec, NULL);
  const int64_t rows = s.block < 64 ? s.block : 64;
  int64_t wrong = 0, doubled = 0, place_q[MOST], place_k[MOST];
  static double got[N_Q][N_KV];
  double pi[N_KV], tail[N_KV];
  for (int64_t b = 0; b < BATCH; b++)
    for (int64_t h = 0; h < HEADS; h++) {
      const int64_t keys = inputs_keys(&in, b), blocks = (keys + s.block - 1) / s.block;
      places_of(&in, TENSOR_Q, b, h, N_Q, place_q);
      places_of(&in, TENSOR_K, b, h / 2, keys, place_k);
      chances(&in, b, h / 2, keys, s.values, pi);
      tail_of(&s, pi, h, keys, tail);
      selected_weights(plan, &in, b, h, N_KV, got[0]);
      for (int64_t i = 0; i < N_Q; i++) {
        const int64_t first = place_q[i] / rows * rows, count = first + rows < N_Q ? rows : N_Q - first,
                      own = (2 * first + count) * blocks / (2 * N_Q);
        for (int64_t j = 0; j < N_KV; j++) {
          const bool inside =
              j < keys && place_k[j] >= own * keys / blocks && place_k[j] < (own + 1) * keys / blocks;
          double want = j < keys ? tail[j] : 0;
          doubled += inside && want > 0;
          if (blocks == 1)
            want = j < keys;
          else if (inside)
            want = s.exclude ? 1 : 1 + want;
          wrong += !(fabs(got[i][j] - want) <= 1e-9 * want);
        }
      }
    }
  if (wrong || !doubled) note_failure("%d weights of %d drawn keys", (int)wrong, (int)doubled);
  attn_plan_destroy(plan);
  inputs_free(&in);
}

Test(variants_hyper, weights_are_those_of_the_definition) {
  for (attn_dtype t = ATTN_F32; t <= ATTN_F64; t++)
    for (int way = 0; way < 4; way++) {
      check_weights((setting){16, 40, way & 1, way & 2}, t);
      check_weights((setting){7, 3, way & 1, way & 2}, t);
    }
}

/* Over seeds; hashes stay as they are. */
static void check_law(setting s) {
  enum { SEEDS = 4000, ROW = 5, KEYS = 12 };
  attn_problem p = attn_problem_make(1, 1, 20, D);
  p.dtype = ATTN_F64;
  p.d_v = D_V;
  inputs in = inputs_make(&p, false, 31, 1);
  static double got[N_Q][N_KV], sum[KEYS][KEYS], square[KEYS][KEYS], law[KEYS * KEYS];
  int64_t keys[KEYS];
  memset(sum, 0, sizeof sum);
  memset(square, 0, sizeof square);
  for (int64_t a = 0; a < KEYS; a++) keys[a] = a + 3;
  for (int seed = 0; seed < SEEDS; seed++) {
    char spec[160];
    attn_view view;
    spec_of(&s, 0, seed, spec, sizeof spec);
    attn_plan *plan = plan_or_note(&p, spec, NULL);
    selected_weights(plan, &in, 0, 0, N_KV, got[0]);
    for (int64_t a = 0; a < KEYS; a++)
      for (int64_t b = 0; b < KEYS; b++) {
        const double x = got[ROW][keys[a]] * got[ROW][keys[b]];
        sum[a][b] += x / SEEDS;
        square[a][b] += x * x / SEEDS;
      }
    cr_assert_eq(attn_plan_inspect(plan, &view), ATTN_OK);
    const attn_call call = {.context = attn_plan_context(plan), .q = in.q, .k = in.k, .v = in.v};
    const attn_query query = {.call = &call, .i = ROW};
    if (!seed) view.selector->moments(view.selector->state, &query, keys, KEYS, law);
    for (int64_t a = 0; a < KEYS && seed < 20; a++) {
      const double one = exp(view.selector->log_weight(view.selector->state, &query, keys[a])),
                   times = got[ROW][keys[a]] / one;
      if (view.selector->always(view.selector->state, &query, keys[a]))
        EXPECT(fabs(got[ROW][keys[a]] - 1) < 1e-15);
      else if (!(fabs(times - rint(times)) < 1e-9))
        note_failure("weight %g, of one draw %g", got[ROW][keys[a]], one);
    }
    attn_plan_destroy(plan);
  }
  for (int64_t a = 0; a < KEYS; a++)
    for (int64_t b = 0; b < KEYS; b++) {
      const double deviation = sqrt((square[a][b] - sum[a][b] * sum[a][b]) / SEEDS), want = law[a * KEYS + b];
      if (!(fabs(sum[a][b] - want) <= 5 * deviation + 1e-9))
        note_failure("keys %d, %d: %g, expected %g +- %g", (int)a, (int)b, sum[a][b], want, deviation);
    }
  inputs_free(&in);
}

Test(variants_hyper, draws_follow_the_moments) {
  check_law((setting){5, 6, false, true});
  check_law((setting){5, 6, true, true});
}

Test(variants_hyper, one_block_is_exact_attention) {
  const char *const specs[] = {"hyper", "hyper:exact_below=90", "hyper:exact_below=0,block=90",
                               "hyper:exact_below=0,block=90,exclude=no,sampling=values"};
  attn_problem p = shape_problem((case_shape){BATCH, HEADS, 2, N_Q, N_KV, D, D_V, false, true}, ATTN_F32);
  inputs in = inputs_make(&p, true, 23, 1);
  attn_plan *tiled = plan_or_note(&p, "tiled", NULL);
  void *want = run_plain(tiled, &in);
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
    attn_plan *own = plan_or_note(&p, specs[s], NULL);
    void *got = run_plain(own, &in);
    EXPECT(!memcmp(want, got, tensor_bytes(&p, TENSOR_O)));
    free(got);
    attn_plan_destroy(own);
  }
  free(want);
  attn_plan_destroy(tiled);
  inputs_free(&in);
}

Test(variants_hyper, causal_attention_is_by_halves) {
  attn_problem p = shape_problem((case_shape){BATCH, HEADS, 2, N_KV, N_KV, D, D_V, true, false}, ATTN_F64);
  inputs in = inputs_make(&p, false, 23, 1);
  attn_plan *plan = NULL;
  EXPECT_STATUS(attn_plan_create(&plan, &p, "hyper", NULL), ATTN_EUNSUPPORTED);
  const char *const specs[] = {"dyadic(tiled,base=16)", "dyadic(hyper:exact_below=0,block=64,base=16)",
                               "dyadic(hyper:exact_below=0,block=8,sample=8,base=16)"};
  void *o[3];
  for (size_t s = 0; s < 3; s++) {
    cr_assert_not_null(plan = plan_or_note(&p, specs[s], NULL));
    o[s] = run_plain(plan, &in);
    attn_plan_destroy(plan);
  }
  EXPECT(!memcmp(o[0], o[1], tensor_bytes(&p, TENSOR_O)));
  int64_t unlike = 0;
  for (int64_t i = 0; i < N_KV; i++) {
    const double want = output_get(&p, o[0], 0, 0, i, 0), got = output_get(&p, o[2], 0, 0, i, 0);
    EXPECT(isfinite(got));
    unlike += !(fabs(got - want) < 1e-12);
    if (i < 16) EXPECT(fabs(got - want) < 1e-12);
  }
  EXPECT(unlike > N_KV / 2);
  for (size_t s = 0; s < 3; s++) free(o[s]);
  inputs_free(&in);
}
