/* tokens_pieces.c - SentencePiece's BPE from arrays: encodings derived by hand, scores against their
 * definition, wrong arrays. */
#include "tests/data/gguf_files.h"
#include "tests/data/tokens_fixture.h"

#include "attn_variant.h"

TestSuite(data_tokens_pieces, .init = fixture_begin, .fini = fixture_end);

#define BLANK "\xe2\x96\x81"
enum { BYTES = 3, REST = BYTES + 256, MOST = REST + 64 };

static char names[MOST][16];
static data_piece pieces[MOST];
static float scores[MOST];
static int32_t types[MOST];

/* <unk>, <s>, </s>, all bytes, and what follows them. */
static data_sentencepiece begin(void) {
  static const char *const first[] = {"<unk>", "<s>", "</s>"};
  for (int i = 0; i < REST; i++) {
    if (i < BYTES)
      snprintf(names[i], 16, "%s", first[i]);
    else
      snprintf(names[i], 16, "<0x%02X>", (unsigned)(i - BYTES));
    pieces[i] = (data_piece){names[i], strlen(names[i])};
    scores[i] = 0;
    types[i] = i == 0 ? 2 : i < BYTES ? 3 : 6;
  }
  data_sentencepiece s = {.file = "model.gguf", .count = REST, .bos = 1, .unknown = 0, .prefix = true};
  s.pieces = pieces, s.scores = scores, s.types = types;
  return s;
}

static void add(data_sentencepiece *s, const char *text, float score, int32_t type) {
  snprintf(names[s->count], 16, "%s", text);
  pieces[s->count] = (data_piece){names[s->count], strlen(text)};
  scores[s->count] = score;
  types[s->count++] = type;
}

/* From 259 on. */
static data_sentencepiece some_pieces(void) {
  static const char *const words[] = {BLANK, "a", "b", "ab", BLANK "a", "ba", BLANK "ab", "\xc3\xa9"};
  static const float values[] = {-100, -101, -102, -2, -3, -1, -4, -103};
  data_sentencepiece s = begin();
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) add(&s, words[i], values[i], 1);
  return s;
}

static data_tokenizer *make(const data_sentencepiece *s) {
  data_tokenizer *t = NULL;
  assert_ok(data_tokenizer_make(s, &t));
  return keep_object(t, close_tokenizer);
}

Test(data_tokens_pieces, the_highest_score_merges_first) {
  data_sentencepiece s = some_pieces();
  add(&s, "<x>", 0, 4);
  add(&s, "bb", 0, 5);
  add(&s, "   ", 0, 4); /* as GGUF files have what SentencePiece marks */
  data_tokenizer *t = make(&s);
  cr_assert(data_tokenizer_size(t) == 270 && data_tokenizer_bos(t) == 1);
  /* _ a b: ab (-2) before _a (-3), then _ab. */
  cr_assert_str_eq(tokens_ids(t, "ab"), "265");
  /* _ a b a: ba (-1) first, then _a. */
  cr_assert_str_eq(tokens_ids(t, "aba"), "263 264");
  cr_assert_str_eq(tokens_ids(t, " ab"), "259 265");
  /* Text without a token becomes its bytes; c is 0x63. */
  cr_assert_str_eq(tokens_ids(t, "\xc3\xa9"
                                 "c\xe4\xba\xba"),
                   "259 266 102 231 189 189");
  /* A user-defined token is cut out, others than normal ones do not merge. */
  cr_assert_str_eq(tokens_ids(t, "a<x>b"), "263 267 261");
  cr_assert_str_eq(tokens_ids(t, "a   b a"), "263 269 261 263");
  cr_assert_str_eq(tokens_ids(t, "bb<s>"), "259 261 261 63 118 65");
  tokens_round_trip(t, "a\0b", 3);
  tokens_round_trip(t, " ab <x> \xc3\xa9\xe4\xba\xba  a", 16);
  s.prefix = false;
  t = make(&s);
  cr_assert_str_eq(tokens_ids(t, "ab"), "262");
  tokens_round_trip(t, " ab", 3);
}

Test(data_tokens_pieces, unknown_characters_are_one_token) {
  data_sentencepiece s = some_pieces();
  char *text = NULL;
  size_t bytes = 0;
  /* No bytes: their names belong to tokens of another type. */
  for (int i = BYTES; i < REST; i++) types[i] = 5;
  data_tokenizer *t = make(&s);
  cr_assert_str_eq(tokens_ids(t, "acdb"), "263 0 261");
  assert_ok(data_tokenizer_decode(t, (const int64_t[]){1, 263, 0, 261, 2}, 5, &text, &bytes));
  cr_assert_str_eq(text, "a \xe2\x81\x87 b");
  free(text);
  s.unknown = -1;
  t = make(&s);
  int64_t *ids, count;
  assert_refused(data_tokenizer_encode(t, "text", "ac", 2, &ids, &count), ATTN_EINVAL, "model.gguf");
  /* Without types, names tell. */
  s = some_pieces();
  s.types = NULL;
  t = make(&s);
  cr_assert_str_eq(tokens_ids(t, "acdb"), "263 102 103 261");
}

Test(data_tokens_pieces, merges_are_those_of_the_definition) {
  attn_rng rng = rng_of(11, 0, 0);
  for (int trial = 0; trial < 60; trial++) {
    data_sentencepiece s = begin();
    s.prefix = false;
    for (int i = 0; i < 3; i++) add(&s, (const char *[]){"a", "b", "c"}[i], -50, 1);
    while (s.count < MOST - 4) {
      const int64_t l = REST + attn_rng_below(&rng, s.count - REST);
      const int64_t r = REST + attn_rng_below(&rng, s.count - REST);
      bool there = pieces[l].bytes + pieces[r].bytes > 8;
      const char *word = text_of("%.8s%.7s", names[l], names[r]);
      for (int64_t i = REST; i < s.count; i++) there |= !strcmp(names[i], word);
      /* Few scores, so that many are equal. */
      if (!there) add(&s, word, -(float)attn_rng_below(&rng, 6), 1);
    }
    data_tokenizer *t = make(&s);
    for (int sample = 0; sample < 60; sample++) {
      char text[41] = "", parts[40][16];
      size_t count = 1 + (size_t)attn_rng_below(&rng, 40);
      for (size_t i = 0; i < count; i++)
        snprintf(parts[i], 16, "%c", text[i] = "abc"[attn_rng_below(&rng, 3)]);
      for (;;) {
        int64_t best = -1;
        size_t at = 0;
        for (size_t i = 0; i + 1 < count; i++)
          for (int64_t k = REST; k < s.count; k++)
            if (pieces[k].bytes == strlen(parts[i]) + strlen(parts[i + 1]) &&
                !strncmp(names[k], parts[i], strlen(parts[i])) &&
                !strcmp(names[k] + strlen(parts[i]), parts[i + 1]) && (best < 0 || scores[k] > scores[best]))
              best = k, at = i;
        if (best < 0) break;
        snprintf(parts[at], 16, "%s", names[best]);
        memmove(parts + at + 1, parts + at + 2, (count - at - 2) * sizeof *parts);
        count--;
      }
      int64_t *ids = NULL, got = 0;
      assert_ok(data_tokenizer_encode(t, "text", text, strlen(text), &ids, &got));
      cr_assert_eq((size_t)got, count, "%s", text);
      for (size_t i = 0; i < count; i++) cr_assert_str_eq(names[ids[i]], parts[i], "%s", text);
      free(ids);
    }
  }
}

Test(data_tokens_pieces, a_long_text_takes_no_quadratic_time) {
  enum { LONG = 2 << 20 };
  data_sentencepiece s = begin();
  add(&s, "l", -3, 1);
  add(&s, "ll", -1, 1);
  add(&s, "llll", -2, 1);
  s.prefix = false;
  data_tokenizer *t = make(&s);
  char *text = kept_memory(malloc(LONG));
  int64_t *ids = NULL, count = 0;
  memset(text, 'l', LONG);
  assert_ok(data_tokenizer_encode(t, "text", text, LONG, &ids, &count));
  cr_assert_eq(count, LONG / 4);
  free(ids);
}

Test(data_tokens_pieces, wrong_arrays) {
  data_tokenizer *t = NULL;
  data_sentencepiece s = some_pieces();
  s.count = 0;
  assert_refused(data_tokenizer_make(&s, &t), ATTN_EINVAL, "model.gguf: 0 tokens");
  s = some_pieces();
  s.bos = s.count;
  assert_refused(data_tokenizer_make(&s, &t), ATTN_EINVAL, "the first token is 267");
  s = some_pieces();
  s.unknown = 1000;
  assert_refused(data_tokenizer_make(&s, &t), ATTN_EINVAL, "the unknown token is 1000");
  s = some_pieces();
  scores[260] = NAN;
  assert_refused(data_tokenizer_make(&s, &t), ATTN_EINVAL, "the score of token 260 is NaN");
  s = some_pieces();
  types[260] = 7;
  assert_refused(data_tokenizer_make(&s, &t), ATTN_EINVAL, "token 260 has type 7");
  s = some_pieces();
  types[260] = 6;
  assert_refused(data_tokenizer_make(&s, &t), ATTN_EINVAL, "token 260 is of type byte");
  s = some_pieces();
  add(&s, "ab", 0, 1);
  assert_refused(data_tokenizer_make(&s, &t), ATTN_EINVAL,
                 "'ab' is the text of both token 262 and token 267");
  s = some_pieces();
  add(&s, "\xe2\x96", 0, 4);
  assert_refused(data_tokenizer_make(&s, &t), ATTN_EINVAL, "token 267 is not UTF-8");
  s = some_pieces();
  char *huge = kept_memory(calloc(1, 5000));
  memset(huge, 'x', 4999);
  pieces[262] = (data_piece){huge, 4999};
  assert_refused(data_tokenizer_make(&s, &t), ATTN_EINVAL, "token 262 has 4999 bytes");
  cr_assert_null(t);
}

/* ---- from GGUF files ----------------------------------------------------------------------------------- */

/* A file of these pieces, without the key named `without`, and with one score fewer if `fewer`. */
static const char *write_gguf(const data_sentencepiece *s, const char *without, bool fewer) {
  gguf_file *f = gguf_file_new();
  gguf_key_text(f, strcmp(without, "model") ? "tokenizer.ggml.model" : "x", "llama");
  if (strcmp(without, "tokens")) {
    gguf_key_list(f, "tokenizer.ggml.tokens", IS_TEXT, (uint64_t)s->count);
    for (int64_t i = 0; i < s->count; i++) gguf_put_text(&f->key, names[i]);
  }
  if (strcmp(without, "scores")) {
    gguf_key_list(f, "tokenizer.ggml.scores", IS_F32, (uint64_t)(s->count - fewer));
    for (int64_t i = 0; i < s->count - fewer; i++) gguf_put(&f->key, &scores[i], 4);
  }
  if (strcmp(without, "token_type")) {
    gguf_key_list(f, "tokenizer.ggml.token_type", IS_I32, (uint64_t)s->count);
    for (int64_t i = 0; i < s->count; i++) gguf_put(&f->key, &types[i], 4);
  }
  gguf_key_u32(f, "tokenizer.ggml.bos_token_id", (uint64_t)s->bos);
  gguf_key_u32(f, "tokenizer.ggml.unknown_token_id", 0);
  if (!strcmp(without, "bos")) gguf_key_number(f, "tokenizer.ggml.add_bos_token", IS_BOOL, 0, 1);
  if (!s->prefix) gguf_key_number(f, "tokenizer.ggml.add_space_prefix", IS_BOOL, 0, 1);
  gguf_tensor(f, "none", 0, 1, AS_F32);
  gguf_put_number(&f->data, 0, 4);
  return gguf_file_write(f, "x.gguf");
}

Test(data_tokens_pieces, a_gguf_file_has_them) {
  data_sentencepiece s = some_pieces();
  data_tokenizer *t = tokens_open_path(write_gguf(&s, "", false));
  cr_assert(data_tokenizer_bos(t) == 1 && data_tokenizer_size(t) == 267);
  cr_assert_str_eq(tokens_ids(t, "aba"), "263 264");
  s.prefix = false;
  t = tokens_open_path(write_gguf(&s, "bos", false));
  cr_assert_eq(data_tokenizer_bos(t), -1);
  cr_assert_str_eq(tokens_ids(t, "ab"), "262");
  t = tokens_open_path(write_gguf(&s, "token_type", false));
  cr_assert_str_eq(tokens_ids(t, "ac"), "260 102");
}

Test(data_tokens_pieces, wrong_gguf_files) {
  data_tokenizer *t = NULL;
  data_sentencepiece s = some_pieces();
  assert_refused(data_tokenizer_open(write_gguf(&s, "model", false), &t), ATTN_ENOTFOUND,
                 "tokenizer.ggml.model");
  assert_refused(data_tokenizer_open(write_gguf(&s, "tokens", false), &t), ATTN_EINVAL, "tokens has 0 items");
  assert_refused(data_tokenizer_open(write_gguf(&s, "scores", false), &t), ATTN_EINVAL, "scores has 0 items");
  assert_refused(data_tokenizer_open(write_gguf(&s, "", true), &t), ATTN_EINVAL,
                 "x.gguf: tokenizer.ggml.scores has 266 items, for 267 tokens");
  types[260] = 9;
  assert_refused(data_tokenizer_open(write_gguf(&s, "", false), &t), ATTN_EINVAL,
                 "x.gguf: token 260 has type 9");
  types[260] = -1;
  assert_refused(data_tokenizer_open(write_gguf(&s, "", false), &t), ATTN_EINVAL, "type[260] is not a type");
  types[260] = 1;
  s.bos = 267;
  assert_refused(data_tokenizer_open(write_gguf(&s, "", false), &t), ATTN_EINVAL,
                 "bos_token_id is not an id from 0 to 266");
  cr_assert_null(t);
}
