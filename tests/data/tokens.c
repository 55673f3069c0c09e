/* tokens.c - texts as ids and back: encodings derived by hand, merges against their definition, ten scripts,
 * random texts. */
#include "tests/data/tokens_fixture.h"

#include "attn_variant.h"

TestSuite(data_tokens, .init = fixture_begin, .fini = fixture_end);

/* The ids are 256, 257 ... in this order. */
static const char *const some_merges[] = {"l l", "h e",          "he ll", "hell o", "\xc4\xa0 w",
                                          "o r", "\xc4\xa0w or", "l d",   "3 4",    "\xc4\xa0 \xc4\xa0",
                                          NULL};
enum { LL = 256, HE, HELL, HELLO, BLANK_W, OR, BLANK_WOR, LD, THREE_FOUR, BLANKS };

Test(data_tokens, bytes_merge_by_rank_and_from_the_left) {
  data_tokenizer *t = tokens_open(tokens_file(GPT2_STEPS, some_merges));
  cr_assert_eq(data_tokenizer_size(t), 266);
  cr_assert_eq(data_tokenizer_bos(t), -1);
  cr_assert_str_eq(tokens_ids(t, "hello"), "259");
  cr_assert_str_eq(tokens_ids(t, "hello world"), "259 262 263");
  cr_assert_str_eq(tokens_ids(t, "llll"), "256 256");
  cr_assert_str_eq(tokens_ids(t, "lll"), "256 108");
  /* l l comes before l d, though the second would leave as many. */
  cr_assert_str_eq(tokens_ids(t, "lld"), "256 100");
  cr_assert_str_eq(tokens_ids(t, "helllo"), "258 108 111");
  cr_assert_str_eq(tokens_ids(t, "\xc3\xa9\x01"), "195 169 1");
}

Test(data_tokens, pieces_do_not_merge_across_their_ends) {
  /* GPT-2: of many blanks before a word the last one is the word's. */
  data_tokenizer *t = tokens_open(tokens_file(GPT2_STEPS, some_merges));
  cr_assert_str_eq(tokens_ids(t, "a  "), "97 265");
  cr_assert_str_eq(tokens_ids(t, "a  b"), "97 32 32 98");
  cr_assert_str_eq(tokens_ids(t, "a   b"), "97 265 32 98");
  cr_assert_str_eq(tokens_ids(t, "1234"), "49 50 264");
  /* U+180E is no blank, as it was before Unicode 6.3; U+3000 is one. */
  cr_assert_str_eq(tokens_ids(t, "  \xe1\xa0\x8e"), "32 32 225 160 142");
  cr_assert_str_eq(tokens_ids(t, "  \xe3\x80\x80"), "265 227 128 128");
  /* Llama 3: three digits at most; the character before a word may be any that is neither letter, digit nor
   * line end. */
  t = tokens_open(tokens_file(SPLIT_STEPS(LLAMA3_PATTERN), some_merges));
  cr_assert_str_eq(tokens_ids(t, "1234"), "49 50 51 52");
  cr_assert_str_eq(tokens_ids(t, "1334"), "49 51 51 52");
  cr_assert_str_eq(tokens_ids(t, "134"), "49 264");
  cr_assert_str_eq(tokens_ids(t, "(hello world"), "40 259 262 263");
}

Test(data_tokens, a_blank_may_stand_before_each_piece) {
  data_tokenizer *t = tokens_open(tokens_file(PREFIX_STEPS, some_merges));
  cr_assert_str_eq(tokens_ids(t, "hello world"), "32 259 262 263");
  cr_assert_str_eq(tokens_ids(t, " world"), "262 263");
  cr_assert_str_eq(tokens_ids(t, " "), "32");
}

Test(data_tokens, a_piece_that_is_a_token_may_be_taken_whole) {
  for (int ignore = 0; ignore < 2; ignore++) {
    json_t *file = tokens_file(GPT2_STEPS, some_merges), *model = json_object_get(file, "model");
    json_object_set_new(json_object_get(model, "vocab"), "xyz", json_integer(300));
    json_object_set_new(json_object_get(model, "vocab"), "\xc4\xa0\xc3\x83\xc2\xa9", json_integer(301));
    json_object_set_new(model, "ignore_merges", json_boolean(ignore));
    data_tokenizer *t = tokens_open(file);
    cr_assert_str_eq(tokens_ids(t, "xyz \xc3\xa9"), ignore ? "300 301" : "120 121 122 32 195 169");
    cr_assert_str_eq(tokens_ids(t, "xyzz"), "120 121 122 122");
    tokens_round_trip(t, "xyz \xc3\xa9", 6);
  }
}

Test(data_tokens, added_tokens_are_cut_out_first_the_longest_of_them) {
  json_t *file = tokens_file(GPT2_STEPS, some_merges);
  json_object_set_new(file, "added_tokens",
                      json_loads("[{\"id\":400,\"content\":\"<|a|>\"},{\"id\":401,\"content\":\"<|a|>b\"},"
                                 "{\"id\":259,\"content\":\"hello\",\"normalized\":true},"
                                 "{\"id\":402,\"content\":\"中\"}]",
                                 0, NULL));
  json_object_set_new(file, "post_processor",
                      json_loads("{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},"
                                 "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
                                 "{\"id\":\"<|a|>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\"}}]}]}",
                                 0, NULL));
  data_tokenizer *t = tokens_open(file);
  cr_assert_eq(data_tokenizer_bos(t), 400);
  cr_assert_eq(data_tokenizer_size(t), 403);
  cr_assert_str_eq(tokens_ids(t, "x<|a|>by<|a|>"), "120 401 121 400");
  cr_assert_str_eq(tokens_ids(t, "<|a|"), "60 124 97 124");
  cr_assert_str_eq(tokens_ids(t, "ohellor"), "111 259 114");
  cr_assert_str_eq(tokens_ids(t, "中"), "402");
  tokens_round_trip(t, "x<|a|>by<|a|>中", 16);
}

Test(data_tokens, nfc_composes_what_can_be_composed) {
  json_t *file = tokens_file(GPT2_STEPS, some_merges);
  json_object_set_new(file, "normalizer", json_loads("{\"type\":\"NFC\"}", 0, NULL));
  data_tokenizer *t = tokens_open(file);
  cr_assert_str_eq(tokens_ids(t, "e\xcc\x81"), "195 169");                    /* e, acute */
  cr_assert_str_eq(tokens_ids(t, "\xe2\x84\xab"), "195 133");                 /* the sign of the angstrom */
  cr_assert_str_eq(tokens_ids(t, "\xe1\x84\x92\xe1\x85\xa1"), "237 149 152"); /* two jamo */
}

static size_t below(attn_rng *rng, size_t limit) { return (size_t)attn_rng_below(rng, (int64_t)limit); }

/* ---- the definition of merging ------------------------------------------------------------------------- */

/* Ids of a text: while two neighbours may merge, those of the least rank do, the leftmost first. */
static size_t merge_by_definition(const char (*left)[16], const char (*right)[16], size_t merges,
                                  const char *text, char (*out)[64]) {
  size_t count = strlen(text);
  for (size_t i = 0; i < count; i++) snprintf(out[i], 64, "%c", text[i]);
  for (size_t rank = 0; rank < merges;) {
    size_t at = 0;
    while (at + 1 < count && (strcmp(out[at], left[rank]) != 0 || strcmp(out[at + 1], right[rank]) != 0))
      at++;
    if (at + 1 >= count) {
      rank++;
      continue;
    }
    snprintf(out[at] + strlen(out[at]), 64 - strlen(out[at]), "%s", right[rank]);
    memmove(out + at + 1, out + at + 2, (count - at - 2) * sizeof *out);
    count--;
    rank = 0; /* a merge may make one of a lower rank possible */
  }
  return count;
}

Test(data_tokens, merges_are_those_of_the_definition) {
  attn_rng rng = rng_of(7, 0, 0);
  for (int trial = 0; trial < 60; trial++) {
    /* Of few letters, and not learnt from a text: merges that a later one makes possible may come earlier. */
    enum { MERGES = 30, LONGEST = 40 };
    char left[MERGES][16], right[MERGES][16], words[MERGES + 3][16] = {"a", "b", "c"}, pieces[LONGEST][64];
    const char *lines[MERGES + 1] = {NULL};
    size_t known = 3, merges = 0;
    while (merges < MERGES) {
      const char *l = words[below(&rng, known)], *r = words[below(&rng, known)];
      bool there = strlen(l) + strlen(r) > 12;
      for (size_t i = 0; i < merges; i++) there |= !strcmp(left[i], l) && !strcmp(right[i], r);
      if (there) continue;
      const size_t at = below(&rng, merges + 1);
      memmove(left + at + 1, left + at, (merges - at) * sizeof *left);
      memmove(right + at + 1, right + at, (merges - at) * sizeof *right);
      strcpy(left[at], l), strcpy(right[at], r);
      strcat(strcpy(words[known++], l), r);
      merges++;
    }
    for (size_t i = 0; i < merges; i++) {
      char *line = malloc(40);
      snprintf(line, 40, "%s %s", left[i], right[i]);
      lines[i] = line;
    }
    data_tokenizer *t = tokens_open(tokens_file(GPT2_STEPS, lines));
    for (int sample = 0; sample < 50; sample++) {
      char text[LONGEST + 1] = "";
      const size_t length = 1 + below(&rng, LONGEST);
      for (size_t i = 0; i < length; i++) text[i] = "abc"[below(&rng, 3)];
      const size_t count =
          merge_by_definition((const char(*)[16])left, (const char(*)[16])right, merges, text, pieces);
      int64_t *ids = NULL, got = 0;
      assert_ok(data_tokenizer_encode(t, "text", text, length, &ids, &got));
      cr_assert_eq((size_t)got, count, "%s", text);
      for (size_t i = 0; i < count; i++) {
        char *word = NULL;
        size_t bytes = 0;
        assert_ok(data_tokenizer_decode(t, ids + i, 1, &word, &bytes));
        cr_assert_str_eq(word, pieces[i], "%s", text);
        free(word);
      }
      free(ids);
    }
    for (size_t i = 0; i < merges; i++) free((void *)(uintptr_t)lines[i]);
  }
}

/* ---- texts and back ------------------------------------------------------------------------------------ */

static const char *const scripts[] = {"Ça déjà vu — naïve Ærø Łódź ½.",
                                      "Η γρήγορη καφέ αλεπού.",
                                      "Съешь же ещё этих, № 5",
                                      "نص حكيم له سر ١٢٣",
                                      "עטלף שָׁלוֹם",
                                      "ऋषियों को सताने ३४५",
                                      "เป็นมนุษย์สุดประเสริฐ ๑๒๓",
                                      "人工智能是一个分支，他说：“好。”　𠀀",
                                      "いろはにほへと カタカナ、１２３",
                                      "다람쥐 헌 쳇바퀴",
                                      "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 ☺️",
                                      " two  blanks,\ttabs\r\n\n and <|ends|>   ",
                                      "\x01\x7f"};

/* A valid text: characters of all lengths, in runs of one kind. */
static size_t random_text(attn_rng *rng, char *text, size_t most) {
  static const uint32_t pools[][2] = {{1, 0x7f},        {0x20, 0x7e},     {0xa0, 0x24f},
                                      {0x300, 0x36f},   {0x370, 0x5ff},   {0x600, 0xdff},
                                      {0xe00, 0x18ff},  {0x2000, 0x22ff}, {0x3000, 0x9fff},
                                      {0xac00, 0xd7ff}, {0xe000, 0xffff}, {0x10000, 0x10ffff}};
  size_t used = 0;
  const uint32_t *pool = pools[0];
  while (used + 4 <= most) {
    if (attn_rng_below(rng, 6) == 0) pool = pools[below(rng, sizeof pools / sizeof *pools)];
    const uint32_t c = attn_rng_below(rng, 8) ? pool[0] + (uint32_t)below(rng, pool[1] - pool[0] + 1) : ' ';
    char *at = text + used;
    if (c == 0x2581) continue;
    const int length = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = length - 1, left = (int)c; i > 0; i--, left >>= 6) at[i] = (char)(0x80 | (left & 63));
    at[0] = (char)(length == 1 ? c : (0xf00U >> length & 0xff) | c >> (6 * (length - 1)));
    used += (size_t)length;
  }
  text[used] = '\0';
  return used;
}

static void check_round_trips(const data_tokenizer *t) {
  char text[400];
  attn_rng rng = rng_of(3, 0, 0);
  for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
    tokens_round_trip(t, scripts[i], strlen(scripts[i]));
  for (int i = 0; i < 500; i++) {
    const size_t bytes = random_text(&rng, text, 8 + below(&rng, 380));
    tokens_round_trip(t, text, bytes);
  }
  tokens_round_trip(t, "a\0b", 3);
}

Test(data_tokens, every_text_comes_back) {
  static const char *const steps[] = {GPT2_STEPS, SPLIT_STEPS(LLAMA3_PATTERN), SPLIT_STEPS("\\\\p{N}"),
                                      SPLIT_STEPS("(?=l)|x*")};
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    data_tokenizer *t = tokens_open(tokens_file(steps[i], some_merges));
    check_round_trips(t);
  }
}

/* ---- long texts ---------------------------------------------------------------------------------------- */

Test(data_tokens, a_long_text_without_blanks_takes_no_quadratic_time) {
  enum { LONG = 3 << 20 };
  /* 3 2^20 times as many steps would not end before the test is stopped. */
  static const char *const texts[] = {"l", "\n", " ", "中"};
  static const int64_t wanted[] = {LONG / 8, LONG, LONG, LONG / 6};
  static const char *const halves[] = {"l l", "ll ll", "llll llll", "ä ¸", "ä¸ Ń", "ä¸Ń ä¸Ń", NULL};
  data_tokenizer *t = tokens_open(tokens_file(SPLIT_STEPS(LLAMA3_PATTERN), halves));
  char *text = kept_memory(malloc(LONG));
  int64_t *ids = NULL, count = 0;
  for (int k = 0; k < 4; k++) {
    for (size_t i = 0; i < LONG; i++) text[i] = texts[k][i % strlen(texts[k])];
    assert_ok(data_tokenizer_encode(t, "text", text, LONG, &ids, &count));
    cr_assert_eq(count, wanted[k], "'%s': %" PRId64, texts[k], count);
    free(ids);
  }
}
