/* capture_text.c - Captures of texts by a model's own tokenizer, and the token that every window begins
 * with; and what a capture says of its layer's scores and turns. */
#include "tests/data/tokens_fixture.h"
#include "tests/models/architectures.h"

#include <hdf5.h>

TestSuite(data_capture_text, .init = fixture_begin, .fini = fixture_end);

enum { BOS = 4, BEYOND = 50 };

/* A model of 11 tokens with windows of `context`, and its tokenizer. */
static void write_model(int64_t context, int bos) {
  reference_model m = model_random(0);
  m.context = context;
  model_write(&m, STORE_F32, 1);
  json_t *config = model_config(&m);
  if (bos >= 0) json_object_set_new(config, "bos_token_id", json_integer(bos));
  model_write_config(config);
  json_t *file = json_pack("{s:o, s:{s:{s:i, s:i, s:i, s:i}, s:[s]}, s:[{s:i, s:s}, {s:i, s:s}]}",
                           "pre_tokenizer", json_loads(GPT2_STEPS, 0, NULL), "model", "vocab", "a", 0, "b", 1,
                           "\xc4\xa0", 2, "ab", 3, "merges", "a b", "added_tokens", "id", BOS, "content",
                           "<s>", "id", BEYOND, "content", "<far>");
  if (bos >= 0) /* whose own first token is another */
    json_object_set_new(
        file, "post_processor",
        json_pack("{s:s, s:[s, i], s:[s, i]}", "type", "BertProcessing", "cls", "b", 1, "sep", "a", 0));
  tokens_write(file);
}

static void write_ids(const int64_t *ids, size_t count) {
  fixture_npy("ids.npy", "<i8", text_of("1, %zu, 1", count), ids, 8 * count);
}

static char *attribute(const char *name) {
  hid_t file = H5Fopen(fixture_path("c.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
  hid_t at = H5Aopen(file, name, H5P_DEFAULT), type = H5Aget_type(at);
  char *text = calloc(1, H5Tget_size(type) + 1);
  cr_assert(at >= 0 && H5Aread(at, type, text) >= 0, "%s", name);
  H5Tclose(type);
  H5Aclose(at);
  H5Fclose(file);
  return text;
}

static void expect_attribute(const char *name, const char *wanted) {
  char *text = kept_memory(attribute(name));
  cr_assert_str_eq(text, wanted);
}

/* -1: the file has no such attribute. */
static double number(const char *name) {
  double value = -1;
  hid_t file = H5Fopen(fixture_path("c.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
  if (H5Aexists(file, name) > 0) {
    const hid_t at = H5Aopen(file, name, H5P_DEFAULT);
    cr_assert(H5Aread(at, H5T_NATIVE_DOUBLE, &value) >= 0, "%s", name);
    H5Aclose(at);
  }
  H5Fclose(file);
  return value;
}

static data_qkv capture(const data_capture_request *r) {
  data_qkv *x = kept_qkv();
  assert_ok(data_capture(r, NULL));
  assert_ok(data_qkv_read(&(data_reading){.in = fixture_path("c.h5")}, x));
  return *x;
}

static data_capture_request request(const char *text) {
  data_capture_request r = {.ids.model = fixture_directory, .layer = 2, .output = fixture_path("c.h5")};
  if (text) {
    fixture_write(fixture_path("text"), text, strlen(text));
    r.ids.text = fixture_path("text");
  } else {
    r.ids.tokens = fixture_path("ids.npy");
  }
  return r;
}

/* A text is captured as these ids are. */
static void expect_same(const char *text, const char *bos, int64_t n, const int64_t *ids, size_t count) {
  data_capture_request r = request(text);
  r.ids.bos = bos;
  r.n = n;
  data_qkv x = capture(&r);
  write_ids(ids, count);
  r = request(NULL);
  data_qkv y = capture(&r);
  cr_assert(x.n_q == (int64_t)count && y.n_q == x.n_q, "%s: %" PRId64 " positions", text, x.n_q);
  const size_t heads = (size_t)x.heads, kv = (size_t)x.kv_heads, d = (size_t)x.d_qk;
  cr_assert_arr_eq(x.q, y.q, heads * count * d * sizeof(float));
  cr_assert_arr_eq(x.k, y.k, kv * count * d * sizeof(float));
  cr_assert_arr_eq(x.v, y.v, kv * count * d * sizeof(float));
}

#define EXPECT_SAME(text, bos, n, ...) \
  expect_same(text, bos, n, (const int64_t[]){__VA_ARGS__}, sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t))

Test(data_capture_text, a_text_is_what_its_ids_are) {
  write_model(64, BOS);
  EXPECT_SAME("ab ab b", NULL, 0, 4, 3, 2, 3, 2, 1);
  expect_attribute("bos", "none"); /* of the ids */
  expect_attribute("tokens_shape", "[1,6,1], flattened in C order");
  EXPECT_SAME("ab ab b", "none", 0, 3, 2, 3, 2, 1);
  EXPECT_SAME("ab ab b", "7", 0, 7, 3, 2, 3, 2, 1);
  EXPECT_SAME("<s>ab", NULL, 0, 4, 4, 3);
  data_capture_request r = request("ab");
  assert_ok(data_capture(&r, NULL));
  expect_attribute("bos", "4");
  r.ids.bos = "7";
  assert_ok(data_capture(&r, NULL));
  expect_attribute("bos", "7");
  /* A model that names none. */
  write_model(64, -1);
  EXPECT_SAME("ab ab b", NULL, 0, 3, 2, 3, 2, 1);
}

Test(data_capture_text, every_window_begins_with_the_first_token) {
  write_model(4, BOS);
  EXPECT_SAME("ab ab b", NULL, 0, 4, 3, 2, 3, 4, 2, 1);
  cr_expect(number("windows") == 2 && number("positions") == 7 && number("trained_context") == 4);
  expect_attribute("rotation",
                   "pairs (i, i + rotary_dim/2); independent windows of trained_context positions: the "
                   "forward pass at local positions, the stored q and k rotated at global positions 0 "
                   "... n-1");
  EXPECT_SAME("ab ab b", NULL, 4, 4, 3, 2, 3);
  cr_expect(number("windows") == 1);
  expect_attribute("rotation", "pairs (i, i + rotary_dim/2); q and k are rotated at positions 0 ... n-1");
  EXPECT_SAME("ab ab b", NULL, 5, 4, 3, 2, 3, 4);
  EXPECT_SAME("ab ab", NULL, 0, 4, 3, 2, 3); /* no window without a token of the text */
  EXPECT_SAME("ab ab b", "none", 0, 3, 2, 3, 2, 1);
  data_capture_request r = request("ab ab b");
  r.n = 8;
  assert_refused(data_capture(&r, NULL), ATTN_EINVAL, "text: 7 positions, fewer than the 8 asked for");
  write_model(1, BOS);
  assert_refused(data_capture(&r, NULL), ATTN_EINVAL, "a context of one position");
}

Test(data_capture_text, wrong_texts_and_tokens) {
  static const struct {
    const char *text, *bos, *says;
  } cases[] = {{"ab<far>", NULL, "text: token 1 is 50; the vocabulary of"},
               {"ab", "11", "bos '11' is neither none nor a token from 0 to 10"},
               {"ab", "-1", "bos '-1' is neither"},
               {"ab", "x", "bos 'x' is neither"},
               {"ab", "", "bos '' is neither"},
               {"ab", "1 ", "bos '1 ' is neither"},
               {"ab", "99999999999999999999", "bos '99999999999999999999' is neither"},
               {"abc", NULL, "tokenizer.json: no token for 'c'"},
               {"ab\xff", NULL, "text: not UTF-8 at byte 2"},
               {"", NULL, "text: the file is empty"}};
  write_model(64, BOS);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    data_capture_request r = request(cases[i].text);
    r.ids.bos = cases[i].bos;
    assert_refused(data_capture(&r, NULL), ATTN_EINVAL, cases[i].says);
  }
  write_ids((const int64_t[]){3, 11}, 2);
  data_capture_request r = request(NULL);
  assert_refused(data_capture(&r, NULL), ATTN_EINVAL, "ids.npy: token 1 is 11; the vocabulary of");
  write_ids((const int64_t[]){-1}, 1);
  assert_refused(data_capture(&r, NULL), ATTN_EINVAL, "ids.npy: token 0 is -1");
  write_model(64, 11);
  r = request("ab");
  assert_refused(data_capture(&r, NULL), ATTN_EINVAL, "its first token is 11 of a vocabulary of 11");
  r.ids.bos = "4";
  assert_ok(data_capture(&r, NULL));
  fixture_write(fixture_path("tokenizer.json"), "{}", 2);
  assert_refused(data_capture(&r, NULL), ATTN_EINVAL, "tokenizer.json: model is missing");
  unlink(fixture_path("tokenizer.json"));
  assert_refused(data_capture(&r, NULL), ATTN_EUNSUPPORTED,
                 "has a vocabulary of 11, not of 256 bytes, and no");
}

/* The first two pairs turn by 1 and theta^(-2/rotary), over the factors by which positions are stretched. */
Test(data_capture_text, scores_and_turns_of_the_layer, .init = architectures_begin,
     .fini = architectures_end) {
  static const char *const names[] = {
      "sliding_window",        "score_scale", "score_softcap", "rope_theta", "rotary_dim",
      "rope_attention_factor", "layer",       "positions",     "windows",    "first_position"};
  static const struct {
    const char *model;
    double number[7], factor[2];
  } cases[] = {{"gemma2", {5, 0.3779644730092272, 2, 500, 4, 1, 0}, {1, 1}},
               {"gemma2", {-1, 0.3779644730092272, 2, 500, 4, 1, 1}, {1, 1}},
               {"gemma3", {4, 0.0625, -1, 50, 4, 1, 0}, {1, 1}},
               {"gemma3", {-1, 0.0625, -1, 500, 4, 1, 1}, {4, 4}},
               {"longrope-short", {-1, -1, -1, 100, 8, 1.118033988749895, 1}, {1, 1.25}}};
  write_ids((const int64_t[]){3, 1, 4, 1, 5, 9, 2, 6, 5}, 9);
  for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
    const double *wanted = cases[i / 2].number, behind[] = {9, 1, i % 2 ? 0 : -1};
    reference_model m = architecture_write(cases[i / 2].model);
    data_capture_request r = request(NULL);
    r.layer = (int64_t)wanted[6];
    r.pre_rope = i % 2;
    assert_ok(data_capture(&r, NULL));
    for (size_t n = 0; n < 10; n++)
      cr_expect_float_eq(number(names[n]), n < 7 ? wanted[n] : behind[n - 7], 1e-15, "%s layer %d: %s",
                         cases[i / 2].model, (int)r.layer, names[n]);
    data_qkv read = {0};
    if (!r.pre_rope) assert_ok(data_qkv_read_hdf5(&(data_reading){.in = r.output}, &read));
    cr_expect_eq(read.scored, !r.pre_rope && fmax(fmax(wanted[0], wanted[1]), wanted[2]) > 0);
    data_qkv_free(&read);
    if (r.pre_rope) expect_attribute("rope", "pending");
    if (r.pre_rope)
      expect_attribute("rotation",
                       "pairs (i, i + rotary_dim/2); q and k are to be rotated, row r at position "
                       "first_position + r; the forward pass in independent windows of "
                       "trained_context positions, at local ones");
    char *text = attribute("rope_frequencies"), *next = text;
    for (int pair = 0; pair < 2; pair++) {
      const double turn = strtod(next, &next) * cases[i / 2].factor[pair];
      cr_expect_float_eq(turn, pow(wanted[3], -2 * pair / wanted[4]), 1e-15);
    }
    free(text);
    reference_free(&m);
  }
}
