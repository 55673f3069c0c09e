/* gguf_files.h - GGUF files for tests, put together field by field, and models of llama_models.h in them. */
#ifndef TESTS_DATA_GGUF_FILES_H
#define TESTS_DATA_GGUF_FILES_H

#include "tests/support/llama_models.h"

/* The numbers of types and formats in the file. */
enum {
  IS_U8,
  IS_I8,
  IS_U16,
  IS_I16,
  IS_U32,
  IS_I32,
  IS_F32,
  IS_BOOL,
  IS_TEXT,
  IS_LIST,
  IS_U64,
  IS_I64,
  IS_F64
};
enum { AS_F32 = 0, AS_F16 = 1, AS_Q8_0 = 8, AS_BF16 = 30 };

typedef struct gguf_bytes {
  unsigned char at[1 << 17];
  size_t used;
} gguf_bytes;

/* A file that grows: its keys, the descriptions of its tensors, and their bytes. */
typedef struct gguf_file {
  uint64_t keys, tensors;
  uint32_t version;
  size_t alignment;
  gguf_bytes key, tensor, data;
} gguf_file;

static inline gguf_file *gguf_file_new(void) {
  gguf_file *f = calloc(1, sizeof *f);
  f->version = 3;
  f->alignment = 32;
  return f;
}

static inline void gguf_put(gguf_bytes *b, const void *at, size_t bytes) {
  cr_assert(b->used + bytes <= sizeof b->at);
  if (bytes) memcpy(b->at + b->used, at, bytes);
  b->used += bytes;
}

/* The low bytes of a number, lowest first. */
static inline void gguf_put_number(gguf_bytes *b, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) gguf_put(b, &(unsigned char){(unsigned char)(value >> 8 * i)}, 1);
}

static inline void gguf_put_text(gguf_bytes *b, const char *text) {
  gguf_put_number(b, strlen(text), 8);
  gguf_put(b, text, strlen(text));
}

static inline void gguf_key(gguf_file *f, const char *name, uint32_t type) {
  gguf_put_text(&f->key, name);
  gguf_put_number(&f->key, type, 4);
  f->keys++;
}

static inline void gguf_key_number(gguf_file *f, const char *name, uint32_t type, uint64_t value,
                                   size_t bytes) {
  gguf_key(f, name, type);
  gguf_put_number(&f->key, value, bytes);
}

static inline void gguf_key_u32(gguf_file *f, const char *name, uint64_t value) {
  gguf_key_number(f, name, IS_U32, value, 4);
}

static inline void gguf_key_f32(gguf_file *f, const char *name, float value) {
  gguf_key(f, name, IS_F32);
  gguf_put(&f->key, &value, sizeof value);
}

static inline void gguf_key_text(gguf_file *f, const char *name, const char *text) {
  gguf_key(f, name, IS_TEXT);
  gguf_put_text(&f->key, text);
}

/* A key with a list of `count` values of a type, which follow. */
static inline void gguf_key_list(gguf_file *f, const char *name, uint32_t type, uint64_t count) {
  gguf_key(f, name, IS_LIST);
  gguf_put_number(&f->key, type, 4);
  gguf_put_number(&f->key, count, 8);
}

/* A tensor of `rows` (0: none, a vector) of `columns`, or of `many` (0: one) such matrices; its bytes are
 * those added after this call. */
static inline void gguf_tensors(gguf_file *f, const char *name, int64_t many, int64_t rows, int64_t columns,
                                uint32_t format) {
  const int64_t shape[] = {columns, rows, many};
  const uint64_t rank = many ? 3 : rows ? 2 : 1;
  while (f->data.used % f->alignment) gguf_put_number(&f->data, 0, 1);
  gguf_put_text(&f->tensor, name);
  gguf_put_number(&f->tensor, rank, 4);
  for (uint64_t i = 0; i < rank; i++) gguf_put_number(&f->tensor, (uint64_t)shape[i], 8);
  gguf_put_number(&f->tensor, format, 4);
  gguf_put_number(&f->tensor, f->data.used, 8);
  f->tensors++;
}

static inline void gguf_tensor(gguf_file *f, const char *name, int64_t rows, int64_t columns,
                               uint32_t format) {
  gguf_tensors(f, name, 0, rows, columns, format);
}

/* Ends with the last tensor's last byte; to be freed. */
static inline unsigned char *gguf_file_bytes(const gguf_file *f, size_t *size) {
  gguf_bytes *all = calloc(1, sizeof *all + sizeof *f);
  gguf_put(all, "GGUF", 4);
  gguf_put_number(all, f->version, 4);
  gguf_put_number(all, f->tensors, 8);
  gguf_put_number(all, f->keys, 8);
  gguf_put(all, f->key.at, f->key.used);
  gguf_put(all, f->tensor.at, f->tensor.used);
  while (f->data.used && all->used % f->alignment) gguf_put_number(all, 0, 1);
  gguf_put(all, f->data.at, f->data.used);
  unsigned char *made = malloc(all->used);
  memcpy(made, all->at, all->used);
  *size = all->used;
  free(all);
  return made;
}

/* Writes it and frees it. */
static inline const char *gguf_file_write(gguf_file *f, const char *name) {
  size_t size;
  unsigned char *at = gguf_file_bytes(f, &size);
  const char *path = fixture_path(name);
  fixture_write(path, at, size);
  free(at);
  free(f);
  return path;
}

/* ---- models -------------------------------------------------------------------------------------------- */

static inline const char *gguf_architecture(const reference_model *m) {
  return m->architecture ? m->architecture : "llama";
}

static inline const char *gguf_model_key(const reference_model *m, const char *rest) {
  return text_of("%s.%s", gguf_architecture(m), rest);
}

static inline void gguf_model_keys(gguf_file *f, const reference_model *m) {
  const struct {
    const char *rest;
    int64_t value;
  } numbers[] = {{"embedding_length", m->hidden},
                 {"feed_forward_length", m->inner},
                 {"block_count", m->layers},
                 {"attention.head_count", m->heads},
                 {"attention.head_count_kv", m->kv_heads},
                 {"attention.key_length", m->d},
                 {"context_length", m->context}};
  gguf_key_text(f, "general.architecture", gguf_architecture(m));
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    gguf_key_u32(f, gguf_model_key(m, numbers[i].rest), (uint64_t)numbers[i].value);
  gguf_key_f32(f, gguf_model_key(m, "attention.layer_norm_rms_epsilon"), (float)m->eps);
  gguf_key_f32(f, gguf_model_key(m, "rope.freq_base"), (float)m->theta);
  if (m->turned) gguf_key_u32(f, gguf_model_key(m, "rope.dimension_count"), (uint64_t)m->turned);
}

/* "model.layers.2.self_attn.q_proj.weight" is "blk.2.attn_q.weight". */
static inline void gguf_model_name(const char *name, char to[80]) {
  static const char *const pairs[][2] = {{"model.embed_tokens", "token_embd"},
                                         {"model.norm", "output_norm"},
                                         {"lm_head", "output"},
                                         {"input_layernorm", "attn_norm"},
                                         {"self_attn.q_proj", "attn_q"},
                                         {"self_attn.k_proj", "attn_k"},
                                         {"self_attn.v_proj", "attn_v"},
                                         {"self_attn.o_proj", "attn_output"},
                                         {"self_attn.q_norm", "attn_q_norm"},
                                         {"self_attn.k_norm", "attn_k_norm"},
                                         {"post_attention_layernorm", "ffn_norm"},
                                         {"post_feedforward_layernorm", "post_ffw_norm"},
                                         {"mlp.gate_proj", "ffn_gate"},
                                         {"mlp.up_proj", "ffn_up"},
                                         {"mlp.down_proj", "ffn_down"},
                                         {"mlp.gate", "ffn_gate_inp"},
                                         {"mlp.router", "ffn_gate_inp"},
                                         {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
                                         {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
                                         {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
                                         {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
                                         {"mlp.experts.gate_proj", "ffn_gate_exps"},
                                         {"mlp.experts.up_proj", "ffn_up_exps"},
                                         {"mlp.experts.down_proj", "ffn_down_exps"},
                                         {"self_attn.sinks", "attn_sinks.weight"}};
  int layer = -1, used = 0;
  const char *rest = sscanf(name, "model.layers.%d.%n", &layer, &used) == 1 ? name + used : name;
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    size_t length = strlen(pairs[i][0]);
    if (strncmp(rest, pairs[i][0], length) != 0) continue;
    if (layer < 0)
      snprintf(to, 80, "%s%s", pairs[i][1], rest + length);
    else
      snprintf(to, 80, "blk.%d.%s%s", layer, pairs[i][1], rest + length);
    return;
  }
  snprintf(to, 80, "%s", name);
}

/* A block of Q8_0 with d = 1/64, of which the weights of random models are small multiples. */
static inline void gguf_put_q8_0(gguf_bytes *b, const double *at) {
  gguf_put_number(b, 0x2400, 2);
  for (int i = 0; i < 32; i++) gguf_put_number(b, (uint64_t)(int64_t)(at[i] * 64), 1);
}

/* Vectors are F32 in such files. The rows of q and k of llama and granite are moved so that those which turn
 * together are neighbours. OLMo 2 and gpt-oss have post_attention_norm for what others call ffn_norm. */
static inline void gguf_model_tensor(gguf_file *f, const reference_model *m, const reference_tensor *t,
                                     int format) {
  char name[80];
  const bool after = strstr("olmo2 gpt-oss", gguf_architecture(m)),
             pairs = strstr("llama granite", gguf_architecture(m));
  gguf_model_name(t->name, name);
  if (after && strstr(name, ".ffn_norm.")) strcpy(strstr(name, "ffn_norm."), "post_attention_norm.weight");
  int64_t rows = t->columns && t->rows > 1 ? t->rows : 0, columns = t->columns ? t->columns : t->rows,
          turned = m->turned ? m->turned : m->d;
  bool turns = rows && pairs && (strstr(t->name, "q_proj") || strstr(t->name, "k_proj"));
  if (!rows) format = AS_F32;
  gguf_tensors(f, name, t->many, t->many ? rows / t->many : rows, columns, (uint32_t)format);
  for (int64_t r = 0; r < (rows ? rows : 1); r++) {
    const int64_t i = r % m->d, from = i % 2 * (turned / 2) + i / 2;
    const double *at = t->at + (turns && i < turned ? r - i + from : r) * columns;
    for (int64_t j = 0; j < columns; j += format == AS_Q8_0 ? 32 : 1) {
      unsigned char one[8];
      int store = format == AS_F16 ? STORE_F16 : format == AS_BF16 ? STORE_BF16 : STORE_F32;
      if (format == AS_Q8_0)
        gguf_put_q8_0(&f->data, at + j);
      else
        gguf_put(&f->data, one, model_encode(store, at[j], one));
    }
  }
}

static inline gguf_file *gguf_model(const reference_model *m, int format) {
  gguf_file *f = gguf_file_new();
  gguf_model_keys(f, m);
  for (size_t i = 0; i < m->count; i++) gguf_model_tensor(f, m, &m->tensor[i], format);
  return f;
}

#endif
