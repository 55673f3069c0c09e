/* config.c - config.json of a Hugging Face model directory, as far as the Llama architecture goes; absent
 * keys have the values that Hugging Face's LlamaConfig gives them. What the forward pass does not compute is
 * refused by name. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/llama/llama.h"
#include "data/support/file.h"
#include "data/support/json_text.h"

/* Larger than any model, and small enough that a product of two does not overflow. */
enum { DIMENSION_MAX = 1 << 28, LAYERS_MAX = 1 << 16 };

static json_t *given(json_t *config, const char *key) {
  json_t *value = json_object_get(config, key);
  return json_is_null(value) ? NULL : value;
}

/* preset 0: the key is required. */
static attn_status get_size(const char *path, json_t *config, const char *key, int64_t preset, int64_t max,
                            int64_t *out) {
  json_t *value = given(config, key);
  if (!value && preset == 0) return attn_fail(ATTN_EINVAL, "%s: key %s is missing", path, key);
  if (value && (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > max))
    return attn_fail(ATTN_EINVAL, "%s: %s is not an integer from 1 to %" PRId64, path, key, max);
  *out = value ? json_integer_value(value) : preset;
  return ATTN_OK;
}

static attn_status get_real(const char *path, json_t *config, const char *key, double preset, double min,
                            double max, double *out) {
  json_t *value = given(config, key);
  double number = value ? json_number_value(value) : preset;
  if (value && (!json_is_number(value) || !(number >= min && number <= max)))
    return attn_fail(ATTN_EINVAL, "%s: %s is not a number from %g to %g", path, key, min, max);
  *out = number;
  return ATTN_OK;
}

static attn_status get_flag(const char *path, json_t *config, const char *key, bool *out) {
  json_t *value = given(config, key);
  if (value && !json_is_boolean(value))
    return attn_fail(ATTN_EINVAL, "%s: %s is neither true nor false", path, key);
  *out = json_is_true(value);
  return ATTN_OK;
}

static attn_status expect_text(const char *path, json_t *config, const char *key, const char *wanted,
                               bool required) {
  json_t *value = given(config, key);
  if (!value && !required) return ATTN_OK;
  const char *text = json_string_value(value);
  if (text && strcmp(text, wanted) == 0) return ATTN_OK;
  return attn_fail(text ? ATTN_EUNSUPPORTED : ATTN_EINVAL, "%s: %s is %s; only %s is computed", path, key,
                   text ? text : "missing or not a string", wanted);
}

/* Newer files hold rope_theta in an object with the kind of scaling. */
static attn_status get_rope(const char *path, json_t *config, double *theta) {
  json_t *rope = given(config, "rope_parameters");
  if (rope && !json_is_object(rope))
    return attn_fail(ATTN_EINVAL, "%s: rope_parameters is not an object", path);
  if (rope) {
    attn_status status = expect_text(path, rope, "rope_type", "default", false);
    if (status) return status;
  }
  return get_real(path, rope && given(rope, "rope_theta") ? rope : config, "rope_theta", 10000, 1, 1e12,
                  theta);
}

static attn_status refuse_variations(const char *path, json_t *config) {
  static const char *const flags[] = {"attention_bias", "mlp_bias"};
  static const char *const objects[] = {"rope_scaling", "quantization_config"};
  attn_status status = expect_text(path, config, "model_type", "llama", true);
  if (!status) status = expect_text(path, config, "hidden_act", "silu", false);
  for (size_t i = 0; !status && i < sizeof flags / sizeof *flags; i++) {
    bool set = false;
    status = get_flag(path, config, flags[i], &set);
    if (!status && set) status = attn_fail(ATTN_EUNSUPPORTED, "%s: %s is not computed", path, flags[i]);
  }
  for (size_t i = 0; !status && i < sizeof objects / sizeof *objects; i++)
    if (given(config, objects[i]))
      status = attn_fail(ATTN_EUNSUPPORTED, "%s: %s is not computed", path, objects[i]);
  return status;
}

static attn_status parse(const char *path, json_t *config, data_llama_config *out) {
  data_llama_config c = {0};
  if (!json_is_object(config)) return attn_fail(ATTN_EINVAL, "%s: not a JSON object", path);
  attn_status status = refuse_variations(path, config);
  if (!status) status = get_size(path, config, "vocab_size", 0, DIMENSION_MAX, &c.vocab);
  if (!status) status = get_size(path, config, "hidden_size", 0, DIMENSION_MAX, &c.hidden);
  if (!status) status = get_size(path, config, "intermediate_size", 0, DIMENSION_MAX, &c.intermediate);
  if (!status) status = get_size(path, config, "num_hidden_layers", 0, LAYERS_MAX, &c.layers);
  if (!status) status = get_size(path, config, "num_attention_heads", 0, LAYERS_MAX, &c.heads);
  if (status) return status;
  if (!given(config, "head_dim") && c.hidden % c.heads != 0)
    return attn_fail(ATTN_EINVAL,
                     "%s: hidden_size=%" PRId64 " is not a multiple of num_attention_heads=%" PRId64
                     ", and head_dim is not given",
                     path, c.hidden, c.heads);
  /* A head may be wider than the hidden size if the file says so. The default is at least 1. */
  int64_t d = c.hidden / c.heads > 0 ? c.hidden / c.heads : 1;
  status = get_size(path, config, "head_dim", d, LAYERS_MAX, &c.head_dim);
  if (!status) status = get_size(path, config, "num_key_value_heads", c.heads, c.heads, &c.kv_heads);
  if (!status)
    status = get_size(path, config, "max_position_embeddings", 2048, INT64_C(1) << 40, &c.max_positions);
  if (!status) status = get_real(path, config, "rms_norm_eps", 1e-6, 0, 1, &c.rms_eps);
  if (!status) status = get_flag(path, config, "tie_word_embeddings", &c.tied);
  if (!status) status = get_rope(path, config, &c.rope_theta);
  if (status) return status;
  if (c.heads % c.kv_heads != 0)
    return attn_fail(ATTN_EINVAL,
                     "%s: num_key_value_heads=%" PRId64 " does not divide num_attention_heads=%" PRId64, path,
                     c.kv_heads, c.heads);
  if (c.head_dim % 2 != 0)
    return attn_fail(ATTN_EINVAL, "%s: head_dim=%" PRId64 " is odd; rotary positions need pairs", path,
                     c.head_dim);
  *out = c;
  return ATTN_OK;
}

attn_status llama_read_config(const char *directory, data_llama_config *out) {
  attn_status status = ATTN_ENOMEM;
  file_map map = {0};
  json_t *config = NULL;
  json_error_t error;
  char *path = file_join(directory, "config.json");
  if (!path) return status;
  if (access(path, F_OK) != 0) {
    status = attn_fail(ATTN_ENOTFOUND, "%s: not a model directory: there is no config.json", directory);
    goto out;
  }
  status = file_map_open(path, &map);
  if (status) goto out;
  status = json_parse((const char *)map.at, map.bytes, &error, &config);
  if (!status)
    status = parse(path, config, out);
  else if (status == ATTN_EINVAL)
    status = attn_fail(ATTN_EINVAL, "%s:%d:%d: not JSON: %s", path, error.line, error.column, error.text);
out:
  json_decref(config);
  file_map_close(&map);
  free(path);
  return status;
}
