/* kv_cache_many.c - a cache of many sequences of different lengths: each is what a cache of it alone is, bit
 * for bit, for any number of threads and any split of what arrives. */
#include "tests/support/core.h"

#include "core/cache/attn_kv_cache.h"

enum { SEQUENCES = 64, HEADS = 4, KV_HEADS = 2, N = 96, D = 40, PARTS = 3 };

typedef struct tensors {
  float q[SEQUENCES][HEADS][N][D], k[SEQUENCES][KV_HEADS][N][D], v[SEQUENCES][KV_HEADS][N][D];
} tensors;

static int64_t length_of(int64_t b) { return 1 + b * 37 % N; }

static attn_kv_cache *make(const char *spec, int64_t batch, int threads) {
  attn_problem p = attn_problem_make(batch, HEADS, N, D);
  const attn_options options = {.threads = threads};
  attn_kv_cache *c = NULL;
  p.kv_heads = KV_HEADS;
  p.causal = true;
  cr_assert_eq(attn_kv_cache_create(&c, &p, spec, &options), ATTN_OK, "%s: %s", spec, attn_last_error());
  return c;
}

/* Positions first[b] ... first[b] + count[b] - 1 of a tensor, as one of `most` positions. */
static void slice(const float *x, int64_t heads, int64_t batch, const int64_t *first, const int64_t *count,
                  int64_t most, float *out) {
  for (int64_t b = 0; b < batch; b++)
    for (int64_t h = 0; h < heads; h++)
      for (int64_t i = 0; i < count[b]; i++)
        memcpy(out + ((b * heads + h) * most + i) * D, x + ((b * heads + h) * N + first[b] + i) * D,
               D * sizeof *out);
}

static void append(attn_kv_cache *c, const tensors *x, int64_t sequence, int64_t batch, const int64_t *first,
                   const int64_t *count) {
  int64_t most = 1;
  for (int64_t b = 0; b < batch; b++) most = count[b] > most ? count[b] : most;
  float *room[3];
  for (int i = 0; i < 3; i++) cr_assert(room[i] = calloc((size_t)(batch * HEADS * most), D * sizeof(float)));
  slice(&x->q[sequence][0][0][0], HEADS, batch, first, count, most, room[0]);
  slice(&x->k[sequence][0][0][0], KV_HEADS, batch, first, count, most, room[1]);
  slice(&x->v[sequence][0][0][0], KV_HEADS, batch, first, count, most, room[2]);
  cr_assert_eq(attn_kv_cache_append(c, most, count, room[0], room[1], room[2]), ATTN_OK, "%s",
               attn_last_error());
  for (int i = 0; i < 3; i++) free(room[i]);
}

/* The last query of each sequence. */
static void attend(attn_kv_cache *c, const tensors *x, int64_t sequence, int64_t batch, float *o) {
  int64_t first[SEQUENCES], one[SEQUENCES];
  float *q = kept_memory(calloc((size_t)(batch * HEADS * D), sizeof *q));
  cr_assert(q);
  for (int64_t b = 0; b < batch; b++) first[b] = length_of(sequence + b) - 1, one[b] = 1;
  slice(&x->q[sequence][0][0][0], HEADS, batch, first, one, 1, q);
  cr_assert_eq(attn_kv_cache_attend(c, 1, q, o, NULL), ATTN_OK, "%s", attn_last_error());
}

/* Two positions more for sequences that have them, on the same side of a prompt of 24, and back again; below
 * it alone where keys go. */
static void overshoot(attn_kv_cache *c, const tensors *x, bool below) {
  int64_t length[SEQUENCES], more[SEQUENCES];
  for (int64_t b = 0; b < SEQUENCES; b++) {
    length[b] = length_of(b);
    more[b] = length[b] + 2 > (length[b] <= 24 || below ? 24 : N) ? 0 : 2;
  }
  append(c, x, 0, SEQUENCES, length, more);
  cr_assert_eq(attn_kv_cache_truncate(c, length), ATTN_OK, "%s", attn_last_error());
}

Test(core_kv_cache_many, each_sequence_is_as_if_alone) {
  const char *specs = "tiled;pages:page=4,budget=24;store:k=q8_0,v=q4_0;evict:score=knorm,budget=24,recent=4;"
                      "evict:score=snapkv,budget=24,recent=4,prompt=40,shared=0.8;"
                      "evict:score=snapkv,budget=24,recent=4,admit=0.2;"
                      "evict:score=h2o,budget=24,recent=4 | store:k=int4,v=int3;"
                      "latent:rank=12,shared=8,prompt=24;";
  char spec[80];
  static const char can_go_back[] = "01237";
  static float together[SEQUENCES][HEADS][D], alone[HEADS][D];
  tensors *x = kept_memory(malloc(sizeof *x));
  cr_assert(x);
  attn_rng rng = rng_of(5, 0, 0);
  for (size_t i = 0; i < sizeof *x / sizeof(float); i++)
    (&x->q[0][0][0][0])[i] = (float)(4 * attn_rng_uniform(&rng) - 2);
  for (int s = 0, size; sscanf(specs, "%79[^;];%n", spec, &size) == 1; s++, specs += size) {
    attn_kv_cache *c = make(spec, SEQUENCES, 3);
    EXPECT(!turn_rounding(3, FE_TONEAREST, FE_UPWARD));
    for (int64_t part = 0; part < PARTS; part++) { /* of another length for each sequence */
      int64_t first[SEQUENCES], count[SEQUENCES];
      for (int64_t b = 0; b < SEQUENCES; b++) {
        first[b] = length_of(b) * part / PARTS;
        count[b] = length_of(b) * (part + 1) / PARTS - first[b];
      }
      append(c, x, 0, SEQUENCES, first, count);
    }
    if (strchr(can_go_back, (char)('0' + s))) overshoot(c, x, s == 3);
    attend(c, x, 0, SEQUENCES, &together[0][0][0]);
    EXPECT(!turn_rounding(3, FE_UPWARD, FE_TONEAREST));
    attn_kv_cache_destroy(c);
    for (int64_t b = 0; b < SEQUENCES; b++) {
      const int64_t first = 0, count = length_of(b);
      c = make(spec, 1, 1);
      append(c, x, b, 1, &first, &count);
      attend(c, x, b, 1, &alone[0][0]);
      cr_expect(!memcmp(together[b], alone, sizeof alone), "%s: sequence %d of %d positions", spec, (int)b,
                (int)count);
      attn_kv_cache_destroy(c);
    }
  }
}
