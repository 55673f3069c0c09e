/* architectures.c - the table of architectures (architectures.h), after the papers and the configurations and
 * modelling code that Hugging Face's transformers publishes:
 *
 *   Llama (Touvron et al. 2023, arXiv:2302.13971), Mistral (Jiang et al. 2023, arXiv:2310.06825), Qwen2 and
 *   Qwen3 (arXiv:2407.10671, 2505.09388), Gemma 2 and 3 (arXiv:2408.00118, 2503.19786), OLMo 2
 *   (arXiv:2501.00656), SmolLM 3 (2025), Phi-3 (arXiv:2404.14219), Granite 3 (2024), StableLM 2
 *   (arXiv:2402.17834), Mixtral (Jiang et al. 2024, arXiv:2401.04088), the mixtures of experts of Qwen2 and
 *   Qwen3, gpt-oss (OpenAI 2025, arXiv:2508.10925), GPT-2 (Radford et al. 2019), GPT-NeoX and Pythia
 *   (arXiv:2204.06745, 2304.01373), BERT (Devlin et al. 2018, arXiv:1810.04805), ModernBERT (Warner et al.
 *   2024, arXiv:2412.13663). */
#include "data/llama/architectures.h"

#include <math.h>
#include <string.h>

/* -- activations -- */

static float silu(float x) { return x / (1 + expf(-x)); }

static float gelu(float x) { return 0.5f * x * (1 + erff(x * 0.70710678118654752440f)); }

static float gelu_by_tanh(float x) {
  return 0.5f * x * (1 + tanhf(0.79788456080286535588f * (x + 0.044715f * x * x * x)));
}

static float relu(float x) { return x < 0 ? 0 : x; }

float (*llama_activation(const char *name, size_t bytes))(float) {
  static const struct {
    const char *name;
    float (*of)(float);
  } known[] = {{"silu", silu},
               {"gelu", gelu},
               {"gelu_new", gelu_by_tanh},
               {"gelu_pytorch_tanh", gelu_by_tanh},
               {"relu", relu}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strlen(known[i].name) == bytes && memcmp(known[i].name, name, bytes) == 0) return known[i].of;
  return NULL;
}

/* -- keys of config.json -- */

#define USUAL_KEYS(EPS)                                                                        \
  .hidden = "hidden_size", .intermediate = "intermediate_size", .layers = "num_hidden_layers", \
  .heads = "num_attention_heads", .kv_heads = "num_key_value_heads", .head_dim = "head_dim",   \
  .max_positions = "max_position_embeddings", .norm_eps = (EPS)
#define EXPERT_KEYS .experts = "num_experts", .experts_used = "num_experts_per_tok"
#define RMS_5_KEYS USUAL_KEYS("rms_norm_eps"), .norm_eps_preset = 1e-5, .kv_heads_required = true
#define RMS_KEYS USUAL_KEYS("rms_norm_eps"), .norm_eps_preset = 1e-6, .kv_heads_required = true

static const llama_keys usual_keys = {USUAL_KEYS("rms_norm_eps"), .norm_eps_preset = 1e-6,
                                      .max_positions_preset = 2048};
static const llama_keys mistral_keys = {RMS_KEYS, .max_positions_preset = 131072};
static const llama_keys qwen2_keys = {RMS_KEYS, .max_positions_preset = 32768};
static const llama_keys qwen3_keys = {RMS_KEYS, .max_positions_preset = 32768, .head_dim_preset = 128};
static const llama_keys gemma2_keys = {RMS_KEYS, .max_positions_preset = 8192, .head_dim_preset = 256};
static const llama_keys gemma3_keys = {RMS_KEYS, .max_positions_preset = 131072, .head_dim_preset = 256};
static const llama_keys olmo2_keys = {USUAL_KEYS("rms_norm_eps"), .norm_eps_preset = 1e-5,
                                      .max_positions_preset = 2048};
static const llama_keys phi3_keys = {USUAL_KEYS("rms_norm_eps"), .norm_eps_preset = 1e-5,
                                     .max_positions_preset = 4096};
static const llama_keys stablelm_keys = {USUAL_KEYS("layer_norm_eps"), .norm_eps_preset = 1e-5,
                                         .max_positions_preset = 4096};
static const llama_keys neox_keys = {USUAL_KEYS("layer_norm_eps"), .norm_eps_preset = 1e-5,
                                     .max_positions_preset = 2048};
static const llama_keys bert_keys = {USUAL_KEYS("layer_norm_eps"), .norm_eps_preset = 1e-12,
                                     .max_positions_preset = 512};
static const llama_keys modernbert_keys = {USUAL_KEYS("norm_eps"), .norm_eps_preset = 1e-5,
                                           .max_positions_preset = 8192};
static const llama_keys mixtral_keys = {RMS_5_KEYS, EXPERT_KEYS, .max_positions_preset = 131072};
static const llama_keys gpt_oss_keys = {RMS_5_KEYS, EXPERT_KEYS, .max_positions_preset = 131072,
                                        .head_dim_preset = 64};
static const llama_keys qwen2_moe_keys = {RMS_KEYS, EXPERT_KEYS, .max_positions_preset = 32768,
                                          .expert_intermediate = "moe_intermediate_size",
                                          .shared_intermediate = "shared_expert_intermediate_size"};
static const llama_keys qwen3_moe_keys = {RMS_KEYS, EXPERT_KEYS, .max_positions_preset = 32768,
                                          .expert_intermediate = "moe_intermediate_size"};
static const llama_keys qwen2_vl_keys = {RMS_5_KEYS, .max_positions_preset = 32768};
static const llama_keys gpt2_keys = {.hidden = "n_embd",
                                     .intermediate = "n_inner",
                                     .intermediate_times = 4,
                                     .layers = "n_layer",
                                     .heads = "n_head",
                                     .kv_heads = "num_key_value_heads",
                                     .head_dim = "head_dim",
                                     .max_positions = "n_positions",
                                     .max_positions_preset = 1024,
                                     .norm_eps = "layer_norm_epsilon",
                                     .norm_eps_preset = 1e-5};

/* -- names of tensors -- */

#define DECODER                                                                                           \
  .prefix = "model.", .embedding = "embed_tokens", .norm = "norm", .head = "lm_head", .layer = "layers.", \
  .ignored = {"rotary_emb.inv_freq"}
#define SILU .activation_key = "hidden_act", .activation = "silu"
#define GELU_BY_TANH .activation_key = "hidden_activation", .activation = "gelu_pytorch_tanh"
#define BEFORE [LLAMA_ATTENTION_NORM] = "input_layernorm", [LLAMA_MLP_NORM] = "post_attention_layernorm"
#define AFTER                                                                       \
  [LLAMA_ATTENTION_POST_NORM] = "post_attention_layernorm", [LLAMA_MLP_POST_NORM] = \
                                                                "post_feedforward_layernorm"
#define AROUND \
  [LLAMA_ATTENTION_NORM] = "input_layernorm", [LLAMA_MLP_NORM] = "pre_feedforward_layernorm", AFTER
#define QK_NORMS [LLAMA_Q_NORM] = "self_attn.q_norm", [LLAMA_K_NORM] = "self_attn.k_norm"
#define APART                                                                                     \
  [LLAMA_Q] = "self_attn.q_proj", [LLAMA_K] = "self_attn.k_proj", [LLAMA_V] = "self_attn.v_proj", \
  [LLAMA_O] = "self_attn.o_proj", [LLAMA_GATE] = "mlp.gate_proj", [LLAMA_UP] = "mlp.up_proj",     \
  [LLAMA_DOWN] = "mlp.down_proj"
#define EXPERTS .experts = "mlp.experts", .expert = {"gate_proj", "up_proj", "down_proj"}
#define QKV(NAME) [LLAMA_Q] = (NAME), [LLAMA_K] = (NAME), [LLAMA_V] = (NAME)
#define GATE_UP(NAME) [LLAMA_GATE] = (NAME), [LLAMA_UP] = (NAME)

static const llama_architecture architectures[] = {
    {.name = "llama",
     .in_gguf = "llama",
     DECODER,
     SILU,
     .part = {BEFORE, APART},
     .keys = &usual_keys,
     .bias_key = "attention_bias",
     .mlp_bias_key = true,
     .pairs_in_gguf = true},
    {.name = "mistral",
     DECODER,
     SILU,
     .part = {BEFORE, APART},
     .keys = &mistral_keys,
     .window_key = "sliding_window",
     .window = 4096},
    {.name = "qwen2",
     .in_gguf = "qwen2",
     DECODER,
     SILU,
     .part = {BEFORE, APART},
     .keys = &qwen2_keys,
     .window_key = "sliding_window",
     .window = 4096,
     .window_optional = true,
     .window_from_key = "max_window_layers",
     .qkv_bias = true},
    {.name = "qwen3",
     .in_gguf = "qwen3",
     DECODER,
     SILU,
     .part = {BEFORE, APART, QK_NORMS},
     .keys = &qwen3_keys,
     .window_key = "sliding_window",
     .window = 4096,
     .window_optional = true,
     .window_from_key = "max_window_layers",
     .bias_key = "attention_bias"},
    {.name = "gemma2",
     .in_gguf = "gemma2",
     DECODER,
     GELU_BY_TANH,
     .part = {AROUND, APART},
     .keys = &gemma2_keys,
     .window_key = "sliding_window",
     .window = 4096,
     .period = 2,
     .bias_key = "attention_bias",
     .query_scalar = true,
     .capped = true,
     .score_cap = 50,
     .logit_cap = 30,
     .root_of_hidden = true,
     .plus_one = true,
     .tied = true},
    {.name = "gemma3_text",
     .in_gguf = "gemma3",
     DECODER,
     GELU_BY_TANH,
     .part = {AROUND, APART, QK_NORMS},
     .keys = &gemma3_keys,
     .window_key = "sliding_window",
     .window = 4096,
     .period_key = "sliding_window_pattern",
     .period = 6,
     .theta_key = "rope_theta",
     .theta = 1e6,
     .window_theta_key = "rope_local_base_freq",
     .window_theta = 1e4,
     .bias_key = "attention_bias",
     .query_scalar = true,
     .capped = true,
     .root_of_hidden = true,
     .plus_one = true,
     .tied = true},
    {.name = "olmo2",
     .in_gguf = "olmo2",
     DECODER,
     SILU,
     .part = {AFTER, APART, QK_NORMS},
     .keys = &olmo2_keys,
     .bias_key = "attention_bias",
     .whole_norms = true},
    {.name = "smollm3",
     .in_gguf = "smollm3",
     DECODER,
     SILU,
     .part = {BEFORE, APART},
     .keys = &qwen2_keys,
     .window_key = "sliding_window",
     .window_optional = true,
     .theta = 2e6,
     .unturned_layers = true,
     .bias_key = "attention_bias",
     .mlp_bias_key = true,
     .tied = true,
     .pairs_in_gguf = true},
    {.name = "phi3",
     .in_gguf = "phi3",
     DECODER,
     SILU,
     .part = {BEFORE, QKV("self_attn.qkv_proj"), [LLAMA_O] = "self_attn.o_proj",
              GATE_UP("mlp.gate_up_proj"), [LLAMA_DOWN] = "mlp.down_proj"},
     .keys = &phi3_keys,
     .window_key = "sliding_window"},
    {.name = "granite",
     .in_gguf = "granite",
     DECODER,
     SILU,
     .part = {BEFORE, APART},
     .keys = &usual_keys,
     .bias_key = "attention_bias",
     .mlp_bias_key = true,
     .multipliers = true,
     .pairs_in_gguf = true},
    {.name = "stablelm",
     .in_gguf = "stablelm",
     DECODER,
     SILU,
     .part = {BEFORE, APART, [LLAMA_Q_NORM] = "self_attn.q_layernorm.norms",
              [LLAMA_K_NORM] = "self_attn.k_layernorm.norms"},
     .keys = &stablelm_keys,
     .turned = 0.25,
     .bias_key = "use_qkv_bias",
     .bias_of_qkv = true,
     .parallel_key = "use_parallel_residual",
     .one_norm = true,
     .layer_norm = true,
     .norm_bias = true,
     .norms_of_heads = true},
    {.name = "mixtral",
     .in_gguf = "llama",
     DECODER,
     SILU,
     .part = {BEFORE, APART, [LLAMA_ROUTER] = "block_sparse_moe.gate"},
     .experts = "block_sparse_moe.experts",
     .expert = {"w1", "w3", "w2"},
     .keys = &mixtral_keys,
     .window_key = "sliding_window",
     .theta = 1e6,
     .experts_normed = true,
     .pairs_in_gguf = true},
    {.name = "qwen2_moe",
     .in_gguf = "qwen2moe",
     DECODER,
     SILU,
     .part = {BEFORE, APART, [LLAMA_ROUTER] = "mlp.gate", [LLAMA_SHARED_GATE] = "mlp.shared_expert_gate"},
     EXPERTS,
     .shared = {"mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj", "mlp.shared_expert.down_proj"},
     .keys = &qwen2_moe_keys,
     .window_key = "sliding_window",
     .window = 4096,
     .window_optional = true,
     .window_from_key = "max_window_layers",
     .bias_key = "qkv_bias",
     .bias_of_qkv = true,
     .qkv_bias = true,
     .experts_normed_key = "norm_topk_prob"},
    {.name = "qwen3_moe",
     .in_gguf = "qwen3moe",
     DECODER,
     SILU,
     .part = {BEFORE, APART, QK_NORMS, [LLAMA_ROUTER] = "mlp.gate"},
     EXPERTS,
     .keys = &qwen3_moe_keys,
     .window_key = "sliding_window",
     .window = 4096,
     .window_optional = true,
     .bias_key = "attention_bias",
     .experts_normed_key = "norm_topk_prob",
     .experts_normed = true},
    {.name = "qwen2_vl",
     .also = "qwen2_5_vl",
     .in_gguf = "qwen2vl",
     DECODER,
     SILU,
     .part = {BEFORE, APART},
     .keys = &qwen2_vl_keys,
     .window_key = "sliding_window",
     .window = 4096,
     .window_optional = true,
     .window_from_key = "max_window_layers",
     .theta = 1e6,
     .qkv_bias = true,
     .images = true},
    {.name = "gpt_oss",
     .in_gguf = "gpt-oss",
     DECODER,
     SILU,
     .part = {BEFORE, APART, [LLAMA_ROUTER] = "mlp.router"},
     .mlp_norm_in_gguf = "post_attention_norm",
     .sinks = "self_attn.sinks",
     .experts = "mlp.experts",
     .keys = &gpt_oss_keys,
     .window_key = "sliding_window",
     .window = 128,
     .period = 2,
     .theta = 150000,
     .bias_key = "attention_bias",
     .qkv_bias = true,
     .output_bias = true,
     .experts_normed = true,
     .expert_bias = true,
     .alternating = true,
     .gate_limit = 7,
     .gate_slope = 1.702,
     .exact_range = true},
    {.name = "gpt2",
     .in_gguf = "gpt2",
     .prefix = "transformer.",
     .embedding = "wte",
     .positions = "wpe",
     .norm = "ln_f",
     .head = "lm_head",
     .layer = "h.",
     .ignored = {".attn.bias", ".attn.masked_bias"},
     .activation_key = "activation_function",
     .activation = "gelu_new",
     .part = {[LLAMA_ATTENTION_NORM] = "ln_1",
              [LLAMA_MLP_NORM] = "ln_2",
              QKV("attn.c_attn"),
              [LLAMA_O] = "attn.c_proj",
              [LLAMA_UP] = "mlp.c_fc",
              [LLAMA_DOWN] = "mlp.c_proj"},
     .keys = &gpt2_keys,
     .qkv_bias = true,
     .output_bias = true,
     .mlp_bias = true,
     .tied = true,
     .layer_norm = true,
     .norm_bias = true,
     .transposed = true},
    {.name = "gpt_neox",
     .in_gguf = "gptneox",
     .prefix = "gpt_neox.",
     .embedding = "embed_in",
     .norm = "final_layer_norm",
     .head = "embed_out",
     .layer = "layers.",
     .ignored = {".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"},
     .activation_key = "hidden_act",
     .activation = "gelu",
     .part = {BEFORE, QKV("attention.query_key_value"), [LLAMA_O] = "attention.dense",
              [LLAMA_UP] = "mlp.dense_h_to_4h", [LLAMA_DOWN] = "mlp.dense_4h_to_h"},
     .keys = &neox_keys,
     .theta_key = "rotary_emb_base",
     .turned_key = "rotary_pct",
     .turned = 0.25,
     .bias_key = "attention_bias",
     .qkv_bias = true,
     .output_bias = true,
     .mlp_bias = true,
     .parallel_key = "use_parallel_residual",
     .parallel = true,
     .layer_norm = true,
     .norm_bias = true,
     .interleaved = true},
    {.name = "bert",
     .prefix = "bert.",
     .embedding = "embeddings.word_embeddings",
     .positions = "embeddings.position_embeddings",
     .types = "embeddings.token_type_embeddings",
     .embedding_norm = "embeddings.LayerNorm",
     .layer = "encoder.layer.",
     .activation_key = "hidden_act",
     .activation = "gelu",
     .part = {[LLAMA_ATTENTION_POST_NORM] = "attention.output.LayerNorm",
              [LLAMA_MLP_POST_NORM] = "output.LayerNorm",
              [LLAMA_Q] = "attention.self.query",
              [LLAMA_K] = "attention.self.key",
              [LLAMA_V] = "attention.self.value",
              [LLAMA_O] = "attention.output.dense",
              [LLAMA_UP] = "intermediate.dense",
              [LLAMA_DOWN] = "output.dense"},
     .keys = &bert_keys,
     .qkv_bias = true,
     .output_bias = true,
     .mlp_bias = true,
     .layer_norm = true,
     .norm_bias = true,
     .norms_of_sums = true,
     .encoder = true},
    {.name = "modernbert",
     .prefix = "model.",
     .embedding = "embeddings.tok_embeddings",
     .embedding_norm = "embeddings.norm",
     .norm = "final_norm",
     .layer = "layers.",
     .activation_key = "hidden_activation",
     .activation = "gelu",
     .part = {[LLAMA_ATTENTION_NORM] = "attn_norm",
              [LLAMA_MLP_NORM] = "mlp_norm",
              QKV("attn.Wqkv"),
              [LLAMA_O] = "attn.Wo",
              GATE_UP("mlp.Wi"),
              [LLAMA_DOWN] = "mlp.Wo"},
     .keys = &modernbert_keys,
     .window_key = "local_attention",
     .window = 128,
     .period_key = "global_attn_every_n_layers",
     .period = 3,
     .period_begins = true,
     .theta_key = "global_rope_theta",
     .theta = 160000,
     .window_theta_key = "local_rope_theta",
     .window_theta = 1e4,
     .bias_key = "attention_bias",
     .mlp_bias_key = true,
     .layer_norm = true,
     .first_unnormed = true,
     .encoder = true}};

enum { COUNT = sizeof architectures / sizeof *architectures };

attn_status llama_architecture_find(const char *path, const char *key, setting s, bool in_gguf,
                                    const llama_architecture **out) {
  char known[COUNT * 16] = "";
  if (s.kind != SETTING_TEXT) return attn_fail(ATTN_EINVAL, "%s: %s is missing or not a string", path, key);
  for (int i = 0; i < 2 * COUNT; i++) {
    const llama_architecture *a = &architectures[i / 2];
    const char *name = i % 2 ? a->also : in_gguf ? a->in_gguf : a->name;
    if (!name || (in_gguf && (i % 2 || strcmp(a->name, "mixtral") == 0))) continue; /* it is llama there */
    if (setting_is(s, name)) {
      *out = a;
      return ATTN_OK;
    }
    if (*known) strcat(known, ", ");
    strcat(known, name);
  }
  return attn_fail(ATTN_EUNSUPPORTED, "%s: %s is %.*s; expected one of %s", path, key,
                   s.bytes < 64 ? (int)s.bytes : 64, s.text, known);
}

const llama_architecture *llama_architecture_of_experts(const llama_architecture *a) {
  for (int i = 0; i < COUNT; i++)
    if (architectures[i].experts && strcmp(architectures[i].in_gguf, a->in_gguf) == 0)
      return &architectures[i];
  return NULL;
}

const llama_architecture *llama_architecture_of(const data_llama_config *c) {
  int i = 0;
  while (strcmp(architectures[i].name, c->architecture) != 0) i++;
  return &architectures[i];
}
