/* llama_config_json.c - config.json of a Hugging Face model directory: Llama, Mistral, Qwen2 and Qwen3.
 * Absent keys have the values that Hugging Face's configurations give them. What the forward pass does not
 * compute is refused by name. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/llama/llama_config.h"
#include "data/llama/llama.h"
#include "data/support/file.h"
#include "data/support/json_setting.h"

static setting get(const void *config, const char *key) { return json_setting(config, key); }

static bool given(const json_t *config, const char *key) { return get(config, key).kind != SETTING_ABSENT; }

/* What the architectures differ in. */
typedef struct architecture {
  const char *name;
  int64_t head_dim, max_positions; /* presets; 0: hidden / heads */
  int64_t window;                  /* preset of sliding_window; 0: it has none */
  bool qkv_bias, head_norms;
  bool attention_bias, mlp_bias; /* it has these keys */
  bool window_optional;          /* use_sliding_window and max_window_layers say where it is used */
} architecture;

static const architecture architectures[] = {
    {.name = "llama", .max_positions = 2048, .attention_bias = true, .mlp_bias = true},
    {.name = "mistral", .max_positions = 131072, .window = 4096},
    {.name = "qwen2", .max_positions = 32768, .window = 4096, .qkv_bias = true, .window_optional = true},
    {.name = "qwen3",
     .head_dim = 128,
     .max_positions = 32768,
     .window = 4096,
     .head_norms = true,
     .attention_bias = true,
     .window_optional = true}};

static attn_status find_architecture(const char *path, const json_t *config, const architecture **out) {
  const setting s = get(config, "model_type");
  if (s.kind != SETTING_TEXT)
    return attn_fail(ATTN_EINVAL, "%s: model_type is missing or not a string", path);
  for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
    if (strcmp(s.text, architectures[i].name) == 0) {
      *out = &architectures[i];
      return ATTN_OK;
    }
  if (strcmp(s.text, "bert") == 0)
    return attn_fail(
        ATTN_EUNSUPPORTED,
        "%s: model_type is bert, an encoder, which predicts no next token: only capture reads it", path);
  return attn_fail(ATTN_EUNSUPPORTED, "%s: model_type is %.64s; llama, mistral, qwen2 and qwen3 are computed",
                   path, s.text);
}

static attn_status refuse_variations(const char *path, const json_t *config) {
  attn_status status = setting_expect(path, "hidden_act", get(config, "hidden_act"), "silu", false);
  if (!status && given(config, "quantization_config"))
    status = attn_fail(ATTN_EUNSUPPORTED, "%s: quantization_config is not supported", path);
  return status;
}

static attn_status read_biases(const char *path, const json_t *config, const architecture *a,
                               data_llama_config *c) {
  bool attention = false, mlp = false;
  attn_status status = setting_flag(path, "attention_bias", get(config, "attention_bias"), &attention);
  if (!status) status = setting_flag(path, "mlp_bias", get(config, "mlp_bias"), &mlp);
  if (!status && ((attention && !a->attention_bias) || (mlp && !a->mlp_bias)))
    status = attn_fail(ATTN_EUNSUPPORTED, "%s: %s is not supported for %s", path,
                       mlp ? "mlp_bias" : "attention_bias", a->name);
  c->qkv_bias = a->qkv_bias || attention;
  c->output_bias = attention;
  c->mlp_bias = mlp;
  c->head_norms = a->head_norms;
  return status;
}

/* -- rotary positions -- */

static attn_status read_list(const char *path, const json_t *rope, const char *key, int64_t count,
                             double *to) {
  const json_t *list = json_object_get(rope, key);
  if (json_array_size(list) != (size_t)count)
    return attn_fail(ATTN_EINVAL, "%s: %s is not a list of %" PRId64 " numbers", path, key, count);
  for (int64_t i = 0; i < count; i++) {
    to[i] = json_number_value(json_array_get(list, (size_t)i));
    if (!(to[i] >= 1e-6 && to[i] <= 1e6))
      return attn_fail(ATTN_EINVAL, "%s: %s[%" PRId64 "] is not a number from 1e-6 to 1e+06", path, key, i);
  }
  return ATTN_OK;
}

/* The lists of longrope; the last step, since what it makes is to be freed. */
static attn_status read_divisors(const char *path, const json_t *config, data_llama_config *c) {
  const int64_t half = c->rotary_dim / 2;
  const json_t *rope =
      json_object_get(config, given(config, "rope_parameters") ? "rope_parameters" : "rope_scaling");
  if (c->rope.kind != DATA_ROPE_LONGROPE) return ATTN_OK;
  double *at = malloc(2 * (size_t)half * sizeof *at);
  if (!at) return attn_fail(ATTN_ENOMEM, "%s: no memory for its rotary positions", path);
  attn_status status = read_list(path, rope, "short_factor", half, at);
  if (!status) status = read_list(path, rope, "long_factor", half, at + half);
  if (status)
    free(at);
  else
    c->rope.divisors = at;
  return status;
}

/* rope: the object `path` names. Older files call its kind type. */
static attn_status read_scaling(const char *path, const json_t *rope, data_llama_config *c) {
  const llama_rope_keys keys = {.kind =
                                    given(rope, "rope_type") || !given(rope, "type") ? "rope_type" : "type",
                                .factor = "factor",
                                .original = "original_max_position_embeddings",
                                .beta_fast = "beta_fast",
                                .beta_slow = "beta_slow",
                                .attention = "attention_factor",
                                .mscale = "mscale",
                                .mscale_all = "mscale_all_dim",
                                .low = "low_freq_factor",
                                .high = "high_freq_factor"};
  bool whole = true;
  if (!json_is_object(rope)) return attn_fail(ATTN_EINVAL, "%s: not an object", path);
  if (!given(rope, keys.kind)) return attn_fail(ATTN_EINVAL, "%s: key rope_type is missing", path);
  if (given(rope, "mrope_section"))
    return attn_fail(ATTN_EUNSUPPORTED, "%s: mrope_section is not supported", path);
  attn_status status = llama_read_rope(path, &keys, get, rope, c);
  if (!status && given(rope, "truncate"))
    status = setting_flag(path, "truncate", get(rope, "truncate"), &whole);
  if (!status) c->rope.exact_range = !whole;
  return status;
}

/* Newer files have rope_parameters, with rope_theta in it, in place of rope_scaling. */
static attn_status read_rope(const char *path, const json_t *config, data_llama_config *c) {
  const bool newer = given(config, "rope_parameters"), older = given(config, "rope_scaling");
  const char *name = newer ? "rope_parameters" : "rope_scaling";
  const json_t *rope = newer || older ? json_object_get(config, name) : NULL;
  const char *part = "partial_rotary_factor";
  double share = 1;
  const json_t *holder = newer && given(rope, "rope_theta") ? rope : config;
  if (newer && older)
    return attn_fail(ATTN_EINVAL, "%s: both rope_scaling and rope_parameters are given, expected one of them",
                     path);
  c->rope = (data_rope){.kind = DATA_ROPE_PLAIN, .attention = 1};
  attn_status status =
      setting_real(path, "rope_theta", get(holder, "rope_theta"), 10000, 1, 1e12, &c->rope.theta);
  if (!status)
    status = setting_real(path, part, get(given(rope, part) ? rope : config, part), 1, 0, 1, &share);
  if (!status) status = llama_set_rotary_dim(path, part, (int64_t)((double)c->head_dim * share), c);
  if (status || !rope) return status;
  char *place = text_format("%s: %s", path, name);
  status = place ? read_scaling(place, rope, c) : ATTN_ENOMEM;
  free(place);
  return status;
}

/* -- windows -- */

/* layer_types names each layer; those with a window come last. */
static attn_status read_layer_types(const char *path, const json_t *config, data_llama_config *c) {
  const json_t *types = json_object_get(config, "layer_types");
  const size_t count = json_array_size(types);
  if (!json_is_array(types) || count != (size_t)c->layers)
    return attn_fail(ATTN_EINVAL, "%s: layer_types is not a list of %" PRId64 " kinds of layers", path,
                     c->layers);
  c->window_from = c->layers;
  for (size_t i = 0; i < count; i++) {
    const char *type = json_string_value(json_array_get(types, i));
    const bool full = type && strcmp(type, "full_attention") == 0;
    if (!full && (!type || strcmp(type, "sliding_attention") != 0))
      return attn_fail(ATTN_EUNSUPPORTED,
                       "%s: layer_types[%zu] is %.64s; full_attention and sliding_attention are computed",
                       path, i, type ? type : "not a string");
    if (full && c->window_from < c->layers)
      return attn_fail(
          ATTN_EUNSUPPORTED,
          "%s: layer_types[%zu] is full_attention after sliding_attention, which is not supported", path, i);
    if (!full && c->window == 0)
      return attn_fail(ATTN_EINVAL,
                       "%s: layer_types[%zu] is sliding_attention, and sliding_window gives no width", path,
                       i);
    if (!full && c->window_from == c->layers) c->window_from = (int64_t)i;
  }
  return ATTN_OK;
}

static attn_status read_window(const char *path, const json_t *config, const architecture *a,
                               data_llama_config *c) {
  const json_t *width = json_object_get(config, "sliding_window");
  const setting from = get(config, "max_window_layers");
  bool used = !a->window_optional;
  attn_status status = ATTN_OK;
  if (!a->window && (given(config, "sliding_window") || given(config, "layer_types")))
    return attn_fail(ATTN_EUNSUPPORTED, "%s: sliding_window and layer_types are not computed of %s", path,
                     a->name);
  if (!a->window) return ATTN_OK;
  if (a->window_optional)
    status = setting_flag(path, "use_sliding_window", get(config, "use_sliding_window"), &used);
  if (status) return status;
  if (used && !json_is_null(width)) /* null: no window; absent: the preset */
    status = setting_size(path, "sliding_window", get(config, "sliding_window"), a->window, INT64_C(1) << 40,
                          &c->window);
  if (!status && a->window_optional && (from.kind != SETTING_INTEGER || from.integer != 0))
    status = setting_size(path, "max_window_layers", from, 28, LLAMA_LAYERS_MAX, &c->window_from);
  if (!status && given(config, "layer_types")) status = read_layer_types(path, config, c);
  return status;
}

/* -- all of it -- */

static attn_status get_bos(const char *path, setting s, int64_t *out) {
  *out = s.kind == SETTING_ABSENT ? -1 : s.integer;
  if (s.kind == SETTING_ABSENT || (s.kind == SETTING_INTEGER && s.integer >= 0)) return ATTN_OK;
  return attn_fail(ATTN_EINVAL, "%s: bos_token_id is not an id", path);
}

static attn_status parse(const char *path, const json_t *config, data_llama_config *out) {
  data_llama_config c = {0};
  const architecture *a = NULL;
  attn_status status = find_architecture(path, config, &a);
  if (status) return status;
  const llama_keys keys = {.hidden = "hidden_size",
                           .intermediate = "intermediate_size",
                           .layers = "num_hidden_layers",
                           .heads = "num_attention_heads",
                           .kv_heads = "num_key_value_heads",
                           .head_dim = "head_dim",
                           .max_positions = "max_position_embeddings",
                           .rms_eps = "rms_norm_eps",
                           .head_dim_preset = a->head_dim,
                           .kv_heads_required = a != &architectures[0],
                           .max_positions_preset = a->max_positions,
                           .rms_eps_preset = 1e-6};
  c.architecture = a->name;
  status = refuse_variations(path, config);
  if (!status) status = read_biases(path, config, a, &c);
  if (!status)
    status = setting_size(path, "vocab_size", get(config, "vocab_size"), 0, LLAMA_DIMENSION_MAX, &c.vocab);
  if (!status) status = llama_read_numbers(path, &keys, get, config, &c);
  if (!status)
    status = setting_flag(path, "tie_word_embeddings", get(config, "tie_word_embeddings"), &c.tied);
  if (!status) status = read_rope(path, config, &c);
  if (!status) status = read_window(path, config, a, &c);
  if (!status) status = get_bos(path, get(config, "bos_token_id"), &c.bos);
  if (!status) status = read_divisors(path, config, &c);
  if (!status) *out = c;
  return status;
}

attn_status llama_read_config(const char *directory, data_llama_config *out) {
  json_t *config = NULL;
  char *path = NULL;
  attn_status status = json_config_read(directory, &path, &config);
  if (!status) status = parse(path, config, out);
  json_decref(config);
  free(path);
  return status;
}
