/* llama_reference.h - the Llama forward pass a second time: fp64, plain loops, nothing from data/. */
#ifndef TESTS_SUPPORT_LLAMA_REFERENCE_H
#define TESTS_SUPPORT_LLAMA_REFERENCE_H

#include <complex.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/basics/kept.h"

typedef struct reference_tensor {
  char name[80];
  int64_t rows, columns; /* columns 0: a vector */
  int64_t many;          /* matrices stacked along the rows; 0: one */
  double *at;
  int eight_bits; /* a file has it in F8_E4M3, whatever others are in */
} reference_tensor;

typedef struct reference_model {
  const char *architecture; /* of a GGUF file; NULL: llama */
  int64_t vocab, hidden, inner, layers, heads, kv_heads, d, context;
  int64_t turned; /* components of each head that do, as a GGUF file says it; 0: all */
  double eps, theta;
  int tied;
  size_t count;
  reference_tensor tensor[64];
} reference_model;

static inline const double *reference_find(const reference_model *m, int64_t layer, const char *name) {
  char whole[80];
  if (layer < 0)
    snprintf(whole, sizeof whole, "%s.weight", name);
  else
    snprintf(whole, sizeof whole, "model.layers.%d.%s.weight", (int)layer, name);
  for (size_t i = 0; i < m->count; i++)
    if (!strcmp(m->tensor[i].name, whole)) return m->tensor[i].at;
  fprintf(stderr, "no tensor %s\n", whole);
  abort();
}

static inline void reference_free(reference_model *m) {
  for (size_t i = 0; i < m->count; i++)
    if (!let_object_go(m->tensor[i].at)) free(m->tensor[i].at);
  m->count = 0;
}

/* y = W x, W [rows, columns] */
static inline void reference_linear(const double *w, int64_t rows, int64_t columns, const double *x,
                                    double *y) {
  for (int64_t i = 0; i < rows; i++) {
    y[i] = 0;
    for (int64_t j = 0; j < columns; j++) y[i] += w[i * columns + j] * x[j];
  }
}

static inline void reference_norm(const reference_model *m, const double *weight, const double *x,
                                  double *y) {
  double mean = 0;
  for (int64_t i = 0; i < m->hidden; i++) mean += x[i] * x[i] / (double)m->hidden;
  for (int64_t i = 0; i < m->hidden; i++) y[i] = weight[i] * x[i] / sqrt(mean + m->eps);
}

/* Element i of a head and element i + d/2 are the parts of a complex number that turns with the position. */
static inline void reference_rotate(const reference_model *m, int64_t heads, int64_t position, double *x) {
  for (int64_t h = 0; h < heads; h++)
    for (int64_t i = 0; i < m->d / 2; i++) {
      double *a = x + h * m->d + i, *b = a + m->d / 2;
      const double complex unit = (double complex)I,
                           turn = unit * ((double)position / pow(m->theta, 2.0 * (double)i / (double)m->d));
      const double complex z = (*a + *b * unit) * cexp(turn);
      *a = creal(z);
      *b = cimag(z);
    }
}

/* logits [n, vocab]; q [n, heads, d], k and v [n, kv_heads, d] of the last layer computed, layers of them.
 * The tokens stand at positions first, first + 1, ... */
static inline void reference_forward(const reference_model *m, int64_t layers, const int64_t *tokens,
                                     int64_t n, int64_t first, double *logits, double *q, double *k,
                                     double *v) {
  int64_t hidden = m->hidden, wide = m->heads * m->d, narrow = m->kv_heads * m->d;
  double *x = malloc(sizeof *x * (size_t)(n * hidden)),
         *h = malloc(sizeof *h * (size_t)(hidden + wide + 2 * m->inner));
  double *mixed = h + hidden, *gate = mixed + wide, *up = gate + m->inner, *p = malloc(sizeof *p * (size_t)n);
  for (int64_t i = 0; i < n; i++)
    memcpy(x + i * hidden, reference_find(m, -1, "model.embed_tokens") + tokens[i] * hidden,
           sizeof *x * (size_t)hidden);
  for (int64_t l = 0; l < layers; l++) {
    for (int64_t i = 0; i < n; i++) {
      reference_norm(m, reference_find(m, l, "input_layernorm"), x + i * hidden, h);
      reference_linear(reference_find(m, l, "self_attn.q_proj"), wide, hidden, h, q + i * wide);
      reference_linear(reference_find(m, l, "self_attn.k_proj"), narrow, hidden, h, k + i * narrow);
      reference_linear(reference_find(m, l, "self_attn.v_proj"), narrow, hidden, h, v + i * narrow);
      reference_rotate(m, m->heads, first + i, q + i * wide);
      reference_rotate(m, m->kv_heads, first + i, k + i * narrow);
    }
    if (l == layers - 1 && !logits) break;
    for (int64_t i = 0; i < n; i++) {
      double *to = x + i * hidden;
      for (int64_t a = 0; a < m->heads; a++) {
        int64_t b = a / (m->heads / m->kv_heads);
        double sum = 0;
        for (int64_t j = 0; j <= i; j++) {
          double score = 0;
          for (int64_t c = 0; c < m->d; c++)
            score += q[i * wide + a * m->d + c] * k[j * narrow + b * m->d + c];
          sum += p[j] = exp(score / sqrt((double)m->d));
        }
        for (int64_t c = 0; c < m->d; c++) {
          mixed[a * m->d + c] = 0;
          for (int64_t j = 0; j <= i; j++) mixed[a * m->d + c] += p[j] / sum * v[j * narrow + b * m->d + c];
        }
      }
      reference_linear(reference_find(m, l, "self_attn.o_proj"), hidden, wide, mixed, h);
      for (int64_t c = 0; c < hidden; c++) to[c] += h[c];
      reference_norm(m, reference_find(m, l, "post_attention_layernorm"), to, h);
      reference_linear(reference_find(m, l, "mlp.gate_proj"), m->inner, hidden, h, gate);
      reference_linear(reference_find(m, l, "mlp.up_proj"), m->inner, hidden, h, up);
      for (int64_t c = 0; c < m->inner; c++) gate[c] = gate[c] / (1 + exp(-gate[c])) * up[c];
      reference_linear(reference_find(m, l, "mlp.down_proj"), hidden, m->inner, gate, h);
      for (int64_t c = 0; c < hidden; c++) to[c] += h[c];
    }
  }
  for (int64_t i = 0; logits && i < n; i++) {
    reference_norm(m, reference_find(m, -1, "model.norm"), x + i * hidden, h);
    reference_linear(reference_find(m, -1, m->tied ? "model.embed_tokens" : "lm_head"), m->vocab, hidden, h,
                     logits + i * m->vocab);
  }
  free(x);
  free(h);
  free(p);
}

#endif
