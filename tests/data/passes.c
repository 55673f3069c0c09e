/* passes.c - a model with some of its attention replaced: what is not replaced stays exact, bitwise. */
#include "tests/support/data_fixture.h"
#include "tests/support/llama_models.h"
#include "tests/support/spec.h"

#include <omp.h>

enum { V = 11, N = 20, WINDOWS = 3, STREAMS = 8, LAYERS = 3 };

typedef struct store {
  float logits[STREAMS][WINDOWS][N][V];
  int64_t swapped[STREAMS]; /* calls for a stream's attention */
  int64_t heads, d;
  float exact[N * 8 * 8], output[STREAMS][N * 8 * 8]; /* of layer 0 of window 0 */
  unsigned char changed[STREAMS][LAYERS][8][N]; /* the attention's output differs: layer, head, position */
} store;

static reference_model model;
static data_llama *llama;

static void begin(void) {
  fixture_begin();
  model = model_random(0);
  model_write(&model, STORE_F32, 1);
  llama = model_open(fixture_directory);
  cr_assert(model.layers == LAYERS && model.heads <= 8 && model.vocab == V);
}
TestSuite(data_passes, .init = begin, .fini = fixture_end);

static attn_status keep_logits(void *to, const data_llama_rows *r) {
  store *s = to;
  for (int64_t i = 0; i < r->streams; i++)
    memcpy(s->logits[i][r->window][r->first], r->logits[i], (size_t)(r->rows * V) * sizeof(float));
  return ATTN_OK;
}

static attn_status keep_attention(void *to, const data_llama_attention *a) {
  store *s = to;
  const size_t bytes = (size_t)(N * s->heads * s->d) * sizeof(float);
  s->swapped[a->stream]++;
  if (a->layer == 0 && a->window == 0) {
    memcpy(s->exact, a->exact, bytes);
    memcpy(s->output[a->stream], a->output, bytes);
  }
  for (int64_t i = 0; i < N; i++)
    for (int64_t h = 0; h < s->heads; h++) {
      const int64_t at = (i * s->heads + h) * s->d;
      if (memcmp(a->exact + at, a->output + at, (size_t)s->d * sizeof(float)) != 0)
        s->changed[a->stream][a->layer][h][i] = 1;
    }
  return ATTN_OK;
}

static int64_t token(int64_t i) { return (i * i + 3 * i + i / 7) % V; }

static int64_t scored; /* the first position whose logits are asked for */

static store *run_windows(int64_t first, int64_t windows, const data_llama_swap *swaps, int64_t count) {
  int64_t tokens[WINDOWS * N];
  store *s = kept_memory(calloc(1, sizeof *s));
  for (int64_t i = 0; i < WINDOWS * N; i++) tokens[i] = token(i);
  s->heads = model.heads;
  s->d = model.d;
  assert_ok(data_llama_run(llama, &(data_llama_pass){.tokens = tokens + first * N,
                                                     .windows = windows,
                                                     .n = N,
                                                     .swaps = swaps,
                                                     .count = count,
                                                     .scored = scored,
                                                     .to = s,
                                                     .attention = keep_attention,
                                                     .logits = keep_logits}));
  return s;
}

static store *run(const data_llama_swap *swaps, int64_t count) {
  return run_windows(0, WINDOWS, swaps, count);
}

/* Whether a stream's logits are those of another, bitwise. */
static bool equal(const store *a, int i, const store *b, int j) {
  return memcmp(a->logits[i], b->logits[j], sizeof a->logits[i]) == 0;
}

Test(data_passes, what_changes_nothing_is_exact) {
  unsigned char none[LAYERS * 8] = {0};
  const data_llama_swap swaps[] = {{.spec = spec_of("streaming:sink=1,window=2"), .mix = 0},
                                   {.spec = spec_of("streaming:sink=1,window=2"), .where = none, .mix = 1},
                                   {.spec = spec_of("tiled"), .mix = 1},
                                   {.spec = spec_of("tiled"), .mix = 0.5},
                                   {.spec = spec_of("streaming:sink=1,window=2"), .mix = 1}};
  store *s = run(swaps, 5);
  for (int i = 1; i <= 4; i++) cr_expect(equal(s, 0, s, i), "stream %d", i);
  cr_expect(!equal(s, 0, s, 5));
  cr_expect(s->swapped[1] == 0 && s->swapped[2] == 0 && s->swapped[3] == LAYERS * WINDOWS);
  scored = 13;
  store *late = run(NULL, 0);
  for (int w = 0; w < WINDOWS; w++)
    for (int i = 0; i < N; i++)
      for (int t = 0; t < V; t++)
        cr_expect_eq(late->logits[0][w][i][t], i < scored ? 0 : s->logits[0][w][i][t], "position %d", i);
}

/* ... so that a run may be cut into shards, and a crash repeated alone. */
Test(data_passes, windows_streams_and_threads_do_not_touch_each_other) {
  unsigned char second[LAYERS * 8] = {0};
  second[model.heads + 1] = 1;
  const data_llama_swap swaps[] = {
      {.spec = spec_of("streaming:sink=1,window=2"), .mix = 1},
      {.spec = spec_of("longformer:window=4"), .where = second, .mix = 0.25},
      {.spec = spec_of("topk:k=3"), .phase = DATA_LLAMA_DECODE, .decode = 4, .mix = 1}};
  omp_set_num_threads(3);
  store *all = run(swaps, 3);
  omp_set_num_threads(1);
  for (int i = 0; i < 3; i++) {
    store *alone = run(&swaps[i], 1);
    cr_expect(equal(all, 0, alone, 0) && equal(all, i + 1, alone, 1), "stream %d", i + 1);
  }
  for (int64_t w = 0; w < WINDOWS; w++) {
    store *alone = run_windows(w, 1, swaps, 3);
    for (int i = 0; i <= 3; i++)
      cr_expect_arr_eq(all->logits[i][w], alone->logits[i][0], sizeof all->logits[i][w], "window %d", (int)w);
  }
}

Test(data_passes, only_the_heads_and_queries_that_are_named_change) {
  unsigned char one[LAYERS * 8] = {0};
  one[1 * model.heads + 2] = 1;
  const attn_spec *spec = spec_of("streaming:sink=1,window=1");
  const data_llama_swap swaps[] = {
      {.spec = spec, .where = one, .mix = 1},
      {.spec = spec, .where = one, .phase = DATA_LLAMA_PREFILL, .decode = 5, .mix = 1},
      {.spec = spec, .where = one, .phase = DATA_LLAMA_DECODE, .decode = 5, .mix = 1}};
  store *s = run(swaps, 3);
  for (int c = 1; c <= 3; c++)
    for (int l = 0; l < LAYERS; l++)
      for (int h = 0; h < model.heads; h++)
        for (int i = 0; i < N; i++) {
          /* The first two queries see what they see exactly. */
          const bool named = l == 1 && h == 2 && i >= 2 && (c != 2 || i < N - 5) && (c != 3 || i >= N - 5);
          cr_expect_eq(s->changed[c][l][h][i], named, "stream %d layer %d head %d query %d", c, l, h, i);
        }
}

/* Several variants in one stream are what each is in its layers; up to the second's first layer it is the
 * first's. */
Test(data_passes, layers_have_variants_of_their_own) {
  unsigned char first[LAYERS * 8] = {0}, last[LAYERS * 8] = {0}, both[LAYERS * 8] = {0};
  const size_t heads = (size_t)model.heads;
  memset(first, 1, heads);
  memset(last + (LAYERS - 1) * heads, 1, heads);
  memcpy(both, last, sizeof both);
  memset(both, 1, heads);
  const data_llama_swap second = {.spec = spec_of("topk:k=2"), .where = last, .mix = 1},
                        same = {.spec = spec_of("streaming:sink=1,window=2"), .where = last, .mix = 1};
  const data_llama_swap swaps[] = {
      {.spec = spec_of("streaming:sink=1,window=2"), .where = first, .mix = 1, .next = &second},
      {.spec = spec_of("streaming:sink=1,window=2"), .where = first, .mix = 1, .next = &same},
      {.spec = spec_of("streaming:sink=1,window=2"), .where = both, .mix = 1},
      {.spec = spec_of("streaming:sink=1,window=2"), .where = first, .mix = 1}};
  store *s = run(swaps, 4);
  cr_expect(equal(s, 2, s, 3));
  cr_expect(!equal(s, 1, s, 3) && !equal(s, 1, s, 4) && !equal(s, 1, s, 0));
  cr_expect_arr_eq(s->output[1], s->output[4], sizeof s->output[1]);
  cr_expect(s->swapped[1] == 2 * WINDOWS && s->swapped[4] == WINDOWS);
}

Test(data_passes, phases_and_mixtures_are_parts_of_the_whole) {
  const attn_spec *spec = spec_of("streaming:sink=2,window=3");
  const data_llama_swap swaps[] = {{.spec = spec, .mix = 1},
                                   {.spec = spec, .phase = DATA_LLAMA_PREFILL, .decode = 6, .mix = 1},
                                   {.spec = spec, .phase = DATA_LLAMA_DECODE, .decode = 6, .mix = 1},
                                   {.spec = spec, .mix = 0.25}};
  store *s = run(swaps, 4);
  const int64_t row = s->heads * s->d;
  double apart = 0;
  for (int64_t at = 0; at < N * row; at++) {
    const double e = (double)s->exact[at], whole = (double)s->output[1][at];
    apart = fmax(apart, fabs(whole - e));
    /* A row-wise causal variant gives a query the same whatever part of the queries it is among. */
    cr_expect_float_eq((double)s->output[2][at], at < (N - 6) * row ? whole : e, 1e-6, "%d", (int)at);
    cr_expect_float_eq((double)s->output[3][at], at < (N - 6) * row ? e : whole, 1e-6, "%d", (int)at);
    cr_expect_float_eq((double)s->output[4][at], e + 0.25 * (whole - e), 1e-6, "%d", (int)at);
  }
  cr_expect(apart > 0.1);
}

/* The logits of a pass, up to rounding, whose order differs. */
Test(data_passes, tokens_one_at_a_time_are_the_whole_text) {
  store *s = run(NULL, 0);
  data_llama_decoder *d;
  float logits[WINDOWS][V];
  int64_t next[WINDOWS];
  assert_ok(data_llama_decoder_make(llama, WINDOWS, N, &d));
  for (int64_t i = 0; i < N; i++) {
    for (int64_t w = 0; w < WINDOWS; w++) next[w] = token(w * N + i);
    assert_ok(data_llama_decoder_step(d, next, logits[0]));
    for (int w = 0; w < WINDOWS; w++)
      for (int t = 0; t < V; t++) {
        const double wanted = (double)s->logits[0][w][i][t];
        cr_expect_float_eq((double)logits[w][t], wanted, 2e-5 * (1 + fabs(wanted)),
                           "text %d token %d: %g, %g", w, (int)i, (double)logits[w][t], wanted);
      }
  }
  assert_refused(data_llama_decoder_step(d, next, logits[0]), ATTN_EINVAL, "a token after the last of 20");
  data_llama_decoder_free(d);
  assert_ok(data_llama_decoder_make(llama, 1, model.context, &d));
  next[0] = V;
  assert_refused(data_llama_decoder_step(d, next, logits[0]), ATTN_EINVAL, "token 0 is 11");
  data_llama_decoder_free(d);
  assert_refused(data_llama_decoder_make(llama, 1, model.context + 1, &d), ATTN_EINVAL, "65 positions");
}

/* The same weights in layers that see the last WINDOW keys alone, except the first. */
enum { WINDOW = 5 };
static void open_windowed(void) {
  json_t *config = model_config(&model);
  json_object_set_new(config, "model_type", json_string("mistral"));
  json_object_set_new(config, "sliding_window", json_integer(WINDOW));
  json_object_set_new(config, "layer_types",
                      json_pack("[s, s, s]", "full_attention", "sliding_attention", "sliding_attention"));
  model_write_config(config);
  llama = model_open(fixture_directory);
}

/* A selection is one of the window's keys: as many as these are exact attention, and what lies before the
 * window of a layer is without influence there. */
Test(data_passes, selections_respect_a_models_window) {
  static unsigned char first[LAYERS * 8], others[LAYERS * 8];
  open_windowed();
  for (int64_t i = 0; i < LAYERS * model.heads; i++) *(i < model.heads ? &first[i] : &others[i]) = 1;
  const data_llama_swap swaps[] = {
      {.spec = spec_of("topk:k=5"), .where = others, .mix = 1},
      {.spec = spec_of("pages:page=2,budget=6"), .where = others, .mix = 1},
      {.spec = spec_of("topk:k=5"), .where = first, .mix = 1},
      {.spec = spec_of("topk:k=4"), .where = others, .mix = 1},
      {.spec = spec_of("topk:k=5"), .where = others, .phase = DATA_LLAMA_DECODE, .decode = 7, .mix = 1}};
  store *s = run(swaps, 5);
  double most[6] = {0};
  for (int i = 1; i <= 5; i++)
    for (int64_t x = 0; x < WINDOWS * N * V; x++)
      most[i] =
          fmax(most[i], fabs((double)(&s->logits[i][0][0][0])[x] - (double)(&s->logits[0][0][0][0])[x]));
  cr_expect(most[1] < 1e-4 && most[2] < 1e-4 && most[5] < 1e-4, "%g, %g, %g", most[1], most[2], most[5]);
  cr_expect(most[3] > 1e-2 && most[4] > 1e-2, "%g, %g", most[3], most[4]);
  const data_llama_swap fixed = {.spec = spec_of("linear"), .where = others, .mix = 1},
                        free_layer = {.spec = fixed.spec, .where = first, .mix = 1};
  assert_refused(data_llama_try(llama, N, &fixed), ATTN_EUNSUPPORTED,
                 "layers that see the last 5 keys alone: variant linear: a mask is not supported");
  assert_ok(data_llama_try(llama, N, &free_layer));
}

Test(data_passes, refusals) {
  int64_t tokens[4 * N] = {0};
  store *s = kept_memory(calloc(1, sizeof *s));
  const struct {
    data_llama_swap swap;
    const char *says;
  } cases[] = {{{.spec = spec_of("linformer:k=4"), .mix = 1}, "causal"},
               {{.spec = spec_of("tiled"), .phase = DATA_LLAMA_DECODE, .decode = N, .mix = 1}, "1 to 19"},
               {{.spec = spec_of("tiled"), .phase = DATA_LLAMA_PREFILL, .mix = 1}, "1 to 19"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const data_llama_pass pass = {.tokens = tokens,
                                  .windows = 1,
                                  .n = N,
                                  .swaps = &cases[i].swap,
                                  .count = 1,
                                  .to = s,
                                  .logits = keep_logits};
    cr_expect_neq(data_llama_run(llama, &pass), ATTN_OK);
    cr_expect(strstr(attn_last_error(), cases[i].says), "%s", attn_last_error());
  }
  const data_llama_pass longer = {.tokens = tokens, .windows = 1, .n = model.context + 1};
  assert_refused(data_llama_run(llama, &longer), ATTN_EINVAL, "65 positions");
}
