/* llama_config_layers.c - which layers of a Hugging Face model are of which kind: windows, rotations,
 * experts. */
#include "data/llama/llama_config_layers.h"

#include <inttypes.h>
#include <string.h>

#include "data/support/json_setting.h"

static setting get(const json_t *config, const char *key) { return json_setting(config, key); }

static bool given(const json_t *config, const char *key) { return get(config, key).kind != SETTING_ABSENT; }

/* layer_types names each layer. */
static attn_status read_layer_types(const char *path, const json_t *config, data_llama_config *c) {
  const json_t *types = json_object_get(config, "layer_types");
  const size_t count = json_array_size(types);
  if (!json_is_array(types) || count != (size_t)c->layers)
    return attn_fail(ATTN_EINVAL, "%s: layer_types is not a list of %" PRId64 " kinds of layers", path,
                     c->layers);
  for (size_t i = 0; i < count; i++) {
    const char *type = json_string_value(json_array_get(types, i));
    const bool full = type && strcmp(type, "full_attention") == 0;
    if (!full && (!type || strcmp(type, "sliding_attention") != 0))
      return attn_fail(ATTN_EUNSUPPORTED,
                       "%s: layer_types[%zu] is %.64s; full_attention and sliding_attention are computed",
                       path, i, type ? type : "not a string");
    if (!full && c->window == 0)
      return attn_fail(ATTN_EINVAL,
                       "%s: layer_types[%zu] is sliding_attention, and sliding_window gives no width", path,
                       i);
    c->layer[i] = (unsigned char)((c->layer[i] & ~DATA_LLAMA_WINDOW) | (full ? 0 : DATA_LLAMA_WINDOW));
  }
  return ATTN_OK;
}

/* no_rope_layers has a 0 for each layer that does not turn; without it every fourth does not. */
static attn_status read_unturned(const char *path, const json_t *config, data_llama_config *c) {
  const char *key = "no_rope_layers", *every = "no_rope_layer_interval";
  const json_t *list = json_object_get(config, key);
  int64_t interval = 0;
  attn_status status = setting_size(path, every, get(config, every), 4, LLAMA_LAYERS_MAX, &interval);
  if (!status && given(config, key) && json_array_size(list) < (size_t)c->layers)
    status = attn_fail(ATTN_EINVAL, "%s: %s is not a list of %" PRId64 " flags", path, key, c->layers);
  for (int64_t l = 0; !status && l < c->layers; l++) {
    const json_t *flag = json_array_get(list, (size_t)l);
    const bool turns = flag ? json_integer_value(flag) == 1 : (l + 1) % interval != 0;
    if (flag && !turns && !(json_is_integer(flag) && json_integer_value(flag) == 0))
      status = attn_fail(ATTN_EINVAL, "%s: %s[%" PRId64 "] is neither 0 nor 1", path, key, l);
    if (!turns) c->layer[l] |= DATA_LLAMA_UNTURNED;
  }
  return status;
}

static attn_status read_window(const char *path, const json_t *config, const llama_architecture *a,
                               data_llama_config *c) {
  int64_t from = 0, period = a->period;
  bool used = !a->window_optional;
  attn_status status = ATTN_OK;
  if (!a->window_key && (given(config, "sliding_window") || given(config, "layer_types")))
    return attn_fail(ATTN_EUNSUPPORTED, "%s: sliding_window and layer_types are not computed of %s", path,
                     a->name);
  if (a->unturned_layers) status = read_unturned(path, config, c);
  if (status || !a->window_key) return status;
  const setting first = a->window_from_key ? get(config, a->window_from_key) : (setting){.integer = 0};
  const json_t *width = json_object_get(config, a->window_key); /* null: no window; absent: the preset */
  if (a->window_optional)
    status = setting_flag(path, "use_sliding_window", get(config, "use_sliding_window"), &used);
  if (!status && used && !json_is_null(width) && (width || a->window > 0))
    status = setting_size(path, a->window_key, get(config, a->window_key), a->window, INT64_C(1) << 40,
                          &c->window);
  if (a->encoder) c->window = c->window / 2 + 1;
  if (!status && a->window_from_key && (first.kind != SETTING_INTEGER || first.integer != 0))
    status = setting_size(path, a->window_from_key, first, a->images ? 80 : 28, LLAMA_LAYERS_MAX, &from);
  if (!status && a->period_key)
    status =
        setting_size(path, a->period_key, get(config, a->period_key), a->period, LLAMA_LAYERS_MAX, &period);
  for (int64_t l = from; !status && c->window > 0 && l < c->layers; l++) {
    const bool all = a->unturned_layers ? !(c->layer[l] & DATA_LLAMA_UNTURNED)
                                        : period > 0 && (l + !a->period_begins) % period == 0;
    if (!all) c->layer[l] |= DATA_LLAMA_WINDOW;
  }
  return !status && given(config, "layer_types") ? read_layer_types(path, config, c) : status;
}

/* Every decoder_sparse_step-th layer has experts, except those that mlp_only_layers lists. */
static attn_status read_experts(const char *path, const json_t *config, const llama_architecture *a,
                                data_llama_config *c) {
  const char *key = "mlp_only_layers", *every = "decoder_sparse_step";
  const json_t *list = json_object_get(config, key), *entry;
  int64_t step = 1;
  size_t i;
  if (!a->experts) return ATTN_OK;
  attn_status status = setting_size(path, every, get(config, every), 1, LLAMA_LAYERS_MAX, &step);
  for (int64_t l = step - 1; !status && l < c->layers; l += step) c->layer[l] |= DATA_LLAMA_EXPERTS;
  if (!status && given(config, key) && !json_is_array(list))
    status = attn_fail(ATTN_EINVAL, "%s: %s is not a list of layers", path, key);
  json_array_foreach(list, i, entry) {
    const json_int_t layer = json_is_integer(entry) ? json_integer_value(entry) : -1;
    if (!status && (layer < 0 || layer >= c->layers))
      status = attn_fail(ATTN_EINVAL, "%s: %s[%zu] is not a layer from 0 to %" PRId64, path, key, i,
                         c->layers - 1);
    if (!status) c->layer[layer] &= (unsigned char)~DATA_LLAMA_EXPERTS;
  }
  return status;
}

attn_status llama_read_layers(const char *path, const json_t *config, const llama_architecture *a,
                              data_llama_config *c) {
  attn_status status = read_window(path, config, a, c);
  return status ? status : read_experts(path, config, a, c);
}
