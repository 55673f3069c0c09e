/* llama_config_gguf.c - the configuration of a GGUF file: the architectures llama (of Mistral, too), qwen2
 * and qwen3. What the forward pass does not compute is refused by name. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "data/llama/llama_config.h"
#include "data/llama/llama.h"

enum { KEYS_MAX = 32 };

/* Keys begin with the architecture's name. */
typedef struct key_names {
  char text[KEYS_MAX][64];
  size_t count;
} key_names;

static const char *key_of(key_names *names, const char *architecture, const char *rest) {
  char *to = names->text[names->count++];
  snprintf(to, sizeof names->text[0], "%s.%s", architecture, rest);
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
                 {"expert_count", 0}};
  attn_status status = expect_number(file, "split.count", 1);
  if (!status) status = expect_number(file, "general.quantization_version", 2);
  for (size_t i = 0; !status && i < sizeof numbers / sizeof *numbers; i++)
    status = expect_number(file, key_of(names, c->architecture, numbers[i].rest), numbers[i].computed);
  return status;
}

/* Without a kind the positions are stretched linearly, by either of two keys. Llama 3 has a tensor of
 * divisors instead. */
static attn_status read_rope(const gguf *file, key_names *names, data_llama_config *c) {
  const char *path = gguf_path(file), *a = c->architecture, *old = key_of(names, a, "rope.scale_linear"),
             *theta = key_of(names, a, "rope.freq_base"), *part = key_of(names, a, "rope.dimension_count");
  const llama_rope_keys keys = {.kind = key_of(names, a, "rope.scaling.type"),
                                .factor = key_of(names, a, "rope.scaling.factor"),
                                .original = key_of(names, a, "rope.scaling.original_context_length"),
                                .beta_fast = key_of(names, a, "rope.scaling.yarn_beta_fast"),
                                .beta_slow = key_of(names, a, "rope.scaling.yarn_beta_slow"),
                                .attention = key_of(names, a, "rope.scaling.attn_factor"),
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

static attn_status find_architecture(const gguf *file, const char **out) {
  static const char *const known[] = {"llama", "qwen2", "qwen3"};
  const char *key = "general.architecture";
  const setting s = gguf_get(file, key);
  if (s.kind != SETTING_TEXT)
    return attn_fail(ATTN_EINVAL, "%s: %s is missing or not a string", gguf_path(file), key);
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (s.bytes == strlen(known[i]) && memcmp(s.text, known[i], s.bytes) == 0) {
      *out = known[i];
      return ATTN_OK;
    }
  return attn_fail(ATTN_EUNSUPPORTED, "%s: %s is %.*s; llama, qwen2 and qwen3 are computed", gguf_path(file),
                   key, s.bytes < 64 ? (int)s.bytes : 64, s.text);
}

static attn_status read_numbers(const gguf *file, key_names *names, data_llama_config *c) {
  const char *a = c->architecture, *window = key_of(names, a, "attention.sliding_window");
  const llama_keys keys = {.hidden = key_of(names, a, "embedding_length"),
                           .intermediate = key_of(names, a, "feed_forward_length"),
                           .layers = key_of(names, a, "block_count"),
                           .heads = key_of(names, a, "attention.head_count"),
                           .kv_heads = key_of(names, a, "attention.head_count_kv"),
                           .head_dim = key_of(names, a, "attention.key_length"),
                           .max_positions = key_of(names, a, "context_length"),
                           .rms_eps = key_of(names, a, "attention.layer_norm_rms_epsilon"),
                           .rms_eps_preset = (double)NAN};
  const setting width = gguf_get(file, window);
  attn_status status = llama_read_numbers(gguf_path(file), &keys, get, file, c);
  if (status) return status;
  if (strcmp(a, "llama") != 0) return expect_number(file, window, 0);
  if (width.kind == SETTING_ABSENT || (width.kind == SETTING_INTEGER && width.integer == 0)) return ATTN_OK;
  return setting_size(gguf_path(file), window, width, 0, INT64_C(1) << 40, &c->window);
}

attn_status llama_read_gguf(const gguf *file, data_llama_config *out) {
  data_llama_config c = {.bos = -1};
  key_names names = {.count = 0};
  const char *path = gguf_path(file);
  const tensor *embedding = gguf_find(file, "token_embd.weight");
  attn_status status = setting_expect(path, "general.type", gguf_get(file, "general.type"), "model", false);
  if (!status) status = find_architecture(file, &c.architecture);
  if (!status) status = read_numbers(file, &names, &c);
  if (!status) status = read_rope(file, &names, &c);
  if (!status) status = refuse_variations(file, &names, &c);
  if (!status && !embedding) status = attn_fail(ATTN_EINVAL, "%s: tensor token_embd.weight is missing", path);
  if (!status && embedding->shape[0] > LLAMA_DIMENSION_MAX)
    status = attn_fail(ATTN_EINVAL, "%s: token_embd.weight has %" PRId64 " rows; expected 1 to %d", path,
                       embedding->shape[0], LLAMA_DIMENSION_MAX);
  if (status) return status;
  c.vocab = embedding->shape[0];
  c.tied = !gguf_find(file, "output.weight");
  c.qkv_bias = strcmp(c.architecture, "qwen2") == 0;
  c.head_norms = strcmp(c.architecture, "qwen3") == 0;
  *out = c;
  return ATTN_OK;
}
