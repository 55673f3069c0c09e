/* llama_config_gguf.c - the configuration of a GGUF file, by the table of architectures. What config.json
 * says is a key here, too, or follows from the tensors. What the forward pass does not compute is refused by
 * name. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "data/llama/architectures.h"
#include "data/llama/llama.h"

enum { KEYS_MAX = 48 };

/* Keys begin with the architecture's name. */
typedef struct key_names {
  const llama_architecture *of;
  char text[KEYS_MAX][64];
  size_t count;
} key_names;

static const char *key_of(key_names *names, const char *rest) {
  char *to = names->text[names->count++];
  snprintf(to, sizeof names->text[0], "%s.%s", names->of->in_gguf, rest);
  return to;
}

static setting get(const void *file, const char *key) { return gguf_get(file, key); }

/* A key that must say this if it is there. */
static attn_status expect_number(const gguf *file, const char *key, int64_t computed) {
  const setting s = gguf_get(file, key);
  const bool number = s.kind == SETTING_INTEGER || s.kind == SETTING_REAL;
  if (s.kind == SETTING_ABSENT || (number && s.real >= (double)computed && s.real <= (double)computed))
    return ATTN_OK;
  return attn_fail(ATTN_EUNSUPPORTED, "%s: %s is not %" PRId64 ", the only one computed", gguf_path(file),
                   key, computed);
}

static attn_status refuse_variations(const gguf *file, key_names *names, const data_llama_config *c) {
  const struct {
    const char *rest;
    int64_t computed;
  } numbers[] = {{"attention.value_length", c->head_dim},
                 {"rope.scaling.yarn_ext_factor", 1},
                 {"rope.scaling.yarn_log_multiplier", 0},
                 {"expert_weights_scale", 1}};
  attn_status status = expect_number(file, "general.quantization_version", 2);
  for (size_t i = 0; !status && i < sizeof numbers / sizeof *numbers; i++)
    status = expect_number(file, key_of(names, numbers[i].rest), numbers[i].computed);
  bool causal = true;
  const char *key = key_of(names, "attention.causal");
  if (!status && gguf_get(file, key).kind != SETTING_ABSENT)
    status = setting_flag(gguf_path(file), key, gguf_get(file, key), &causal);
  if (!status && !causal)
    status = attn_fail(ATTN_EUNSUPPORTED, "%s: %s=false is not supported", gguf_path(file), key);
  return status;
}

/* Without a kind the positions are stretched linearly, by either of two keys. Llama 3 has a tensor of
 * divisors instead. */
static attn_status read_rope(const gguf *file, key_names *names, data_llama_config *c) {
  const char *path = gguf_path(file), *old = key_of(names, "rope.scale_linear"),
             *theta = key_of(names, "rope.freq_base"), *part = key_of(names, "rope.dimension_count");
  const llama_rope_keys keys = {.kind = key_of(names, "rope.scaling.type"),
                                .factor = key_of(names, "rope.scaling.factor"),
                                .original = key_of(names, "rope.scaling.original_context_length"),
                                .beta_fast = key_of(names, "rope.scaling.yarn_beta_fast"),
                                .beta_slow = key_of(names, "rope.scaling.yarn_beta_slow"),
                                .attention = key_of(names, "rope.scaling.attn_factor"),
                                .attention_multiplies = true,
                                .low = "low_freq_factor",
                                .high = "high_freq_factor"};
  int64_t turned = 0;
  attn_status status = setting_real(path, theta, gguf_get(file, theta), 10000, 1, 1e12, &c->rope.theta);
  if (!status) status = setting_size(path, part, gguf_get(file, part), c->head_dim, c->head_dim, &turned);
  if (!status) status = llama_set_rotary_dim(path, part, turned, c);
  if (!status) status = llama_read_rope(path, &keys, get, file, c);
  if (!status && c->rope.kind == DATA_ROPE_LONGROPE) return expect_number(file, keys.factor, 1);
  if (!status && c->rope.kind != DATA_ROPE_YARN) status = expect_number(file, keys.attention, 1);
  if (status || gguf_get(file, keys.kind).kind != SETTING_ABSENT) return status;
  const bool newer = gguf_get(file, keys.factor).kind != SETTING_ABSENT;
  const char *factor = newer ? keys.factor : old;
  status = setting_real(path, factor, gguf_get(file, factor), 1, 1, 1e6, &c->rope.factor);
  if (!status && c->rope.factor > 1) c->rope.kind = DATA_ROPE_LINEAR;
  return status;
}

static attn_status read_numbers(const gguf *file, key_names *names, data_llama_config *c) {
  const bool experts = names->of->experts;
  const llama_keys keys = {.hidden = key_of(names, "embedding_length"),
                           .intermediate = key_of(names, "feed_forward_length"),
                           .layers = key_of(names, "block_count"),
                           .heads = key_of(names, "attention.head_count"),
                           .kv_heads = key_of(names, "attention.head_count_kv"),
                           .head_dim = key_of(names, "attention.key_length"),
                           .max_positions = key_of(names, "context_length"),
                           .norm_eps =
                               key_of(names, names->of->layer_norm ? "attention.layer_norm_epsilon"
                                                                   : "attention.layer_norm_rms_epsilon"),
                           .norm_eps_preset = (double)NAN,
                           .experts = experts ? key_of(names, "expert_count") : NULL,
                           .experts_used = key_of(names, "expert_used_count"),
                           .expert_intermediate = key_of(names, "expert_feed_forward_length"),
                           .shared_intermediate = key_of(names, "expert_shared_feed_forward_length")};
  return llama_read_numbers(gguf_path(file), &keys, get, file, c);
}

/* A window is a key; which layers have it, llama.cpp knows by the architecture. */
static attn_status read_window(const gguf *file, key_names *names, data_llama_config *c) {
  const llama_architecture *a = names->of;
  const char *key = key_of(names, "attention.sliding_window");
  const setting width = gguf_get(file, key);
  const bool is_llama = strcmp(a->in_gguf, "llama") == 0; /* Mistral is one, too */
  attn_status status = ATTN_OK;
  for (int64_t l = 0; a->unturned_layers && l < c->layers; l++)
    if ((l + 1) % 4 == 0) c->layer[l] |= DATA_LLAMA_UNTURNED;
  if (a->period > 0)
    status = expect_number(file, key_of(names, "attention.sliding_window_pattern"), a->period);
  if (status) return status;
  if (!is_llama && (!a->window_key || a->window_optional)) return expect_number(file, key, 0);
  if (width.kind == SETTING_ABSENT || (width.kind == SETTING_INTEGER && width.integer == 0)) return ATTN_OK;
  status = setting_size(gguf_path(file), key, width, 0, INT64_C(1) << 40, &c->window);
  for (int64_t l = 0; !status && l < c->layers; l++)
    if (a->period == 0 || (l + 1) % a->period != 0) c->layer[l] |= DATA_LLAMA_WINDOW;
  return status;
}

/* Gemma 2's and 3's scale is not a key: heads' own width, but that of hidden / heads in the largest. */
static attn_status read_scales(const gguf *file, key_names *names, data_llama_config *c) {
  const llama_architecture *a = names->of;
  double divisor = 1;
  const struct {
    const char *rest;
    bool has;
    double preset, *to;
  } numbers[] = {{"attention.scale", a->multipliers, c->score_scale, &c->score_scale},
                 {"embedding_scale", a->multipliers, 1, &c->embedding_scale},
                 {"residual_scale", a->multipliers, 1, &c->residual_scale},
                 {"logit_scale", a->multipliers, 1, &divisor},
                 {"attn_logit_softcapping", a->capped, a->score_cap, &c->score_cap},
                 {"final_logit_softcapping", a->capped, a->logit_cap, &c->logit_cap}};
  const bool largest = a->query_scalar && c->layers == (a->score_cap > 0 ? 46 : 62);
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < sizeof numbers / sizeof *numbers; i++)
    if (numbers[i].has) {
      const char *key = key_of(names, numbers[i].rest);
      status = setting_real(gguf_path(file), key, gguf_get(file, key), numbers[i].preset, 1e-6, 1e6,
                            numbers[i].to);
    }
  if (largest) c->score_scale = 1 / sqrt((double)(c->hidden / c->heads));
  if (a->root_of_hidden) c->embedding_scale = sqrt((double)c->hidden);
  c->logit_scale = 1 / divisor;
  const char *base = key_of(names, "rope.freq_base_swa");
  if (!status && a->window_theta > 0)
    status =
        setting_real(gguf_path(file), base, gguf_get(file, base), a->window_theta, 1, 1e12, &c->window_theta);
  c->activation = llama_activation(a->activation, strlen(a->activation));
  return status;
}

/* Layers have experts that have a router; a file without the key has the architecture's preset. */
static attn_status read_experts(const gguf *file, key_names *names, data_llama_config *c) {
  const llama_architecture *a = names->of;
  const char *key = key_of(names, "expert_weights_norm");
  const setting s = gguf_get(file, key);
  char name[64];
  if (!a->experts) return expect_number(file, key_of(names, "expert_count"), 0);
  c->experts_normed = a->experts_normed;
  c->gate_limit = a->gate_limit;
  c->gate_slope = a->gate_slope;
  for (int64_t l = 0; l < c->layers; l++) {
    snprintf(name, sizeof name, "blk.%" PRId64 ".ffn_gate_inp.weight", l);
    if (gguf_find(file, name)) c->layer[l] |= DATA_LLAMA_EXPERTS;
  }
  return s.kind == SETTING_ABSENT ? ATTN_OK : setting_flag(gguf_path(file), key, s, &c->experts_normed);
}

static attn_status read_parallel(const gguf *file, key_names *names, data_llama_config *c) {
  const char *key = key_of(names, "use_parallel_residual");
  const setting s = gguf_get(file, key);
  c->parallel = names->of->parallel;
  if (s.kind == SETTING_ABSENT) return ATTN_OK;
  attn_status status = setting_flag(gguf_path(file), key, s, &c->parallel);
  if (!status && c->parallel && !names->of->parallel_key)
    status = attn_fail(ATTN_EUNSUPPORTED, "%s: %s is not supported", gguf_path(file), key);
  return status;
}

/* Which matrices have biases is to be seen of the first layer's, where a key says it elsewhere. */
static void find_biases(const gguf *file, const llama_architecture *a, data_llama_config *c) {
  const bool always = !a->bias_key;
  c->qkv_bias = (always && a->qkv_bias) || gguf_find(file, "blk.0.attn_q.bias") ||
                gguf_find(file, "blk.0.attn_qkv.bias");
  c->output_bias = (always && a->output_bias) || gguf_find(file, "blk.0.attn_output.bias");
  c->mlp_bias = a->mlp_bias || gguf_find(file, "blk.0.ffn_up.bias");
}

/* Whether its layers have experts: Mixtral is called as Llama is. */
static bool has_experts(const gguf *file, const llama_architecture *a) {
  char key[64];
  snprintf(key, sizeof key, "%s.expert_count", a->in_gguf);
  const setting s = gguf_get(file, key);
  return s.kind == SETTING_INTEGER && s.integer > 0;
}

static attn_status read(const gguf *file, data_llama_config *c) {
  key_names names = {.count = 0};
  const char *path = gguf_path(file), *key = "general.architecture";
  const tensor *embedding = gguf_find(file, "token_embd.weight");
  attn_status status = setting_expect(path, "general.type", gguf_get(file, "general.type"), "model", false);
  if (!status) status = llama_architecture_find(path, key, gguf_get(file, key), true, &names.of);
  if (status) return status;
  if (has_experts(file, names.of) && llama_architecture_of_experts(names.of))
    names.of = llama_architecture_of_experts(names.of);
  c->architecture = names.of->name;
  status = read_numbers(file, &names, c);
  if (!status && !names.of->positions) status = read_rope(file, &names, c);
  if (!status) status = read_window(file, &names, c);
  if (!status) status = read_scales(file, &names, c);
  if (!status) status = read_parallel(file, &names, c);
  if (!status) status = read_experts(file, &names, c);
  if (!status) status = refuse_variations(file, &names, c);
  if (!status && !embedding) status = attn_fail(ATTN_EINVAL, "%s: tensor token_embd.weight is missing", path);
  if (!status && embedding->shape[0] > LLAMA_DIMENSION_MAX)
    status = attn_fail(ATTN_EINVAL, "%s: token_embd.weight has %" PRId64 " rows; expected 1 to %d", path,
                       embedding->shape[0], LLAMA_DIMENSION_MAX);
  if (status) return status;
  c->vocab = embedding->shape[0];
  c->tied = !gguf_find(file, "output.weight");
  c->qk_norms = gguf_find(file, "blk.0.attn_q_norm.weight");
  c->rope.exact_range = names.of->exact_range;
  find_biases(file, names.of, c);
  return ATTN_OK;
}

attn_status llama_read_gguf(const gguf *file, data_llama_config *out) {
  data_llama_config c;
  llama_config_begin(&c);
  attn_status status = read(file, &c);
  if (!status)
    *out = c;
  else
    llama_config_free(&c);
  return status;
}
