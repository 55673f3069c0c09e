/* encode.c - the forward pass of an encoder, f32, up to the queries, keys and values of a layer (bert.h). */
#define _XOPEN_SOURCE 700
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/bert/bert_model.h"
#include "data/formats/qkv.h"
#include "data/support/file.h"
#include "data/weights/product.h"

typedef struct norm {
  float *weight, *bias;
} norm;

typedef struct pass {
  const bert *model;
  attn_plan *attention;
  product_tools tools;
  int64_t n;
  float *x, *q, *k, *v, *mixed, *inner; /* [n, hidden], and the last [n, intermediate] */
  char *work;
  norm attention_norm, last_norm;
  product_matrix wq, wk, wv, wo, up, down;
} pass;

static void pass_end(pass *p) {
  void *all[] = {p->x,
                 p->q,
                 p->k,
                 p->v,
                 p->mixed,
                 p->inner,
                 p->work,
                 p->attention_norm.weight,
                 p->attention_norm.bias,
                 p->last_norm.weight,
                 p->last_norm.bias};
  product_matrix *matrices[] = {&p->wq, &p->wk, &p->wv, &p->wo, &p->up, &p->down};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
  for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) product_matrix_free(matrices[i]);
  product_tools_free(&p->tools);
  attn_plan_destroy(p->attention);
}

static attn_status pass_begin(const bert *m, int64_t n, pass *p) {
  const bert_config *c = &m->config;
  const int64_t d = c->hidden / c->heads;
  attn_problem problem = attn_problem_make(1, c->heads, n, d);
  *p = (pass){.model = m, .n = n};
  problem.q = problem.k = problem.v = problem.o = (attn_stride){n * c->hidden, d, c->hidden, 0};
  attn_status status = attn_plan_create(&p->attention, &problem, "tiled", NULL);
  if (!status) status = product_tools_make(attn_plan_context(p->attention)->kernels, &p->tools);
  float **states[] = {&p->x, &p->q, &p->k, &p->v, &p->mixed};
  for (size_t i = 0; !status && i < sizeof states / sizeof *states; i++)
    status = product_allocate("hidden states", n, c->hidden, sizeof(float), states[i]);
  if (!status) status = product_allocate("hidden states", n, c->intermediate, sizeof(float), &p->inner);
  if (!status)
    status = product_allocate("scratch of attention", 1, (int64_t)attn_plan_work_size(p->attention) + 1, 1,
                              &p->work);
  return status;
}

static attn_status load_norm(bert_pair from, norm *to) {
  attn_status status = product_vector_load(from.weight, &to->weight);
  return status ? status : product_vector_load(from.bias, &to->bias);
}

/* x <- (x - mean) / sqrt(variance + eps) * g + b, row by row */
static void normalise(const pass *p, const norm *by) {
  const int64_t d = p->model->config.hidden;
#pragma omp parallel for num_threads(p->tools.threads)
  for (int64_t i = 0; i < p->n; i++) {
    float *x = p->x + i * d;
    double mean = 0, variance = 0;
    for (int64_t j = 0; j < d; j++) mean += (double)x[j] / (double)d;
    for (int64_t j = 0; j < d; j++) variance += ((double)x[j] - mean) * ((double)x[j] - mean) / (double)d;
    const double factor = 1 / sqrt(variance + p->model->config.eps);
    for (int64_t j = 0; j < d; j++)
      x[j] = (float)(((double)x[j] - mean) * factor) * by->weight[j] + by->bias[j];
  }
}

static attn_status embed(pass *p, const int64_t *tokens) {
  const bert *m = p->model;
  const int64_t d = m->config.hidden;
  float *row = NULL;
  attn_status status = product_allocate("an embedding", 2, d, sizeof *row, &row);
  norm first = {0};
  if (status) return status;
  status = tensor_to_f32(m->types, 0, d, row + d);
  for (int64_t i = 0; !status && i < p->n; i++) {
    float *x = p->x + i * d;
    status = tensor_to_f32(m->words, tokens[i] * d, d, x);
    if (!status) status = tensor_to_f32(m->positions, i * d, d, row);
    for (int64_t j = 0; j < d; j++) x[j] += row[d + j] + row[j];
  }
  if (!status) status = load_norm(m->norm, &first);
  if (!status) normalise(p, &first);
  free(first.weight);
  free(first.bias);
  free(row);
  return status;
}

static attn_status load_matrix(const pass *p, bert_pair from, product_matrix *to) {
  return product_matrix_load(&p->tools, from.weight, from.bias, 0, 0, to);
}

static attn_status project(pass *p, const bert_layer *l) {
  attn_status status = load_matrix(p, l->q, &p->wq);
  if (!status) status = load_matrix(p, l->k, &p->wk);
  if (!status) status = load_matrix(p, l->v, &p->wv);
  if (status) return status;
  product_multiply(&p->tools, &p->wq, p->n, p->x, false, p->q);
  product_multiply(&p->tools, &p->wk, p->n, p->x, false, p->k);
  product_multiply(&p->tools, &p->wv, p->n, p->x, false, p->v);
  return status;
}

static attn_status finish(pass *p, const bert_layer *l) {
  const int64_t count = p->n * p->model->config.intermediate;
  attn_status status = load_matrix(p, l->o, &p->wo);
  if (!status) status = load_matrix(p, l->up, &p->up);
  if (!status) status = load_matrix(p, l->down, &p->down);
  if (!status) status = load_norm(l->attention_norm, &p->attention_norm);
  if (!status) status = load_norm(l->norm, &p->last_norm);
  if (!status) status = attn_plan_execute(p->attention, p->q, p->k, p->v, NULL, p->mixed, p->work);
  if (status) return status;
  product_multiply(&p->tools, &p->wo, p->n, p->mixed, true, p->x);
  normalise(p, &p->attention_norm);
  product_multiply(&p->tools, &p->up, p->n, p->x, false, p->inner);
#pragma omp parallel for num_threads(p->tools.threads)
  for (int64_t i = 0; i < count; i++) p->inner[i] *= 0.5f * (1 + erff(p->inner[i] * (float)M_SQRT1_2));
  product_multiply(&p->tools, &p->down, p->n, p->inner, true, p->x);
  normalise(p, &p->last_norm);
  return ATTN_OK;
}

/* [n, heads, d] to [heads, n, d] */
static void store(const pass *p, const float *from, void *out) {
  const int64_t heads = p->model->config.heads, d = p->model->config.hidden / heads;
  for (int64_t h = 0; h < heads; h++)
    for (int64_t i = 0; i < p->n; i++)
      memcpy((float *)out + (h * p->n + i) * d, from + (i * heads + h) * d, (size_t)d * sizeof *from);
}

static attn_status check_tokens(const bert *m, const int64_t *tokens, int64_t n, int64_t layer) {
  const bert_config *c = &m->config;
  if (layer < 0 || layer >= c->layers)
    return attn_fail(ATTN_EINVAL, "layer %" PRId64 ": the layers of %s are 0 ... %" PRId64, layer, m->path,
                     c->layers - 1);
  if (n < 1 || n > c->max_positions)
    return attn_fail(ATTN_EINVAL, "%s: %" PRId64 " tokens, expected 1 to %" PRId64 ", its learned positions",
                     m->path, n, c->max_positions);
  for (int64_t i = 0; i < n; i++)
    if (tokens[i] < 0 || tokens[i] >= c->vocab)
      return attn_fail(ATTN_EINVAL,
                       "token %" PRId64 " is %" PRId64 "; the vocabulary of %s is 0 ... %" PRId64, i,
                       tokens[i], m->path, c->vocab - 1);
  return ATTN_OK;
}

attn_status bert_capture(const bert *m, const int64_t *tokens, int64_t n, int64_t layer, data_qkv *out) {
  const bert_config *c = &m->config;
  const int64_t d = c->hidden / c->heads;
  pass p = {0};
  attn_status status = check_tokens(m, tokens, n, layer);
  data_qkv made = {.batch = 1,
                   .heads = c->heads,
                   .kv_heads = c->heads,
                   .n_q = n,
                   .n_kv = n,
                   .d_qk = d,
                   .d_v = d,
                   .rank = 3,
                   .dtype = ATTN_F32};
  if (status) return status;
  status = pass_begin(m, n, &p);
  if (!status) status = embed(&p, tokens);
  for (int64_t l = 0; !status && l < layer; l++) {
    status = project(&p, &m->layer[l]);
    if (!status) status = finish(&p, &m->layer[l]);
  }
  if (!status) status = project(&p, &m->layer[layer]);
  if (!status) status = qkv_alloc(&made);
  if (!status) {
    store(&p, p.q, made.q);
    store(&p, p.k, made.k);
    store(&p, p.v, made.v);
    if (!(made.description = text_format("%s layer %" PRId64, m->path, layer))) status = ATTN_ENOMEM;
  }
  if (!status)
    *out = made;
  else
    data_qkv_free(&made);
  pass_end(&p);
  return status;
}
