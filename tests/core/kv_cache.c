/* kv_cache.c - caches of keys and values: sinks, filters, prompts, memory that is not there, refusals. That
 * a cache is the plan on the whole sequence, whatever the splits, lengths, stores and copies, is for CACHE-1
 * ... CACHE-5 (experiments/checks/caches). */
#include <string.h>

#include "attn_kv_cache.h"
#include "tests/support/basics/counted.h"
#include "tests/support/kv_inputs.h"

static int narrow; /* given in bf16: 1 keys, 2 values, 3 both */

static attn_problem step_problem(void) {
  attn_problem p = problem_of(1);
  p.k.stored = narrow & 1 ? ATTN_BF16 : ATTN_F32;
  p.v.stored = narrow & 2 ? ATTN_BF16 : ATTN_F32;
  return p;
}

static attn_kv_cache *cache_make(const char *spec) {
  attn_kv_cache *c = NULL;
  const attn_problem p = step_problem();
  const attn_options two = {.threads = 2, .blocks.key = 24}; /* whatever the store, steps are the same */
  cr_assert_eq(attn_kv_cache_create(&c, &p, spec, &two), ATTN_OK, "%s: %s", spec, attn_last_error());
  return c;
}

/* Positions first ... first + n - 1 of a tensor of all, as one of n. */
static float *slice(const float *x, int64_t heads, int64_t d, int64_t first, int64_t n) {
  float *out = kept_memory(malloc((size_t)(BATCH * heads * n * d) * sizeof *out));
  for (int64_t line = 0; line < BATCH * heads; line++)
    memcpy(out + line * n * d, x + (line * N + first) * d, (size_t)(n * d) * sizeof *out);
  return out;
}

static attn_status append(attn_kv_cache *c, const inputs *x, int64_t first, int64_t n,
                          const int64_t *length) {
  float *q = slice(&x->q[0][0][0][0], HEADS, D, first, n),
        *k = slice(&x->k[0][0][0][0], KV_HEADS, D, first, n),
        *v = slice(&x->v[0][0][0][0], KV_HEADS, D_V, first, n);
  if (narrow & 1) attn_convert(k, ATTN_F32, BATCH * KV_HEADS * n * D, ATTN_BF16, k);
  if (narrow & 2) attn_convert(v, ATTN_F32, BATCH * KV_HEADS * n * D_V, ATTN_BF16, v);
  return attn_kv_cache_append(c, n, length, q, k, v);
}

/* Of the last query of each sequence, at position `at`. */
static void attend(attn_kv_cache *c, const inputs *x, int64_t at, float o[BATCH][HEADS][D_V]) {
  float *q = slice(&x->q[0][0][0][0], HEADS, D, at, 1);
  cr_assert_eq(attn_kv_cache_attend(c, 1, q, o, NULL), ATTN_OK, "%s", attn_last_error());
}

/* And its memory: with filters, rings of queries, budgets that are shared, codes, latents. */
Test(core_kv_cache, a_copy_is_the_cache_that_is_gone) {
  static const char *const specs[] = {"evict:score=qfilter,filters=f,budget=20,recent=4",
                                      "evict:score=snapkv,budget=20,recent=4,prompt=30,shared=1",
                                      "evict:score=expected,budget=20,recent=4",
                                      "evict:score=h2o,budget=20,recent=4 | store:v=q4_0",
                                      "store:k=q8_0",
                                      "latent:rank=6,prompt=30",
                                      "latent:rank=6,prompt=60"};
  inputs *x = inputs_make();
  static counted memory;
  const attn_allocator allocator = counted_begin(&memory, -1);
  const attn_options options = {.threads = 2, .blocks.key = 24, .allocator = &allocator};
  for (size_t i = 0; i < 4 * sizeof specs / sizeof *specs; i++) {
    const char *spec = specs[i / 4];
    narrow = i % 4;
    const attn_problem p = step_problem();
    attn_kv_cache *c = NULL, *copy = NULL, *never = cache_make(spec);
    float a[BATCH][HEADS][D_V], b[BATCH][HEADS][D_V];
    cr_assert_eq(attn_kv_cache_create(&c, &p, spec, &options), ATTN_OK, "%s", attn_last_error());
    cr_assert_eq(append(c, x, 0, 40, NULL), ATTN_OK);
    for (int left = 0; !copy; left++) { /* allocations that succeed before one that does not */
      memory.calls = memory.refused = 0;
      memory.refuse_at = left;
      cr_expect_eq(attn_kv_cache_copy(NULL, &copy), ATTN_EINVAL); /* another error, to be overwritten */
      const attn_status status = attn_kv_cache_copy(c, &copy);
      cr_expect(!status || strstr(attn_last_error(), "bytes"), "%s: %s", spec, attn_last_error());
      cr_assert_eq(status, memory.refused ? ATTN_ENOMEM : ATTN_OK, "%s: %s", spec, attn_last_error());
      cr_expect_eq(memory.live_bytes, attn_kv_cache_bytes(c) + attn_kv_cache_bytes(copy), "%s", spec);
    }
    memory.refuse_at = -1;
    cr_expect(attn_kv_cache_bytes(copy) == attn_kv_cache_bytes(c), "%s", spec);
    attn_kv_cache_destroy(c);
    cr_expect_eq(memory.live_bytes, attn_kv_cache_bytes(copy), "%s", spec);
    attend(copy, x, 39, a);
    cr_assert(!append(copy, x, 40, 40, NULL) && !append(never, x, 0, 80, NULL));
    attend(copy, x, 79, a);
    attend(never, x, 79, b);
    cr_expect_eq(memcmp(a, b, sizeof a), 0, "%s", spec);
    cr_expect_eq(memory.live_bytes, attn_kv_cache_bytes(copy), "%s", spec);
    attn_kv_cache_destroy(copy), attn_kv_cache_destroy(never);
    cr_expect_eq(memory.live_bytes, 0, "%s", spec);
  }
}

/* The arrays of the problem are the caller's again when the cache is made. */
Test(core_kv_cache, keeps_the_sinks_that_it_was_given) {
  inputs *x = inputs_make();
  double sink[HEADS] = {0.5, 1, 1.5, 2};
  attn_problem p = problem_of(1);
  float want[BATCH][HEADS][D_V], o[BATCH][HEADS][D_V];
  p.score.sink = sink;
  for (int spoilt = 0; spoilt < 2; spoilt++) {
    attn_kv_cache *c = NULL, *copy = NULL;
    cr_assert_eq(attn_kv_cache_create(&c, &p, "evict:score=h2o,budget=20,recent=4", NULL), ATTN_OK);
    for (int h = 0; h < HEADS && spoilt; h++) sink[h] = 50;
    cr_assert_eq(append(c, x, 0, N, NULL), ATTN_OK);
    cr_assert_eq(attn_kv_cache_copy(c, &copy), ATTN_OK);
    attend(c, x, N - 1, spoilt ? o : want);
    attn_kv_cache_destroy(c);
    if (spoilt) cr_expect_eq(memcmp(want, o, sizeof o), 0);
    attend(copy, x, N - 1, o);
    cr_expect_eq(memcmp(want, o, sizeof o), 0, "a copy outlives the cache");
    attn_kv_cache_destroy(copy);
  }
}

/* Several queries at a time, as of a prompt. Behind it no cache knows what they saw. */
static void attend_to_prompt(const char *spec, const inputs *x) {
  static float o[BATCH][HEADS][40][D_V];
  static bool all[N];
  float *q = slice(&x->q[0][0][0][0], HEADS, D, 0, 40);
  const int64_t prompt[BATCH] = {40, 40};
  attn_kv_cache *c = cache_make(spec);
  memset(all, true, sizeof all);
  cr_assert_eq(append(c, x, 0, 40, NULL), ATTN_OK);
  cr_assert_eq(attn_kv_cache_attend(c, 40, q, o, NULL), ATTN_OK, "%s", attn_last_error());
  for (int b = 0; b < BATCH; b++)
    for (int head = 0; head < HEADS; head++)
      for (int64_t t = 0; t < 40; t++) check_row(x, all, b, head, t, o[b][head][t]);
  cr_assert_eq(append(c, x, 40, 1, NULL), ATTN_OK);
  cr_expect_eq(attn_kv_cache_attend(c, 2, q, o, NULL), ATTN_EUNSUPPORTED, "keys that query 39 saw are gone");
  cr_expect_eq(attn_kv_cache_attend(c, 1, NULL, o, NULL), ATTN_EINVAL);
  cr_expect_eq(attn_kv_cache_attend(c, 1, q, NULL, NULL), ATTN_EINVAL);
  cr_expect_eq(attn_kv_cache_truncate(c, prompt), ATTN_EUNSUPPORTED);
  attn_kv_cache_destroy(c);
}

Test(core_kv_cache, a_prompt_is_attended_to_at_once) {
  inputs *x = inputs_make();
  attn_kv_cache *c = cache_make("latent:rank=6,prompt=40");
  attn_kv_cache_view view;
  attend_to_prompt("evict:score=h2o,budget=20,recent=4,prompt=40", x);
  attend_to_prompt("latent:rank=6,prompt=40", x);
  cr_assert_eq(append(c, x, 0, 41, NULL), ATTN_OK);
  cr_assert_eq(attn_kv_cache_look(c, 1, KV_HEADS - 1, &view), ATTN_OK);
  cr_expect(view.length == 41 && view.held == 41 && !view.position);
  cr_expect_eq(attn_kv_cache_look(c, 1, KV_HEADS, &view), ATTN_EINVAL);
  attn_kv_cache_destroy(c);
}

/* Several queries of a full cache whose kv heads share: rows of the shorter head that are no keys stand
 * behind them, and hold what went, which may be NaN. */
Test(core_kv_cache, kv_heads_hold_different_numbers_of_keys) {
  enum { QUERIES = 3 };
  static const char spec[] = "evict:score=knorm,budget=20,recent=4,prompt=60,every=8,shared=1";
  static float o[2][BATCH][HEADS][QUERIES][D_V];
  static bool held[BATCH][KV_HEADS][N];
  inputs *x = inputs_make();
  float *q = slice(&x->q[0][0][0][0], HEADS, D, N - QUERIES, QUERIES);
  for (int64_t i = 0; i < BATCH * N * D; i++) x->k[i / (N * D)][1][i / D % N][i % D] *= 1.5F;
  for (int spoilt = 0; spoilt < 2; spoilt++) {
    attn_kv_cache *c = cache_make(spec);
    attn_kv_cache_view view[KV_HEADS];
    cr_assert_eq(append(c, x, 0, N, NULL), ATTN_OK);
    cr_assert_eq(attn_kv_cache_attend(c, QUERIES, q, o[spoilt], NULL), ATTN_OK, "%s", attn_last_error());
    for (int b = 0; b < BATCH; b++) {
      for (int h = 0; h < KV_HEADS; h++) {
        cr_assert_eq(attn_kv_cache_look(c, b, h, &view[h]), ATTN_OK);
        for (int64_t j = 0; j < view[h].held; j++) held[b][h][view[h].position[j]] = true;
      }
      cr_expect_gt(view[0].held, view[1].held + QUERIES, "entry %d", b);
    }
    for (int64_t j = 0; j < BATCH * KV_HEADS * N; j++)
      if (!(&held[0][0][0])[j]) (&x->v[0][0][0][0])[j * D_V] = (float)NAN;
    attn_kv_cache_destroy(c);
  }
  cr_expect_eq(memcmp(o[0], o[1], sizeof o[0]), 0);
  for (int64_t j = 0; j < BATCH * KV_HEADS * N; j++) /* check_row weighs what is not held by 0 */
    if (!(&held[0][0][0])[j]) (&x->v[0][0][0][0])[j * D_V] = 0;
  for (int b = 0; b < BATCH; b++)
    for (int head = 0; head < HEADS; head++)
      for (int i = 0; i < QUERIES; i++)
        check_row(x, held[b][head / GROUP], b, head, N - QUERIES + i, o[0][b][head][i]);
}

/* A query may be asked for again until a key of any kv head has gone that it saw. */
Test(core_kv_cache, queries_end_where_the_last_head_lost_a_key) {
  static const char spec[] = "evict:score=knorm,budget=90,recent=4,admit=-3";
  static float o[BATCH][HEADS][N][D_V];
  inputs *x = inputs_make();
  attn_kv_cache *c = cache_make(spec);
  attn_kv_cache_view view;
  int64_t gone[KV_HEADS] = {0}, held[KV_HEADS] = {0};
  /* Long keys, of one head, are not admitted. */
  for (int64_t i = 0; i < BATCH * KV_HEADS * N * D; i++)
    (&x->k[0][0][0][0])[i] *= i / D >= N && i / D < N + 40 ? 100 : 0.01F;
  for (int64_t t = 0; t < N; t++) {
    cr_assert_eq(append(c, x, t, 1, NULL), ATTN_OK);
    for (int h = 0; h < KV_HEADS; h++) {
      cr_assert_eq(attn_kv_cache_look(c, 0, h, &view), ATTN_OK);
      if (view.held <= held[h]) gone[h] = t;
      held[h] = view.held;
    }
  }
  cr_assert(gone[0] == 0 && gone[1] == 43, "%d, %d", (int)gone[0], (int)gone[1]);
  for (int64_t n = 1; n < N; n++) {
    float *q = slice(&x->q[0][0][0][0], HEADS, D, N - n, n);
    cr_expect_eq(attn_kv_cache_attend(c, n, q, o, NULL), N - n < gone[1] ? ATTN_EUNSUPPORTED : ATTN_OK);
  }
  attn_kv_cache_destroy(c);
}

/* ---- memory and refusals ------------------------------------------------------------------------------- */

/* A cache holds codes of types, and what a scheme decodes is no code. What readers that look beyond a query
 * read of a part is not what they read of the whole sequence; others of the same variants are read. */
Test(core_kv_cache, refuses_specs_with_their_reason) {
  static const char *const read[] = {"tiled",
                                     "pages:budget=256",
                                     "topk:k=8",
                                     "streaming + topk:k=8",
                                     "lsh",
                                     "streaming | store",
                                     "evict:budget=14,recent=9,every=4,chunk=3"};
  static const struct {
    attn_status status;
    const char *said, *specs[8]; /* to the first NULL */
  } refused[] = {
      {ATTN_EUNSUPPORTED,
       "it holds number types, and '",
       {"turbo:of=k", "turbo:of=v", "qjl", "topk:k=8 | turbo", "rotated", "kivi", "sage"}},
      {ATTN_EUNSUPPORTED,
       "reads depends on other queries or on keys to come",
       {"tiled:skip=0.01", "pages:share=tile,score=mass", "topk:by=loki", "lsh_tail", "magicpig",
        "streaming + topk:k=8,by=loki", "tiled:skip=0.01 | store"}},
      {ATTN_EINVAL, "budget = 8, expected at least recent = 9", {"evict:budget=8,recent=9"}},
      {ATTN_EINVAL,
       "at least recent - 1 and every = 4 in chunks of 3: 14",
       {"evict:budget=13,recent=9,every=4,chunk=3"}},
      {ATTN_EUNSUPPORTED, "score=exact ranks by queries that are still to come", {"evict:score=exact"}},
      {ATTN_EINVAL, "prompt = 8, expected more than budget = 8", {"evict:budget=8,prompt=8,shared=0.8"}},
      {ATTN_EINVAL,
       "admit = 1 judges keys one by one",
       {"evict:admit=1,every=2", "evict:admit=1,chunk=2", "evict:admit=1,budget=8,prompt=9,shared=0.5"}},
      {ATTN_EINVAL, "score=qfilter needs filters=FILE", {"evict:score=qfilter"}},
      {ATTN_EINVAL, "score=h2o reads no filters", {"evict:score=h2o,filters=f"}},
      {ATTN_EINVAL, "g is 3 x 8, expected 2 kv heads x 8", {"evict:score=qfilter,filters=g"}},
      {ATTN_EUNSUPPORTED, "causal", {"linformer", "hyper"}},
      {ATTN_EUNSUPPORTED, "takes no positions of queries", {"bigbird:tail=uniform"}},
      {ATTN_ENOTFOUND, "no_such", {"no_such"}},
      {ATTN_EUNSUPPORTED, "fitted to keys that are still to come", {"latent:rank=4"}},
      {ATTN_EUNSUPPORTED, "latents are held as numbers", {"latent:rank=4,prompt=8 | store"}}};
  const attn_problem p = problem_of(1);
  attn_kv_cache *c = NULL;
  attn_matrix_reader_set(read_filters);
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    for (const char *const *spec = refused[i].specs; *spec; spec++) {
      cr_expect_eq(attn_kv_cache_create(&c, &p, *spec, NULL), refused[i].status, "%s", *spec);
      cr_expect(!c && strstr(attn_last_error(), refused[i].said), "%s: %s", *spec, attn_last_error());
    }
  for (size_t i = 0; i < sizeof read / sizeof *read; i++) attn_kv_cache_destroy(cache_make(read[i]));
  cr_expect(!attn_kv_cache_reads(NULL));
}

static void expect_as_it_was(const char *spec, const inputs *x) {
  for (int left = 0; left < 60; left++) {
    static counted memory;
    const attn_allocator allocator = counted_begin(&memory, left);
    const attn_options options = {.allocator = &allocator};
    const attn_problem p = problem_of(1);
    attn_kv_cache *c = NULL;
    attn_kv_cache_view view;
    float o[BATCH][HEADS][D_V], *q = slice(&x->q[0][0][0][0], HEADS, D, 29, 1);
    attn_status status = attn_kv_cache_create(&c, &p, spec, &options);
    if (!status && !(status = append(c, x, 0, 30, NULL))) {
      status = append(c, x, 30, 60, NULL);
      cr_expect_eq(attn_kv_cache_look(c, 0, 0, &view), ATTN_OK);
      cr_expect(status ? view.length == 30 && view.held == 30 : view.length == 90);
      if (!status) status = attn_kv_cache_attend(c, 1, q, o, NULL);
      memory.refuse_at = -1;
      cr_expect_eq(attn_kv_cache_attend(c, 1, q, o, NULL), ATTN_OK);
    }
    cr_expect_eq(status, memory.refused ? ATTN_ENOMEM : ATTN_OK, "%s, %d: %s", spec, left, attn_last_error());
    cr_expect_eq(memory.live_bytes, attn_kv_cache_bytes(c));
    attn_kv_cache_destroy(c);
    cr_expect_eq(memory.live_bytes, 0);
  }
}

Test(core_kv_cache, is_as_it_was_where_there_is_no_memory) {
  inputs *x = inputs_make();
  expect_as_it_was("evict:score=keydiff,budget=80,prompt=85,shared=0.5 | store", x);
  expect_as_it_was("latent:rank=6,prompt=40", x);
  attn_matrix_reader_set(read_filters);
  expect_as_it_was("evict:score=qfilter,filters=f,budget=80,recent=4", x);
}

Test(core_kv_cache, refuses_what_it_cannot_do) {
  inputs *x = inputs_make();
  attn_kv_cache *c = NULL;
  attn_kv_cache_view view;
  attn_problem p = problem_of(1);
  float o[BATCH][HEADS][D_V];
  const int64_t longer[BATCH] = {20, 20}, shorter[BATCH] = {5, 5};
  p.causal = false;
  cr_expect(attn_kv_cache_create(&c, &p, "tiled", NULL) == ATTN_EUNSUPPORTED && !c);
  p.causal = true;
  p.score.dense = (attn_bias){x->k, ATTN_F32, 0, 0, p.n_kv};
  cr_expect(attn_kv_cache_create(&c, &p, "tiled", NULL) == ATTN_EUNSUPPORTED && !c, "rows of which call?");
  c = cache_make("evict:score=h2o,budget=8,recent=2");
  cr_expect_eq(attn_kv_cache_append(c, 1, NULL, NULL, x->k, x->v), ATTN_EINVAL, "h2o looks at queries");
  cr_expect_eq(attn_kv_cache_append(c, 0, NULL, x->q, x->k, x->v), ATTN_EINVAL);
  cr_expect_eq(append(c, x, 0, 10, longer), ATTN_EINVAL);
  cr_expect_eq(attn_kv_cache_attend(c, 1, x->q, o, NULL), ATTN_EINVAL, "there is no position");
  cr_assert_eq(append(c, x, 0, 6, NULL), ATTN_OK);
  cr_expect_eq(attn_kv_cache_truncate(c, shorter), ATTN_EUNSUPPORTED, "queries were looked at");
  cr_assert_eq(append(c, x, 6, 4, NULL), ATTN_OK);
  cr_expect_eq(append(c, x, 0, 85, NULL), ATTN_EINVAL, "more than 90 positions");
  cr_expect_eq(attn_kv_cache_truncate(c, longer), ATTN_EINVAL);
  cr_expect_eq(attn_kv_cache_truncate(c, shorter), ATTN_EUNSUPPORTED);
  cr_expect_eq(attn_kv_cache_look(c, 0, KV_HEADS, &view), ATTN_EINVAL);
  cr_assert_eq(attn_kv_cache_look(c, 1, 1, &view), ATTN_OK);
  cr_expect(view.length == 10 && view.held == 8);
  attn_kv_cache_destroy(c), attn_kv_cache_destroy(NULL);
}
