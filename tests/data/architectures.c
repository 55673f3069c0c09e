/* architectures.c - small random models of each architecture give the logits, queries, keys and values that
 * NumPy computes from the definitions (tests/models/architectures.py), from safetensors and from GGUF files;
 * and their evaluation. */
#include "tests/data/gguf_files.h"
#include "tests/models/architectures.h"

#include "data/llama/llama.h"

TestSuite(data_architectures, .init = architectures_begin, .fini = architectures_end);

enum { N = 16, KEPT = 3 };

static bool is_encoder(const char *name) { return !architecture_member(name, "logits"); }

static void read_tokens(const char *name, int64_t tokens[N]) {
  const json_t *list = architecture_member(name, "tokens");
  cr_assert_eq(json_array_size(list), N);
  for (size_t i = 0; i < N; i++) tokens[i] = json_integer_value(json_array_get(list, i));
}

/* 1e-4 of numbers of order 1 to 100, as for other models. */
static void check_near(const char *name, const char *key, size_t at, double got) {
  const json_t *list = architecture_member(name, key);
  const double wanted = json_number_value(json_array_get(list, at));
  cr_assert(fabs(got - wanted) <= 1e-4 * fmax(1, fabs(wanted)), "%s: %s[%zu] is %g, not %g", name, key, at,
            got, wanted);
}

static void check_qkv(const char *name, const data_qkv *x) {
  const json_t *kept = architecture_member(name, "kept");
  const struct {
    const char *key;
    const float *at;
    int64_t heads;
  } tensors[] = {{"q", x->q, x->heads}, {"k", x->k, x->kv_heads}, {"v", x->v, x->kv_heads}};
  const int64_t d = x->d_qk;
  cr_assert(json_array_size(kept) == KEPT && x->n_q == N);
  for (size_t t = 0; t < 3; t++)
    for (int64_t i = 0; i < KEPT; i++)
      for (int64_t h = 0; h < tensors[t].heads; h++)
        for (int64_t c = 0; c < d; c++) {
          const int64_t row = json_integer_value(json_array_get(kept, (size_t)i));
          check_near(name, tensors[t].key, (size_t)((i * tensors[t].heads + h) * d + c),
                     (double)tensors[t].at[(h * N + row) * d + c]);
        }
}

/* A token at a time. */
static void check_decoder(const data_llama *m, const char *name, const int64_t tokens[N]) {
  const int64_t vocab = data_llama_get_config(m)->vocab;
  data_llama_decoder *d = NULL;
  float *logits = kept_memory(malloc((size_t)vocab * sizeof *logits));
  assert_ok(data_llama_decoder_make(m, 1, N, &d));
  for (int64_t i = 0; i < N; i++) {
    assert_ok(data_llama_decoder_step(d, tokens + i, logits));
    for (int64_t t = 0; t < vocab; t++)
      check_near(name, "logits", (size_t)(i * vocab + t), (double)logits[t]);
  }
  data_llama_decoder_free(d);
}

static void check_model(const char *path, const char *name, const reference_model *m) {
  int64_t tokens[N];
  data_llama *llama = NULL;
  data_qkv x = {0};
  float *logits = kept_memory(malloc((size_t)(N * m->vocab) * sizeof *logits));
  read_tokens(name, tokens);
  cr_assert_eq(data_llama_open(path, &llama), ATTN_OK, "%s: %s", name, attn_last_error());
  assert_ok(data_llama_logits(llama, tokens, N, logits));
  for (size_t i = 0; i < (size_t)(N * m->vocab); i++) check_near(name, "logits", i, (double)logits[i]);
  assert_ok(data_llama_capture(llama, tokens, N, m->layers - 1, false, &x));
  check_qkv(name, &x);
  check_decoder(llama, name, tokens);
  data_qkv_free(&x);
  data_llama_close(llama);
}

Test(data_architectures, logits_and_captures_are_those_of_numpy) {
  const char *name;
  json_t *about;
  json_object_foreach(architecture_cases, name, about) {
    if (is_encoder(name)) continue;
    reference_model m = architecture_write(name);
    check_model(fixture_directory, name, &m);
    reference_free(&m);
  }
}

static void add_rope_keys(gguf_file *f, const reference_model *m, const char *kind, float factor,
                          uint32_t original) {
  gguf_key_text(f, gguf_model_key(m, "rope.scaling.type"), kind);
  gguf_key_f32(f, gguf_model_key(m, "rope.scaling.factor"), factor);
  if (original) gguf_key_u32(f, gguf_model_key(m, "rope.scaling.original_context_length"), original);
}

/* What the frequencies of Llama 3 are divided by: the law of the case in a tensor. */
static void add_divisors(gguf_file *f, const reference_model *m) {
  gguf_tensor(f, "rope_freqs.weight", 0, m->d / 2, AS_F32);
  for (int64_t i = 0; i < m->d / 2; i++) {
    const double turns = 64 * pow(m->theta, -2 * (double)i / (double)m->d) / (2 * 3.14159265358979323846);
    const double kept = turns > 4 ? 1 : turns < 1 ? 0 : (turns - 1) / 3;
    gguf_put(&f->data, &(float){(float)(1 / ((1 - kept) / 8 + kept))}, 4);
  }
}

/* The lists of longrope in two tensors. */
static void add_lists(gguf_file *f, const json_t *rope) {
  static const char *const names[][2] = {{"rope_factors_long.weight", "long_factor"},
                                         {"rope_factors_short.weight", "short_factor"}};
  for (int t = 0; t < 2; t++) {
    const json_t *list = json_object_get(rope, names[t][1]);
    gguf_tensor(f, names[t][0], 0, (int64_t)json_array_size(list), AS_F32);
    for (size_t i = 0; i < json_array_size(list); i++)
      gguf_put(&f->data, &(float){(float)json_number_value(json_array_get(list, i))}, 4);
  }
}

/* Neighbours (llama) and halves (qwen2) turn; what a file says of the factor of q and k stands with yarn's
 * 0.1 ln 4 + 1, and for longrope's. */
Test(data_architectures, files_of_gguf_turn_a_part_of_each_head_and_by_lists) {
  static const struct {
    const char *name, *kind;
    int64_t turned;
    double attention;
  } cases[] = {{"yarn-mscale", "yarn", 8, 1.194464876},
               {"longrope", "longrope", 0, 1.414213562},
               {"longrope-short", "longrope", 8, 1.118033989}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    reference_model m = architecture_model(cases[i].name);
    const json_t *config = architecture_member(cases[i].name, "config"),
                 *rope = json_object_get(config, i == 2 ? "rope_parameters" : "rope_scaling");
    const bool yarn = i == 0;
    m.turned = cases[i].turned;
    gguf_file *f = gguf_model(&m, AS_F32);
    gguf_key_text(f, gguf_model_key(&m, "rope.scaling.type"), cases[i].kind);
    gguf_key_u32(f, gguf_model_key(&m, "rope.scaling.original_context_length"),
                 (uint64_t)json_integer_value(json_object_get(rope, "original_max_position_embeddings")));
    if (yarn) gguf_key_f32(f, gguf_model_key(&m, "rope.scaling.factor"), 4);
    gguf_key_f32(f, gguf_model_key(&m, "rope.scaling.attn_factor"),
                 (float)(cases[i].attention / (yarn ? 0.1 * log(4) + 1 : 1)));
    if (!yarn) add_lists(f, rope);
    check_model(gguf_file_write(f, "m.gguf"), cases[i].name, &m);
    reference_free(&m);
  }
}

static void add_multipliers(gguf_file *f, const json_t *config) {
  static const char *const keys[][2] = {{"granite.embedding_scale", "embedding_multiplier"},
                                        {"granite.residual_scale", "residual_multiplier"},
                                        {"granite.attention.scale", "attention_multiplier"},
                                        {"granite.logit_scale", "logits_scaling"}};
  for (int i = 0; i < 4; i++)
    gguf_key_f32(f, keys[i][0], (float)json_number_value(json_object_get(config, keys[i][1])));
}

/* The tensor of gate, up or down of all experts that a GGUF file has for this one. */
static reference_tensor *expert_part(reference_model *m, const reference_tensor *t, const char *part) {
  const char *end = strstr(t->name, ".experts.");
  reference_tensor made = {.many = 0};
  snprintf(made.name, sizeof made.name, "%.*s.experts.%s", (int)(end - t->name), t->name, part);
  for (size_t i = 0; i < m->count; i++)
    if (strcmp(m->tensor[i].name, made.name) == 0) return &m->tensor[i];
  m->tensor[m->count] = made;
  return &m->tensor[m->count++];
}

static void gather_expert(reference_model *m, const reference_tensor *one, const char *part) {
  reference_tensor *t = expert_part(m, one, part);
  const size_t before = (size_t)(t->rows * one->columns), more = (size_t)(one->rows * one->columns);
  t->at = realloc(t->at, (before + more) * sizeof *t->at);
  memcpy(t->at + before, one->at, more * sizeof *t->at);
  t->many++;
  t->rows += one->rows;
  t->columns = one->columns;
}

/* Every step-th column of all experts is a row there. */
static void turn_experts(reference_model *m, const reference_tensor *all, const char *part, int64_t first,
                         int64_t step) {
  reference_tensor *t = expert_part(m, all, part);
  const int64_t many = all->many ? all->many : all->rows, in = all->rows / many, out = all->columns / step;
  t->at = malloc((size_t)(many * in * out) * sizeof *t->at);
  for (int64_t e = 0; e < many; e++)
    for (int64_t r = 0; r < out; r++)
      for (int64_t c = 0; c < in; c++)
        t->at[(e * out + r) * in + c] = all->at[(e * in + c) * all->columns + r * step + first];
  t->many = all->many;
  t->rows = all->many ? many * out : many;
  t->columns = all->many ? in : out;
}

/* The model as such files have it, which takes the tensors. Columns of gate and up lie in turn in gpt-oss. */
static reference_model with_experts_together(const reference_model *m) {
  reference_model to = *m;
  to.count = 0;
  for (size_t i = 0; i < m->count; i++) {
    const reference_tensor t = m->tensor[i];
    int e, used = 0;
    const char *at = strstr(t.name, ".experts.");
    const bool bias = at && strstr(at, "_bias"), joined = at && strstr(at, "gate_up");
    if (!at)
      to.tensor[to.count++] = t;
    else if (sscanf(at, ".experts.%d.%n", &e, &used) == 1)
      gather_expert(&to, &t, at + used);
    else
      for (int half = 0; half <= joined; half++) {
        const char *of = joined ? half ? "up" : "gate" : "down";
        turn_experts(&to, &t, text_of("%s_proj.%s", of, bias ? "bias" : "weight"), half, 1 + joined);
      }
    if (at) free(t.at);
  }
  return to;
}

/* Mistral is llama in such files, its window a key. */
Test(data_architectures, files_of_gguf_give_the_same) {
  static const char *const names[] = {"linear", "yarn",  "llama3", "mistral",
                                      "qwen2",  "qwen3", "olmo2",  "granite"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    reference_model m = architecture_model(names[i]);
    if (i == 3) m.architecture = "llama";
    gguf_file *f = gguf_model(&m, AS_F32);
    if (i == 0) add_rope_keys(f, &m, "linear", 2.5f, 0);
    if (i == 1) add_rope_keys(f, &m, "yarn", 4, 64);
    if (i == 2) add_divisors(f, &m);
    if (i == 3) gguf_key_u32(f, "llama.attention.sliding_window", 5);
    if (i == 7) add_multipliers(f, architecture_member("granite", "config"));
    check_model(gguf_file_write(f, "m.gguf"), names[i], &m);
    if (i == 0) { /* the older key */
      f = gguf_model(&m, AS_F32);
      gguf_key_f32(f, "llama.rope.scale_linear", 2.5f);
      check_model(gguf_file_write(f, "m.gguf"), names[i], &m);
    }
    reference_free(&m);
  }
}

static float *logits_of(const char *path, int64_t vocab) {
  static const int64_t tokens[N] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
  float *logits = malloc((size_t)(N * vocab) * sizeof *logits);
  data_llama *llama = NULL;
  cr_assert_eq(data_llama_open(path, &llama), ATTN_OK, "%s: %s", path, attn_last_error());
  assert_ok(data_llama_logits(llama, tokens, N, logits));
  data_llama_close(llama);
  return logits;
}

/* The bits of the model in safetensors. Such a file has no key for the limit of gates. */
Test(data_architectures, files_of_gguf_have_experts_together) {
  static const char *const names[] = {"experts", "experts-normed", "gpt-oss"};
  static const char *const keys[][3] = {
      {"expert_count", "num_experts", "num_local_experts"},
      {"expert_used_count", "num_experts_per_tok", ""},
      {"expert_feed_forward_length", "moe_intermediate_size", "intermediate_size"},
      {"expert_shared_feed_forward_length", "shared_expert_intermediate_size", ""},
      {"attention.sliding_window", "sliding_window", ""}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    json_t *config = json_deep_copy(architecture_member(names[i], "config"));
    reference_model apart = architecture_model(names[i]);
    json_object_del(config, "swiglu_limit");
    model_write_config(config);
    model_write_part(&apart, STORE_F32, 0, 1, "model.safetensors");
    reference_model m = with_experts_together(&apart);
    m.architecture = i == 2 ? "gpt-oss" : "qwen2moe";
    m.d = m.d ? m.d : m.hidden / m.heads;
    gguf_file *f = gguf_model(&m, AS_F32);
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
      const int64_t number = architecture_either(names[i], keys[k][1], keys[k][2]);
      if (number) gguf_key_u32(f, gguf_model_key(&m, keys[k][0]), (uint64_t)number);
    }
    if (i == 1) gguf_key_number(f, "qwen2moe.expert_weights_norm", IS_BOOL, 1, 1);
    if (i == 2) add_rope_keys(f, &m, "yarn", 4, 64);
    float *first = logits_of(fixture_directory, m.vocab),
          *second = logits_of(gguf_file_write(f, "m.gguf"), m.vocab);
    cr_assert_arr_eq(first, second, (size_t)(N * m.vocab) * sizeof *first, "%s", names[i]);
    free(first);
    free(second);
    reference_free(&m);
  }
}

Test(data_architectures, encoders_are_captured) {
  const char *name;
  json_t *about;
  json_object_foreach(architecture_cases, name, about) {
    int64_t tokens[N];
    data_llama *m = NULL;
    data_qkv x = {0};
    if (!is_encoder(name)) continue;
    reference_model written = architecture_write(name);
    read_tokens(name, tokens);
    cr_assert_eq(llama_open(fixture_directory, &m), ATTN_OK, "%s: %s", name, attn_last_error());
    assert_ok(data_llama_capture(m, tokens, N, written.layers - 1, false, &x));
    check_qkv(name, &x);
    data_qkv_free(&x);
    data_llama_close(m);
    for (size_t t = 0; t < written.count; t++) {
      if (!strstr(written.tensor[t].name, "token_type")) continue;
      written.tensor[t].columns--;
      model_write_part(&written, STORE_F32, 0, 1, "model.safetensors");
      assert_refused(llama_open(fixture_directory, &m), ATTN_EINVAL, "is not a matrix of 0 x 12");
    }
    reference_free(&written);
  }
}

/* Frequencies, scales of activations, heads of tied models; what is called nearly so is another model's. */
Test(data_architectures, what_is_repeated_is_passed_over) {
  static const char *const names[] = {"model.layers.1.self_attn.rotary_emb.inv_freq",
                                      "x.input_scale",
                                      "lm_head.weight",
                                      "rotary_emb.inv_freqs",
                                      "x.lm_head.weight",
                                      "freq",
                                      "lm_head.bias",
                                      "lm_head.weight"};
  for (int i = 0; i < 16; i++) {
    data_llama *llama = NULL;
    reference_model m = model_random(i % 2);
    attn_rng rng = rng_of(1, 1, 1);
    model_add(&m, -1, "x", 2, 0, &rng);
    if (i == 5) m.tensor[m.count - 1] = m.tensor[0]; /* the embedding */
    snprintf(m.tensor[m.count - 1].name, sizeof m.tensor->name, "%s", names[i / 2]);
    model_write(&m, STORE_F32, 1);
    cr_expect_eq(!data_llama_open(fixture_directory, &llama), i < 4 || i == 5, "%s: %s", names[i / 2],
                 attn_last_error());
    data_llama_close(llama);
  }
}
