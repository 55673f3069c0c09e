/* llama.c - opening a Llama-architecture model: every tensor the configuration calls for is there with its
 * shape, and no other. */
#include "data/llama/llama.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    return attn_fail(ATTN_EUNSUPPORTED, "%s: tensor %s is %s; a format of floating point was expected",
                     t->file, name, t->format->name);
  *out = t;
  return ATTN_OK;
}

static attn_status find_layer(const data_llama *m, int64_t index, llama_layer *layer) {
  const data_llama_config *c = &m->config;
  int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
  const bool in_gguf = weights_gguf(m->files);
  const struct {
    const char *name, *name_in_gguf;
    int64_t rows, columns;
    const tensor **to;
  } table[] = {{"input_layernorm", "attn_norm", c->hidden, 0, &layer->attention_norm},
               {"self_attn.q_proj", "attn_q", q, c->hidden, &layer->q},
               {"self_attn.k_proj", "attn_k", kv, c->hidden, &layer->k},
               {"self_attn.v_proj", "attn_v", kv, c->hidden, &layer->v},
               {"self_attn.o_proj", "attn_output", c->hidden, q, &layer->o},
               {"post_attention_layernorm", "ffn_norm", c->hidden, 0, &layer->mlp_norm},
               {"mlp.gate_proj", "ffn_gate", c->intermediate, c->hidden, &layer->gate},
               {"mlp.up_proj", "ffn_up", c->intermediate, c->hidden, &layer->up},
               {"mlp.down_proj", "ffn_down", c->hidden, c->intermediate, &layer->down}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    char name[NAME_MAX_LENGTH];
    snprintf(name, sizeof name, in_gguf ? "blk.%" PRId64 ".%s.weight" : "model.layers.%" PRId64 ".%s.weight",
             index, in_gguf ? table[i].name_in_gguf : table[i].name);
    attn_status status = find(m, name, table[i].rows, table[i].columns, table[i].to);
    if (status) return status;
  }
  return ATTN_OK;
}

static bool is_used(const data_llama *m, const tensor *t) {
  if (t == m->embedding || t == m->norm || t == m->head) return true;
  for (int64_t i = 0; i < m->config.layers; i++) {
    const llama_layer *l = &m->layer[i];
    if (t == l->attention_norm || t == l->q || t == l->k || t == l->v || t == l->o || t == l->mlp_norm ||
        t == l->gate || t == l->up || t == l->down)
      return true;
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
      return attn_fail(ATTN_EUNSUPPORTED, "%s: tensor %s is not part of the Llama architecture", t->file,
                       t->name);
  }
  return ATTN_OK;
}

static attn_status load(data_llama *m) {
  const data_llama_config *c = &m->config;
  const bool in_gguf = file_is_regular(m->path);
  attn_status status = in_gguf ? ATTN_OK : llama_read_config(m->path, &m->config);
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
  m->adjacent_pairs = in_gguf;
  m->layer = calloc((size_t)c->layers, sizeof *m->layer);
  if (!m->layer) return attn_fail(ATTN_ENOMEM, "%s: no memory for its layers", m->path);
  for (int64_t i = 0; !status && i < c->layers; i++) status = find_layer(m, i, &m->layer[i]);
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
  free(m->path);
  free(m);
}

const data_llama_config *data_llama_get_config(const data_llama *m) { return &m->config; }

void data_llama_sha256(const data_llama *m, char hex[65]) { weights_sha256(m->files, hex); }

attn_status data_llama_output(const data_llama *m, int64_t layer, float *to) {
  const tensor *o = m->layer[layer].o;
  return tensor_to_f32(o, 0, o->shape[0] * o->shape[1], to);
}
