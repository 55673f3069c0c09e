/* gguf_models.c - models in GGUF files give the bits of the same model in safetensors; others are refused by
 * name. */
#include "tests/support/data_fixture.h"
#include "tests/data/gguf_files.h"

#include "data/llama/llama.h"

TestSuite(data_gguf_models, .init = fixture_begin, .fini = fixture_end);

/* The file holds this number as f32. */
static reference_model random_model(int tied) {
  reference_model m = model_random(tied);
  m.eps = (double)0x1p-10f;
  return m;
}

/* Rows of 32 and 64, which are whole blocks of Q8_0. */
static reference_model wide_model(void) {
  reference_model m = {
      .vocab = 11, .hidden = 32, .inner = 64, .layers = 2, .heads = 4, .kv_heads = 2, .d = 8};
  m.context = 64, m.eps = (double)0x1p-10f, m.theta = 500;
  model_fill(&m);
  return m;
}

static void check_same(const char *path, const reference_model *m) {
  enum { N = 20 };
  data_llama *a = model_open(fixture_directory), *b = model_open(path);
  size_t logits = N * (size_t)m->vocab * sizeof(float);
  float *x = kept_memory(malloc(logits)), *y = kept_memory(malloc(logits));
  const data_llama_config *c = data_llama_get_config(a), *d = data_llama_get_config(b);
  cr_assert(c->vocab == d->vocab && c->hidden == d->hidden && c->intermediate == d->intermediate &&
            c->layers == d->layers && c->heads == d->heads && c->kv_heads == d->kv_heads &&
            c->head_dim == d->head_dim && c->max_positions == d->max_positions && c->tied == d->tied);
  assert_ok(data_llama_logits(a, some_tokens, N, x));
  assert_ok(data_llama_logits(b, some_tokens, N, y));
  cr_assert_arr_eq(x, y, logits);
  for (int64_t layer = 0; layer < m->layers; layer++)
    for (int pre_rope = 0; pre_rope < 2; pre_rope++) {
      data_qkv p = {0}, q = {0};
      assert_ok(data_llama_capture(a, some_tokens, N, layer, pre_rope, &p));
      assert_ok(data_llama_capture(b, some_tokens, N, layer, pre_rope, &q));
      cr_assert_arr_eq(p.q, q.q, (size_t)(N * m->heads * m->d) * sizeof(float));
      cr_assert_arr_eq(p.k, q.k, (size_t)(N * m->kv_heads * m->d) * sizeof(float));
      cr_assert_arr_eq(p.v, q.v, (size_t)(N * m->kv_heads * m->d) * sizeof(float));
      data_qkv_free(&p), data_qkv_free(&q);
    }
}

Test(data_gguf_models, captures_and_logits_are_those_of_the_model_in_safetensors) {
  static const int formats[] = {AS_F32, AS_F16, AS_BF16, AS_F32};
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
    reference_model m = random_model(i % 2);
    if (i == 3) m.context = 8; /* windows */
    model_write(&m, STORE_F32, 1);
    check_same(gguf_file_write(gguf_model(&m, formats[i]), "m.gguf"), &m);
  }
}

Test(data_gguf_models, quantised_rows_are_turned_as_whole_blocks) {
  reference_model m = wide_model();
  model_write(&m, STORE_F32, 1);
  check_same(gguf_file_write(gguf_model(&m, AS_Q8_0), "m.gguf"), &m);
}

/* The model with the keys of the file replaced by those that `keys` puts. */
static const char *with_keys(const reference_model *m, void (*keys)(gguf_file *, const reference_model *)) {
  gguf_file *f = gguf_model(m, AS_F32);
  f->key.used = 0;
  f->keys = 0;
  keys(f, m);
  return gguf_file_write(f, "m.gguf");
}

static void least_keys(gguf_file *f, const reference_model *m) {
  gguf_key_text(f, "general.architecture", "llama");
  gguf_key_number(f, "llama.embedding_length", IS_U64, (uint64_t)m->hidden, 8);
  gguf_key_number(f, "llama.feed_forward_length", IS_U16, (uint64_t)m->inner, 2);
  gguf_key_number(f, "llama.block_count", IS_I8, (uint64_t)m->layers, 1);
  gguf_key_u32(f, "llama.attention.head_count", (uint64_t)m->heads);
  gguf_key_u32(f, "llama.context_length", (uint64_t)m->context);
  gguf_key_f32(f, "llama.attention.layer_norm_rms_epsilon", 0.5f);
}

Test(data_gguf_models, keys_may_leave_out_what_has_a_default) {
  reference_model m = {
      .vocab = 11, .hidden = 12, .inner = 20, .layers = 2, .heads = 3, .kv_heads = 3, .d = 4};
  m.context = 64;
  model_fill(&m);
  data_llama *llama = model_open(with_keys(&m, least_keys));
  const data_llama_config *c = data_llama_get_config(llama);
  cr_assert(c->kv_heads == 3 && c->head_dim == 4 && !c->tied && c->vocab == 11 && c->max_positions == 64);
  cr_assert_float_eq(c->rope.theta, 10000, 0);
  cr_assert_float_eq(c->norm_eps, 0.5, 0);
}

/* Of Gemma 2 and 3 the largest scales scores by hidden / heads, the others by the width of a head. */
Test(data_gguf_models, the_largest_gemmas_have_scales_of_their_own) {
  static const struct {
    const char *name;
    int64_t layers, divisor;
  } cases[] = {{"gemma2", 46, 2}, {"gemma2", 62, 4}, {"gemma3", 62, 2}, {"gemma3", 46, 4}, {"qwen3", 46, 4}};
  reference_model m = random_model(0);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    gguf *file;
    data_llama_config c;
    m.architecture = cases[i].name;
    m.layers = cases[i].layers;
    assert_ok(gguf_open(gguf_file_write(gguf_model(&m, AS_F32), "m.gguf"), &file));
    assert_ok(llama_read_gguf(file, &c));
    cr_expect_float_eq(c.score_scale, 1 / sqrt((double)cases[i].divisor), 1e-15, "case %d", (int)i);
    llama_config_free(&c);
    gguf_close(file);
  }
}

typedef enum { REMOVED, REPLACED, ADDED } key_change;

/* The file with another text of a key, or another number. */
static const char *with_change(const reference_model *m, key_change change, const char *key, const char *text,
                               double value) {
  gguf_file *f = gguf_model(m, AS_F32);
  if (change != ADDED) {
    unsigned char *at = f->key.at;
    while (memcmp(at, key, strlen(key)) != 0) cr_assert(++at < f->key.at + f->key.used, "%s", key);
    at[0] = '_';
  }
  if (text)
    gguf_key_text(f, key, text);
  else if (change != REMOVED && (value > floor(value) || isnan(value)))
    gguf_key_f32(f, key, (float)value);
  else if (change != REMOVED)
    gguf_key_number(f, key, IS_I32, (uint64_t)(int64_t)value, 4);
  return gguf_file_write(f, "m.gguf");
}

Test(data_gguf_models, models_that_it_cannot_compute_are_refused_by_name) {
  static const struct {
    key_change change;
    const char *key, *text;
    double value;
    attn_status status;
    char says[80];
  } cases[] = {
      {REMOVED, "general.architecture", NULL, 0, ATTN_EINVAL, "general.architecture is missing"},
      {REPLACED, "general.architecture", "mamba", 0, ATTN_EUNSUPPORTED,
       "general.architecture is mamba; expected one of llama, qwen2, qwen3"},
      {REPLACED, "general.architecture", "qwen2", 0, ATTN_EINVAL, "key qwen2.embedding_length is missing"},
      {REPLACED, "general.architecture", NULL, 1, ATTN_EINVAL, "general.architecture"},
      {ADDED, "general.type", "adapter", 0, ATTN_EUNSUPPORTED, "general.type is adapter"},
      {ADDED, "llama.attention.causal", NULL, 0, ATTN_EINVAL, "llama.attention.causal is neither"},
      {REMOVED, "llama.embedding_length", NULL, 0, ATTN_EINVAL, "key llama.embedding_length is missing"},
      {REPLACED, "llama.embedding_length", NULL, 13, ATTN_EINVAL,
       "token_embd.weight is not a matrix of 11 x 13"},
      {REPLACED, "llama.embedding_length", NULL, 0, ATTN_EINVAL, "embedding_length is not an integer"},
      {REPLACED, "llama.embedding_length", NULL, -12, ATTN_EINVAL, "embedding_length is not an integer"},
      {REPLACED, "llama.embedding_length", NULL, 12.5, ATTN_EINVAL, "embedding_length is not an integer"},
      {REMOVED, "llama.feed_forward_length", NULL, 0, ATTN_EINVAL, "llama.feed_forward_length is missing"},
      {REPLACED, "llama.feed_forward_length", NULL, 21, ATTN_EINVAL, "blk.0.ffn_gate.weight"},
      {REMOVED, "llama.block_count", NULL, 0, ATTN_EINVAL, "llama.block_count is missing"},
      {REPLACED, "llama.block_count", NULL, 4, ATTN_EINVAL, "tensor blk.3.attn_norm.weight is missing"},
      {REPLACED, "llama.block_count", NULL, 2, ATTN_EUNSUPPORTED, "tensor blk.2."},
      {REMOVED, "llama.attention.head_count", NULL, 0, ATTN_EINVAL, "llama.attention.head_count is missing"},
      {REMOVED, "llama.attention.head_count_kv", NULL, 0, ATTN_EINVAL, "blk.0.attn_k.weight is not"},
      {REPLACED, "llama.attention.head_count_kv", NULL, 4, ATTN_EINVAL, "does not divide"},
      {REMOVED, "llama.attention.key_length", NULL, 0, ATTN_EINVAL, "blk.0.attn_q.weight is not"},
      {REPLACED, "llama.attention.key_length", NULL, 3, ATTN_EINVAL, "lets 3 of 3 components turn"},
      {REMOVED, "llama.context_length", NULL, 0, ATTN_EINVAL, "key llama.context_length is missing"},
      {REMOVED, "llama.attention.layer_norm_rms_epsilon", NULL, 0, ATTN_EINVAL, "rms_epsilon is missing"},
      {REPLACED, "llama.attention.layer_norm_rms_epsilon", NULL, -0.5, ATTN_EINVAL,
       "rms_epsilon is not a number"},
      {REPLACED, "llama.rope.freq_base", NULL, (double)NAN, ATTN_EINVAL, "freq_base is not a number"},
      {ADDED, "llama.rope.scaling.type", "yarn", 0, ATTN_EINVAL, "key llama.rope.scaling.factor is missing"},
      {ADDED, "llama.rope.scaling.type", "longrope", 0, ATTN_EINVAL,
       "key llama.rope.scaling.original_context_length is missing"},
      {ADDED, "llama.rope.scaling.type", NULL, 1, ATTN_EINVAL, "llama.rope.scaling.type is not a string"},
      {ADDED, "llama.rope.scaling.factor", NULL, 0, ATTN_EINVAL, "llama.rope.scaling.factor is not a number"},
      {ADDED, "llama.rope.scaling.attn_factor", NULL, 2, ATTN_EUNSUPPORTED, "llama.rope.scaling.attn_factor"},
      {ADDED, "llama.rope.scaling.yarn_ext_factor", NULL, 0, ATTN_EUNSUPPORTED, "yarn_ext_factor is not 1"},
      {ADDED, "llama.rope.scaling.yarn_log_multiplier", NULL, 1, ATTN_EUNSUPPORTED, "multiplier is not 0"},
      {ADDED, "llama.expert_weights_scale", NULL, 2, ATTN_EUNSUPPORTED, "expert_weights_scale is not 1"},
      {ADDED, "llama.rope.scale_linear", NULL, 0.5, ATTN_EINVAL, "llama.rope.scale_linear is not a number"},
      {ADDED, "llama.rope.dimension_count", NULL, 3, ATTN_EINVAL,
       "dimension_count lets 3 of 4 components turn"},
      {ADDED, "llama.rope.dimension_count", NULL, 6, ATTN_EINVAL,
       "dimension_count is not an integer from 1 to 4"},
      {ADDED, "llama.attention.value_length", NULL, 8, ATTN_EUNSUPPORTED,
       "llama.attention.value_length is not 4"},
      {ADDED, "llama.attention.sliding_window", NULL, -8, ATTN_EINVAL, "sliding_window is not an integer"},
      {ADDED, "llama.expert_count", NULL, 8, ATTN_EINVAL, "key llama.expert_used_count is missing"},
      {ADDED, "general.quantization_version", NULL, 1, ATTN_EUNSUPPORTED, "quantization_version is not 2"},
      {ADDED, "split.count", NULL, 2, ATTN_EINVAL, "the name does not end in -00001-of-00002.gguf"}};
  reference_model m = random_model(0);
  data_llama *llama = model_open(with_change(&m, ADDED, "llama.rope.dimension_count", NULL, 4));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    llama = NULL;
    const char *path = with_change(&m, cases[i].change, cases[i].key, cases[i].text, cases[i].value);
    assert_refused(data_llama_open(path, &llama), cases[i].status, cases[i].says);
    cr_assert_not_null(strstr(attn_last_error(), "m.gguf"));
    cr_assert_null(llama);
  }
}

Test(data_gguf_models, tensors_must_be_those_of_the_architecture) {
  data_llama *llama = NULL;
  reference_model m = random_model(0);
  for (size_t i = 0; i < m.count; i++) { /* each of them in turn is not there */
    char name[80];
    gguf_file *f = gguf_file_new();
    gguf_model_keys(f, &m);
    for (size_t j = 0; j < m.count; j++)
      if (j != i) gguf_model_tensor(f, &m, &m.tensor[j], AS_F16);
    gguf_model_name(m.tensor[i].name, name);
    const char *path = gguf_file_write(f, "m.gguf");
    if (strcmp(name, "output.weight") == 0) { /* tied, then */
      assert_ok(data_llama_open(path, &llama));
      cr_assert(data_llama_get_config(llama)->tied);
      data_llama_close(llama);
    } else {
      assert_refused(data_llama_open(path, &llama), ATTN_EINVAL,
                     text_of("m.gguf: tensor %s is missing", name));
    }
  }
  gguf_file *f = gguf_model(&m, AS_F16);
  gguf_tensor(f, "blk.0.attn_q.bias", 0, 1, AS_F32);
  gguf_put(&f->data, &(float){1}, 4);
  assert_refused(data_llama_open(gguf_file_write(f, "m.gguf"), &llama), ATTN_EINVAL,
                 "blk.0.attn_q.bias is not");
}

Test(data_gguf_models, divisors_of_frequencies_are_divisors) {
  static const struct {
    int64_t count;
    float value;
    const char *says;
  } cases[] = {{2, 0, "rope_freqs.weight[0] is 0, not a divisor"},
               {2, -1, "rope_freqs.weight[0] is -1"},
               {2, (float)NAN, "rope_freqs.weight[0] is"},
               {3, 1, "rope_freqs.weight is not a vector of 2"}};
  data_llama *llama = NULL;
  reference_model m = random_model(0);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    gguf_file *f = gguf_model(&m, AS_F16);
    gguf_tensor(f, "rope_freqs.weight", 0, cases[i].count, AS_F32);
    for (int64_t j = 0; j < cases[i].count; j++) gguf_put(&f->data, &cases[i].value, 4);
    assert_refused(data_llama_open(gguf_file_write(f, "m.gguf"), &llama), ATTN_EINVAL, cases[i].says);
  }
}

Test(data_gguf_models, a_capture_of_a_bad_file_leaves_nothing_behind) {
  reference_model m = random_model(1);
  size_t size;
  gguf_file *f = gguf_model(&m, AS_F16);
  unsigned char *whole = gguf_file_bytes(f, &size);
  free(f);
  const char *path = fixture_path("m.gguf");
  fixture_write(fixture_path("text"), "abcd", 4);
  fixture_write(path, whole, size - 1);
  int before = fixture_entries();
  data_capture_request r = {
      .ids.model = path, .ids.text = fixture_path("text"), .output = fixture_path("c.h5")};
  assert_refused(data_capture(&r, NULL), ATTN_EINVAL, "outside");
  fixture_write(path, "text", 4);
  assert_refused(data_capture(&r, NULL), ATTN_EINVAL, "m.gguf: not a GGUF file");
  r.ids.model = fixture_path("absent.gguf");
  assert_refused(data_capture(&r, NULL), ATTN_ENOTFOUND,
                 "absent.gguf: neither a GGUF file nor a model directory");
  cr_assert_eq(fixture_entries(), before);
  free(whole);
}

Test(data_gguf_models, a_text_is_captured_from_a_file) {
  reference_model m = random_model(0);
  m.count = 0;
  m.vocab = 256; /* a text's bytes are its token ids */
  model_fill(&m);
  gguf_file_write(gguf_model(&m, AS_F16), "m.gguf");
  fixture_write(fixture_path("text"), "to be or not to be", 18);
  data_capture_request r = {.ids.model = fixture_path("m.gguf"),
                            .ids.text = fixture_path("text"),
                            .layer = 1,
                            .output = fixture_path("c.h5")};
  data_qkv x = {0};
  data_request all = {1, m.heads, m.kv_heads, 18, 18, m.d, m.d, ATTN_F32, 0};
  assert_ok(data_capture(&r, NULL));
  assert_ok(data_source_make(text_of("captured:file=%s", r.output), &all, &x, NULL));
  cr_assert_str_eq(x.description, "m.gguf layer 1");
  data_qkv_free(&x);
}

/* Tensors part, part + 2, ... and split keys, `no` and `count`; the first part has the model's keys. */
static const char *write_half(const reference_model *m, size_t part, const char *name, uint64_t no,
                              uint64_t count) {
  gguf_file *f = gguf_file_new();
  if (part == 0) gguf_model_keys(f, m);
  gguf_key_u32(f, "split.no", no);
  gguf_key_u32(f, "split.count", count);
  for (size_t i = part; i < m->count; i += 2) gguf_model_tensor(f, m, &m->tensor[i], AS_F16);
  return gguf_file_write(f, name);
}

Test(data_gguf_models, parts_of_a_file_are_one) {
  static const char second[] = "m-00002-of-00002.gguf";
  enum { N = 4, VOCAB = 16 };
  const int64_t tokens[N] = {3, 1, 4, 1};
  float whole[N * VOCAB], halves[N * VOCAB];
  data_llama *llama = NULL;
  reference_model m = random_model(0);
  cr_assert(m.vocab <= VOCAB);
  llama = model_open(gguf_file_write(gguf_model(&m, AS_F16), "m.gguf"));
  assert_ok(data_llama_logits(llama, tokens, N, whole));
  sha256 both;
  char hex[65], wanted[65];
  size_t size[2];
  write_half(&m, 1, second, 1, 2);
  llama = model_open(write_half(&m, 0, "m-00001-of-00002.gguf", 0, 2));
  assert_ok(data_llama_logits(llama, tokens, N, halves));
  data_llama_sha256(llama, hex);
  cr_assert_arr_eq(whole, halves, (size_t)(N * m.vocab) * sizeof *whole);
  unsigned char *file[] = {fixture_bytes(fixture_path("m-00001-of-00002.gguf"), &size[0]),
                           fixture_bytes(fixture_path(second), &size[1])};
  sha256_begin(&both);
  for (int i = 0; i < 2; i++) {
    sha256_add(&both, file[i], size[i]);
    free(file[i]);
  }
  sha256_end(&both, wanted);
  cr_expect_str_eq(hex, wanted);
  llama = NULL;
  const struct {
    size_t part;
    uint64_t no, count;
    const char *says;
  } cases[] = {{1, 0, 2, "m-00002-of-00002.gguf: split.no=0, split.count=2; expected 1 and 2"},
               {1, 1, 3, "split.no=1, split.count=3; expected 1 and 2"},
               {1, 100000, 2, "split.no is not an integer from 0 to 99999"},
               {0, 1, 2, "tensor blk.0.attn_q.weight is in"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    write_half(&m, cases[i].part, second, cases[i].no, cases[i].count);
    assert_refused(data_llama_open(fixture_path("m-00001-of-00002.gguf"), &llama), ATTN_EINVAL,
                   cases[i].says);
  }
  assert_refused(data_llama_open(fixture_path(second), &llama), ATTN_EINVAL, "");
  remove(fixture_path(second));
  assert_refused(data_llama_open(fixture_path("m-00001-of-00002.gguf"), &llama), ATTN_EFOREIGN, second);
}
