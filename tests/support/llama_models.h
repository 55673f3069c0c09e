/* llama_models.h - models for tests: small random ones written to a directory in every storage, and the
 * bundled one read independently of data/. */
#ifndef TESTS_SUPPORT_LLAMA_MODELS_H
#define TESTS_SUPPORT_LLAMA_MODELS_H

#include <jansson.h>

#include "attn_variant.h"
#include "tests/support/data_fixture.h"
#include "tests/support/llama_reference.h"

static const int64_t some_tokens[20] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 10};

static inline void close_llama(void *llama) { data_llama_close(llama); }

/* It goes with the process, as the tensors of the models below do. */
static inline data_llama *model_open(const char *path) {
  data_llama *llama = NULL;
  assert_ok(data_llama_open(path, &llama));
  return keep_object(llama, close_llama);
}

static inline void model_add(reference_model *m, int64_t layer, const char *name, int64_t rows,
                             int64_t columns, attn_rng *rng) {
  reference_tensor *t = &m->tensor[m->count++];
  int64_t count = rows * (columns ? columns : 1);
  if (layer < 0)
    snprintf(t->name, sizeof t->name, "%s.weight", name);
  else
    snprintf(t->name, sizeof t->name, "model.layers.%d.%s.weight", (int)layer, name);
  t->rows = rows;
  t->columns = columns;
  t->at = kept_memory(malloc(sizeof *t->at * (size_t)count));
  /* Multiples of 1/64 below 2: exact in every storage type. */
  for (int64_t i = 0; i < count; i++)
    t->at[i] = (double)(attn_rng_below(rng, 49) - 24 + (columns ? 0 : 64)) / 64;
}

/* Random tensors of the shapes that the numbers of a model ask for. */
static inline void model_fill(reference_model *m) {
  attn_rng rng = rng_of(1, 2, 3);
  model_add(m, -1, "model.embed_tokens", m->vocab, m->hidden, &rng);
  model_add(m, -1, "model.norm", m->hidden, 0, &rng);
  if (!m->tied) model_add(m, -1, "lm_head", m->vocab, m->hidden, &rng);
  for (int64_t l = 0; l < m->layers; l++) {
    model_add(m, l, "input_layernorm", m->hidden, 0, &rng);
    model_add(m, l, "self_attn.q_proj", m->heads * m->d, m->hidden, &rng);
    model_add(m, l, "self_attn.k_proj", m->kv_heads * m->d, m->hidden, &rng);
    model_add(m, l, "self_attn.v_proj", m->kv_heads * m->d, m->hidden, &rng);
    model_add(m, l, "self_attn.o_proj", m->hidden, m->heads * m->d, &rng);
    model_add(m, l, "post_attention_layernorm", m->hidden, 0, &rng);
    model_add(m, l, "mlp.gate_proj", m->inner, m->hidden, &rng);
    model_add(m, l, "mlp.up_proj", m->inner, m->hidden, &rng);
    model_add(m, l, "mlp.down_proj", m->hidden, m->inner, &rng);
  }
}

/* Grouped heads, and heads * d different from hidden. */
static inline reference_model model_random(int tied) {
  reference_model m = {.vocab = 11,
                       .hidden = 12,
                       .inner = 20,
                       .layers = 3,
                       .heads = 6,
                       .kv_heads = 2,
                       .d = 4,
                       .context = 64,
                       .eps = 1e-3,
                       .theta = 500,
                       .tied = tied};
  model_fill(&m);
  return m;
}

enum { STORE_F32, STORE_F16, STORE_BF16, STORE_F64, STORE_E4M3 };

/* Appends one number; returns the bytes written. */
static inline size_t model_encode(int store, double value, unsigned char *to) {
  float narrow = (float)value;
  if (store == STORE_F64) memcpy(to, &value, 8);
  if (store == STORE_F32) memcpy(to, &narrow, 4);
  if (store == STORE_BF16) memcpy(to, (unsigned char *)&narrow + 2, 2);
  if (store == STORE_F16) {
    int e;
    double m = frexp(fabs(value), &e); /* 1/2 <= m < 1, far from the subnormals */
    unsigned bits = value < 0 || value > 0 ? (unsigned)(e + 14) << 10 | ((unsigned)ldexp(m, 11) & 1023) : 0;
    bits |= value < 0 ? 0x8000 : 0;
    to[0] = (unsigned char)(bits & 255);
    to[1] = (unsigned char)(bits >> 8);
  }
  if (store == STORE_E4M3) {
    int e;
    double m = frexp(fabs(value), &e);
    to[0] = (unsigned char)((value < 0 ? 128 : 0) |
                            (m > 0 ? (unsigned)(e + 6) << 3 | ((unsigned)ldexp(m, 4) & 7) : 0));
    return 1;
  }
  return store == STORE_F64 ? 8 : store == STORE_F32 ? 4 : 2;
}

/* Tensors part, part + parts, ... of a model as a safetensors file. */
static inline void model_write_part(const reference_model *m, int store, size_t part, size_t parts,
                                    const char *name) {
  static const char *const types[] = {"F32", "F16", "BF16", "F64", "F8_E4M3"};
  static unsigned char data[1 << 18];
  size_t used = 0;
  json_t *header = json_object();
  for (size_t i = part; i < m->count; i += parts) {
    const reference_tensor *t = &m->tensor[i];
    const int kind = t->eight_bits ? STORE_E4M3 : store;
    size_t begin = used;
    for (int64_t j = 0; j < t->rows * (t->columns ? t->columns : 1); j++)
      used += model_encode(kind, t->at[j], data + used);
    cr_assert(used < sizeof data);
    json_t *shape = json_array();
    if (t->many) json_array_append_new(shape, json_integer(t->many));
    json_array_append_new(shape, json_integer(t->many ? t->rows / t->many : t->rows));
    if (t->columns) json_array_append_new(shape, json_integer(t->columns));
    json_object_set_new(header, t->name,
                        json_pack("{s:s, s:o, s:[I,I]}", "dtype", types[kind], "shape", shape, "data_offsets",
                                  (json_int_t)begin, (json_int_t)used));
  }
  char *text = json_dumps(header, JSON_COMPACT);
  size_t length = strlen(text);
  unsigned char *file = malloc(8 + length + used);
  for (int i = 0; i < 8; i++) file[i] = (unsigned char)((uint64_t)length >> (8 * i));
  memcpy(file + 8, text, length);
  memcpy(file + 8 + length, data, used);
  fixture_write(fixture_path(name), file, 8 + length + used);
  free(file);
  free(text);
  json_decref(header);
}

static inline json_t *model_config(const reference_model *m) {
  return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:b}", "model_type", "llama",
                   "hidden_act", "silu", "vocab_size", (json_int_t)m->vocab, "hidden_size",
                   (json_int_t)m->hidden, "intermediate_size", (json_int_t)m->inner, "num_hidden_layers",
                   (json_int_t)m->layers, "num_attention_heads", (json_int_t)m->heads, "num_key_value_heads",
                   (json_int_t)m->kv_heads, "head_dim", (json_int_t)m->d, "max_position_embeddings",
                   (json_int_t)m->context, "rms_norm_eps", m->eps, "rope_theta", m->theta,
                   "tie_word_embeddings", m->tied);
}

/* Takes the JSON. */
static inline void model_write_json(const char *name, json_t *json) {
  char *text = json_dumps(json, 0);
  fixture_write(fixture_path(name), text, strlen(text));
  free(text);
  json_decref(json);
}

static inline void model_write_config(json_t *config) { model_write_json("config.json", config); }

/* parts 1: model.safetensors; more: shards and an index. */
static inline void model_write(const reference_model *m, int store, size_t parts) {
  model_write_config(model_config(m));
  if (parts == 1) {
    model_write_part(m, store, 0, 1, "model.safetensors");
    return;
  }
  json_t *map = json_object();
  for (size_t part = 0; part < parts; part++) {
    const char *name = text_of("model-%05zu-of-%05zu.safetensors", part + 1, parts);
    model_write_part(m, store, part, parts, name);
    for (size_t i = part; i < m->count; i += parts)
      json_object_set_new(map, m->tensor[i].name, json_string(name));
  }
  model_write_json("model.safetensors.index.json", json_pack("{s:o}", "weight_map", map));
}

/* The bundled model (data/bytelm), read as its card describes it: F16, tied. */
static inline reference_model model_bundled(const char *path) {
  reference_model m = {.vocab = 256,
                       .hidden = 256,
                       .inner = 704,
                       .layers = 4,
                       .heads = 4,
                       .kv_heads = 4,
                       .d = 64,
                       .context = 4096,
                       .eps = 1e-5,
                       .theta = 10000,
                       .tied = 1};
  size_t size, length = 0;
  unsigned char *file = fixture_bytes(path, &size);
  for (int i = 7; i >= 0; i--) length = length << 8 | file[i];
  json_t *header = json_loadb((char *)file + 8, length, 0, NULL), *about;
  const char *name;
  json_object_foreach(header, name, about) {
    reference_tensor *t = &m.tensor[m.count++];
    json_t *shape = json_object_get(about, "shape"), *offsets = json_object_get(about, "data_offsets");
    size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0));
    size_t count = ((size_t)json_integer_value(json_array_get(offsets, 1)) - begin) / 2;
    snprintf(t->name, sizeof t->name, "%s", name);
    t->rows = json_integer_value(json_array_get(shape, 0));
    t->columns = json_integer_value(json_array_get(shape, 1));
    t->at = kept_memory(malloc(count * sizeof *t->at));
    for (size_t i = 0; i < count; i++) {
      const unsigned char *at = file + 8 + length + begin + 2 * i;
      int bits = at[0] | at[1] << 8, e = bits >> 10 & 31;
      t->at[i] = ldexp((bits & 1023) + (e ? 1024 : 0), (e ? e : 1) - 25) * (bits & 0x8000 ? -1 : 1);
    }
  }
  json_decref(header);
  free(file);
  return m;
}

#endif
