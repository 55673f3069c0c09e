/* llama_layer.c - the tensors of a layer: where the rows of each part are, what files call it, and what there
 * is one of for each expert or head. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/llama/llama_tensors.h"

static bool have_one_name(const llama_architecture *a, llama_part p, llama_part q) {
  return a->part[p] && a->part[q] && strcmp(a->part[p], a->part[q]) == 0;
}

/* The rows of a part among those of a tensor that others share. Returns how many it has. */
static int64_t place_rows(const data_llama *m, llama_part p, bool in_experts, product_rows *r) {
  const data_llama_config *c = &m->config;
  const llama_architecture *a = m->kind;
  const int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim, d = c->head_dim;
  const int64_t inner = in_experts ? c->shared_intermediate : c->intermediate,
                rows[LLAMA_PARTS] = {c->hidden,
                                     a->whole_norms ? q : d,
                                     a->whole_norms ? kv : d,
                                     c->hidden,
                                     c->hidden,
                                     c->hidden,
                                     q,
                                     kv,
                                     kv,
                                     c->hidden,
                                     inner,
                                     inner,
                                     c->hidden,
                                     c->experts,
                                     1};
  int64_t all = r->rows = r->run = r->stride = rows[p];
  r->columns = p < LLAMA_NORMS ? 0 : p == LLAMA_O ? q : p == LLAMA_DOWN ? inner : c->hidden;
  r->transposed = p >= LLAMA_NORMS && a->transposed && !m->in_gguf;
  if (p >= LLAMA_Q && p <= LLAMA_V && have_one_name(a, LLAMA_Q, LLAMA_K)) {
    const bool by_head = a->interleaved && !m->in_gguf;
    all = q + 2 * kv;
    r->first = p == LLAMA_Q ? 0 : by_head ? d * (p - LLAMA_Q) : p == LLAMA_K ? q : q + kv;
    if (by_head) r->run = d, r->stride = 3 * d;
  }
  if ((p == LLAMA_GATE || p == LLAMA_UP) && have_one_name(a, LLAMA_GATE, LLAMA_UP)) {
    all = 2 * inner;
    r->first = p == LLAMA_UP ? inner : 0;
  }
  /* In such files the rows that turn together are neighbours. */
  if ((p == LLAMA_Q || p == LLAMA_K) && m->in_gguf && a->pairs_in_gguf)
    r->head = d, r->turned = c->rotary_dim;
  return all;
}

static bool in_experts(const data_llama *m, int64_t index) {
  return m->config.layer[index] & DATA_LLAMA_EXPERTS;
}

/* The name of a part; NULL: the layer has none. */
static const char *name_of(const data_llama *m, int64_t index, llama_part p) {
  const llama_architecture *a = m->kind;
  const bool experts = in_experts(m, index);
  if (p == LLAMA_ATTENTION_NORM && a->first_unnormed && index == 0) return NULL;
  if (p >= LLAMA_ROUTER && !experts) return NULL;
  if (experts && p >= LLAMA_GATE && p <= LLAMA_DOWN) return a->shared[p - LLAMA_GATE];
  if ((p == LLAMA_Q_NORM || p == LLAMA_K_NORM) && a->norms_of_heads && !m->config.qk_norms) return NULL;
  const bool one_norm = p == LLAMA_MLP_NORM && a->one_norm && m->config.parallel;
  return a->part[one_norm ? LLAMA_ATTENTION_NORM : p];
}

static const char *name_in_gguf(const data_llama *m, int64_t index, llama_part p) {
  static const char *const names[LLAMA_PARTS] = {"attn_norm",
                                                 "attn_q_norm",
                                                 "attn_k_norm",
                                                 "post_attention_norm",
                                                 "ffn_norm",
                                                 "post_ffw_norm",
                                                 "attn_q",
                                                 "attn_k",
                                                 "attn_v",
                                                 "attn_output",
                                                 "ffn_gate",
                                                 "ffn_up",
                                                 "ffn_down",
                                                 "ffn_gate_inp",
                                                 "ffn_gate_inp_shexp"};
  static const char *const shared[] = {"ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"};
  const llama_architecture *a = m->kind;
  if (p >= LLAMA_Q && p <= LLAMA_V && have_one_name(a, LLAMA_Q, LLAMA_K)) return "attn_qkv";
  if (p == LLAMA_MLP_NORM && a->one_norm && m->config.parallel) return names[LLAMA_ATTENTION_NORM];
  if (p == LLAMA_MLP_NORM && a->mlp_norm_in_gguf) return a->mlp_norm_in_gguf;
  if (p >= LLAMA_GATE && p <= LLAMA_DOWN && in_experts(m, index)) return shared[p - LLAMA_GATE];
  return p == LLAMA_GATE && have_one_name(a, LLAMA_GATE, LLAMA_UP) ? "ffn_up" : names[p];
}

static bool has_bias(const data_llama *m, llama_part p) {
  const data_llama_config *c = &m->config;
  if (p < LLAMA_NORMS) return m->kind->norm_bias;
  if (p >= LLAMA_ROUTER) return p == LLAMA_ROUTER && m->kind->expert_bias;
  return p <= LLAMA_V ? c->qkv_bias : p == LLAMA_O ? c->output_bias : c->mlp_bias;
}

/* The scales of a matrix of 8 bits: one for all of it, for a row, or for a block. */
static attn_status find_scale(const data_llama *m, const char *place, int64_t rows, product_rows *r) {
  static const char *const names[] = {"weight_scale_inv", "weight_scale"};
  const int64_t *block = m->config.scale_block;
  char name[LLAMA_NAME];
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
  return llama_check_format(t);
}

/* The name of what is in a layer, before ".weight". */
static void print_place(const data_llama *m, int64_t index, const char *part, char to[LLAMA_PLACE]) {
  if (m->in_gguf)
    snprintf(to, LLAMA_PLACE, "blk.%" PRId64 ".%s", index, part);
  else
    snprintf(to, LLAMA_PLACE, "%s%s%" PRId64 ".%s", m->kind->prefix, m->kind->layer, index, part);
}

static attn_status find_part(const data_llama *m, int64_t index, llama_part p, product_rows *out) {
  const char *part = name_of(m, index, p);
  product_rows made = {.weight = NULL};
  char place[LLAMA_PLACE], name[LLAMA_NAME];
  if (!part) return ATTN_OK;
  const int64_t all = place_rows(m, p, in_experts(m, index), &made);
  print_place(m, index, m->in_gguf ? name_in_gguf(m, index, p) : part, place);
  snprintf(name, sizeof name, "%s.weight", place);
  attn_status status = made.transposed ? llama_find(m, name, 0, made.columns, all, &made.weight)
                       : m->in_gguf && p == LLAMA_SHARED_GATE
                           ? llama_find(m, name, 0, made.columns, 0, &made.weight)
                           : llama_find(m, name, 0, all, made.columns, &made.weight);
  if (!status && p >= LLAMA_NORMS) status = find_scale(m, place, all, &made);
  snprintf(name, sizeof name, "%s.bias", place);
  if (!status && has_bias(m, p)) status = llama_find(m, name, 0, all, 0, &made.bias);
  if (!status) *out = made;
  return status;
}

/* -- experts and heads -- */

int64_t llama_count_of_one(const data_llama *m, int64_t index) {
  const data_llama_config *c = &m->config;
  return in_experts(m, index) ? 3 * c->experts : c->heads + c->kv_heads;
}

/* Gate, up or down of all experts in a tensor, or in two of three; of gpt-oss without ".weight". */
static attn_status find_together(const data_llama *m, int64_t index, int part, product_rows *r) {
  static const char *const in_gguf[] = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};
  const bool joined = !m->in_gguf && part < 2, turned = !m->in_gguf && m->kind->alternating;
  const int64_t many = m->config.experts, all = joined ? 2 * r->rows : r->rows;
  char place[LLAMA_PLACE], name[LLAMA_NAME], own[64];
  snprintf(own, sizeof own, "%s.%s", m->kind->experts, joined ? "gate_up_proj" : "down_proj");
  print_place(m, index, m->in_gguf ? in_gguf[part] : own, place);
  snprintf(name, sizeof name, "%s%s", place, m->in_gguf ? ".weight" : "");
  r->transposed = turned;
  if (joined) r->first = part, r->run = 1, r->stride = 2;
  attn_status status = turned ? llama_find(m, name, many, r->columns, all, &r->weight)
                              : llama_find(m, name, many, all, r->columns, &r->weight);
  snprintf(name, sizeof name, "%s%s", place, m->in_gguf ? ".bias" : "_bias");
  return !status && m->kind->expert_bias ? llama_find(m, name, many, all, 0, &r->bias) : status;
}

static attn_status find_experts(const data_llama *m, int64_t index, product_rows *one) {
  const data_llama_config *c = &m->config;
  const llama_architecture *a = m->kind;
  attn_status status = ATTN_OK;
  for (int part = 0; part < 3; part++) {
    const int64_t rows = part == 2 ? c->hidden : c->expert_intermediate,
                  columns = part == 2 ? c->expert_intermediate : c->hidden;
    product_rows all = {.rows = rows, .columns = columns, .run = rows, .stride = rows};
    const bool together = m->in_gguf || !a->expert[part];
    if (together) status = find_together(m, index, part, &all);
    for (int64_t e = 0; !status && e < c->experts; e++) {
      product_rows *r = &one[3 * e + part];
      char own[64], place[LLAMA_PLACE], name[LLAMA_NAME];
      *r = all;
      r->expert = together ? e : 0;
      if (together) continue;
      snprintf(own, sizeof own, "%s.%" PRId64 ".%s", a->experts, e, a->expert[part]);
      print_place(m, index, own, place);
      snprintf(name, sizeof name, "%s.weight", place);
      status = llama_find(m, name, 0, rows, columns, &r->weight);
      if (!status) status = find_scale(m, place, rows, r);
    }
    if (status) return status;
  }
  return ATTN_OK;
}

/* Norms of q and k, one for each head; a GGUF file has them in two tensors. */
static attn_status find_head_norms(const data_llama *m, int64_t index, llama_layer *l) {
  const data_llama_config *c = &m->config;
  char own[64], place[LLAMA_PLACE], name[LLAMA_NAME];
  attn_status status = ATTN_OK;
  for (int64_t i = 0; !status && i < c->heads + c->kv_heads; i++) {
    const llama_part p = i < c->heads ? LLAMA_Q_NORM : LLAMA_K_NORM;
    const int64_t many = p == LLAMA_Q_NORM ? c->heads : c->kv_heads, head = i < c->heads ? i : i - c->heads;
    snprintf(own, sizeof own, "%s.%" PRId64, m->kind->part[p], head);
    print_place(m, index, m->in_gguf ? name_in_gguf(m, index, p) : own, place);
    snprintf(name, sizeof name, "%s.weight", place);
    l->one[i] = (product_rows){.rows = c->head_dim, .expert = m->in_gguf ? head : 0};
    status = llama_find(m, name, m->in_gguf ? many : 0, c->head_dim, 0, &l->one[i].weight);
  }
  return status;
}

attn_status llama_find_layer(const data_llama *m, int64_t index, llama_layer *l) {
  const llama_architecture *a = m->kind;
  const bool heads = a->norms_of_heads && m->config.qk_norms;
  char place[LLAMA_PLACE];
  attn_status status = ATTN_OK;
  for (int p = 0; !status && p < LLAMA_PARTS; p++)
    if (!heads || (p != LLAMA_Q_NORM && p != LLAMA_K_NORM))
      status = find_part(m, index, (llama_part)p, &l->part[p]);
  if (!status && a->sinks) {
    print_place(m, index, m->in_gguf ? "attn_sinks.weight" : a->sinks, place);
    status = llama_find(m, place, 0, m->config.heads, 0, &l->sinks);
  }
  if (status || !(heads || in_experts(m, index))) return status;
  if (!(l->one = calloc((size_t)llama_count_of_one(m, index), sizeof *l->one)))
    return attn_fail(ATTN_ENOMEM, "%s: no memory for layer %" PRId64, m->path, index);
  return heads ? find_head_norms(m, index, l) : find_experts(m, index, l->one);
}
