/* group_model.c - the group `model`: a pre-trained model (--model) a token at a time, whose time should
 * be that of reading its weights once, and whole windows, whose time should be that of the multiply-adds.
 * Models run under the environment's instruction set and threads. */
#include "experiments/bench/benchmark.h"

#include <stdlib.h>

#include "attn_variant.h"

enum { WINDOW = 512, QUICK_WINDOW = 64 };

typedef struct state {
  data_llama *model;
  data_llama_decoder *decoder;
  int64_t n, given; /* positions of a window, and those that the decoder has seen */
  int64_t *tokens;  /* [n] */
  float *logits;    /* [vocab] */
} state;

static void release(void *state_) {
  state *s = state_;
  data_llama_decoder_free(s->decoder);
  data_llama_close(s->model);
  free(s->tokens);
  free(s->logits);
  free(s);
}

/* The next token; after the last of a window the first. */
static attn_status step(bench_meter *m) {
  state *s = m->state;
  attn_status status = ATTN_OK;
  if (s->given == s->n) {
    data_llama_decoder_free(s->decoder);
    s->decoder = NULL;
    s->given = 0;
  }
  if (!s->decoder) status = data_llama_decoder_make(s->model, 1, s->n, &s->decoder);
  if (!status) status = data_llama_decoder_step(s->decoder, s->tokens + s->given, s->logits);
  s->given += !status;
  return status;
}

static attn_status ignore(void *to, const data_llama_rows *rows) {
  (void)to, (void)rows;
  return ATTN_OK;
}

static attn_status pass(bench_meter *m) {
  const state *s = m->state;
  return data_llama_run(s->model,
                        &(data_llama_pass){.tokens = s->tokens, .windows = 1, .n = s->n, .logits = ignore});
}

static attn_status measure_step(bench_meter *m, double span, double *seconds) {
  return bench_repeat(m, step, span, seconds);
}

static attn_status measure_pass(bench_meter *m, double span, double *seconds) {
  return bench_repeat(m, pass, span, seconds);
}

/* A meter of windows of at most n positions. */
static bench_meter *meter_of(bench *b, int64_t n) {
  bench_meter *m = bench_meter_add(b, b->options.model);
  state *s = m ? calloc(1, sizeof *s) : NULL;
  if (!s) {
    if (!b->status) b->status = attn_fail(ATTN_ENOMEM, "out of memory to measure %s", b->options.model);
    return NULL;
  }
  m->state = s;
  m->release = release;
  if ((b->status = data_llama_open(b->options.model, &s->model))) return NULL;
  const data_llama_config *c = data_llama_get_config(s->model);
  m->n = s->n = attn_min(n, c->max_positions);
  m->d = c->head_dim;
  s->tokens = calloc((size_t)s->n, sizeof *s->tokens);
  s->logits = calloc((size_t)c->vocab, sizeof *s->logits);
  if (!s->tokens || !s->logits) b->status = attn_fail(ATTN_ENOMEM, "out of memory for a window");
  for (int64_t i = 0; !b->status && i < s->n; i++) s->tokens[i] = (37 * i + 11) % c->vocab;
  return b->status ? NULL : m;
}

void bench_model(bench *b) {
  const int64_t own = b->options.quick ? QUICK_WINDOW : WINDOW;
  size_t count;
  const int64_t *n = bench_list(&b->options.n, &own, 1, &count);
  if (!b->options.model && !b->status)
    b->status = attn_fail(ATTN_EINVAL, "the group model needs a model: --model");
  for (size_t i = 0; !b->status && i < count; i++) {
    bench_meter *token = meter_of(b, n[i]), *window = meter_of(b, n[i]);
    if (b->status) return;
    const data_llama *model = ((state *)token->state)->model;
    const data_llama_config *c = data_llama_get_config(model);
    const data_llama_work work = data_llama_token_work(model);
    const double length = (double)window->n;
    token->bytes = work.bytes;
    token->tokens = 1;
    token->measure = measure_step;
    /* Q K^T and P V of a causal window, beside the products with weights. */
    window->flops =
        2 * length * work.multiply_adds + 2 * length * length * (double)(c->layers * c->heads * c->head_dim);
    window->tokens = length;
    window->measure = measure_pass;
    bench_put(b, bench_set_add(b, bench_bandwidth(b, 0)), token);
    bench_put(b, bench_set_add(b, bench_peak(b, NULL, 0, ATTN_PEAK_F32)), window);
    bench_row_add(b, ROW_OVER_LIMIT, token, NULL, TARGET_MODEL_DECODE,
                  "a token: weights read over bandwidth");
    bench_row_add(b, ROW_OVER_LIMIT, window, NULL, TARGET_MODEL_PREFILL, "a window: over the peak");
  }
}
