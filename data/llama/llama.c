/* llama.c - opening a model: every tensor the configuration calls for is there with its shape, and no
 * other. */
#include "data/llama/llama.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/llama/reach.h"
#include "data/support/file.h"

enum { NAME_MAX_LENGTH = 128 };

static attn_status check_format(const tensor *t) {
  if (t->format->widen) return ATTN_OK;
  return attn_fail(ATTN_EUNSUPPORTED, "%s: tensor %s is %s; expected a format of floating point", t->file,
                   t->name, t->format->name);
}

/* columns 0: a vector; rows 0: any number. Files of a model without its head leave out the prefix. */
static attn_status find(const data_llama *m, const char *name, int64_t rows, int64_t columns,
                        const tensor **out) {
  const size_t prefix = m->in_gguf || !m->kind->prefix ? 0 : strlen(m->kind->prefix);
  const tensor *t = weights_find(m->files, name);
  if (!t && prefix && strncmp(name, m->kind->prefix, prefix) == 0) t = weights_find(m->files, name + prefix);
  if (!t) return attn_fail(ATTN_EINVAL, "%s: tensor %s is missing", m->path, name);
  const bool matrix = columns > 0, fits = rows == 0 || t->shape[0] == rows;
  if (t->rank != (matrix ? 2 : 1) || !fits || t->shape[0] < 1 || (matrix && t->shape[1] != columns))
    return attn_fail(ATTN_EINVAL,
                     "%s: tensor %s is not a %s of %" PRId64 " x %" PRId64 " as the configuration says",
                     t->file, t->name, matrix ? "matrix" : "vector", rows, matrix ? columns : 1);
  *out = t;
  return check_format(t);
}

/* A tensor outside the layers; stem NULL: the architecture has none. */
static attn_status find_outside(const data_llama *m, const char *stem, const char *in_gguf, bool bias,
                                int64_t rows, int64_t columns, product_rows *out) {
  char name[NAME_MAX_LENGTH];
  const char *prefix = m->in_gguf || stem == m->kind->head ? "" : m->kind->prefix;
  product_rows made = {.columns = columns};
  if (!stem) return ATTN_OK;
  snprintf(name, sizeof name, "%s%s.weight", prefix, m->in_gguf ? in_gguf : stem);
  attn_status status = find(m, name, rows, columns, &made.weight);
  snprintf(name, sizeof name, "%s%s.bias", prefix, m->in_gguf ? in_gguf : stem);
  if (!status && bias) status = find(m, name, rows, 0, &made.bias);
  if (status) return status;
  made.rows = made.run = made.stride = made.weight->shape[0];
  *out = made;
  return ATTN_OK;
}

/* -- layers -- */

static bool have_one_name(const llama_architecture *a, llama_part p, llama_part q) {
  return a->part[p] && a->part[q] && strcmp(a->part[p], a->part[q]) == 0;
}

/* The rows of a part among those of a tensor that others share. Returns how many it has. */
static int64_t place_rows(const data_llama *m, llama_part p, product_rows *r) {
  const data_llama_config *c = &m->config;
  const llama_architecture *a = m->kind;
  const int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim, d = c->head_dim;
  const int64_t rows[LLAMA_PARTS] = {
      c->hidden, a->whole_norms ? q : d, a->whole_norms ? kv : d, c->hidden, c->hidden, c->hidden, q, kv, kv,
      c->hidden, c->intermediate,        c->intermediate,         c->hidden};
  int64_t all = r->rows = r->run = r->stride = rows[p];
  r->columns = p < LLAMA_NORMS ? 0 : p == LLAMA_O ? q : p == LLAMA_DOWN ? c->intermediate : c->hidden;
  r->transposed = p >= LLAMA_NORMS && a->transposed && !m->in_gguf;
  if (p >= LLAMA_Q && p <= LLAMA_V && have_one_name(a, LLAMA_Q, LLAMA_K)) {
    const bool by_head = a->interleaved && !m->in_gguf;
    all = q + 2 * kv;
    r->first = p == LLAMA_Q ? 0 : by_head ? d * (p - LLAMA_Q) : p == LLAMA_K ? q : q + kv;
    if (by_head) r->run = d, r->stride = 3 * d;
  }
  if ((p == LLAMA_GATE || p == LLAMA_UP) && have_one_name(a, LLAMA_GATE, LLAMA_UP)) {
    all = 2 * c->intermediate;
    r->first = p == LLAMA_UP ? c->intermediate : 0;
  }
  /* In such files the rows that turn together are neighbours. */
  if ((p == LLAMA_Q || p == LLAMA_K) && m->in_gguf && a->pairs_in_gguf)
    r->head = d, r->turned = c->rotary_dim;
  return all;
}

static const char *name_in_gguf(const llama_architecture *a, llama_part p) {
  static const char *const names[LLAMA_PARTS] = {
      "attn_norm", "attn_q_norm", "attn_k_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm",
      "attn_q",    "attn_k",      "attn_v",      "attn_output",         "ffn_gate", "ffn_up",
      "ffn_down"};
  if (p >= LLAMA_Q && p <= LLAMA_V && have_one_name(a, LLAMA_Q, LLAMA_K)) return "attn_qkv";
  return p == LLAMA_GATE && have_one_name(a, LLAMA_GATE, LLAMA_UP) ? "ffn_up" : names[p];
}

static bool has_bias(const data_llama *m, llama_part p) {
  const data_llama_config *c = &m->config;
  if (p < LLAMA_NORMS) return m->kind->norm_bias;
  return p <= LLAMA_V ? c->qkv_bias : p == LLAMA_O ? c->output_bias : c->mlp_bias;
}

/* The scales of a matrix of 8 bits: one for all of it, for a row, or for a block. */
static attn_status find_scale(const data_llama *m, const char *place, int64_t rows, product_rows *r) {
  static const char *const names[] = {"weight_scale_inv", "weight_scale"};
  const int64_t *block = m->config.scale_block;
  char name[NAME_MAX_LENGTH];
  if (m->in_gguf || r->transposed || r->weight->format->bytes != 1) return ATTN_OK;
  for (int i = 0; i < 2 && !r->scale; i++) {
    snprintf(name, sizeof name, "%s.%s", place, names[i]);
    r->scale = weights_find(m->files, name);
  }
  const tensor *t = r->scale;
  if (!t) return ATTN_OK;
  const int64_t across = (r->columns - 1) / block[1] + 1, down = (rows - 1) / block[0] + 1;
  const bool blocks = t->rank == 2 && t->shape[0] == down && t->shape[1] == across,
             each = t->shape[0] == rows && t->count == rows;
  if (!(t->count == 1 || (t->rank > 0 && (each || blocks))))
    return attn_fail(ATTN_EINVAL,
                     "%s: tensor %s has %" PRId64 " numbers; expected 1, %" PRId64 " or %" PRId64
                     " x %" PRId64,
                     t->file, t->name, t->count, rows, down, across);
  r->scale_rows = t->count == 1 ? rows : each ? 1 : block[0];
  r->scale_columns = t->count == 1 || each ? r->columns : block[1];
  return check_format(t);
}

static attn_status find_part(const data_llama *m, int64_t index, llama_part p, product_rows *out) {
  const llama_architecture *a = m->kind;
  product_rows made = {.weight = NULL};
  char place[NAME_MAX_LENGTH - 20], name[NAME_MAX_LENGTH];
  if (!a->part[p] || (p == LLAMA_ATTENTION_NORM && a->first_unnormed && index == 0)) return ATTN_OK;
  const int64_t all = place_rows(m, p, &made);
  if (m->in_gguf)
    snprintf(place, sizeof place, "blk.%" PRId64 ".%s", index, name_in_gguf(a, p));
  else
    snprintf(place, sizeof place, "%s%s%" PRId64 ".%s", a->prefix, a->layer, index, a->part[p]);
  snprintf(name, sizeof name, "%s.weight", place);
  attn_status status = made.transposed ? find(m, name, made.columns, all, &made.weight)
                                       : find(m, name, all, made.columns, &made.weight);
  if (!status && p >= LLAMA_NORMS) status = find_scale(m, place, all, &made);
  snprintf(name, sizeof name, "%s.bias", place);
  if (!status && has_bias(m, p)) status = find(m, name, all, 0, &made.bias);
  if (!status) *out = made;
  return status;
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
  for (int64_t i = 0; i < m->config.layers; i++)
    for (int p = 0; p < LLAMA_PARTS; p++)
      if (is_of(t, &m->layer[i].part[p])) return true;
  return false;
}

static bool ends_in(const char *name, const char *end) {
  const size_t length = strlen(name), tail = strlen(end);
  return length >= tail && strcmp(name + length - tail, end) == 0;
}

/* Old files repeat the rotary frequencies or the causal mask, and some tied ones the output layer; an
 * encoder's have layers behind it for other uses. */
static bool is_redundant(const data_llama *m, const char *name) {
  for (size_t i = 0; i < sizeof m->kind->ignored / sizeof *m->kind->ignored; i++)
    if (m->kind->ignored[i] && ends_in(name, m->kind->ignored[i])) return true;
  if (ends_in(name, ".input_scale")) return true; /* of activations in 8 bits */
  if (m->kind->encoder) return !strstr(name, m->kind->layer);
  return m->config.tied && strncmp(name, m->kind->head, strlen(m->kind->head)) == 0;
}

/* A tensor that the forward pass does not use (a bias, an adapter) means another model. */
static attn_status refuse_unused(const data_llama *m) {
  for (size_t i = 0; i < weights_count(m->files); i++) {
    const tensor *t = weights_at(m->files, i);
    if (!is_redundant(m, t->name) && !is_used(m, t))
      return attn_fail(ATTN_EUNSUPPORTED, "%s: tensor %s is not part of the architecture %s", t->file,
                       t->name, m->config.architecture);
  }
  return ATTN_OK;
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
  for (int i = 0; !status && i <= both; i++) status = find(m, names[i], half, 0, &m->divisors[i]);
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

static attn_status digest_config(data_llama *m) {
  file_map map;
  char *path = file_join(m->path, "config.json");
  attn_status status = path ? file_map_open(path, &map) : ATTN_ENOMEM;
  if (!status) {
    data_sha256(map.at, map.bytes, m->config_sha256);
    file_map_close(&map);
  }
  free(path);
  return status;
}

static attn_status load(data_llama *m, bool encoders) {
  const data_llama_config *c = &m->config;
  const llama_architecture *a;
  m->in_gguf = file_is_regular(m->path);
  attn_status status = m->in_gguf ? ATTN_OK : llama_read_config(m->path, &m->config);
  if (!status && !m->in_gguf) status = digest_config(m);
  if (!status) status = weights_open(m->path, &m->files);
  if (!status && m->in_gguf) status = llama_read_gguf(weights_gguf(m->files), &m->config);
  if (status) return status;
  a = m->kind = llama_architecture_of(c);
  if (a->encoder && !encoders)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "%s: model_type is %s, an encoder, which predicts no next token: only capture reads it",
                     m->path, a->name);
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
  llama_seen_make(c, false, INT64_MAX, &m->seen);
  m->layer = calloc((size_t)c->layers, sizeof *m->layer);
  if (!m->layer) return attn_fail(ATTN_ENOMEM, "%s: no memory for its layers", m->path);
  for (int64_t i = 0; !status && i < c->layers; i++)
    for (int p = 0; !status && p < LLAMA_PARTS; p++)
      status = find_part(m, i, (llama_part)p, &m->layer[i].part[p]);
  if (!status) status = load_divisors(m);
  return status ? status : refuse_unused(m);
}

static attn_status open_model(const char *path, bool encoders, data_llama **out) {
  data_llama *m = calloc(1, sizeof *m);
  if (!m) return attn_fail(ATTN_ENOMEM, "%s: no memory", path);
  m->path = text_format("%s", path);
  attn_status status = m->path ? load(m, encoders) : ATTN_ENOMEM;
  if (!status)
    *out = m;
  else
    data_llama_close(m);
  return status;
}

attn_status llama_open(const char *path, data_llama **out) { return open_model(path, true, out); }

attn_status data_llama_open(const char *path, data_llama **out) { return open_model(path, false, out); }

void data_llama_close(data_llama *m) {
  if (!m) return;
  weights_close(m->files);
  free(m->layer);
  llama_config_free(&m->config);
  free(m->path);
  free(m);
}

const data_llama_config *data_llama_get_config(const data_llama *m) { return &m->config; }

void data_llama_sha256(const data_llama *m, char hex[65]) { weights_sha256(m->files, hex); }

void data_llama_config_sha256(const data_llama *m, char hex[65]) {
  if (*m->config_sha256)
    memcpy(hex, m->config_sha256, sizeof m->config_sha256);
  else
    weights_sha256(m->files, hex);
}

attn_status data_llama_output(const data_llama *m, int64_t layer, float *to) {
  return product_rows_widen(&m->layer[layer].part[LLAMA_O], to);
}
