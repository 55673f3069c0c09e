/* layer.c - a layer of the forward pass over a window (layer.h). */
#define _POSIX_C_SOURCE 200809L
#include "data/llama/layer.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { SLICE = 1 << 22 /* elements of a matrix that are packed together */ };

attn_status llama_allocate(const char *what, int64_t rows, int64_t columns, size_t size, void *out) {
  size_t bytes;
  attn_status status = attn_size_product(what, (int64_t[]){rows, columns, (int64_t)size}, 3, &bytes);
  if (status) return status;
  void *at = aligned_alloc(64, (bytes / 64 + 1) * 64);
  if (!at) return attn_fail(ATTN_ENOMEM, "no memory for %s, %zu bytes", what, bytes);
  memcpy(out, &at, sizeof at);
  return ATTN_OK;
}

/* -- weights -- */

attn_status llama_vector_load(const tensor *t, float **out) {
  attn_status status = *out ? ATTN_OK : llama_allocate(t->name, 1, t->shape[0], sizeof **out, out);
  return status ? status : tensor_to_f32(t, 0, t->shape[0], *out);
}

/* Rows first .. first+count-1 as f32; pairs as of llama_matrix_load. */
static attn_status widen_rows(const tensor *t, int64_t pairs, int64_t first, int64_t count, float *out) {
  const int64_t columns = t->shape[1];
  attn_status status = ATTN_OK;
  if (!pairs) return tensor_to_f32(t, first * columns, count * columns, out);
  for (int64_t row = first; !status && row < first + count; row++, out += columns) {
    const int64_t i = row % pairs, from = i < pairs / 2 ? 2 * i : 2 * i - pairs + 1;
    status = tensor_to_f32(t, (row - i + from) * columns, columns, out);
  }
  return status;
}

attn_status llama_matrix_load(const llama_window *w, const tensor *t, int64_t pairs, llama_matrix *m) {
  if (!m->at) {
    m->rows = t->shape[0];
    m->columns = t->shape[1];
    m->slice = SLICE / m->columns > 0 ? SLICE / m->columns : 1;
    m->slice = m->slice < m->rows ? m->slice : m->rows;
    m->stride = (attn_gemm_packed_bytes(w->kernels, m->columns, m->slice) + 63) / 64 * 64;
    attn_status status = llama_allocate(t->name, (m->rows - 1) / m->slice + 1, (int64_t)m->stride, 1, &m->at);
    if (status) return status;
  }
  attn_status failed = ATTN_OK;
#pragma omp parallel num_threads(w->threads)
  {
    float *wide = NULL;
    attn_status status = llama_allocate(t->name, m->slice, m->columns, sizeof *wide, &wide);
#pragma omp for schedule(static)
    for (int64_t first = 0; first < m->rows; first += m->slice) {
      const int64_t count = m->rows - first < m->slice ? m->rows - first : m->slice;
      if (!status) status = widen_rows(t, pairs, first, count, wide);
      if (!status)
        attn_gemm_pack(w->kernels, m->columns, count, (attn_matrix){wide, 1, m->columns},
                       m->at + (size_t)(first / m->slice) * m->stride);
    }
    free(wide);
    if (status) {
#pragma omp critical
      failed = status;
    }
  }
  return failed == ATTN_ENOMEM ? attn_fail(failed, "no memory to widen %s", t->name) : failed;
}

attn_status llama_weights_load(const llama_window *w, int64_t index, llama_weights *out) {
  const llama_layer *l = &w->model->layer[index];
  const int64_t pairs = w->model->adjacent_pairs ? w->model->config.head_dim : 0;
  const struct {
    const tensor *from;
    int64_t pairs;
    llama_matrix *to;
  } table[] = {{l->q, pairs, &out->q},   {l->k, pairs, &out->k}, {l->v, 0, &out->v},      {l->o, 0, &out->o},
               {l->gate, 0, &out->gate}, {l->up, 0, &out->up},   {l->down, 0, &out->down}};
  attn_status status = llama_vector_load(l->attention_norm, &out->attention_norm);
  if (!status) status = llama_vector_load(l->mlp_norm, &out->mlp_norm);
  for (size_t i = 0; !status && i < sizeof table / sizeof *table; i++)
    status = llama_matrix_load(w, table[i].from, table[i].pairs, table[i].to);
  return status;
}

void llama_weights_free(llama_weights *w) {
  void *all[] = {w->attention_norm, w->mlp_norm, w->q.at,  w->k.at,   w->v.at,
                 w->o.at,           w->gate.at,  w->up.at, w->down.at};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
  *w = (llama_weights){0};
}

/* -- a window -- */

attn_status llama_window_make(const data_llama *m, const attn_kernels *kernels, int64_t n,
                              llama_window *out) {
  const data_llama_config *c = &m->config;
  const int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
  llama_window w = {.model = m, .kernels = kernels, .n = n, .threads = omp_get_max_threads()};
  w.scratch_bytes = (attn_gemm_scratch(kernels) + 63) / 64 * 64;
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
               {"scratch of products", w.threads, (int64_t)w.scratch_bytes, 1, &w.scratch}};
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < sizeof table / sizeof *table; i++)
    status = llama_allocate(table[i].what, table[i].rows, table[i].columns, table[i].size, table[i].to);
  if (status)
    llama_window_free(&w);
  else
    *out = w;
  return status;
}

void llama_window_free(llama_window *w) {
  void *all[] = {w->h, w->q, w->k, w->v, w->mixed, w->gate, w->up, w->scratch};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
  *w = (llama_window){0};
}

void llama_multiply(const llama_window *w, const llama_matrix *m, int64_t n, const float *x, bool accumulate,
                    float *y) {
  const int64_t slices = (m->rows - 1) / m->slice + 1, part = (n + w->threads - 1) / w->threads,
                parts = (n - 1) / part + 1;
#pragma omp parallel for num_threads(w->threads) schedule(dynamic)
  for (int64_t t = 0; t < slices * parts; t++) {
    const int64_t s = t / parts, i = t % parts * part, first = s * m->slice;
    const int64_t count = m->rows - first < m->slice ? m->rows - first : m->slice;
    attn_gemm_packed(w->kernels, n - i < part ? n - i : part, count, m->columns,
                     (attn_matrix){x + i * m->columns, m->columns, 1},
                     (attn_packed){m->at + (size_t)s * m->stride, m->columns, count}, accumulate,
                     y + i * m->rows + first, m->rows,
                     w->scratch + (size_t)omp_get_thread_num() * w->scratch_bytes);
  }
}

void llama_normalise(const llama_window *w, int64_t n, const float *x, const float *weight, float *h) {
  const int64_t d = w->model->config.hidden;
  const double eps = w->model->config.rms_eps;
#pragma omp parallel for num_threads(w->threads)
  for (int64_t i = 0; i < n; i++) {
    const float *row = x + i * d;
    double sum = 0;
    for (int64_t j = 0; j < d; j++) sum += (double)row[j] * (double)row[j];
    const float factor = (float)(1 / sqrt(sum / (double)d + eps));
    for (int64_t j = 0; j < d; j++) h[i * d + j] = row[j] * factor * weight[j];
  }
}

void llama_project(llama_window *w, const llama_weights *l, const float *x) {
  llama_normalise(w, w->n, x, l->attention_norm, w->h);
  llama_multiply(w, &l->q, w->n, w->h, false, w->q);
  llama_multiply(w, &l->k, w->n, w->h, false, w->k);
  llama_multiply(w, &l->v, w->n, w->h, false, w->v);
}

void llama_rotate(llama_window *w, int64_t first) {
  const data_llama_config *c = &w->model->config;
  const int64_t d = c->head_dim;
#pragma omp parallel for num_threads(w->threads)
  for (int64_t h = 0; h < c->heads + c->kv_heads; h++) {
    const bool key = h >= c->heads;
    float *x = key ? w->k + (h - c->heads) * d : w->q + h * d;
    data_rope_f32(x, w->n, d, (key ? c->kv_heads : c->heads) * d, first, c->rope_theta);
  }
}

void llama_add(llama_window *w, const llama_weights *l, float *x) {
  llama_multiply(w, &l->o, w->n, w->mixed, true, x);
}

void llama_finish(llama_window *w, const llama_weights *l, float *x) {
  llama_normalise(w, w->n, x, l->mlp_norm, w->h);
  llama_multiply(w, &l->gate, w->n, w->h, false, w->gate);
  llama_multiply(w, &l->up, w->n, w->h, false, w->up);
  const int64_t count = w->n * w->model->config.intermediate;
#pragma omp parallel for num_threads(w->threads)
  for (int64_t i = 0; i < count; i++) w->gate[i] = w->gate[i] / (1 + expf(-w->gate[i])) * w->up[i];
  llama_multiply(w, &l->down, w->n, w->gate, true, x);
}
