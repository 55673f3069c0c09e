/* tokens_gguf_bytes.c - byte-level BPE of GGUF files: the ids are those of a tokenizer.json with the same
 * tokens, merges and patterns; a text is cut at what the user defined and not at control tokens; wrong
 * files. */
#include "tests/data/gguf_files.h"
#include "tests/data/tokens_fixture.h"

TestSuite(data_tokens_gguf_bytes, .init = fixture_begin, .fini = fixture_end);

static const char *const merges[] = {"1 2",
                                     "12 3",
                                     "h e",
                                     "l l",
                                     "he ll",
                                     "r e",
                                     "\xc4\xa0 h",
                                     "\xc4\xa0h e",
                                     "\xc4\x8a \xc4\x8a",
                                     "\xc4\xa0 \xc4\xa0",
                                     "' L",
                                     "'L L",
                                     "\xc3\x83 \xc2\xa9",
                                     NULL};
static const char text[] = "hello  he1234 \xc3\xa9h 12a'LL're\n\n he.\n/\tHe\xe4\xbd\xa0\xd9\xa3"
                           "123hELLo 're";

/* The file of these tokens, with the two last ones <c>, control, and <u>, user-defined; pre NULL: without
 * it. */
static const char *write_gguf(json_t *json, const char *pre, const char *const *joined) {
  gguf_file *f = gguf_file_new();
  json_t *vocab = json_object_get(json_object_get(json, "model"), "vocab"), *id;
  const size_t count = json_object_size(vocab);
  const char *name, **of = kept_memory(calloc(count, sizeof *of));
  json_object_foreach(vocab, name, id) of[json_integer_value(id)] = name;
  gguf_key_text(f, "tokenizer.ggml.model", "gpt2");
  if (pre) gguf_key_text(f, "tokenizer.ggml.pre", pre);
  gguf_key_list(f, "tokenizer.ggml.tokens", IS_TEXT, count + 2);
  for (size_t i = 0; i < count; i++) gguf_put_text(&f->key, of[i]);
  gguf_put_text(&f->key, "<c>");
  gguf_put_text(&f->key, "<u>");
  gguf_key_list(f, "tokenizer.ggml.token_type", IS_I32, count + 2);
  for (size_t i = 0; i < count + 2; i++) gguf_put_number(&f->key, i < count ? 1 : i == count ? 3 : 4, 4);
  size_t pairs = 0;
  while (joined && joined[pairs]) pairs++;
  if (joined) gguf_key_list(f, "tokenizer.ggml.merges", IS_TEXT, pairs);
  for (size_t i = 0; i < pairs; i++) gguf_put_text(&f->key, joined[i]);
  gguf_key_u32(f, "tokenizer.ggml.bos_token_id", 7);
  gguf_tensor(f, "none", 0, 1, AS_F32);
  gguf_put_number(&f->data, 0, 4);
  json_decref(json);
  return gguf_file_write(f, "x.gguf");
}

static void holds_like(const char *pre, const char *steps, bool whole, int64_t bos) {
  json_t *file = tokens_file(steps, merges);
  json_object_set_new(json_object_get(file, "model"), "ignore_merges", json_boolean(whole));
  const data_tokenizer *json = tokens_open(file),
                       *gguf = tokens_open_path(write_gguf(tokens_file(steps, merges), pre, merges));
  char *wanted = kept_memory(strdup(tokens_ids(json, text)));
  cr_assert_str_eq(tokens_ids(gguf, text), wanted, "%s: %s, not %s", pre, tokens_ids(gguf, text), wanted);
  cr_assert_eq(data_tokenizer_bos(gguf), bos);
  tokens_round_trip(gguf, text, sizeof text - 1);
}

Test(data_tokens_gguf_bytes, ids_are_those_of_a_tokenizer_json) {
  holds_like("gpt-2", GPT2_STEPS, false, -1);
  holds_like("olmo", GPT2_STEPS, false, -1);
  holds_like(
      "smollm",
      "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{N}\"},"
      "\"behavior\":\"Isolated\"}," GPT2_STEPS "]}",
      false, -1);
  holds_like("llama-bpe", SPLIT_STEPS(LLAMA3_PATTERN), true, 7);
  holds_like("dbrx", SPLIT_STEPS(LLAMA3_PATTERN), false, -1);
  holds_like(
      "qwen2",
      SPLIT_STEPS("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "
                  "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"),
      false, -1);
}

/* A change of case ends a word of tekken's and GPT-4o's, and endings belong to the word there. */
Test(data_tokens_gguf_bytes, words_end_where_the_case_changes) {
  static const char *const across[] = {"b C", "C d", "d '", "d' s", NULL};
  data_tokenizer *t = tokens_open_path(write_gguf(tokens_file(GPT2_STEPS, across), "tekken", across));
  cr_assert_str_eq(tokens_ids(t, "abCd's"), "97 98 257 39 115");
  t = tokens_open_path(write_gguf(tokens_file(GPT2_STEPS, across), "gpt-4o", across));
  cr_assert_str_eq(tokens_ids(t, "abCd's"), "97 98 257 39 115");
  cr_assert_str_eq(tokens_ids(t, "abd's"), "97 98 259");
}

Test(data_tokens_gguf_bytes, a_text_is_cut_at_what_the_user_defined) {
  data_tokenizer *t = tokens_open_path(write_gguf(tokens_file(GPT2_STEPS, merges), "gpt-2", merges));
  cr_assert_str_eq(tokens_ids(t, "a<u><c>"), text_of("97 %" PRId64 " 60 99 62", data_tokenizer_size(t) - 1));
}

Test(data_tokens_gguf_bytes, wrong_files) {
  static const char *const none[] = {NULL}, *const one[] = {"ab", NULL}, *const three[] = {"a b c", NULL},
                           *const absent[] = {"a b", NULL}, *const twice[] = {"l l", "l l", NULL};
  const struct {
    const char *pre, *const *merges, *words;
    attn_status status;
  } wrong[] = {
      {NULL, none, "tokenizer.ggml.pre is missing", ATTN_EUNSUPPORTED},
      {"poro-chat", none, "tokenizer.ggml.pre is poro-chat, whose patterns are not known", ATTN_EUNSUPPORTED},
      {"gpt-", none, "tokenizer.ggml.pre is gpt-,", ATTN_EUNSUPPORTED},
      {"", none, "tokenizer.ggml.pre is ,", ATTN_EUNSUPPORTED},
      {"gpt-2", NULL, "tokenizer.ggml.merges is missing", ATTN_EINVAL},
      {"gpt-2", one, "tokenizer.ggml.merges[0] is neither 'a b'", ATTN_EINVAL},
      {"gpt-2", three, "tokenizer.ggml.merges[0] is neither 'a b'", ATTN_EINVAL},
      {"gpt-2", absent, "tokenizer.ggml.merges[0]: 'ab' is no token", ATTN_EINVAL},
      {"gpt-2", twice, "tokenizer.ggml.merges[1] is tokenizer.ggml.merges[0] again", ATTN_EINVAL}};
  data_tokenizer *t = NULL;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_refused(
        data_tokenizer_open(write_gguf(tokens_file(GPT2_STEPS, merges), wrong[i].pre, wrong[i].merges), &t),
        wrong[i].status, wrong[i].words);
  cr_assert_null(t);
}
