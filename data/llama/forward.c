/* forward.c - logits of a text, and queries, keys and values of one layer. What is longer than the model's
 * context is cut into independent windows. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/formats/qkv.h"
#include "data/llama/layer.h"
#include "data/support/file.h"

/* Called for the whole windows together, and for what is left; first is their place among all positions. */
typedef attn_status part_fn(const data_llama *, const int64_t *tokens, int64_t windows, int64_t n,
                            int64_t first, void *to);

static attn_status each_part(const data_llama *m, const int64_t *tokens, int64_t n, part_fn *part, void *to) {
  const int64_t longest = m->config.max_positions, whole = n / longest, left = n - whole * longest;
  attn_status status = ATTN_OK;
  if (n < 1) return attn_fail(ATTN_EINVAL, "%s: %" PRId64 " tokens; at least one is needed", m->path, n);
  if (whole > 0) status = part(m, tokens, whole, longest, 0, to);
  if (!status && left > 0) status = part(m, tokens + n - left, 1, left, n - left, to);
  return status;
}

typedef struct logits {
  float *at; /* of the part's first position */
  int64_t n, vocab;
} logits;

static attn_status store_logits(void *to, const data_llama_rows *r) {
  const logits *l = to;
  memcpy(l->at + (r->window * l->n + r->first) * l->vocab, r->logits[0],
         (size_t)(r->rows * l->vocab) * sizeof *l->at);
  return ATTN_OK;
}

static attn_status logits_of_part(const data_llama *m, const int64_t *tokens, int64_t windows, int64_t n,
                                  int64_t first, void *to) {
  logits l = {(float *)to + first * m->config.vocab, n, m->config.vocab};
  return data_llama_run(
      m, &(data_llama_pass){.tokens = tokens, .windows = windows, .n = n, .to = &l, .logits = store_logits});
}

attn_status data_llama_logits(const data_llama *m, const int64_t *tokens, int64_t n, float *to) {
  return each_part(m, tokens, n, logits_of_part, to);
}

static void add_matrix(const product_rows *m, data_llama_work *to) {
  if (!m->weight) return;
  const double count = (double)(m->rows * m->columns);
  to->multiply_adds += count;
  to->bytes += count / (double)m->weight->format->block * (double)m->weight->format->bytes;
}

data_llama_work data_llama_token_work(const data_llama *m) {
  data_llama_work sum = {0, 0};
  for (int64_t l = 0; l < m->config.layers; l++)
    for (int p = LLAMA_NORMS; p < LLAMA_PARTS; p++) add_matrix(&m->layer[l].part[p], &sum);
  add_matrix(&m->head, &sum);
  return sum;
}

typedef struct capture {
  data_qkv *made;
  int64_t layer;
  bool pre_rope;
} capture;

/* [positions of the window, heads, d] to rows first ... of [heads, positions, d]. */
static void store_rows(const llama_window *w, const float *from, int64_t heads, int64_t first, int64_t n,
                       float *to) {
  const int64_t d = w->model->config.head_dim;
  for (int64_t h = 0; h < heads; h++)
    for (int64_t i = 0; i < w->n; i++)
      memcpy(to + (h * n + first + i) * d, from + (i * heads + h) * d, (size_t)d * sizeof *to);
}

static attn_status capture_part(const data_llama *m, const int64_t *tokens, int64_t windows, int64_t n,
                                int64_t first, void *to) {
  const capture *c = to;
  llama_window window = {0};
  llama_weights loaded = {0};
  float *x = NULL;
  attn_status status = llama_hidden(m, tokens, windows, n, c->layer, &x, &window);
  if (!status) status = llama_weights_load(&window, c->layer, product_matrix_load, &loaded);
  for (int64_t w = 0; !status && w < windows; w++) {
    const int64_t at = first + w * n;
    llama_project(&window, &loaded, x + w * n * m->config.hidden);
    if (!c->pre_rope) llama_rotate(&window, c->layer, true, at);
    store_rows(&window, window.q, m->config.heads, at, c->made->n_q, c->made->q);
    store_rows(&window, window.k, m->config.kv_heads, at, c->made->n_kv, c->made->k);
    store_rows(&window, window.v, m->config.kv_heads, at, c->made->n_kv, c->made->v);
  }
  free(x);
  llama_window_free(&window);
  llama_weights_free(&loaded);
  return status;
}

attn_status llama_check_layer(const data_llama *m, int64_t layer) {
  if (layer >= 0 && layer < m->config.layers) return ATTN_OK;
  return attn_fail(ATTN_EINVAL, "layer %" PRId64 ": the layers of %s are 0 ... %" PRId64, layer, m->path,
                   m->config.layers - 1);
}

attn_status data_llama_capture(const data_llama *m, const int64_t *tokens, int64_t n, int64_t index,
                               bool pre_rope, data_qkv *out) {
  const data_llama_config *c = &m->config;
  attn_status status = llama_check_layer(m, index);
  if (status) return status;
  if (m->kind->encoder && n > c->max_positions)
    return attn_fail(ATTN_EINVAL,
                     "%s: %" PRId64 " tokens, expected 1 to %" PRId64 ", the encoder's positions", m->path, n,
                     c->max_positions);
  if ((c->rope.kind == DATA_ROPE_DYNAMIC || c->rope.kind == DATA_ROPE_LONGROPE) && n > c->max_positions)
    return attn_fail(
        ATTN_EUNSUPPORTED,
        "%s: %" PRId64 " positions, more than its %" PRId64
        ": rotations by the length of a window, of windows of different lengths do not go together",
        m->path, n, c->max_positions);
  data_qkv made = {.batch = 1,
                   .heads = c->heads,
                   .kv_heads = c->kv_heads,
                   .n_q = n,
                   .n_kv = n,
                   .d_qk = c->head_dim,
                   .d_v = c->head_dim,
                   .rank = 3,
                   .dtype = ATTN_F32};
  status = qkv_alloc(&made);
  if (!status) status = each_part(m, tokens, n, capture_part, &(capture){&made, index, pre_rope});
  if (!status) made.description = text_format("%s layer %" PRId64, m->path, index);
  if (!status && !made.description) status = ATTN_ENOMEM;
  if (!status)
    *out = made;
  else
    data_qkv_free(&made);
  return status;
}
