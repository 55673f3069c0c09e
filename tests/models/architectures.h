/* architectures.h - the small random models of tests/models/architectures.py, which wrote
 * fixtures/architectures.json. */
#ifndef TESTS_MODELS_ARCHITECTURES_H
#define TESTS_MODELS_ARCHITECTURES_H

#include "tests/support/data_fixture.h"
#include "tests/support/llama_models.h"

static json_t *architecture_cases;

static inline void architectures_begin(void) {
  json_error_t error;
  fixture_begin();
  architecture_cases = json_load_file(TEST_SOURCE_DIR "/tests/fixtures/architectures.json", 0, &error);
  cr_assert(architecture_cases, "%s", error.text);
}

static inline void architectures_end(void) {
  json_decref(architecture_cases);
  fixture_end();
}

static inline const json_t *architecture_member(const char *name, const char *key) {
  return json_object_get(json_object_get(architecture_cases, name), key);
}

/* The numbers of a tensor follow from its name. */
static inline void architecture_fill(reference_tensor *t) {
  const size_t length = strlen(t->name), count = (size_t)(t->rows * (t->columns ? t->columns : 1));
  const bool factor = !t->columns && strcmp(t->name + length - 7, ".weight") == 0;
  uint64_t state = 0xcbf29ce484222325;
  for (size_t i = 0; i < length; i++) state = (state ^ (unsigned char)t->name[i]) * 0x100000001b3;
  t->at = malloc(count * sizeof *t->at);
  for (size_t i = 0; i < count; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    t->at[i] = ((double)((state >> 33) % 49) - 24 + (factor ? 64 : 0)) / 64;
  }
}

static inline int64_t architecture_number(const char *name, const char *key) {
  return json_integer_value(json_object_get(architecture_member(name, "config"), key));
}

/* GPT-2 calls them otherwise. */
static inline int64_t architecture_either(const char *name, const char *key, const char *other) {
  return architecture_number(name, architecture_number(name, key) ? key : other);
}

static inline reference_model architecture_model(const char *name) {
  const json_t *config = architecture_member(name, "config");
  reference_model m = {.architecture = json_string_value(json_object_get(config, "model_type")),
                       .vocab = architecture_number(name, "vocab_size"),
                       .hidden = architecture_either(name, "hidden_size", "n_embd"),
                       .inner = architecture_number(name, "intermediate_size"),
                       .layers = architecture_either(name, "num_hidden_layers", "n_layer"),
                       .heads = architecture_number(name, "num_attention_heads"),
                       .kv_heads = architecture_number(name, "num_key_value_heads"),
                       .d = architecture_number(name, "head_dim"),
                       .context = architecture_number(name, "max_position_embeddings"),
                       .eps = json_number_value(json_object_get(config, "rms_norm_eps")),
                       .theta = json_number_value(json_object_get(config, "rope_theta"))};
  const char *one;
  json_t *shape, *tensors = json_object_get(json_object_get(architecture_cases, name), "tensors");
  json_object_foreach(tensors, one, shape) {
    reference_tensor *t = &m.tensor[m.count++];
    cr_assert(m.count <= sizeof m.tensor / sizeof *m.tensor);
    snprintf(t->name, sizeof t->name, "%s", one);
    const size_t last = json_array_size(shape) > 2;
    t->many = last ? json_integer_value(json_array_get(shape, 0)) : 0;
    t->rows = (last ? t->many : 1) * json_integer_value(json_array_get(shape, last));
    t->columns = json_integer_value(json_array_get(shape, last + 1));
    architecture_fill(t);
  }
  return m;
}

/* Writes config.json and model.safetensors into the directory of fixtures. */
static inline reference_model architecture_write(const char *name) {
  const reference_model m = architecture_model(name);
  model_write_config(json_deep_copy(architecture_member(name, "config")));
  model_write_part(&m, STORE_F32, 0, 1, "model.safetensors");
  return m;
}

#endif
