/* layer.c - a layer of the forward pass over a window (layer.h). */
#include "data/llama/layer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/llama/rope.h"

/* -- weights -- */

attn_status llama_norm_load(const data_llama *m, const product_rows *from, int64_t count, llama_norm *to) {
  if (!from->weight) return ATTN_OK;
  to->count = count * from->rows;
  attn_status status =
      to->weight ? ATTN_OK : product_allocate("a norm", 1, to->count, sizeof *to->weight, &to->weight);
  for (int64_t i = 0; !status && i < count; i++)
    status =
        tensor_to_f32(from[i].weight, from[i].expert * from->rows, from->rows, to->weight + i * from->rows);
  for (int64_t i = 0; !status && m->kind->plus_one && !m->in_gguf && i < to->count; i++) to->weight[i] += 1;
  return !status && from->bias ? product_vector_load(from->bias, &to->bias) : status;
}

void llama_norm_free(llama_norm *n) {
  free(n->weight);
  free(n->bias);
  *n = (llama_norm){.weight = NULL};
}

attn_status llama_weights_load(const llama_window *w, int64_t index, llama_matrix_get *get,
                               llama_weights *out) {
  const llama_layer *l = &w->model->layer[index];
  const data_llama_config *c = &w->model->config;
  attn_status status = ATTN_OK;
  out->get = get;
  for (int p = 0; !status && p < LLAMA_NORMS; p++) {
    if (!l->part[p].weight) llama_norm_free(&out->norm[p]); /* that of a layer before */
    status = llama_norm_load(w->model, &l->part[p], 1, &out->norm[p]);
  }
  if (!status && w->model->config.qk_norms && w->model->kind->norms_of_heads) {
    status = llama_norm_load(w->model, l->one, c->heads, &out->norm[LLAMA_Q_NORM]);
    if (!status) status = llama_norm_load(w->model, l->one + c->heads, c->kv_heads, &out->norm[LLAMA_K_NORM]);
  }
  for (int p = LLAMA_NORMS; !status && p < LLAMA_PARTS; p++) {
    const product_rows *from = &l->part[p];
    if (from->rows != out->matrix[p].rows || from->columns != out->matrix[p].columns)
      product_matrix_free(&out->matrix[p]);
    if (from->weight) status = get(&w->tools, from, &out->matrix[p]);
  }
  return status;
}

void llama_weights_free(llama_weights *w) {
  for (int p = 0; p < LLAMA_NORMS; p++) llama_norm_free(&w->norm[p]);
  for (int p = LLAMA_NORMS; p < LLAMA_PARTS; p++) product_matrix_free(&w->matrix[p]);
}

/* -- a window -- */

static void make_turns(const llama_window *w, llama_rotation *r, int64_t first) {
  const int64_t d = w->model->config.rotary_dim;
#pragma omp parallel for num_threads(w->tools.threads)
  for (int64_t i = 0; i < w->n; i++) rope_cos_sin(d, r->frequency, first + i, r->attention, r->turns + i * d);
  r->first = first;
}

/* Of the layer; NULL: it does not turn. */
static llama_rotation *rotation_of(llama_window *w, int64_t layer) {
  const data_llama_config *c = &w->model->config;
  if (c->rotary_dim == 0 || c->layer[layer] & DATA_LLAMA_UNTURNED) return NULL;
  return &w->rotation[c->window_theta > 0 && c->layer[layer] & DATA_LLAMA_WINDOW];
}

static attn_status make_rotations(llama_window *w) {
  const data_llama_config *c = &w->model->config;
  const data_rope ropes[] = {c->rope, {.kind = DATA_ROPE_PLAIN, .theta = c->window_theta, .attention = 1}};
  attn_status status = ATTN_OK;
  for (int i = 0; !status && c->rotary_dim > 0 && i < 1 + (c->window_theta > 0); i++) {
    llama_rotation *r = &w->rotation[i];
    status = product_allocate("frequencies", 1, c->rotary_dim / 2, sizeof *r->frequency, &r->frequency);
    if (!status) status = product_allocate("rotations", w->n, c->rotary_dim, sizeof *r->turns, &r->turns);
    if (status) return status;
    r->attention = ropes[i].attention;
    data_rope_frequencies(&ropes[i], c->rotary_dim, w->n, r->frequency);
    make_turns(w, r, 0);
  }
  return status;
}

attn_status llama_window_make(const data_llama *m, const attn_kernels *kernels, int64_t n,
                              llama_window *out) {
  const data_llama_config *c = &m->config;
  const int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
  const int64_t widths[] = {c->intermediate, c->expert_intermediate, c->shared_intermediate};
  int64_t inner = 0;
  for (int i = 0; i < 3; i++) inner = widths[i] > inner ? widths[i] : inner;
  llama_window w = {.model = m, .n = n};
  const struct {
    const char *what;
    int64_t columns;
    float **to;
  } table[] = {{"the normalised state", c->hidden, &w.h},
               {"what is added to the state", c->hidden, &w.added},
               {"queries", q, &w.q},
               {"keys", kv, &w.k},
               {"values", kv, &w.v},
               {"the attention's output", q, &w.mixed},
               {"the gate", inner, &w.gate},
               {"the up projection", inner, &w.up}};
  attn_status status = product_tools_make(kernels, &w.tools);
  for (size_t i = 0; !status && i < sizeof table / sizeof *table; i++)
    status = product_allocate(table[i].what, n, table[i].columns, sizeof(float), table[i].to);
  if (!status) status = make_rotations(&w);
  if (!status) status = llama_norm_load(m, &m->embedding_norm, 1, &w.embedding_norm);
  if (!status && m->types.weight) status = product_allocate("a type", 1, c->hidden, sizeof(float), &w.type);
  if (!status && m->types.weight) status = tensor_to_f32(m->types.weight, 0, c->hidden, w.type);
  if (!status)
    *out = w;
  else
    llama_window_free(&w);
  return status;
}

void llama_window_free(llama_window *w) {
  void *all[] = {w->h,
                 w->added,
                 w->q,
                 w->k,
                 w->v,
                 w->mixed,
                 w->up,
                 w->gate,
                 w->type,
                 w->rotation[0].frequency,
                 w->rotation[0].turns,
                 w->rotation[1].frequency,
                 w->rotation[1].turns};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
  llama_norm_free(&w->embedding_norm);
  for (int i = 0; i < 3; i++) product_matrix_free(&w->expert[i]);
  product_tools_free(&w->tools);
  *w = (llama_window){0};
}

/* -- norms -- */

static void normalise_row(const data_llama *m, int64_t d, const float *x, const float *weight,
                          const float *bias, float *y) {
  double sum = 0, mean = 0;
  for (int64_t j = 0; m->kind->layer_norm && j < d; j++) mean += (double)x[j] / (double)d;
  for (int64_t j = 0; j < d; j++) sum += ((double)x[j] - mean) * ((double)x[j] - mean);
  const double factor = 1 / sqrt(sum / (double)d + m->config.norm_eps);
  if (!m->kind->layer_norm) {
    for (int64_t j = 0; j < d; j++) y[j] = x[j] * (float)factor * weight[j];
    return;
  }
  for (int64_t j = 0; j < d; j++)
    y[j] = (float)(((double)x[j] - mean) * factor) * weight[j] + (bias ? bias[j] : 0);
}

/* n rows of d, in place or not; without a norm nothing happens. */
static void normalise(const llama_window *w, int64_t n, int64_t d, const float *x, const llama_norm *by,
                      float *y) {
  if (!by->weight) return;
#pragma omp parallel for num_threads(w->tools.threads)
  for (int64_t i = 0; i < n; i++)
    normalise_row(w->model, d, x + i * d, by->weight + i * d % by->count, by->bias, y + i * d);
}

void llama_normalise(const llama_window *w, int64_t n, const float *x, const llama_norm *by, float *h) {
  normalise(w, n, w->model->config.hidden, x, by, h);
}

/* norm(x), in w->h, or x itself. */
static const float *normalised(llama_window *w, const llama_norm *by, const float *x) {
  llama_normalise(w, w->n, x, by, w->h);
  return by->weight ? w->h : x;
}

/* -- the parts of a layer -- */

attn_status llama_embed(llama_window *w, int64_t token, int64_t position, float *x) {
  const data_llama *m = w->model;
  const int64_t d = m->config.hidden;
  const float scale = (float)m->config.embedding_scale;
  attn_status status = tensor_to_f32(m->embedding.weight, token * d, d, x);
  for (int64_t j = 0; j < d; j++) x[j] *= scale;
  if (!status && m->positions.weight) status = tensor_to_f32(m->positions.weight, position * d, d, w->h);
  for (int64_t j = 0; !status && m->positions.weight && j < d; j++) x[j] += w->h[j];
  for (int64_t j = 0; w->type && j < d; j++) x[j] += w->type[j];
  if (!status) llama_normalise(w, 1, x, &w->embedding_norm, x);
  return status;
}

void llama_project(llama_window *w, const llama_weights *l, const float *x) {
  const data_llama_config *c = &w->model->config;
  const float *h = normalised(w, &l->norm[LLAMA_ATTENTION_NORM], x);
  const int64_t q = w->model->kind->whole_norms ? 1 : c->heads,
                k = w->model->kind->whole_norms ? 1 : c->kv_heads;
  product_multiply(&w->tools, &l->matrix[LLAMA_Q], w->n, h, false, w->q);
  product_multiply(&w->tools, &l->matrix[LLAMA_K], w->n, h, false, w->k);
  product_multiply(&w->tools, &l->matrix[LLAMA_V], w->n, h, false, w->v);
  normalise(w, w->n * q, c->heads * c->head_dim / q, w->q, &l->norm[LLAMA_Q_NORM], w->q);
  normalise(w, w->n * k, c->kv_heads * c->head_dim / k, w->k, &l->norm[LLAMA_K_NORM], w->k);
}

void llama_rotate(llama_window *w, int64_t layer, bool each_row, int64_t first) {
  const data_llama_config *c = &w->model->config;
  const int64_t d = c->head_dim, turned = c->rotary_dim;
  llama_rotation *r = rotation_of(w, layer);
  if (!r) return;
  if (r->first != first) make_turns(w, r, first);
#pragma omp parallel for num_threads(w->tools.threads)
  for (int64_t i = 0; i < w->n; i++) {
    const double *turns = r->turns + (each_row ? i * turned : 0);
    for (int64_t h = 0; h < c->heads; h++) rope_turn(turned, turns, w->q + (i * c->heads + h) * d);
    for (int64_t h = 0; h < c->kv_heads; h++) rope_turn(turned, turns, w->k + (i * c->kv_heads + h) * d);
  }
}

/* x += in W^T, or what a norm and a constant make of it. */
static const float *add_product(llama_window *w, const product_matrix *by, const float *in,
                                const llama_norm *post, float *x) {
  const int64_t count = w->n * w->model->config.hidden;
  const float scale = (float)w->model->config.residual_scale;
  const bool of_sum = w->model->kind->norms_of_sums;
  if (of_sum || (!post->weight && scale >= 1 && scale <= 1)) {
    product_multiply(&w->tools, by, w->n, in, true, x);
    if (of_sum) llama_normalise(w, w->n, x, post, x);
    return x;
  }
  product_multiply(&w->tools, by, w->n, in, false, w->added);
  const float *h = normalised(w, post, w->added);
  for (int64_t i = 0; i < count; i++) x[i] += scale * h[i];
  return w->added;
}

/* What the last product is of; gpt-oss clips its gate and what it multiplies, and adds 1 to this. */
static float join(const data_llama_config *c, float gate, float up) {
  const float limit = (float)c->gate_limit, slope = (float)c->gate_slope;
  if (!(limit > 0)) return c->activation(gate) * up;
  gate = fminf(gate, limit);
  return c->activation(slope * gate) / slope * (fmaxf(fminf(up, limit), -limit) + 1);
}

float *llama_activate(llama_window *w, const product_matrix matrix[3], int64_t n, const float *h) {
  const bool gated = matrix[0].rows > 0;
  const int64_t count = n * matrix[1].rows;
  float *up = w->up, *gate = gated ? w->gate : up;
  product_multiply(&w->tools, &matrix[1], n, h, false, up);
  if (gated) product_multiply(&w->tools, &matrix[0], n, h, false, gate);
#pragma omp parallel for num_threads(w->tools.threads)
  for (int64_t i = 0; i < count; i++)
    gate[i] = gated ? join(&w->model->config, gate[i], up[i]) : w->model->config.activation(up[i]);
  return gate;
}

static const float *activate(llama_window *w, const llama_weights *l, const float *x) {
  return llama_activate(w, &l->matrix[LLAMA_GATE], w->n, normalised(w, &l->norm[LLAMA_MLP_NORM], x));
}

static void add_mlp(llama_window *w, const llama_weights *l, const float *inner, float *x) {
  add_product(w, &l->matrix[LLAMA_DOWN], inner, &l->norm[LLAMA_MLP_POST_NORM], x);
}

const float *llama_add(llama_window *w, const llama_weights *l, float *x) {
  const float *inner = w->model->config.parallel ? activate(w, l, x) : NULL;
  if (inner) add_mlp(w, l, inner, x);
  return add_product(w, &l->matrix[LLAMA_O], w->mixed, &l->norm[LLAMA_ATTENTION_POST_NORM], x);
}

attn_status llama_finish(llama_window *w, int64_t layer, const llama_weights *l, float *const *x,
                         int64_t count) {
  if (w->model->config.layer[layer] & DATA_LLAMA_EXPERTS) return llama_mix(w, layer, l, x, count);
  for (int64_t i = 0; !w->model->config.parallel && i < count; i++) add_mlp(w, l, activate(w, l, x[i]), x[i]);
  return ATTN_OK;
}

void llama_bend_logits(const llama_window *w, int64_t count, float *logits) {
  const data_llama_config *c = &w->model->config;
  const float scale = (float)c->logit_scale, cap = (float)c->logit_cap;
  if (scale >= 1 && scale <= 1 && !(cap > 0)) return;
#pragma omp parallel for num_threads(w->tools.threads)
  for (int64_t i = 0; i < count; i++) {
    logits[i] *= scale;
    if (cap > 0) logits[i] = cap * tanhf(logits[i] / cap);
  }
}
