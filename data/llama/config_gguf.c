/* config_gguf.c - the configuration of a GGUF file, as far as the Llama architecture goes. What the forward pass
 * does not compute is refused by name. */
#include <inttypes.h>
#include <math.h>

#include "data/llama/config.h"
#include "data/llama/llama.h"

static const llama_keys keys = {.hidden = "llama.embedding_length",
                                .intermediate = "llama.feed_forward_length",
                                .layers = "llama.block_count",
                                .heads = "llama.attention.head_count",
                                .kv_heads = "llama.attention.head_count_kv",
                                .head_dim = "llama.attention.key_length",
                                .max_positions = "llama.context_length",
                                .rms_eps = "llama.attention.layer_norm_rms_epsilon",
                                .rms_eps_preset = (double)NAN};

static setting get(const void *file, const char *key) { return gguf_get(file, key); }

/* Keys that must say this if they are there. */
static attn_status refuse_variations(const gguf *file, int64_t head_dim) {
  const struct {
    const char *key;
    int64_t computed;
  } numbers[] = {{"split.count", 1},
                 {"general.quantization_version", 2},
                 {"llama.attention.value_length", head_dim},
                 {"llama.rope.dimension_count", head_dim},
                 {"llama.rope.scale_linear", 1},
                 {"llama.rope.scaling.factor", 1},
                 {"llama.attention.sliding_window", 0},
                 {"llama.expert_count", 0}};
  const char *path = gguf_path(file);
  attn_status status = setting_expect(path, "llama.rope.scaling.type",
                                      gguf_get(file, "llama.rope.scaling.type"), "none", false);
  for (size_t i = 0; !status && i < sizeof numbers / sizeof *numbers; i++) {
    setting s = gguf_get(file, numbers[i].key);
    bool number = s.kind == SETTING_INTEGER || s.kind == SETTING_REAL;
    double computed = (double)numbers[i].computed;
    if (s.kind != SETTING_ABSENT && !(number && s.real >= computed && s.real <= computed))
      status = attn_fail(ATTN_EUNSUPPORTED, "%s: %s is not %" PRId64 ", the only one computed", path,
                         numbers[i].key, numbers[i].computed);
  }
  return status;
}

attn_status llama_read_gguf(const gguf *file, data_llama_config *out) {
  data_llama_config c = {.bos = -1};
  const char *path = gguf_path(file), *theta = "llama.rope.freq_base";
  const tensor *embedding = gguf_find(file, "token_embd.weight");
  attn_status status = setting_expect(path, "general.type", gguf_get(file, "general.type"), "model", false);
  if (!status)
    status =
        setting_expect(path, "general.architecture", gguf_get(file, "general.architecture"), "llama", true);
  if (!status) status = llama_read_numbers(path, &keys, get, file, &c);
  if (!status) status = setting_real(path, theta, gguf_get(file, theta), 10000, 1, 1e12, &c.rope_theta);
  if (!status) status = refuse_variations(file, c.head_dim);
  if (!status && !embedding) status = attn_fail(ATTN_EINVAL, "%s: tensor token_embd.weight is missing", path);
  if (!status && embedding->shape[0] > LLAMA_DIMENSION_MAX)
    status = attn_fail(ATTN_EINVAL, "%s: token_embd.weight has %" PRId64 " rows; 1 to %d were expected", path,
                       embedding->shape[0], LLAMA_DIMENSION_MAX);
  if (status) return status;
  c.vocab = embedding->shape[0];
  c.tied = !gguf_find(file, "output.weight");
  *out = c;
  return ATTN_OK;
}
