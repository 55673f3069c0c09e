/* llama_tensors.c - the tensors of a model: every one that its configuration calls for is there with its
 * shape, and no other. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/llama/llama_tensors.h"

attn_status llama_check_format(const tensor *t) {
  if (t->format->widen) return ATTN_OK;
  return attn_fail(ATTN_EUNSUPPORTED, "%s: tensor %s is %s; expected a format of floating point", t->file,
                   t->name, t->format->name);
}

attn_status llama_find(const data_llama *m, const char *name, int64_t many, int64_t rows, int64_t columns,
                       const tensor **out) {
  const size_t prefix = m->in_gguf || !m->kind->prefix ? 0 : strlen(m->kind->prefix);
  const tensor *t = weights_find(m->files, name);
  if (!t && prefix && strncmp(name, m->kind->prefix, prefix) == 0) t = weights_find(m->files, name + prefix);
  if (!t && prefix && m->kind->images && strncmp(name, m->kind->prefix, prefix) == 0) {
    char longer[LLAMA_NAME];
    snprintf(longer, sizeof longer, "%slanguage_model.%s", m->kind->prefix, name + prefix);
    t = weights_find(m->files, longer);
  }
  if (!t) return attn_fail(ATTN_EINVAL, "%s: tensor %s is missing", m->path, name);
  const int64_t wanted[] = {many, rows, columns}, *from = wanted + !many;
  const int axes = (many > 0) + 1 + (columns > 0);
  bool fits = t->rank == axes;
  for (int i = 0; fits && i < axes; i++)
    fits = t->shape[i] == from[i] || (from + i == wanted + 1 && rows == 0 && t->shape[i] > 0);
  if (!fits && many)
    return attn_fail(ATTN_EINVAL,
                     "%s: tensor %s is not %" PRId64 " times %" PRId64 " x %" PRId64
                     " as the configuration says",
                     t->file, t->name, many, rows, columns ? columns : 1);
  if (!fits)
    return attn_fail(ATTN_EINVAL,
                     "%s: tensor %s is not a %s of %" PRId64 " x %" PRId64 " as the configuration says",
                     t->file, t->name, columns ? "matrix" : "vector", rows, columns ? columns : 1);
  *out = t;
  return llama_check_format(t);
}

/* A tensor outside the layers; stem NULL: the architecture has none. */
static attn_status find_outside(const data_llama *m, const char *stem, const char *in_gguf, bool bias,
                                int64_t rows, int64_t columns, product_rows *out) {
  char name[LLAMA_NAME];
  const char *prefix = m->in_gguf || stem == m->kind->head ? "" : m->kind->prefix;
  product_rows made = {.columns = columns};
  if (!stem) return ATTN_OK;
  snprintf(name, sizeof name, "%s%s.weight", prefix, m->in_gguf ? in_gguf : stem);
  attn_status status = llama_find(m, name, 0, rows, columns, &made.weight);
  snprintf(name, sizeof name, "%s%s.bias", prefix, m->in_gguf ? in_gguf : stem);
  if (!status && bias) status = llama_find(m, name, 0, rows, 0, &made.bias);
  if (status) return status;
  made.rows = made.run = made.stride = made.weight->shape[0];
  *out = made;
  return ATTN_OK;
}

/* -- all of them -- */

static bool is_of(const tensor *t, const product_rows *r) {
  return t == r->weight || t == r->bias || t == r->scale;
}

static bool is_used(const data_llama *m, const tensor *t) {
  const product_rows *outside[] = {&m->embedding, &m->positions,      &m->types,
                                   &m->head,      &m->embedding_norm, &m->norm};
  if (t == m->divisors[0] || t == m->divisors[1]) return true;
  for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
    if (is_of(t, outside[i])) return true;
  for (int64_t i = 0; i < m->config.layers; i++) {
    const llama_layer *l = &m->layer[i];
    if (t == l->sinks) return true;
    for (int p = 0; p < LLAMA_PARTS; p++)
      if (is_of(t, &l->part[p])) return true;
    for (int64_t one = 0; l->one && one < llama_count_of_one(m, i); one++)
      if (is_of(t, &l->one[one])) return true;
  }
  return false;
}

static bool ends_in(const char *name, const char *end) {
  const size_t length = strlen(name), tail = strlen(end);
  return length >= tail && strcmp(name + length - tail, end) == 0;
}

/* Whether it is the embedding once more, which an output layer is that is tied to it. */
static bool is_embedding(const data_llama *m, const tensor *t) {
  const tensor *e = m->embedding.weight;
  return t->format == e->format && t->count == e->count && t->bytes == e->bytes &&
         memcmp(t->at, e->at, e->bytes) == 0;
}

/* Old files repeat the rotary frequencies or the causal mask, and some tied ones the output layer; an
 * encoder's have layers behind it for other uses, and a model of images has these. */
static bool is_redundant(const data_llama *m, const tensor *t) {
  const char *name = t->name;
  for (size_t i = 0; i < sizeof m->kind->ignored / sizeof *m->kind->ignored; i++)
    if (m->kind->ignored[i] && ends_in(name, m->kind->ignored[i])) return true;
  if (ends_in(name, ".input_scale")) return true; /* of activations in 8 bits */
  if (m->kind->images && (strncmp(name, "visual.", 7) == 0 || strncmp(name, "model.visual.", 13) == 0))
    return true;
  if (m->kind->encoder) return !strstr(name, m->kind->layer);
  const size_t head = m->config.tied ? strlen(m->kind->head) : 0;
  return head && strncmp(name, m->kind->head, head) == 0 && strcmp(name + head, ".weight") == 0 &&
         is_embedding(m, t);
}

/* A tensor that the forward pass does not use (a bias, an adapter) means another model. */
static attn_status refuse_unused(const data_llama *m) {
  for (size_t i = 0; i < weights_count(m->files); i++) {
    const tensor *t = weights_at(m->files, i);
    if (!is_redundant(m, t) && !is_used(m, t))
      return attn_fail(ATTN_EUNSUPPORTED, "%s: tensor %s is not part of the architecture %s%s", t->file,
                       t->name, m->config.architecture,
                       m->config.tied ? ", whose output layer is the embedding (tie_word_embeddings)" : "");
  }
  return ATTN_OK;
}

static attn_status load_sinks(data_llama *m) {
  const int64_t heads = m->config.heads;
  attn_status status = ATTN_OK;
  if (!m->kind->sinks) return ATTN_OK;
  if (!(m->sinks = malloc((size_t)(m->config.layers * heads) * sizeof *m->sinks)))
    return attn_fail(ATTN_ENOMEM, "%s: no memory for its sinks", m->path);
  for (int64_t i = 0; !status && i < m->config.layers * heads; i++) {
    const tensor *t = m->layer[i / heads].sinks;
    float sink = 0;
    status = tensor_to_f32(t, i % heads, 1, &sink);
    if (!status && !isfinite(sink))
      status =
          attn_fail(ATTN_EINVAL, "%s: %s[%" PRId64 "] is not a finite number", m->path, t->name, i % heads);
    m->sinks[i] = (double)sink;
  }
  return status;
}

/* GGUF files have the divisors of rotary frequencies in tensors. */
static attn_status load_divisors(data_llama *m) {
  data_rope *r = &m->config.rope;
  const bool both = r->kind == DATA_ROPE_LONGROPE;
  const char *const names[] = {both ? "rope_factors_short.weight" : "rope_freqs.weight",
                               "rope_factors_long.weight"};
  const int64_t half = m->config.rotary_dim / 2, count = both ? 2 * half : half;
  float *narrow = NULL;
  attn_status status = ATTN_OK;
  if (!m->in_gguf || (!both && !weights_find(m->files, names[0]))) return ATTN_OK;
  for (int i = 0; !status && i <= both; i++) status = llama_find(m, names[i], 0, half, 0, &m->divisors[i]);
  if (!status && (!(narrow = malloc((size_t)count * sizeof *narrow)) ||
                  !(r->divisors = malloc((size_t)count * sizeof *r->divisors))))
    status = attn_fail(ATTN_ENOMEM, "%s: no memory for %s", m->path, names[0]);
  for (int i = 0; !status && i <= both; i++)
    status = tensor_to_f32(m->divisors[i], 0, half, narrow + i * half);
  for (int64_t i = 0; !status && i < count; i++) {
    if (!(narrow[i] >= 1e-6f && narrow[i] <= 1e6f))
      status = attn_fail(ATTN_EINVAL, "%s: %s[%" PRId64 "] is %g, not a divisor from 1e-6 to 1e6", m->path,
                         names[i / half], i % half, (double)narrow[i]);
    r->divisors[i] = (double)narrow[i];
  }
  free(narrow);
  return status;
}

attn_status llama_find_tensors(data_llama *m) {
  const data_llama_config *c = &m->config;
  const llama_architecture *a = m->kind;
  attn_status status = ATTN_OK;
  const struct {
    const char *stem, *in_gguf;
    int64_t rows, columns;
    product_rows *to;
  } outside[] = {{a->embedding, "token_embd", c->vocab, c->hidden, &m->embedding},
                 {a->positions, "position_embd", c->max_positions, c->hidden, &m->positions},
                 {a->types, "token_types", 0, c->hidden, &m->types},
                 {a->embedding_norm, "token_embd_norm", c->hidden, 0, &m->embedding_norm},
                 {a->norm, "output_norm", c->hidden, 0, &m->norm},
                 {c->tied ? NULL : a->head, "output", c->vocab, c->hidden, &m->head}};
  for (size_t i = 0; !status && i < sizeof outside / sizeof *outside; i++)
    status = find_outside(m, outside[i].stem, outside[i].in_gguf, !outside[i].columns && a->norm_bias,
                          outside[i].rows, outside[i].columns, outside[i].to);
  if (status) return status;
  if (c->tied) m->head = m->embedding;
  m->layer = calloc((size_t)c->layers, sizeof *m->layer);
  if (!m->layer) return attn_fail(ATTN_ENOMEM, "%s: no memory for its layers", m->path);
  for (int64_t i = 0; !status && i < c->layers; i++) status = llama_find_layer(m, i, &m->layer[i]);
  if (!status) status = load_sinks(m);
  if (!status) status = load_divisors(m);
  return status ? status : refuse_unused(m);
}
