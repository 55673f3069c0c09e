/* forward.c - the forward pass of the Llama architecture (Touvron et al. 2023), f32.
 *
 * x = E[token]; a layer: h = rms(x) * g1; q, k, v = h Wq^T, h Wk^T, h Wv^T; q, k rotated; x += attention(q,
 * k, v) Wo^T; h = rms(x) * g2; x += (silu(h Wg^T) * (h Wu^T)) Wd^T; logits = (rms(x) * g) H^T; rms(x) = x /
 * sqrt(mean(x^2) + eps).
 *
 * Weights stay as they are in the files and are widened to f32 slice by slice where they are multiplied: a
 * slice serves all positions, so this costs little, and a model larger than memory in f32 still runs.
 * Attention is the library's tiled variant, products are its matrix product; both give the same bits for any
 * number of threads. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"
#include "data/formats/qkv.h"
#include "data/llama/llama.h"
#include "data/support/file.h"

enum { SLICE = 1 << 22 /* elements of a weight matrix widened at a time */ };

/* The state of one window of tokens between layers. Every buffer is f32 but the last two. */
typedef struct forward {
  const data_llama *model;
  int64_t n; /* positions of the window */
  attn_plan *plan;
  const attn_kernels *kernels;
  int threads;
  size_t gemm_bytes;        /* scratch of one thread */
  float *x, *h;             /* [n, hidden] */
  float *q, *k, *v, *mixed; /* [n, heads * d], [n, kv_heads * d] twice, [n, heads * d] */
  float *gate, *up;         /* [n, intermediate] */
  float *weight;            /* a slice */
  char *gemm, *work;
} forward;

static void forward_end(forward *f) {
  attn_plan_destroy(f->plan);
  void *all[] = {f->x, f->h, f->q, f->k, f->v, f->mixed, f->gate, f->up, f->weight, f->gemm, f->work};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
  *f = (forward){0};
}

static attn_status allocate(const char *what, int64_t rows, int64_t columns, size_t size, void *out) {
  size_t bytes;
  attn_status status = attn_size_product(what, (int64_t[]){rows, columns, (int64_t)size}, 3, &bytes);
  if (status) return status;
  void *at = aligned_alloc(64, (bytes / 64 + 1) * 64);
  if (!at) return attn_fail(ATTN_ENOMEM, "no memory for %s, %zu bytes", what, bytes);
  memcpy(out, &at, sizeof at);
  return ATTN_OK;
}

static attn_status forward_begin(const data_llama *m, int64_t n, forward *f) {
  const data_llama_config *c = &m->config;
  int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
  *f = (forward){.model = m, .n = n, .threads = omp_get_max_threads()};
  /* Rows of all heads lie side by side, as the linear layers write and read them. */
  attn_problem problem = attn_problem_make(1, c->heads, n, c->head_dim);
  problem.kv_heads = c->kv_heads;
  problem.causal = true;
  problem.q = problem.o = (attn_stride){n * q, c->head_dim, q};
  problem.k = problem.v = (attn_stride){n * kv, c->head_dim, kv};
  attn_status status = attn_plan_create(&f->plan, &problem, "tiled", NULL);
  if (status) return status;
  f->kernels = attn_plan_context(f->plan)->kernels;
  f->gemm_bytes = (attn_gemm_scratch(f->kernels) + 63) / 64 * 64;
  int64_t widest = c->hidden > c->intermediate ? c->hidden : c->intermediate;
  widest = widest > q ? widest : q;
  const struct {
    const char *what;
    int64_t rows, columns;
    size_t size;
    void *to;
  } table[] = {{"the hidden state", n, c->hidden, sizeof(float), &f->x},
               {"the normalised state", n, c->hidden, sizeof(float), &f->h},
               {"queries", n, q, sizeof(float), &f->q},
               {"keys", n, kv, sizeof(float), &f->k},
               {"values", n, kv, sizeof(float), &f->v},
               {"the attention's output", n, q, sizeof(float), &f->mixed},
               {"the gate", n, c->intermediate, sizeof(float), &f->gate},
               {"the up projection", n, c->intermediate, sizeof(float), &f->up},
               {"a slice of weights", 1, widest > SLICE ? widest : SLICE, sizeof(float), &f->weight},
               {"scratch of products", f->threads, (int64_t)f->gemm_bytes, 1, &f->gemm},
               {"scratch of attention", 1, (int64_t)attn_plan_work_size(f->plan) + 1, 1, &f->work}};
  for (size_t i = 0; !status && i < sizeof table / sizeof *table; i++)
    status = allocate(table[i].what, table[i].rows, table[i].columns, table[i].size, table[i].to);
  if (status) forward_end(f);
  return status;
}

/* y[n, rows of W] (+)= x[n, columns of W] W^T. */
static attn_status linear(forward *f, const tensor *w, const float *x, bool accumulate, float *y) {
  int64_t rows = w->shape[0], columns = w->shape[1];
  int64_t slice = SLICE / columns > 0 ? SLICE / columns : 1, part = (f->n + f->threads - 1) / f->threads;
  for (int64_t first = 0; first < rows; first += slice) {
    int64_t count = rows - first < slice ? rows - first : slice;
    attn_status status = tensor_to_f32(w, first * columns, count * columns, f->weight);
    if (status) return status;
#pragma omp parallel for num_threads(f->threads) schedule(static)
    for (int64_t i = 0; i < f->n; i += part) {
      int64_t m = f->n - i < part ? f->n - i : part;
      attn_gemm(f->kernels, m, count, columns, (attn_matrix){x + i * columns, columns, 1},
                (attn_matrix){f->weight, 1, columns}, accumulate, y + i * rows + first, rows,
                f->gemm + (size_t)omp_get_thread_num() * f->gemm_bytes);
    }
  }
  return ATTN_OK;
}

/* h = rms(x) * weight */
static attn_status normalise(forward *f, const tensor *weight) {
  int64_t d = f->model->config.hidden;
  double eps = f->model->config.rms_eps;
  attn_status status = tensor_to_f32(weight, 0, d, f->weight);
  if (status) return status;
#pragma omp parallel for num_threads(f->threads)
  for (int64_t i = 0; i < f->n; i++) {
    const float *x = f->x + i * d;
    double sum = 0;
    for (int64_t j = 0; j < d; j++) sum += (double)x[j] * (double)x[j];
    float factor = (float)(1 / sqrt(sum / (double)d + eps));
    for (int64_t j = 0; j < d; j++) f->h[i * d + j] = x[j] * factor * f->weight[j];
  }
  return ATTN_OK;
}

/* q, k, v of a layer before rotation. */
static attn_status project(forward *f, const llama_layer *l) {
  attn_status status = normalise(f, l->attention_norm);
  if (!status) status = linear(f, l->q, f->h, false, f->q);
  if (!status) status = linear(f, l->k, f->h, false, f->k);
  if (!status) status = linear(f, l->v, f->h, false, f->v);
  return status;
}

static void rotate(const forward *f, float *x, int64_t heads, int64_t first) {
  const data_llama_config *c = &f->model->config;
#pragma omp parallel for num_threads(f->threads)
  for (int64_t h = 0; h < heads; h++)
    data_rope_f32(x + h * c->head_dim, f->n, c->head_dim, heads * c->head_dim, first, c->rope_theta);
}

static attn_status layer(forward *f, const llama_layer *l) {
  const data_llama_config *c = &f->model->config;
  attn_status status = project(f, l);
  if (status) return status;
  rotate(f, f->q, c->heads, 0);
  rotate(f, f->k, c->kv_heads, 0);
  status = attn_plan_execute(f->plan, f->q, f->k, f->v, NULL, f->mixed, f->work);
  if (!status) status = linear(f, l->o, f->mixed, true, f->x);
  if (!status) status = normalise(f, l->mlp_norm);
  if (!status) status = linear(f, l->gate, f->h, false, f->gate);
  if (!status) status = linear(f, l->up, f->h, false, f->up);
  if (status) return status;
  int64_t count = f->n * c->intermediate;
#pragma omp parallel for num_threads(f->threads)
  for (int64_t i = 0; i < count; i++) f->gate[i] = f->gate[i] / (1 + expf(-f->gate[i])) * f->up[i];
  return linear(f, l->down, f->gate, true, f->x);
}

/* The hidden state before layer `layers`, of one window. */
static attn_status run_layers(forward *f, const int64_t *tokens, int64_t layers) {
  int64_t d = f->model->config.hidden;
  attn_status status = ATTN_OK;
  for (int64_t i = 0; !status && i < f->n; i++)
    status = tensor_to_f32(f->model->embedding, tokens[i] * d, d, f->x + i * d);
  for (int64_t i = 0; !status && i < layers; i++) status = layer(f, &f->model->layer[i]);
  return status;
}

static attn_status check_tokens(const data_llama *m, const int64_t *tokens, int64_t n) {
  if (n < 1) return attn_fail(ATTN_EINVAL, "%s: %" PRId64 " tokens; at least one is needed", m->directory, n);
  for (int64_t i = 0; i < n; i++)
    if (tokens[i] < 0 || tokens[i] >= m->config.vocab)
      return attn_fail(ATTN_EINVAL,
                       "token %" PRId64 " is %" PRId64 "; the vocabulary of %s is 0 ... %" PRId64, i,
                       tokens[i], m->directory, m->config.vocab - 1);
  return ATTN_OK;
}

/* The function that receives each window; first is its place among all positions. */
typedef attn_status window_fn(forward *, int64_t first, void *to);

static attn_status each_window(const data_llama *m, const int64_t *tokens, int64_t n, int64_t layers,
                               window_fn *done, void *to) {
  int64_t longest = m->config.max_positions;
  attn_status status = check_tokens(m, tokens, n);
  for (int64_t first = 0; !status && first < n; first += longest) {
    forward f;
    status = forward_begin(m, n - first < longest ? n - first : longest, &f);
    if (status) return status;
    status = run_layers(&f, tokens + first, layers);
    if (!status) status = done(&f, first, to);
    forward_end(&f);
  }
  return status;
}

static attn_status store_logits(forward *f, int64_t first, void *to) {
  float *logits = to;
  attn_status status = normalise(f, f->model->norm);
  if (status) return status;
  return linear(f, f->model->head, f->h, false, logits + first * f->model->config.vocab);
}

attn_status data_llama_logits(const data_llama *m, const int64_t *tokens, int64_t n, float *logits) {
  return each_window(m, tokens, n, m->config.layers, store_logits, logits);
}

typedef struct capture {
  data_qkv *made;
  int64_t layer;
  bool pre_rope;
} capture;

/* [positions of the window, heads, d] to rows first ... of [heads, positions, d]. */
static void store_rows(const forward *f, const float *from, int64_t heads, int64_t first, int64_t n,
                       float *to) {
  int64_t d = f->model->config.head_dim;
  for (int64_t h = 0; h < heads; h++)
    for (int64_t i = 0; i < f->n; i++)
      memcpy(to + (h * n + first + i) * d, from + (i * heads + h) * d, (size_t)d * sizeof *to);
}

static attn_status store_qkv(forward *f, int64_t first, void *to) {
  const capture *c = to;
  const data_llama_config *about = &f->model->config;
  attn_status status = project(f, &f->model->layer[c->layer]);
  if (status) return status;
  if (!c->pre_rope) {
    rotate(f, f->q, about->heads, first);
    rotate(f, f->k, about->kv_heads, first);
  }
  store_rows(f, f->q, about->heads, first, c->made->n_q, c->made->q);
  store_rows(f, f->k, about->kv_heads, first, c->made->n_kv, c->made->k);
  store_rows(f, f->v, about->kv_heads, first, c->made->n_kv, c->made->v);
  return ATTN_OK;
}

attn_status data_llama_capture(const data_llama *m, const int64_t *tokens, int64_t n, int64_t index,
                               bool pre_rope, data_qkv *out) {
  const data_llama_config *c = &m->config;
  if (index < 0 || index >= c->layers)
    return attn_fail(ATTN_EINVAL, "layer %" PRId64 ": the layers of %s are 0 ... %" PRId64, index,
                     m->directory, c->layers - 1);
  data_qkv made = {.batch = 1,
                   .heads = c->heads,
                   .kv_heads = c->kv_heads,
                   .n_q = n,
                   .n_kv = n,
                   .d_qk = c->head_dim,
                   .d_v = c->head_dim,
                   .rank = 3,
                   .dtype = ATTN_F32};
  attn_status status = check_tokens(m, tokens, n);
  if (!status) status = qkv_alloc(&made);
  if (!status) status = each_window(m, tokens, n, index, store_qkv, &(capture){&made, index, pre_rope});
  if (!status) made.description = text_format("%s layer %" PRId64, m->directory, index);
  if (!status && !made.description) status = ATTN_ENOMEM;
  if (!status)
    *out = made;
  else
    data_qkv_free(&made);
  return status;
}
