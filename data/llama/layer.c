/* layer.c - a layer of the forward pass over a window (layer.h). */
#include "data/llama/layer.h"

#include <math.h>
#include <stdlib.h>

#include "data/llama/rope.h"

/* -- weights -- */

attn_status llama_weights_load(const llama_window *w, int64_t index, llama_weights *out) {
  const llama_layer *l = &w->model->layer[index];
  const data_llama_config *c = &w->model->config;
  const int64_t turned = w->model->adjacent_pairs ? c->rotary_dim : 0;
  const struct {
    const tensor *from;
    float **to;
  } vectors[] = {{l->attention_norm, &out->attention_norm},
                 {l->mlp_norm, &out->mlp_norm},
                 {l->q_norm, &out->q_norm},
                 {l->k_norm, &out->k_norm}};
  const struct {
    llama_linear from;
    int64_t turned;
    product_matrix *to;
  } matrices[] = {{l->q, turned, &out->q}, {l->k, turned, &out->k},  {l->v, 0, &out->v},
                  {l->o, 0, &out->o},      {l->gate, 0, &out->gate}, {l->up, 0, &out->up},
                  {l->down, 0, &out->down}};
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < sizeof vectors / sizeof *vectors; i++)
    if (vectors[i].from) status = product_vector_load(vectors[i].from, vectors[i].to);
  for (size_t i = 0; !status && i < sizeof matrices / sizeof *matrices; i++)
    status = product_matrix_load(&w->tools, matrices[i].from.weight, matrices[i].from.bias, c->head_dim,
                                 matrices[i].turned, matrices[i].to);
  return status;
}

void llama_weights_free(llama_weights *w) {
  float *vectors[] = {w->attention_norm, w->mlp_norm, w->q_norm, w->k_norm};
  product_matrix *matrices[] = {&w->q, &w->k, &w->v, &w->o, &w->gate, &w->up, &w->down};
  for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) free(vectors[i]);
  for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) product_matrix_free(matrices[i]);
  *w = (llama_weights){0};
}

/* -- a window -- */

static void make_turns(llama_window *w, int64_t first) {
  const data_llama_config *c = &w->model->config;
#pragma omp parallel for num_threads(w->tools.threads)
  for (int64_t i = 0; i < w->n; i++)
    rope_cos_sin(c->rotary_dim, w->frequency, first + i, c->rope.attention, w->turns + i * c->rotary_dim);
  w->turns_first = first;
}

attn_status llama_window_make(const data_llama *m, const attn_kernels *kernels, int64_t n,
                              llama_window *out) {
  const data_llama_config *c = &m->config;
  const int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
  llama_window w = {.model = m, .n = n};
  const struct {
    const char *what;
    int64_t rows, columns;
    size_t size;
    void *to;
  } table[] = {{"the normalised state", n, c->hidden, sizeof(float), &w.h},
               {"queries", n, q, sizeof(float), &w.q},
               {"keys", n, kv, sizeof(float), &w.k},
               {"values", n, kv, sizeof(float), &w.v},
               {"the attention's output", n, q, sizeof(float), &w.mixed},
               {"the gate", n, c->intermediate, sizeof(float), &w.gate},
               {"the up projection", n, c->intermediate, sizeof(float), &w.up},
               {"frequencies", 1, c->rotary_dim / 2, sizeof(double), &w.frequency},
               {"rotations", n, c->rotary_dim, sizeof(double), &w.turns}};
  attn_status status = product_tools_make(kernels, &w.tools);
  for (size_t i = 0; !status && i < sizeof table / sizeof *table; i++)
    status = product_allocate(table[i].what, table[i].rows, table[i].columns, table[i].size, table[i].to);
  if (!status) {
    data_rope_frequencies(&c->rope, c->rotary_dim, n, w.frequency);
    make_turns(&w, 0);
    *out = w;
  } else {
    llama_window_free(&w);
  }
  return status;
}

void llama_window_free(llama_window *w) {
  void *all[] = {w->h, w->q, w->k, w->v, w->mixed, w->gate, w->up, w->frequency, w->turns};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
  product_tools_free(&w->tools);
  *w = (llama_window){0};
}

/* y[d] = rms(x) * weight */
static void normalise_row(int64_t d, double eps, const float *x, const float *weight, float *y) {
  double sum = 0;
  for (int64_t j = 0; j < d; j++) sum += (double)x[j] * (double)x[j];
  const float factor = (float)(1 / sqrt(sum / (double)d + eps));
  for (int64_t j = 0; j < d; j++) y[j] = x[j] * factor * weight[j];
}

void llama_normalise(const llama_window *w, int64_t n, const float *x, const float *weight, float *h) {
  const int64_t d = w->model->config.hidden;
#pragma omp parallel for num_threads(w->tools.threads)
  for (int64_t i = 0; i < n; i++) normalise_row(d, w->model->config.rms_eps, x + i * d, weight, h + i * d);
}

static void normalise_heads(const llama_window *w, int64_t heads, const float *weight, float *x) {
  const int64_t d = w->model->config.head_dim;
#pragma omp parallel for num_threads(w->tools.threads)
  for (int64_t i = 0; i < w->n * heads; i++)
    normalise_row(d, w->model->config.rms_eps, x + i * d, weight, x + i * d);
}

void llama_project(llama_window *w, const llama_weights *l, const float *x) {
  const data_llama_config *c = &w->model->config;
  llama_normalise(w, w->n, x, l->attention_norm, w->h);
  product_multiply(&w->tools, &l->q, w->n, w->h, false, w->q);
  product_multiply(&w->tools, &l->k, w->n, w->h, false, w->k);
  product_multiply(&w->tools, &l->v, w->n, w->h, false, w->v);
  if (c->head_norms) normalise_heads(w, c->heads, l->q_norm, w->q);
  if (c->head_norms) normalise_heads(w, c->kv_heads, l->k_norm, w->k);
}

void llama_rotate(llama_window *w, int64_t first) {
  const data_llama_config *c = &w->model->config;
  const int64_t d = c->head_dim, turned = c->rotary_dim;
  if (w->turns_first != first) make_turns(w, first);
#pragma omp parallel for num_threads(w->tools.threads)
  for (int64_t i = 0; i < w->n; i++) {
    const double *turns = w->turns + i * turned;
    for (int64_t h = 0; h < c->heads; h++) rope_turn(turned, turns, w->q + (i * c->heads + h) * d);
    for (int64_t h = 0; h < c->kv_heads; h++) rope_turn(turned, turns, w->k + (i * c->kv_heads + h) * d);
  }
}

void llama_add(llama_window *w, const llama_weights *l, float *x) {
  product_multiply(&w->tools, &l->o, w->n, w->mixed, true, x);
}

void llama_finish(llama_window *w, const llama_weights *l, float *x) {
  llama_normalise(w, w->n, x, l->mlp_norm, w->h);
  product_multiply(&w->tools, &l->gate, w->n, w->h, false, w->gate);
  product_multiply(&w->tools, &l->up, w->n, w->h, false, w->up);
  const int64_t count = w->n * w->model->config.intermediate;
#pragma omp parallel for num_threads(w->tools.threads)
  for (int64_t i = 0; i < count; i++) w->gate[i] = w->gate[i] / (1 + expf(-w->gate[i])) * w->up[i];
  product_multiply(&w->tools, &l->down, w->n, w->gate, true, x);
}
