/* llama.c - the Llama forward pass against an independent one, and what it refuses to compute. */
#include "tests/support/data_fixture.h"
#include "tests/support/llama_models.h"

#include "data/llama/llama.h"
#include "data/support/file.h"

#include <omp.h>

TestSuite(data_llama, .init = fixture_begin, .fini = fixture_end);

#define BUNDLED TEST_SOURCE_DIR "/data/bytelm"
#define HELD TEST_SOURCE_DIR "/tests/fixtures/held.txt"

/* The project's demand for logits; those of the models here are of order 1 to 20. */
static const double tolerance = 1e-4;

static void check_close(const float *x, const double *wanted, int64_t count, const char *what) {
  double worst = 0, size = 0;
  for (int64_t i = 0; i < count; i++) {
    double error = fabs((double)x[i] - wanted[i]);
    if (!(error <= worst)) worst = error;
    size = fmax(size, fabs(wanted[i]));
  }
  cr_assert(worst <= tolerance, "%s: error %g", what, worst);
  cr_assert(size > 0.5, "%s: too small to tell anything: %g", what, size);
}

/* Logits of a directory against the reference, window by window. */
static void check_logits(const char *directory, const reference_model *m, const int64_t *tokens, int64_t n) {
  data_llama *llama = model_open(directory);
  size_t rows = (size_t)n;
  float *logits = kept_memory(malloc(sizeof *logits * rows * (size_t)m->vocab));
  double *wanted = kept_memory(malloc(sizeof *wanted * rows * (size_t)m->vocab));
  double *q = kept_memory(malloc(sizeof *q * rows * (size_t)(m->heads * m->d))),
         *k = kept_memory(malloc(sizeof *k * rows * (size_t)(m->heads * m->d))),
         *v = kept_memory(malloc(sizeof *v * rows * (size_t)(m->heads * m->d)));
  assert_ok(data_llama_logits(llama, tokens, n, logits));
  int64_t context = data_llama_get_config(llama)->max_positions;
  for (int64_t first = 0; first < n; first += context)
    reference_forward(m, m->layers, tokens + first, n - first < context ? n - first : context, 0,
                      wanted + first * m->vocab, q, k, v);
  check_close(logits, wanted, n * m->vocab, directory);
}

Test(data_llama, logits_of_the_bundled_model_are_those_of_an_independent_computation) {
  size_t size;
  int64_t tokens[64];
  unsigned char *text = kept_memory(fixture_bytes(HELD, &size));
  for (int i = 0; i < 64; i++) tokens[i] = text[i];
  reference_model m = model_bundled(BUNDLED "/model.safetensors");
  check_logits(BUNDLED, &m, tokens, 64);
}

Test(data_llama, the_bundled_model_predicts_held_text_as_its_card_says) {
  /* The card measured 2.13 to 2.20 bits a byte on the whole of this book, in windows of 512 to 4096. Three
   * windows of 512 of this passage give 1.87 to 2.27, a standard deviation near 0.2, so that a passage of
   * four of them should be within three times 0.2 / sqrt(4) of 2.17. Letters by frequency alone would need
   * more than 4 bits. */
  size_t n;
  unsigned char *text = kept_memory(fixture_bytes(HELD, &n));
  int64_t *tokens = kept_memory(malloc(n * sizeof *tokens));
  float *logits = kept_memory(malloc(n * 256 * sizeof *logits));
  data_llama *m = model_open(BUNDLED);
  for (size_t i = 0; i < n; i++) tokens[i] = text[i];
  assert_ok(data_llama_logits(m, tokens, (int64_t)n, logits));
  double bits = 0;
  for (size_t i = 0; i + 1 < n; i++) {
    const float *row = logits + i * 256;
    double sum = 0;
    for (int j = 0; j < 256; j++) sum += exp((double)row[j] - (double)row[text[i + 1]]);
    bits += log2(sum) / (double)(n - 1);
  }
  cr_assert(bits >= 1.87 && bits <= 2.47, "%g bits a byte", bits);
}

Test(data_llama, every_storage_of_a_grouped_model_gives_the_reference_logits) {
  enum { MANY = 1050 };
  int64_t many[MANY];
  for (int64_t i = 0; i < MANY; i++) many[i] = some_tokens[i * i % 19];
  static const struct {
    int store, tied;
    size_t parts;
  } cases[] = {{STORE_F32, 0, 1}, {STORE_F16, 1, 1}, {STORE_BF16, 0, 2}, {STORE_F64, 1, 3}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    reference_model m = model_random(cases[i].tied);
    model_write(&m, cases[i].store, cases[i].parts);
    check_logits(fixture_directory, &m, some_tokens, 20);
    m.context = 8; /* windows of 8, 8 and 4 */
    model_write_config(model_config(&m));
    check_logits(fixture_directory, &m, some_tokens, 20);
    check_logits(fixture_directory, &m, some_tokens, 1);
    m.context = 520; /* more than the head's rows at a time, in each of two windows */
    model_write_config(model_config(&m));
    if (i == 0) check_logits(fixture_directory, &m, many, MANY);
    unlink(fixture_path("model.safetensors"));
  }
}

Test(data_llama, logits_do_not_depend_on_threads_and_never_on_later_tokens) {
  enum { V = 11 };
  float one[20 * V], three[20 * V], shorter[13 * V];
  reference_model m = model_random(0);
  model_write(&m, STORE_F32, 1);
  data_llama *llama = model_open(fixture_directory);
  omp_set_num_threads(1);
  assert_ok(data_llama_logits(llama, some_tokens, 20, one));
  omp_set_num_threads(3);
  assert_ok(data_llama_logits(llama, some_tokens, 20, three));
  assert_ok(data_llama_logits(llama, some_tokens, 13, shorter));
  cr_assert_arr_eq(one, three, sizeof one);
  cr_assert_arr_eq(one, shorter, sizeof shorter);
}

Test(data_llama, configurations_may_leave_out_what_has_a_default) {
  reference_model m = model_random(0);
  model_write(&m, STORE_F32, 1);
  json_t *config = model_config(&m);
  json_object_del(config, "rms_norm_eps");
  json_object_del(config, "rope_theta");
  json_object_del(config, "max_position_embeddings");
  json_object_del(config, "tie_word_embeddings");
  json_object_set_new(config, "rope_scaling", json_null());
  json_object_set_new(config, "rope_parameters",
                      json_pack("{s:s, s:f, s:i, s:i}", "rope_type", "yarn", "rope_theta", 500.0, "factor", 1,
                                "original_max_position_embeddings", 64)); /* which takes none away */
  model_write_config(config);
  data_llama *llama = model_open(fixture_directory);
  const data_llama_config *c = data_llama_get_config(llama);
  cr_assert(c->max_positions == 2048 && !c->tied && c->kv_heads == 2 && c->head_dim == 4);
  cr_assert_float_eq(c->rope.theta, 500, 0);
  cr_assert_float_eq(c->norm_eps, 1e-6, 0);
}

/* One scale, one for each of 24 rows, or one for each block of 7 x 5. */
static void add_scales(reference_model *m, int64_t layer, const char *suffix) {
  const int64_t shapes[][2] = {{1, 0}, {24, 1}, {4, 3}}, *shape = shapes[layer];
  reference_tensor *t = &m->tensor[m->count++];
  snprintf(t->name, sizeof t->name, "model.layers.%d.self_attn.q_proj.%s", (int)layer, suffix);
  t->rows = shape[0];
  t->columns = shape[1];
  t->at = kept_memory(calloc(24, sizeof *t->at));
  for (int64_t i = 0; i < 24; i++) t->at[i] = (double)(i * i % 13 + 1) / 16;
}

Test(data_llama, matrices_of_eight_bits_are_times_their_scales) {
  float logits[3][6 * 11];
  for (int stored = 0; stored < 3; stored++) { /* f32, then 8 bits under either name of scales */
    reference_model m = model_random(0);
    const size_t count = m.count;
    for (int64_t l = 0; l < 3; l++) add_scales(&m, l, stored == 1 ? "weight_scale_inv" : "weight_scale");
    for (size_t i = 0, l = 0; i < count; i++) {
      reference_tensor *t = &m.tensor[i];
      if (!strstr(t->name, "q_proj")) continue;
      const double *scale = m.tensor[count + l].at;
      for (int64_t r = 0; r < 24; r++)
        for (int64_t c = 0; c < 12; c++) {
          const double code = (double)((r * 7 + c * 5) % 15 - 7) / 8,
                       by = scale[l == 0   ? 0
                                  : l == 1 ? r
                                           : r / 7 * 3 + c / 5];
          t->at[r * 12 + c] = stored ? code : code * by;
        }
      t->eight_bits = stored;
      l++;
    }
    const size_t all = m.count;
    if (!stored) m.count = count;
    model_write(&m, STORE_F32, 1);
    json_t *config = model_config(&m);
    json_object_set_new(config, "quantization_config",
                        json_pack("{s:s, s:[i,i]}", "quant_method", "fp8", "weight_block_size", 7, 5));
    model_write_config(json_incref(config));
    data_llama *llama = model_open(fixture_directory);
    assert_ok(data_llama_logits(llama, some_tokens, 6, logits[stored]));
    m.count = count;
    model_write(&m, STORE_F32, 1);
    model_write_config(config);
    if (stored) assert_refused(data_llama_open(fixture_directory, &llama), ATTN_EINVAL, "has 8 bits, and no");
    m.count = all;
  }
  cr_assert_arr_eq(logits[0], logits[1], sizeof logits[0]);
  cr_assert_arr_eq(logits[0], logits[2], sizeof logits[0]);
}

/* An architecture, keys of its configuration as JSON without braces and with ' for ", and what is said. */
typedef struct refused {
  const char *type, *keys, *says;
} refused;

static json_t *config_with(const reference_model *m, const char *type, const char *keys) {
  char text[400];
  snprintf(text, sizeof text, "{%s}", keys);
  for (char *at = text; (at = strchr(at, '\'')); at++) *at = '"';
  json_t *config = model_config(m), *more = json_loads(text, 0, NULL);
  cr_assert(more, "%s", text);
  json_object_set_new(config, "model_type", json_string(type));
  json_object_update(config, more);
  json_decref(more);
  return config;
}

/* The random model with other keys. */
static void check_refusals(const refused *cases, size_t count, attn_status status) {
  reference_model m = model_random(0);
  model_write(&m, STORE_F32, 1);
  for (size_t i = 0; i < count; i++) {
    data_llama *llama = NULL;
    model_write_config(config_with(&m, cases[i].type, cases[i].keys));
    assert_refused(data_llama_open(fixture_directory, &llama), status, cases[i].says);
    cr_assert_null(llama);
  }
}

/* What a configuration says of positions, layers and tokens; its layers are three. */
static char *summary(json_t *config) {
  data_llama_config c;
  double turns[2];
  model_write_config(config);
  assert_ok(llama_read_config(fixture_directory, &c));
  data_rope_frequencies(&c.rope, c.rotary_dim, c.max_positions, turns);
  char *text = kept_memory(text_format("%d %d %d %d %d %d %d %d %.17g %.17g %.17g", (int)c.max_positions,
                                       (int)c.window, (int)c.bos, c.tied, c.experts_normed, c.layer[0],
                                       c.layer[1], c.layer[2], c.rope.attention, turns[0], turns[1]));
  llama_config_free(&c);
  return text;
}

#define STRETCHED(kind, more) "'rope_scaling':{'type':'" kind "','factor':2" more "}"
#define FROM ",'original_max_position_embeddings':"
#define INNER                                                                                              \
  "'vocab_size':11,'hidden_size':12,'intermediate_size':20,'num_hidden_layers':3,'num_attention_heads':6," \
  "'num_key_value_heads':2,'head_dim':4,'rope_theta':500,'max_position_embeddings':64,'bos_token_id':3,"
#define EXPERTS "'num_experts':4,'num_experts_per_tok':2,'moe_intermediate_size':20"

/* Presets, keys that others overrule, and the same in other words: what concerns text in an object of a model
 * of images, where the output layer does not, and few positions, which stretch nothing. */
Test(data_llama, configurations_that_say_the_same) {
  static const char *const pairs[][3] = {
      {"qwen3_moe", EXPERTS, EXPERTS ",'norm_topk_prob':false"},
      {"qwen3_moe", EXPERTS ",'decoder_sparse_step':2", EXPERTS ",'mlp_only_layers':[0,2]"},
      {"smollm3", "'no_rope_layer_interval':2", "'no_rope_layers':[1,0,1,0,0]"},
      {"gemma2", "", "'layer_types':['sliding_attention','full_attention','sliding_attention']"},
      {"llama", STRETCHED("dynamic", ",'rope_type':'linear'"), STRETCHED("linear", "")},
      {"llama", "", "'rope_scaling':{'type':'default'}"},
      {"llama", STRETCHED("yarn", ""), STRETCHED("yarn", ",'mscale':0.5")},
      {"llama", STRETCHED("longrope", FROM "8,'short_factor':[1,2],'long_factor':[3,4],'attention_factor':1"),
       "'original_max_position_embeddings':128,"
       "'rope_scaling':{'type':'su','short_factor':[3,4],'long_factor':[5,6]}"},
      {"qwen2_vl", "'bos_token_id':3,'tie_word_embeddings':true",
       "'tie_word_embeddings':true,'text_config':{" INNER "'tie_word_embeddings':false}"},
      {"qwen2_vl", "'tie_word_embeddings':null,'text_config':{" INNER "'tie_word_embeddings':true}",
       "'tie_word_embeddings':true,'text_config':{" INNER "'tie_word_embeddings':false}"},
      {"llama", STRETCHED("linear", "") ",'rope_theta':7", STRETCHED("linear", ",'rope_theta':7")},
      {"llama", STRETCHED("dynamic", ""), STRETCHED("dynamic", FROM "8")},
      {"qwen3_moe", EXPERTS ",'use_sliding_window':true,'sliding_window':4",
       EXPERTS ",'use_sliding_window':true,'sliding_window':4,'max_window_layers':2"}};
  reference_model m = model_random(0);
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    char *a = summary(config_with(&m, pairs[i][0], pairs[i][1])),
         *b = summary(config_with(&m, pairs[i][0], pairs[i][2]));
    cr_expect_str_eq(a, b);
  }
}

Test(data_llama, models_that_it_cannot_compute_are_refused_by_name) {
  static const refused invalid[] = {
      {"gpt2", "", "n_embd is missing"},
      {"llama", "'model_type':null", "model_type is missing"},
      {"llama", "'hidden_act':7", "hidden_act is not a string"},
      {"llama", "'attention_bias':true", "layers.0.self_attn.q_proj.bias is missing"},
      {"llama", "'mlp_bias':true", "layers.0.mlp.gate_proj.bias is missing"},
      {"llama", "'partial_rotary_factor':0.75", "lets 3 of 4 components turn; rotary"},
      {"llama", "'partial_rotary_factor':0", "lets 0 of 4 components turn"},
      {"llama", "'partial_rotary_factor':1.5", "partial_rotary_factor is not a number from 0"},
      {"llama", "'mlp_bias':0", "mlp_bias"},
      {"llama", "'quantization_config':{'quant_method':'fp8','weight_block_size':[128,0]}",
       "weight_block_size[1] is not"},
      {"llama", "'vocab_size':null", "vocab_size is missing"},
      {"llama", "'vocab_size':'11'", "vocab_size"},
      {"llama", "'vocab_size':12", "model.embed_tokens.weight is not a matrix of 12 x 12"},
      {"llama", "'hidden_size':0", "hidden_size"},
      {"llama", "'hidden_size':-12", "hidden_size"},
      {"llama", "'hidden_size':9000000000000000000", "hidden_size"},
      {"llama", "'hidden_size':13", "model.embed_tokens.weight"},
      {"llama", "'intermediate_size':21", "mlp.gate_proj.weight"},
      {"llama", "'num_key_value_heads':4", "does not divide"},
      {"llama", "'num_key_value_heads':12", "num_key_value_heads"},
      {"llama", "'num_key_value_heads':null", "k_proj"},
      {"llama", "'head_dim':3", "lets 3 of 3 components turn; rotary positions need pairs"},
      {"llama", "'head_dim':null", "q_proj"},
      {"llama", "'num_hidden_layers':4", "model.layers.3.input_layernorm.weight is missing"},
      {"llama", "'rms_norm_eps':'small'", "rms_norm_eps"},
      {"llama", "'rope_theta':-1", "rope_theta"},
      {"llama", "'max_position_embeddings':0", "max_position_embeddings"},
      {"llama", STRETCHED("longrope", ""), "original_max_position_embeddings is missing"},
      {"llama", "'rope_scaling':{'type':'longrope','original_max_position_embeddings':1}",
       "sqrt(1 + ln 64 / ln 1) is no factor"},
      {"llama", STRETCHED("longrope", FROM "8,'short_factor':[1]"),
       "short_factor is not a list of 2 numbers"},
      {"llama", STRETCHED("longrope", FROM "8,'short_factor':[1,0]"),
       "short_factor[1] is not a number from 1e-6"},
      {"llama", STRETCHED("longrope", FROM "8,'short_factor':[1,1]"), "long_factor is not a list"},
      {"llama", "'rope_scaling':{'factor':2}", "rope_scaling: key rope_type is missing"},
      {"llama", "'rope_scaling':{'type':7,'factor':2}", "rope_scaling: type is not a string"},
      {"llama", "'rope_scaling':[1]", "rope_scaling: not an object"},
      {"llama", "'rope_scaling':{'type':'linear'}", "rope_scaling: key factor is missing"},
      {"llama", "'rope_scaling':{'type':'linear','factor':0}", "rope_scaling: factor is not a number from 1"},
      {"llama", "'rope_scaling':{'type':'linear','factor':1e300}", "factor is not a number from 1 to 1e+06"},
      {"llama", "'rope_scaling':{'type':'linear','factor':'2'}", "factor is not a number"},
      {"llama", STRETCHED("yarn", ",'mscale':-1"), "rope_scaling: mscale is not a number"},
      {"llama", STRETCHED("dynamic", "") ",'partial_rotary_factor':0.5",
       "needs more than 2 components that turn"},
      {"llama", STRETCHED("yarn", ",'beta_fast':1"), "beta_slow=1 is not below beta_fast=1"},
      {"llama", STRETCHED("yarn", ",'attention_factor':0"), "attention_factor"},
      {"llama", STRETCHED("yarn", ",'truncate':1"), "truncate"},
      {"llama", STRETCHED("yarn", "") ",'rope_theta':1", "base above 1"},
      {"llama", STRETCHED("yarn", FROM "0"), "original_max"},
      {"llama", STRETCHED("llama3", ""), "original_max_position_embeddings is missing"},
      {"llama", STRETCHED("llama3", FROM "8"), "low_freq"},
      {"llama", "'rope_parameters':{'rope_type':'default'},'rope_scaling':{}", "both rope_scaling and"},
      {"llama", "'rope_parameters':{'full_attention':{'rope_type':'default'}}", "key rope_type is missing"},
      {"llama", "'rope_parameters':{'rope_type':'default','partial_rotary_factor':0.25}",
       "lets 1 of 4 components turn"},
      {"llama", STRETCHED("llama3", FROM "8,'low_freq_factor':4,'high_freq_factor':4"),
       "low_freq_factor=4 is not below high_freq_factor=4"},
      {"qwen2", "", "layers.0.self_attn.q_proj.bias is missing"},
      {"qwen2", "'num_key_value_heads':null", "key num_key_value_heads is missing"},
      {"qwen3", "", "layers.0.self_attn.q_norm.weight is missing"},
      {"qwen3", "'head_dim':null", "self_attn.q_norm.weight is missing"},
      {"gemma2", "'attn_logit_softcapping':0", "attn_logit_softcapping is not a number from"},
      {"gemma2", "'query_pre_attn_scalar':-1", "query_pre_attn_scalar is not a number from"},
      {"gemma3_text", "'sliding_window_pattern':0", "sliding_window_pattern is not an integer"},
      {"gemma3_text", "'rope_local_base_freq':0", "rope_local_base_freq is not a number"},
      {"smollm3", "'no_rope_layers':[1]", "no_rope_layers is not a list of 3"},
      {"smollm3", "'no_rope_layers':[1,1,2]", "no_rope_layers[2] is neither 0 nor 1"},
      {"granite", "'logits_scaling':0", "logits_scaling is not a number from"},
      {"mixtral", "", "key num_local_experts is missing"},
      {"mixtral", "'num_local_experts':70000,'num_experts_per_tok':1",
       "num_local_experts is not an integer from 1 to 65536"},
      {"mixtral", "'num_local_experts':4,'num_experts_per_tok':5",
       "num_experts_per_tok is not an integer from 1 to 4"},
      {"qwen3_moe", EXPERTS ",'mlp_only_layers':[0,3]", "mlp_only_layers[1] is not a layer from 0 to 2"},
      {"qwen3_moe", EXPERTS ",'decoder_sparse_step':0", "decoder_sparse_step is not an integer"},
      {"qwen2_vl", "'rope_scaling':{'type':'mrope','mrope_section':[1,1]}", "q_proj.bias is missing"},
      {"qwen2_vl", "'text_config':[]", "text_config is not an object"},
      {"qwen2_vl", "'video_token_id':-2", "video_token_id is not an id"},
      {"gpt_oss", EXPERTS ",'swiglu_limit':0", "swiglu_limit is not a number from"},
      {"gpt_oss", EXPERTS, "rope_scaling is missing"},
      {"gpt_neox", "'rotary_pct':1", "tensor gpt_neox.embed_in.weight is missing"},
      {"olmo2", "", "layers.0.self_attn.q_norm.weight is missing"},
      {"phi3", "'original_max_position_embeddings':1,'rope_scaling':{'type':'su'}", "is no factor"},
      {"mistral", "'sliding_window':0", "sliding_window is not an integer from 1"},
      {"mistral", "'sliding_window':'8'", "sliding_window is not an integer from 1"},
      {"mistral", "'layer_types':['full_attention']", "layer_types is not a list of 3"},
      {"qwen2", "'use_sliding_window':1", "use_sliding_window is neither"},
      {"qwen2", "'use_sliding_window':true,'max_window_layers':-1", "max_window_layers"}};
  static const refused unsupported[] = {
      {"mamba", "", "model_type is mamba; expected one of llama, mis"},
      {"bert", "", "only capture reads it"},
      {"llama", "'hidden_act':'quick_gelu'", "hidden_act is quick_gelu; expected silu"},
      {"llama", "'sliding_window':8", "sliding_window"},
      {"llama", "'quantization_config':{}", "quant_method is not a string"},
      {"llama", "'quantization_config':{'quant_method':'gptq'}", "quant_method is gptq"},
      {"llama", "'num_hidden_layers':2", "tensor model.layers.2"},
      {"llama", "'scale_attn_weights':false", "scale_attn_weights=false is not supported"},
      {"llama", STRETCHED("yarn", ",'mrope_section':[1,1]"), "mrope_section"},
      {"llama", "'rope_scaling':{'rope_type':'ntk','factor':2}", "rope_scaling: rope_type is ntk"},
      {"qwen2", "'attention_bias':true", "attention_bias is not supported for qwen2"},
      {"gemma2", "'use_bidirectional_attention':true", "use_bidirectional_attention is not supported"},
      {"qwen2", "'qk_layernorm':true", "qk_layernorm is not supported for qwen2"},
      {"qwen2", "'rope_scaling':{'type':'mrope'}", "type is mrope"},
      {"qwen3", "'mlp_bias':true", "mlp_bias is not supported for qwen3"},
      {"mistral", "'layer_types':['full_attention','linear_attention','full_attention']",
       "layer_types[1] is linear_attention"},
      {"mistral", "'sliding_window':null,'layer_types':[1,2,3]", "layer_types[0] is not a string"}};
  check_refusals(invalid, sizeof invalid / sizeof *invalid, ATTN_EINVAL);
  check_refusals(unsupported, sizeof unsupported / sizeof *unsupported, ATTN_EUNSUPPORTED);
}

/* Two experts a layer; files and configurations with another number of them, or of another shape. A
 * router of zeros uses the first, whatever the second is. */
Test(data_llama, experts_are_as_many_as_the_configuration_says) {
  static const struct {
    int64_t experts, used, inner;
    size_t dropped; /* tensors, the last */
    const char *says;
  } cases[] = {{2, 2, 20, 0, NULL},
               {2, 1, 20, 0, NULL},
               {2, 1, 20, 0, NULL},
               {3, 2, 20, 0, "gate.weight is not a matrix of 3 x 12"},
               {1, 1, 20, 0, "gate.weight is not a matrix of 1 x 12"},
               {2, 1, 24, 0, "experts.0.w1.weight is not a matrix of 24 x 12"},
               {2, 1, 20, 1, "model.layers.2.block_sparse_moe.experts.1.w2.weight is missing"},
               {2, 1, 20, 3, "model.layers.2.block_sparse_moe.experts.1.w1.weight is missing"}};
  static const char *const names[] = {"w1", "w3", "w2"};
  float logits[3][20 * 11];
  reference_model m = model_random(0);
  attn_rng rng = rng_of(4, 5, 6);
  for (size_t t = 0, mlp = 0; t < m.count; t++) {
    if (!strstr(m.tensor[t].name, ".mlp.")) continue;
    snprintf(m.tensor[t].name, sizeof m.tensor[t].name,
             "model.layers.%zu.block_sparse_moe.experts.0.%s.weight", mlp / 3, names[mlp % 3]);
    mlp++;
  }
  for (int64_t l = 0; l < m.layers; l++) {
    model_add(&m, l, "block_sparse_moe.gate", 2, m.hidden, &rng);
    memset(m.tensor[m.count - 1].at, 0, (size_t)(2 * m.hidden) * sizeof(double));
    model_add(&m, l, "block_sparse_moe.experts.1.w1", m.inner, m.hidden, &rng);
    model_add(&m, l, "block_sparse_moe.experts.1.w3", m.inner, m.hidden, &rng);
    model_add(&m, l, "block_sparse_moe.experts.1.w2", m.hidden, m.inner, &rng);
  }
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    data_llama *llama = NULL;
    reference_model written = m;
    json_t *config = model_config(&m);
    json_object_set_new(config, "model_type", json_string("mixtral"));
    json_object_set_new(config, "num_local_experts", json_integer(cases[i].experts));
    json_object_set_new(config, "num_experts_per_tok", json_integer(cases[i].used));
    json_object_set_new(config, "intermediate_size", json_integer(cases[i].inner));
    model_write_config(config);
    written.count -= cases[i].dropped;
    model_write_part(&written, STORE_F32, 0, 1, "model.safetensors");
    if (cases[i].says)
      assert_refused(data_llama_open(fixture_directory, &llama), ATTN_EINVAL, cases[i].says);
    else
      assert_ok(data_llama_open(fixture_directory, &llama));
    if (llama) assert_ok(data_llama_logits(llama, some_tokens, 20, logits[i]));
    data_llama_close(llama);
    m.tensor[m.count - 1].at[0] += 1;
  }
  cr_expect(memcmp(logits[1], logits[2], sizeof logits[1]) == 0, "the second of equal experts is used");
}

Test(data_llama, directories_that_are_not_models_are_refused_by_name) {
  data_llama *llama = NULL;
  reference_model m = model_random(0);
  assert_refused(data_llama_open(fixture_directory, &llama), ATTN_ENOTFOUND, "config.json");
  fixture_write(fixture_path("config.json"), "{\"model_type\":\n ?", 17);
  assert_refused(data_llama_open(fixture_directory, &llama), ATTN_EINVAL, "config.json:2:");
  fixture_write(fixture_path("config.json"), "[]", 2);
  assert_refused(data_llama_open(fixture_directory, &llama), ATTN_EINVAL, "object");
  model_write_config(model_config(&m));
  assert_refused(data_llama_open(fixture_directory, &llama), ATTN_ENOTFOUND, "model.safetensors");
  snprintf(m.tensor[4].name, sizeof m.tensor[4].name, "model.layers.0.self_attn.q_proj.bias");
  model_write(&m, STORE_F32, 1);
  assert_refused(data_llama_open(fixture_directory, &llama), ATTN_EINVAL, "q_proj.weight is missing");
  m = model_random(0);
  attn_rng rng = rng_of(1, 1, 1);
  model_add(&m, 0, "self_attn.q_norm", 4, 0, &rng);
  model_write(&m, STORE_F32, 1);
  assert_refused(data_llama_open(fixture_directory, &llama), ATTN_EUNSUPPORTED, "q_norm");
}

Test(data_llama, tokens_outside_the_vocabulary_are_refused) {
  data_qkv x = {0};
  float logits[3 * 11];
  reference_model m = model_random(0);
  model_write(&m, STORE_F32, 1);
  data_llama *llama = model_open(fixture_directory);
  assert_refused(data_llama_logits(llama, (int64_t[]){1, 11, 2}, 3, logits), ATTN_EINVAL, "token 1 is 11");
  assert_refused(data_llama_logits(llama, (int64_t[]){1, 2, -1}, 3, logits), ATTN_EINVAL, "token 2 is -1");
  assert_refused(data_llama_logits(llama, some_tokens, 0, logits), ATTN_EINVAL, "0 tokens");
  assert_refused(data_llama_capture(llama, some_tokens, 3, 3, false, &x), ATTN_EINVAL, "layer 3");
  assert_refused(data_llama_capture(llama, some_tokens, 3, -1, false, &x), ATTN_EINVAL, "layer -1");
}
