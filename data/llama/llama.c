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

/* columns 0: a vector. */
static attn_status find(const data_llama *m, const char *name, int64_t rows, int64_t columns,
                        const tensor **out) {
  const tensor *t = weights_find(m->files, name);
  if (!t) return attn_fail(ATTN_EINVAL, "%s: tensor %s is missing", m->path, name);
  bool matrix = columns > 0;
  if (t->rank != (matrix ? 2 : 1) || t->shape[0] != rows || (matrix && t->shape[1] != columns))
    return attn_fail(ATTN_EINVAL,
                     "%s: tensor %s is not a %s of %" PRId64 " x %" PRId64 " as the configuration says",
                     t->file, name, matrix ? "matrix" : "vector", rows, matrix ? columns : 1);
  if (!t->format->widen)
    return attn_fail(ATTN_EUNSUPPORTED, "%s: tensor %s is %s; expected a format of floating point", t->file,
                     name, t->format->name);
  *out = t;
  return ATTN_OK;
}

/* A tensor of a layer: what it is called in either format, its shape, and whether the architecture has it. */
typedef struct part {
  const char *name, *name_in_gguf;
  int64_t rows, columns;
  const tensor **to;
  bool absent;
} part;

enum { PARTS = 18 };

static void list_parts(const data_llama_config *c, llama_layer *l, part out[PARTS]) {
  const int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim, d = c->head_dim;
  const bool no_qkv = !c->qkv_bias, no_o = !c->output_bias, no_mlp = !c->mlp_bias, no_norms = !c->head_norms;
  const part parts[PARTS] = {
      {"input_layernorm.weight", "attn_norm.weight", c->hidden, 0, &l->attention_norm, false},
      {"self_attn.q_proj.weight", "attn_q.weight", q, c->hidden, &l->q.weight, false},
      {"self_attn.q_proj.bias", "attn_q.bias", q, 0, &l->q.bias, no_qkv},
      {"self_attn.k_proj.weight", "attn_k.weight", kv, c->hidden, &l->k.weight, false},
      {"self_attn.k_proj.bias", "attn_k.bias", kv, 0, &l->k.bias, no_qkv},
      {"self_attn.v_proj.weight", "attn_v.weight", kv, c->hidden, &l->v.weight, false},
      {"self_attn.v_proj.bias", "attn_v.bias", kv, 0, &l->v.bias, no_qkv},
      {"self_attn.q_norm.weight", "attn_q_norm.weight", d, 0, &l->q_norm, no_norms},
      {"self_attn.k_norm.weight", "attn_k_norm.weight", d, 0, &l->k_norm, no_norms},
      {"self_attn.o_proj.weight", "attn_output.weight", c->hidden, q, &l->o.weight, false},
      {"self_attn.o_proj.bias", "attn_output.bias", c->hidden, 0, &l->o.bias, no_o},
      {"post_attention_layernorm.weight", "ffn_norm.weight", c->hidden, 0, &l->mlp_norm, false},
      {"mlp.gate_proj.weight", "ffn_gate.weight", c->intermediate, c->hidden, &l->gate.weight, false},
      {"mlp.gate_proj.bias", "ffn_gate.bias", c->intermediate, 0, &l->gate.bias, no_mlp},
      {"mlp.up_proj.weight", "ffn_up.weight", c->intermediate, c->hidden, &l->up.weight, false},
      {"mlp.up_proj.bias", "ffn_up.bias", c->intermediate, 0, &l->up.bias, no_mlp},
      {"mlp.down_proj.weight", "ffn_down.weight", c->hidden, c->intermediate, &l->down.weight, false},
      {"mlp.down_proj.bias", "ffn_down.bias", c->hidden, 0, &l->down.bias, no_mlp}};
  memcpy(out, parts, sizeof parts);
}

static attn_status find_layer(const data_llama *m, int64_t index, llama_layer *layer) {
  part parts[PARTS];
  const bool in_gguf = weights_gguf(m->files);
  list_parts(&m->config, layer, parts);
  for (int i = 0; i < PARTS; i++) {
    char name[NAME_MAX_LENGTH];
    if (parts[i].absent) continue;
    snprintf(name, sizeof name, in_gguf ? "blk.%" PRId64 ".%s" : "model.layers.%" PRId64 ".%s", index,
             in_gguf ? parts[i].name_in_gguf : parts[i].name);
    attn_status status = find(m, name, parts[i].rows, parts[i].columns, parts[i].to);
    if (status) return status;
  }
  return ATTN_OK;
}

static bool is_used(const data_llama *m, const tensor *t) {
  if (t == m->embedding || t == m->norm || t == m->head || t == m->divisors[0] || t == m->divisors[1])
    return true;
  for (int64_t i = 0; i < m->config.layers; i++) {
    part parts[PARTS];
    list_parts(&m->config, &m->layer[i], parts);
    for (int p = 0; p < PARTS; p++)
      if (t == *parts[p].to) return true;
  }
  return false;
}

/* A tensor that the forward pass does not use (a bias, an adapter) means another model. Old files repeat
 * the rotary frequencies, and some tied ones the output layer; both are redundant. */
static attn_status refuse_unused(const data_llama *m) {
  for (size_t i = 0; i < weights_count(m->files); i++) {
    const tensor *t = weights_at(m->files, i);
    bool known =
        strstr(t->name, "rotary_emb.inv_freq") || (m->config.tied && strcmp(t->name, "lm_head.weight") == 0);
    if (!known && !is_used(m, t))
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
  if (!weights_gguf(m->files) || (!both && !weights_find(m->files, names[0]))) return ATTN_OK;
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

static attn_status load(data_llama *m) {
  const data_llama_config *c = &m->config;
  const bool in_gguf = file_is_regular(m->path);
  attn_status status = in_gguf ? ATTN_OK : llama_read_config(m->path, &m->config);
  if (!status && !in_gguf) status = digest_config(m);
  if (!status) status = weights_open(m->path, &m->files);
  if (!status && in_gguf) status = llama_read_gguf(weights_gguf(m->files), &m->config);
  if (!status)
    status = find(m, in_gguf ? "token_embd.weight" : "model.embed_tokens.weight", c->vocab, c->hidden,
                  &m->embedding);
  if (!status) status = find(m, in_gguf ? "output_norm.weight" : "model.norm.weight", c->hidden, 0, &m->norm);
  if (!status && c->tied) m->head = m->embedding;
  if (!status && !c->tied)
    status = find(m, in_gguf ? "output.weight" : "lm_head.weight", c->vocab, c->hidden, &m->head);
  if (status) return status;
  m->seen = llama_reach_pattern(c);
  /* llama.cpp rotates neighbours in this architecture alone. */
  m->adjacent_pairs = in_gguf && strcmp(c->architecture, "llama") == 0;
  m->layer = calloc((size_t)c->layers, sizeof *m->layer);
  if (!m->layer) return attn_fail(ATTN_ENOMEM, "%s: no memory for its layers", m->path);
  for (int64_t i = 0; !status && i < c->layers; i++) status = find_layer(m, i, &m->layer[i]);
  if (!status) status = load_divisors(m);
  return status ? status : refuse_unused(m);
}

attn_status data_llama_open(const char *path, data_llama **out) {
  data_llama *m = calloc(1, sizeof *m);
  if (!m) return attn_fail(ATTN_ENOMEM, "%s: no memory", path);
  m->path = text_format("%s", path);
  attn_status status = m->path ? load(m) : ATTN_ENOMEM;
  if (!status)
    *out = m;
  else
    data_llama_close(m);
  return status;
}

void data_llama_close(data_llama *m) {
  if (!m) return;
  weights_close(m->files);
  free(m->layer);
  free(m->config.rope.divisors);
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
  const tensor *o = m->layer[layer].o.weight;
  return tensor_to_f32(o, 0, o->shape[0] * o->shape[1], to);
}
