/* llama_config_json.c - config.json of a Hugging Face model directory, by the table of architectures. Absent
 * keys have the values that Hugging Face's configurations give them. What the forward pass does not compute
 * is refused by name. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/llama/architectures.h"
#include "data/llama/llama.h"
#include "data/llama/llama_config_layers.h"
#include "data/support/file.h"
#include "data/support/json_setting.h"

static setting get(const void *config, const char *key) { return json_setting(config, key); }

static bool given(const json_t *config, const char *key) { return get(config, key).kind != SETTING_ABSENT; }

/* A flag with a preset. key NULL: the architecture has none. */
static attn_status read_flag(const char *path, const json_t *config, const char *key, bool preset,
                             bool *out) {
  *out = preset;
  return key && given(config, key) ? setting_flag(path, key, get(config, key), out) : ATTN_OK;
}

static attn_status refuse_variations(const char *path, const json_t *config, const llama_architecture *a) {
  static const char *const flags[] = {"use_bidirectional_attention", "add_cross_attention",
                                      "scale_attn_by_inverse_layer_idx", "is_decoder"};
  attn_status status = setting_expect(path, "position_embedding_type", get(config, "position_embedding_type"),
                                      "absolute", false);
  for (size_t i = 0; !status && i < sizeof flags / sizeof *flags - !a->encoder; i++) {
    bool set = false;
    status = setting_flag(path, flags[i], get(config, flags[i]), &set);
    if (!status && set) status = attn_fail(ATTN_EUNSUPPORTED, "%s: %s is not supported", path, flags[i]);
  }
  bool scaled = true;
  if (!status) status = read_flag(path, config, "scale_attn_weights", true, &scaled);
  if (!status && !scaled)
    status = attn_fail(ATTN_EUNSUPPORTED, "%s: scale_attn_weights=false is not supported", path);
  return status;
}

/* Weights of 8 bits of floating point, whose scales are tensors; what rounds activations is left out. */
static attn_status read_quantisation(const char *path, const json_t *config, data_llama_config *c) {
  const json_t *q = json_object_get(config, "quantization_config"),
               *block = json_object_get(q, "weight_block_size");
  const char *method = json_string_value(json_object_get(q, "quant_method")),
             *format = json_string_value(json_object_get(q, "format"));
  if (!given(config, "quantization_config")) return ATTN_OK;
  c->scaled = true;
  const bool packed = method && strcmp(method, "compressed-tensors") == 0;
  if (!method || (packed ? !format || strcmp(format, "float-quantized") != 0 : strcmp(method, "fp8") != 0))
    return attn_fail(
        ATTN_EUNSUPPORTED,
        "%s: quantization_config: quant_method is %.64s; fp8, and compressed-tensors of the format "
        "float-quantized, are read",
        path, method ? method : "not a string");
  for (size_t i = 0; json_is_array(block) && i < 2; i++) {
    c->scale_block[i] = json_integer_value(json_array_get(block, i));
    if (c->scale_block[i] < 1 || c->scale_block[i] > LLAMA_DIMENSION_MAX)
      return attn_fail(ATTN_EINVAL,
                       "%s: quantization_config: weight_block_size[%zu] is not an integer from 1", path, i);
  }
  return ATTN_OK;
}

static attn_status read_biases(const char *path, const json_t *config, const llama_architecture *a,
                               data_llama_config *c) {
  static const char *const keys[] = {"attention_bias", "mlp_bias"};
  const bool has[] = {a->bias_key, a->mlp_bias_key};
  attn_status status = read_flag(path, config, a->bias_key, a->qkv_bias, &c->qkv_bias);
  if (!status)
    status = read_flag(path, config, a->bias_of_qkv ? NULL : a->bias_key, a->output_bias, &c->output_bias);
  if (!status)
    status = read_flag(path, config, a->mlp_bias_key ? "mlp_bias" : NULL, a->mlp_bias, &c->mlp_bias);
  for (int i = 0; !status && i < 2; i++) {
    bool set = false;
    status = setting_flag(path, keys[i], get(config, keys[i]), &set);
    if (!status && set && !has[i])
      status = attn_fail(ATTN_EUNSUPPORTED, "%s: %s is not supported for %s", path, keys[i], a->name);
  }
  return status;
}

/* Norms of each head of q and k are optional in some architectures alone. */
static attn_status read_qk_norms(const char *path, const json_t *config, const llama_architecture *a,
                                 data_llama_config *c) {
  attn_status status = setting_flag(path, "qk_layernorm", get(config, "qk_layernorm"), &c->qk_norms);
  if (!status && c->qk_norms && !a->norms_of_heads)
    status = attn_fail(ATTN_EUNSUPPORTED, "%s: qk_layernorm is not supported for %s", path, a->name);
  return status;
}

/* What multiplies and what bends. null is no cap, and absent the preset. */
static attn_status read_scales(const char *path, const json_t *config, const llama_architecture *a,
                               data_llama_config *c) {
  double query = 256, divisor = 1;
  const struct {
    const char *key;
    bool has;
    double least, *to;
  } numbers[] = {{"query_pre_attn_scalar", a->query_scalar, 1e-6, &query},
                 {"attention_multiplier", a->multipliers, 0, &c->score_scale},
                 {"embedding_multiplier", a->multipliers, 0, &c->embedding_scale},
                 {"residual_multiplier", a->multipliers, 0, &c->residual_scale},
                 {"logits_scaling", a->multipliers, 1e-6, &divisor},
                 {"swiglu_limit", a->gate_limit > 0, 1e-6, &c->gate_limit},
                 {"swiglu_alpha", a->gate_limit > 0, 1e-6, &c->gate_slope},
                 {"attn_logit_softcapping", a->capped, 1e-6, &c->score_cap},
                 {"final_logit_softcapping", a->capped, 1e-6, &c->logit_cap}};
  attn_status status = ATTN_OK;
  if (!json_object_get(config, "attn_logit_softcapping")) c->score_cap = a->score_cap;
  if (!json_object_get(config, "final_logit_softcapping")) c->logit_cap = a->logit_cap;
  if (a->multipliers) c->score_scale = 1;
  c->gate_limit = a->gate_limit;
  c->gate_slope = a->gate_slope;
  for (size_t i = 0; !status && i < sizeof numbers / sizeof *numbers; i++)
    if (numbers[i].has)
      status = setting_real(path, numbers[i].key, get(config, numbers[i].key), *numbers[i].to,
                            numbers[i].least, 1e6, numbers[i].to);
  if (a->query_scalar) c->score_scale = 1 / sqrt(query);
  if (a->root_of_hidden) c->embedding_scale = sqrt((double)c->hidden);
  c->logit_scale = 1 / divisor;
  return status;
}

static attn_status read_activation(const char *path, const json_t *config, const llama_architecture *a,
                                   data_llama_config *c) {
  const setting s = get(config, a->activation_key);
  const bool text = s.kind == SETTING_TEXT;
  if (!text && s.kind != SETTING_ABSENT)
    return attn_fail(ATTN_EINVAL, "%s: %s is not a string", path, a->activation_key);
  c->activation =
      text ? llama_activation(s.text, s.bytes) : llama_activation(a->activation, strlen(a->activation));
  if (c->activation) return ATTN_OK;
  return attn_fail(ATTN_EUNSUPPORTED,
                   "%s: %s is %.64s; expected silu, gelu, gelu_new, gelu_pytorch_tanh or relu", path,
                   a->activation_key, s.text);
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

/* The lists of longrope. */
static attn_status read_divisors(const char *path, const json_t *rope, data_llama_config *c) {
  const int64_t half = c->rotary_dim / 2;
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

/* Phi-3 has the length before the stretching beside the object. */
typedef struct rope_source {
  const json_t *rope, *config;
} rope_source;

static setting get_of_rope(const void *from, const char *key) {
  const rope_source *s = from;
  const setting found = get(s->rope, key);
  const bool beside = found.kind == SETTING_ABSENT && strcmp(key, "original_max_position_embeddings") == 0;
  return beside ? get(s->config, key) : found;
}

/* rope: the object `path` names. Older files call its kind type. */
static attn_status read_scaling(const char *path, const json_t *config, const json_t *rope,
                                data_llama_config *c) {
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
  const bool axes = given(rope, "mrope_section"), images = llama_architecture_of(c)->images;
  const char *kind = json_string_value(json_object_get(rope, keys.kind));
  if (axes && !images) return attn_fail(ATTN_EUNSUPPORTED, "%s: mrope_section is not supported", path);
  if (images && kind && strcmp(kind, "mrope") == 0) return ATTN_OK; /* text has one axis: plain */
  attn_status status = llama_read_rope(path, &keys, get_of_rope, &(rope_source){rope, config}, c);
  if (!status && given(rope, "truncate"))
    status = setting_flag(path, "truncate", get(rope, "truncate"), &whole);
  if (!status) c->rope.exact_range = !whole;
  return status;
}

/* The base where a window ends what a query sees: a key, or an object beside that of the other layers. */
static attn_status read_window_theta(const char *path, const json_t *config, const json_t *local,
                                     const llama_architecture *a, data_llama_config *c) {
  const char *key = local ? "rope_theta" : a->window_theta_key;
  attn_status status = ATTN_OK;
  if (!a->window_theta_key) return ATTN_OK;
  if (local) status = setting_expect(path, "rope_type", get(local, "rope_type"), "default", false);
  if (status) return status;
  return setting_real(path, key, get(local ? local : config, key), a->window_theta, 1, 1e12,
                      &c->window_theta);
}

/* Newer files have rope_parameters, with rope_theta in it, in place of rope_scaling; of two kinds of layers
 * one for each. */
static attn_status read_rope(const char *path, const json_t *config, const llama_architecture *a,
                             const json_t **rope, data_llama_config *c) {
  const bool newer = given(config, "rope_parameters"), older = given(config, "rope_scaling");
  const char *name = newer ? "rope_parameters" : "rope_scaling";
  const json_t *local = NULL;
  *rope = newer || older ? json_object_get(config, name) : NULL;
  if (newer && older)
    return attn_fail(ATTN_EINVAL, "%s: both rope_scaling and rope_parameters are given, expected one of them",
                     path);
  if (a->exact_range && !*rope)
    return attn_fail(ATTN_EINVAL, "%s: rope_scaling is missing: without it %s is stretched", path, a->name);
  if (a->window_theta_key && given(*rope, "full_attention")) {
    local = json_object_get(*rope, "sliding_attention");
    *rope = json_object_get(*rope, "full_attention");
  }
  const char *part = a->turned_key && given(config, a->turned_key) ? a->turned_key : "partial_rotary_factor",
             *theta = newer || given(*rope, "rope_theta") || !a->theta_key ? "rope_theta" : a->theta_key;
  double share = 1;
  attn_status status = setting_real(path, theta, get(given(*rope, theta) ? *rope : config, theta),
                                    a->theta > 0 ? a->theta : 10000, 1, 1e12, &c->rope.theta);
  if (!status)
    status = setting_real(path, part, get(given(*rope, part) ? *rope : config, part),
                          a->turned > 0 ? a->turned : 1, 0, 1, &share);
  if (!status) status = llama_set_rotary_dim(path, part, (int64_t)((double)c->head_dim * share), c);
  if (!status) status = read_window_theta(path, config, local, a, c);
  if (status || !*rope) return status;
  char *place = text_format("%s: %s", path, name);
  status = place ? read_scaling(place, config, *rope, c) : ATTN_ENOMEM;
  free(place);
  return status;
}

static attn_status get_id(const char *path, const json_t *config, const char *key, int64_t *out) {
  const setting s = get(config, key);
  *out = s.kind == SETTING_ABSENT ? -1 : s.integer;
  if (s.kind == SETTING_ABSENT || (s.kind == SETTING_INTEGER && s.integer >= 0)) return ATTN_OK;
  return attn_fail(ATTN_EINVAL, "%s: %s is not an id", path, key);
}

/* Newer files of models of images have what concerns text in an object, all but these ids and the head. */
static attn_status read_images(const char *path, const json_t *config, const json_t **text,
                               data_llama_config *c) {
  const json_t *inner = json_object_get(config, "text_config");
  attn_status status = get_id(path, config, "image_token_id", &c->image_tokens[0]);
  if (!status) status = get_id(path, config, "video_token_id", &c->image_tokens[1]);
  if (!status && inner && !json_is_object(inner))
    status = attn_fail(ATTN_EINVAL, "%s: text_config is not an object", path);
  *text = inner ? inner : config;
  return status;
}

static attn_status parse(const char *path, const json_t *whole, data_llama_config *c) {
  static const char tied[] = "tie_word_embeddings";
  const json_t *config = whole;
  const llama_architecture *a = NULL;
  const json_t *rope = NULL;
  attn_status status = llama_architecture_find(path, "model_type", get(config, "model_type"), false, &a);
  if (status) return status;
  c->architecture = a->name;
  llama_keys keys = *a->keys;
  if (a->images) status = read_images(path, whole, &config, c);
  if (!status) status = refuse_variations(path, config, a);
  if (!status) status = read_quantisation(path, config, c);
  if (!status) status = read_biases(path, config, a, c);
  if (!status)
    status = setting_size(path, "vocab_size", get(config, "vocab_size"), 0, LLAMA_DIMENSION_MAX, &c->vocab);
  if (!status && keys.experts && !given(config, keys.experts)) keys.experts = "num_local_experts";
  if (!status) status = llama_read_numbers(path, &keys, get, config, c);
  if (!status) status = read_scales(path, config, a, c);
  if (!status) status = read_activation(path, config, a, c);
  if (!status) status = read_flag(path, given(whole, tied) ? whole : config, tied, a->tied, &c->tied);
  if (!status) status = read_flag(path, config, a->parallel_key, a->parallel, &c->parallel);
  if (!status)
    status = read_flag(path, config, a->experts_normed_key, a->experts_normed && !a->experts_normed_key,
                       &c->experts_normed);
  if (!status) status = read_qk_norms(path, config, a, c);
  if (!status && !a->positions) status = read_rope(path, config, a, &rope, c);
  if (!status) status = llama_read_layers(path, config, a, c);
  if (!status) status = get_id(path, config, "bos_token_id", &c->bos);
  return status ? status : read_divisors(path, rope, c);
}

attn_status llama_read_config(const char *directory, data_llama_config *out) {
  json_t *config = NULL;
  char *path = NULL;
  data_llama_config c;
  llama_config_begin(&c);
  attn_status status = json_config_read(directory, &path, &config);
  if (!status) status = parse(path, config, &c);
  if (!status)
    *out = c;
  else
    llama_config_free(&c);
  json_decref(config);
  free(path);
  return status;
}
