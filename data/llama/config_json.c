/* config_json.c - config.json of a Hugging Face model directory, as far as the Llama architecture goes; absent
 * keys have the values that Hugging Face's LlamaConfig gives them. What the forward pass does not compute is
 * refused by name. */
#define _POSIX_C_SOURCE 200809L
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/llama/config.h"
#include "data/llama/llama.h"
#include "data/support/file.h"
#include "data/support/json_text.h"

static setting get(const void *config, const char *key) {
  const json_t *value = json_object_get(config, key);
  setting s = {.kind = SETTING_OTHER, .real = json_number_value(value)};
  if (!value || json_is_null(value)) return (setting){.kind = SETTING_ABSENT};
  if (json_is_integer(value)) s.kind = SETTING_INTEGER, s.integer = json_integer_value(value);
  if (json_is_real(value)) s.kind = SETTING_REAL;
  if (json_is_boolean(value)) s.kind = SETTING_FLAG, s.integer = json_is_true(value);
  if (json_is_string(value))
    s.kind = SETTING_TEXT, s.text = json_string_value(value), s.bytes = json_string_length(value);
  return s;
}

static bool given(const json_t *config, const char *key) { return get(config, key).kind != SETTING_ABSENT; }

/* Newer files hold rope_theta in an object with the kind of scaling. */
static attn_status get_rope(const char *path, const json_t *config, double *theta) {
  const json_t *rope = given(config, "rope_parameters") ? json_object_get(config, "rope_parameters") : NULL;
  if (rope && !json_is_object(rope))
    return attn_fail(ATTN_EINVAL, "%s: rope_parameters is not an object", path);
  if (rope) {
    attn_status status = setting_expect(path, "rope_type", get(rope, "rope_type"), "default", false);
    if (status) return status;
  }
  const json_t *holder = rope && given(rope, "rope_theta") ? rope : config;
  return setting_real(path, "rope_theta", get(holder, "rope_theta"), 10000, 1, 1e12, theta);
}

static attn_status refuse_variations(const char *path, const json_t *config) {
  static const char *const flags[] = {"attention_bias", "mlp_bias"};
  static const char *const objects[] = {"rope_scaling", "quantization_config"};
  attn_status status = setting_expect(path, "model_type", get(config, "model_type"), "llama", true);
  if (!status) status = setting_expect(path, "hidden_act", get(config, "hidden_act"), "silu", false);
  for (size_t i = 0; !status && i < sizeof flags / sizeof *flags; i++) {
    bool set = false;
    status = setting_flag(path, flags[i], get(config, flags[i]), &set);
    if (!status && set) status = attn_fail(ATTN_EUNSUPPORTED, "%s: %s is not computed", path, flags[i]);
  }
  for (size_t i = 0; !status && i < sizeof objects / sizeof *objects; i++)
    if (given(config, objects[i]))
      status = attn_fail(ATTN_EUNSUPPORTED, "%s: %s is not computed", path, objects[i]);
  return status;
}

static const llama_keys keys = {.hidden = "hidden_size",
                                .intermediate = "intermediate_size",
                                .layers = "num_hidden_layers",
                                .heads = "num_attention_heads",
                                .kv_heads = "num_key_value_heads",
                                .head_dim = "head_dim",
                                .max_positions = "max_position_embeddings",
                                .rms_eps = "rms_norm_eps",
                                .max_positions_preset = 2048,
                                .rms_eps_preset = 1e-6};

static attn_status get_bos(const char *path, setting s, int64_t *out) {
  *out = s.kind == SETTING_ABSENT ? -1 : s.integer;
  if (s.kind == SETTING_ABSENT || (s.kind == SETTING_INTEGER && s.integer >= 0)) return ATTN_OK;
  return attn_fail(ATTN_EINVAL, "%s: bos_token_id is not an id", path);
}

static attn_status parse(const char *path, const json_t *config, data_llama_config *out) {
  data_llama_config c = {0};
  if (!json_is_object(config)) return attn_fail(ATTN_EINVAL, "%s: not a JSON object", path);
  attn_status status = refuse_variations(path, config);
  if (!status)
    status = setting_size(path, "vocab_size", get(config, "vocab_size"), 0, LLAMA_DIMENSION_MAX, &c.vocab);
  if (!status) status = llama_read_numbers(path, &keys, get, config, &c);
  if (!status)
    status = setting_flag(path, "tie_word_embeddings", get(config, "tie_word_embeddings"), &c.tied);
  if (!status) status = get_rope(path, config, &c.rope_theta);
  if (!status) status = get_bos(path, get(config, "bos_token_id"), &c.bos);
  if (!status) *out = c;
  return status;
}

attn_status llama_read_config(const char *directory, data_llama_config *out) {
  attn_status status = ATTN_ENOMEM;
  file_map map = {0};
  json_t *config = NULL;
  json_error_t error;
  char *path = file_join(directory, "config.json");
  if (!path) return status;
  if (access(path, F_OK) != 0) {
    status = attn_fail(ATTN_ENOTFOUND,
                       "%s: neither a GGUF file nor a model directory: there is no config.json", directory);
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
