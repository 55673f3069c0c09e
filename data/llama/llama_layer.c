/* llama_layer.c - the tensors of a layer: where the rows of each part are, what files call it, and what there
 * is one of for each expert or head. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/llama/llama_tensors.h"

/* Every architecture names q, which is K or UP. */
static bool have_one_name(const llama_architecture *a, llama_part p, llama_part q) {
  return a->part[p] && strcmp(a->part[p], a->part[q]) == 0;
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

static void print_name(const data_llama *m, int64_t index, const char *part, const char *end,
                       char to[LLAMA_NAME]) {
  if (m->in_gguf)
    snprintf(to, LLAMA_NAME, "blk.%" PRId64 ".%s%s", index, part, end);
  else
    snprintf(to, LLAMA_NAME, "%s%s%" PRId64 ".%s%s", m->kind->prefix, m->kind->layer, index, part, end);
}

/* llama_find of what is in a layer. */
static attn_status find_in(const data_llama *m, int64_t index, const char *part, const char *end,
                           int64_t many, int64_t rows, int64_t columns, const tensor **out) {
  char name[LLAMA_NAME];
  print_name(m, index, part, end, name);
  return llama_find(m, name, many, rows, columns, out);
}

/* The scales of a matrix of 8 bits, of which GGUF files have none: one for all of it, for a row, or for a
 * block. */
static attn_status find_scale(const data_llama *m, int64_t index, const char *part, int64_t rows,
                              product_rows *r) {
  static const char *const names[] = {".weight_scale_inv", ".weight_scale"};
  const int64_t *block = m->config.scale_block;
  char name[LLAMA_NAME];
  if (r->transposed || r->weight->format->bytes != 1) return ATTN_OK;
  for (int i = 0; i < 2 && !r->scale; i++) {
    print_name(m, index, part, names[i], name);
    r->scale = weights_find(m->files, name);
  }
  const tensor *t = r->scale;
  if (!t && m->config.scaled)
    return attn_fail(ATTN_EINVAL, "%s: tensor %s has 8 bits, and no %s beside it", r->weight->file,
                     r->weight->name, names[0] + 1);
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

static attn_status find_part(const data_llama *m, int64_t index, llama_part p, product_rows *out) {
  const char *part = name_of(m, index, p);
  product_rows made = {.weight = NULL};
  if (!part) return ATTN_OK;
  const int64_t all = place_rows(m, p, in_experts(m, index), &made);
  const bool turned = made.transposed || (m->in_gguf && p == LLAMA_SHARED_GATE); /* there a vector */
  if (m->in_gguf) part = name_in_gguf(m, index, p);
  attn_status status = find_in(m, index, part, ".weight", 0, turned ? made.columns : all,
                               !turned           ? made.columns
                               : made.transposed ? all
                                                 : 0,
                               &made.weight);
  if (!status && p >= LLAMA_NORMS) status = find_scale(m, index, part, all, &made);
  if (!status && has_bias(m, p)) status = find_in(m, index, part, ".bias", 0, all, 0, &made.bias);
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
  char own[LLAMA_PART];
  snprintf(own, sizeof own, "%s.%s", m->kind->experts, joined ? "gate_up_proj" : "down_proj");
  const char *name = m->in_gguf ? in_gguf[part] : own;
  r->transposed = turned;
  if (joined) r->first = part, r->run = 1, r->stride = 2;
  attn_status status = find_in(m, index, name, m->in_gguf ? ".weight" : "", many, turned ? r->columns : all,
                               turned ? all : r->columns, &r->weight);
  if (status || !m->kind->expert_bias) return status;
  return find_in(m, index, name, m->in_gguf ? ".bias" : "_bias", many, all, 0, &r->bias);
}

static attn_status find_experts(const data_llama *m, int64_t index, int part, product_rows *one) {
  const data_llama_config *c = &m->config;
  const int64_t inner = c->expert_intermediate, rows = part == 2 ? c->hidden : inner;
  product_rows all = {.rows = rows, .columns = part == 2 ? inner : c->hidden, .run = rows, .stride = rows};
  const bool together = m->in_gguf || !m->kind->expert[part];
  attn_status status = together ? find_together(m, index, part, &all) : ATTN_OK;
  for (int64_t e = 0; !status && e < c->experts; e++) {
    product_rows *r = &one[3 * e + part];
    char own[LLAMA_PART];
    *r = all;
    r->expert = together ? e : 0;
    if (together) continue;
    snprintf(own, sizeof own, "%s.%" PRId64 ".%s", m->kind->experts, e, m->kind->expert[part]);
    status = find_in(m, index, own, ".weight", 0, rows, r->columns, &r->weight);
    if (!status) status = find_scale(m, index, own, rows, r);
  }
  return status;
}

/* Norms of q or k, one for each head; a GGUF file has them in a tensor. */
static attn_status find_head_norms(const data_llama *m, int64_t index, llama_part p, int64_t heads,
                                   product_rows *one) {
  const int64_t d = m->config.head_dim;
  attn_status status = ATTN_OK;
  for (int64_t h = 0; !status && h < heads; h++) {
    char own[LLAMA_PART];
    snprintf(own, sizeof own, "%s.%" PRId64, m->kind->part[p], h);
    one[h] = (product_rows){.rows = d, .expert = m->in_gguf ? h : 0};
    status = find_in(m, index, m->in_gguf ? name_in_gguf(m, index, p) : own, ".weight",
                     m->in_gguf ? heads : 0, d, 0, &one[h].weight);
  }
  return status;
}

attn_status llama_find_layer(const data_llama *m, int64_t index, llama_layer *l) {
  const data_llama_config *c = &m->config;
  const bool heads = m->kind->norms_of_heads && c->qk_norms, experts = in_experts(m, index);
  attn_status status = ATTN_OK;
  for (int p = 0; !status && p < LLAMA_PARTS; p++)
    if (!heads || (p != LLAMA_Q_NORM && p != LLAMA_K_NORM))
      status = find_part(m, index, (llama_part)p, &l->part[p]);
  if (!status && m->kind->sinks)
    status = find_in(m, index, m->in_gguf ? "attn_sinks" : m->kind->sinks, m->in_gguf ? ".weight" : "", 0,
                     c->heads, 0, &l->sinks);
  if (status || !(heads || experts)) return status;
  if (!(l->one = calloc((size_t)llama_count_of_one(m, index), sizeof *l->one)))
    return attn_fail(ATTN_ENOMEM, "%s: no memory for layer %" PRId64, m->path, index);
  for (int part = 0; !status && experts && part < 3; part++) status = find_experts(m, index, part, l->one);
  if (!status && heads) status = find_head_norms(m, index, LLAMA_Q_NORM, c->heads, l->one);
  return !status && heads ? find_head_norms(m, index, LLAMA_K_NORM, c->kv_heads, l->one + c->heads) : status;
}
