/* tokens_hostile.c - tokenizer.json files, regular expressions and texts that are wrong: what is refused, and
 * how. */
#include "tests/data/tokens_fixture.h"

#include "data/tokens/token_map.h"

TestSuite(data_tokens_hostile, .init = fixture_begin, .fini = fixture_end);

#define VOCAB "'vocab':{'a':0,'b':1,'ab':2}"
#define STEPS "'pre_tokenizer':" GPT2_STEPS
#define FILE_OF(steps, model) "{" steps ",'model':{" model "}}"
#define MODEL(vocab, merges) FILE_OF(STEPS, vocab "," merges)
#define ADDED(list) "{" STEPS ",'added_tokens':" list ",'model':{" VOCAB ",'merges':[]}}"
#define PRE(steps) FILE_OF("'pre_tokenizer':" steps, VOCAB ",'merges':[]")
#define NORMAL(normalizer) FILE_OF("'normalizer':" normalizer "," STEPS, VOCAB ",'merges':[]")
#define WORDS(model) "{'model':{'type':'WordPiece'," model "}}"
#define UNIGRAM(model) "{'model':{'type':'Unigram'," model "}}"
#define CHARSMAP(text) NORMAL("{'type':'Precompiled','precompiled_charsmap':'" text "'}")
#define LOWER(list)                                                       \
  "{'normalizer':{'type':'Sequence','normalizers':[{'type':'Lowercase'}," \
  "{'type':'Strip','strip_left':true,'strip_right':true}]},"              \
  "'added_tokens':" list ",'model':{" VOCAB ",'merges':[]}}"
#define VARIATION(text) MODEL(VOCAB "," text, "'merges':[]")

Test(data_tokens_hostile, files) {
  static const struct {
    const char *file;
    attn_status status;
    const char *says;
  } cases[] = {
      {"", ATTN_EINVAL, "empty"},
      {"{", ATTN_EINVAL, "tokenizer.json:1:"},
      {"[]", ATTN_EINVAL, "not a JSON object"},
      {"{" STEPS "}", ATTN_EINVAL, "model is missing"},
      {"{'model':{" VOCAB "}}", ATTN_EINVAL, "model.merges is missing"},
      /* the vocabulary */
      {MODEL("'vocab':['a']", "'merges':[]"), ATTN_EINVAL, "model.vocab is missing"},
      {MODEL("'vocab':{'a':-1}", "'merges':[]"), ATTN_EINVAL, "model.vocab: the number of a is not an id"},
      {MODEL("'vocab':{'a':0.5}", "'merges':[]"), ATTN_EINVAL, "is not an id"},
      {MODEL("'vocab':{'a':268435456}", "'merges':[]"), ATTN_EINVAL, "is not an id from 0 to 268435455"},
      {MODEL("'vocab':{'a':1,'b':1}", "'merges':[]"), ATTN_EINVAL, "id 1 belongs to both 'a' and 'b'"},
      {MODEL("'vocab':{'a':1,'a':2}", "'merges':[]"), ATTN_EINVAL, "tokenizer.json:1:"},
      /* merges */
      {MODEL(VOCAB, "'merges':['a b','a c']"), ATTN_EINVAL, "model.merges[1]: 'c' is no token"},
      {MODEL(VOCAB, "'merges':['a b',['c','a']]"), ATTN_EINVAL, "model.merges[1]: 'c' is no token"},
      {MODEL(VOCAB, "'merges':['b a']"), ATTN_EINVAL, "model.merges[0]: 'ba' is no token"},
      {MODEL(VOCAB, "'merges':['a b',['a','b']]"), ATTN_EINVAL, "model.merges[1] is model.merges[0] again"},
      {MODEL(VOCAB, "'merges':['ab']"), ATTN_EINVAL, "model.merges[0] is neither"},
      {MODEL(VOCAB, "'merges':['a b c']"), ATTN_EINVAL, "model.merges[0] is neither"},
      {MODEL(VOCAB, "'merges':[['a','b','c']]"), ATTN_EINVAL, "model.merges[0] is neither"},
      {MODEL(VOCAB, "'merges':[['a',1]]"), ATTN_EINVAL, "model.merges[0] is neither"},
      {MODEL(VOCAB, "'merges':[7]"), ATTN_EINVAL, "model.merges[0] is neither"},
      {MODEL(VOCAB, "'merges':[' ab']"), ATTN_EINVAL, "model.merges[0]: '' is no token"},
      /* what a model may be */
      {VARIATION("'type':'WordLevel'"), ATTN_EUNSUPPORTED, "model.type"},
      {VARIATION("'type':'Unigram'"), ATTN_EUNSUPPORTED, "model.merges"},
      {VARIATION("'dropout':0.1"), ATTN_EUNSUPPORTED, "model.dropout"},
      {VARIATION("'end_of_word_suffix':3"), ATTN_EINVAL, "end_of_word_suffix is not a text"},
      {VARIATION("'end_of_word_suffix':'/','byte_fallback':true"), ATTN_EUNSUPPORTED, "byte_fallback with"},
      {VARIATION("'unk_token':3"), ATTN_EINVAL, "unk_token is not a text"},
      {MODEL(VOCAB, "'continuing_subword_prefix':'##','merges':['a b']"), ATTN_EINVAL,
       "model.merges[0]: 'b' does not begin with '##'"},
      {VARIATION("'ignore_merges':1"), ATTN_EINVAL, "model.ignore_merges is neither true nor false"},
      {VARIATION("'novelty':1"), ATTN_EUNSUPPORTED, "model.novelty"},
      /* added tokens */
      {ADDED("{}"), ATTN_EINVAL, "added_tokens is not a list"},
      {ADDED("[3]"), ATTN_EINVAL, "added_tokens[0].content"},
      {ADDED("[{'id':3,'content':''}]"), ATTN_EINVAL, "added_tokens[0].content"},
      {ADDED("[{'content':'x'}]"), ATTN_EINVAL, "the id of x is not an id"},
      {ADDED("[{'id':1,'content':'a'}]"), ATTN_EINVAL, "'a' is token 1 in added_tokens and 0 in model.vocab"},
      {ADDED("[{'id':3,'content':'x'},{'id':4,'content':'x'}]"), ATTN_EINVAL, "'x' is the text of both"},
      {ADDED("[{'id':3,'content':'x','lstrip':1}]"), ATTN_EINVAL, "added_tokens[0].lstrip"},
      {LOWER("[{'id':3,'content':' ','normalized':true}]"), ATTN_EUNSUPPORTED,
       "added_tokens[0] has a text of 0 bytes"},
      {LOWER("[{'id':3,'content':'X','normalized':true},{'id':4,'content':'x','normalized':true}]"),
       ATTN_EUNSUPPORTED, "added_tokens 3 and 4 are the same text"},
      {ADDED("[{'id':3,'content':'x','normalized':2}]"), ATTN_EINVAL, "added_tokens[0].normalized"},
      /* normalizer and pre_tokenizer */
      {NORMAL("{'type':'ByteLevel'}"), ATTN_EUNSUPPORTED, "normalizer: type ByteLevel"},
      {NORMAL("{'type':'Sequence','normalizers':[{'type':'NFC'},{'type':'Strip'}]}"), ATTN_EINVAL,
       "normalizer[1]: strip_left is missing"},
      {NORMAL("{'type':'NFC','more':1}"), ATTN_EUNSUPPORTED, "normalizer.more"},
      {NORMAL("{'type':'Prepend','prepend':3}"), ATTN_EINVAL, "normalizer.prepend is not a text"},
      {NORMAL("{'type':'Replace','pattern':{'String':''},'content':''}"), ATTN_EUNSUPPORTED,
       "normalizer: a pattern that may match nothing"},
      {NORMAL("{'type':'Replace','pattern':'a','content':''}"), ATTN_EINVAL, "neither a String nor"},
      {CHARSMAP("!!!!"), ATTN_EINVAL, "precompiled_charsmap is not base64"},
      {CHARSMAP("AAA"), ATTN_EINVAL, "precompiled_charsmap is not base64"},
      {CHARSMAP("AAAAAA=="), ATTN_EINVAL, "precompiled_charsmap: the size of its trie, 0 bytes"},
      {CHARSMAP("CAAAAAAAAAA="), ATTN_EINVAL, "precompiled_charsmap: the size of its trie, 8 bytes"},
      {CHARSMAP("BAAAAAAAAAD/"), ATTN_EINVAL, "precompiled_charsmap: its texts are not UTF-8"},
      {NORMAL("{'type':'Sequence'}"), ATTN_EINVAL, "normalizer.normalizers"},
      {NORMAL("3"), ATTN_EINVAL, "normalizer: type is missing"},
      {PRE("{'type':'UnicodeScripts'}"), ATTN_EUNSUPPORTED, "pre_tokenizer: type UnicodeScripts"},
      {PRE("{'type':'Metaspace','prepend_scheme':'last'}"), ATTN_EUNSUPPORTED, "prepend_scheme last"},
      {PRE("{'type':'Metaspace','replacement':''}"), ATTN_EINVAL, "replacement is empty"},
      {PRE("{'type':'CharDelimiterSplit'}"), ATTN_EINVAL, "delimiter is missing"},
      {PRE("{'type':'Punctuation','behavior':'Odd'}"), ATTN_EUNSUPPORTED, "behavior Odd"},
      {PRE("{'type':'ByteLevel'}"), ATTN_EINVAL, "add_prefix_space is missing"},
      {PRE("{'type':'ByteLevel','add_prefix_space':3}"), ATTN_EINVAL, "add_prefix_space is neither"},
      {PRE("{'type':'ByteLevel','add_prefix_space':true,'use_regex':'no'}"), ATTN_EINVAL, "use_regex"},
      {PRE("{'type':'Sequence','pretokenizers':3}"), ATTN_EINVAL, "pretokenizers is not a list"},
      {PRE("{'type':'Split','behavior':'Isolated'}"), ATTN_EINVAL, "neither a String nor a Regex"},
      {PRE("{'type':'Split','pattern':{'Regex':'x?'},'behavior':'MergedWithNext'}"), ATTN_EUNSUPPORTED,
       "a pattern that may match nothing"},
      /* WordPiece and Unigram */
      {WORDS("'max_input_chars_per_word':0," VOCAB), ATTN_EINVAL, "max_input_chars_per_word"},
      {WORDS("'vocab':[]"), ATTN_EINVAL, "model.vocab is missing"},
      {WORDS(VOCAB ",'merges':[]"), ATTN_EUNSUPPORTED, "model.merges"},
      {UNIGRAM("'vocab':{'a':1}"), ATTN_EINVAL, "model.vocab is missing"},
      {UNIGRAM("'vocab':[['a',-1],['b']]"), ATTN_EINVAL, "model.vocab[1] is not a text with a score"},
      {UNIGRAM("'vocab':[['a',-1],['b',null]]"), ATTN_EINVAL, "model.vocab[1] is not a text with a score"},
      {UNIGRAM("'vocab':[['a',-1]],'unk_id':1"), ATTN_EINVAL, "model.unk_id is 1 of 1 tokens"},
      {"{" STEPS ",'post_processor':{'type':'BertProcessing','cls':['[CLS]',9]},'model':{" VOCAB
       ",'merges':[]}}",
       ATTN_EINVAL, "post_processor begins with '[CLS]', which is not a token"},
      {"{" STEPS ",'post_processor':{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'<s>'}}]},"
       "'model':{" VOCAB ",'merges':[]}}",
       ATTN_EINVAL, "post_processor begins with '<s>', which is not a token"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    data_tokenizer *t = NULL;
    tokens_write_text(cases[i].file);
    assert_refused(data_tokenizer_open(fixture_directory, &t), cases[i].status, cases[i].says);
    cr_assert_not_null(strstr(attn_last_error(), "tokenizer.json"), "%s", attn_last_error());
    cr_assert_null(t);
  }
}

Test(data_tokens_hostile, absence_and_depth) {
  data_tokenizer *t = NULL;
  assert_refused(data_tokenizer_open(fixture_directory, &t), ATTN_ENOTFOUND, "no tokenizer.json");
  /* Lists in lists: as deep as the parser allows, and deeper. */
  for (int depth = 20; depth <= 20000; depth *= 10) {
    char *text = malloc((size_t)depth * 50 + 400), *end = text;
    end += sprintf(end, "{'pre_tokenizer':");
    for (int i = 0; i < depth; i++) end += sprintf(end, "{'type':'Sequence','pretokenizers':[");
    for (int i = 0; i < depth; i++) end += sprintf(end, "]}");
    sprintf(end, ",'model':{" VOCAB ",'merges':[]}}");
    tokens_write_text(text);
    if (depth < 2000)
      tokens_open_there();
    else
      assert_refused(data_tokenizer_open(fixture_directory, &t), ATTN_EINVAL, "depth");
    free(text);
  }
  /* More steps than there may be. */
  json_t *steps = json_array(), *split = json_loads("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x\"},"
                                                    "\"behavior\":\"Isolated\"}",
                                                    0, NULL);
  for (int i = 0; i < 33; i++) json_array_append(steps, split);
  json_t *file = tokens_file(GPT2_STEPS, NULL);
  json_object_set_new(file, "pre_tokenizer",
                      json_pack("{s:s, s:o}", "type", "Sequence", "pretokenizers", steps));
  tokens_write(file);
  assert_refused(data_tokenizer_open(fixture_directory, &t), ATTN_EUNSUPPORTED,
                 "pre_tokenizer[32]: more than 32 steps");
  json_decref(split);
}

Test(data_tokens_hostile, regular_expressions_that_mean_something_else) {
  static const struct {
    const char *text, *says;
  } cases[] = {{"\\w+", "'\\w'"},       {"a\\", "'\\'"},         {"\\p{Han}+", "'\\p{Han'"},
               {"\\p{^L}", "'\\p{^L'"}, {"\\pL", "'\\pL'"},      {"[a[b]]", "'['"},
               {"[a-z&&b]", "'&&'"},    {"[]a]", "'[]'"},        {"^a", "'^'"},
               {"a$", "'$'"},           {"(?m:a)", "'(?m'"},     {"(*UCP)a", "'(*'"},
               {"(?<n>a)", "'(?<'"},    {"a{2,3}+", "'{2,3}+'"}, {"a{2}?", "'{2}?'"},
               {"a{,2}", "'{"},         {"(a", "not a regular"}, {"((a{999}){999}){999}", "not a regular"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    data_tokenizer *t = NULL;
    json_t *file = tokens_file(SPLIT_STEPS("x"), NULL);
    json_t *list = json_object_get(json_object_get(file, "pre_tokenizer"), "pretokenizers");
    json_object_set_new(json_array_get(list, 0), "pattern", json_pack("{s:s}", "Regex", cases[i].text));
    tokens_write(file);
    assert_refused(data_tokenizer_open(fixture_directory, &t),
                   *cases[i].says == '\'' ? ATTN_EUNSUPPORTED : ATTN_EINVAL, cases[i].says);
    cr_assert_not_null(strstr(attn_last_error(), "tokenizer.json: pre_tokenizer[0]"), "%s",
                       attn_last_error());
  }
}

Test(data_tokens_hostile, slow_regular_expressions_end_with_an_error) {
  enum { LONG = 1 << 20 };
  char *text = kept_memory(malloc(LONG));
  int64_t *ids = NULL, count = 0;
  memset(text, 'a', LONG);
  /* Exponential; quadratic, and without a step that a match limit counts. */
  static const char *const steps[] = {SPLIT_STEPS("(?:a|aa)+b"), SPLIT_STEPS("(?:a+)+b"), SPLIT_STEPS("a*+b"),
                                      SPLIT_STEPS("(?=a*+b)")};
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    data_tokenizer *t = tokens_open(tokens_file(steps[i], NULL));
    assert_refused(data_tokenizer_encode(t, "text", text, LONG, &ids, &count), ATTN_EINVAL,
                   "tokenizer.json: pre_tokenizer[0]: the regular expression");
  }
}

Test(data_tokens_hostile, texts) {
  static const struct {
    const char *text, *says;
  } cases[] = {{"ab\xff"
                "c",
                "notes.txt: not UTF-8 at byte 2 (0xff)"},
               {"a\xc3", "at byte 1"},
               {"\xed\xa0\x80", "at byte 0"},        /* half of a pair of UTF-16 */
               {"abc\xc0\x80", "at byte 3"},         /* longer than needed */
               {"abc\xf4\x90\x80\x80", "at byte 3"}, /* beyond U+10FFFF */
               {"", "notes.txt: there is no text"}};
  int64_t *ids = NULL, count = 0;
  data_tokenizer *t = tokens_open(tokens_file(GPT2_STEPS, NULL));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_refused(data_tokenizer_encode(t, "notes.txt", cases[i].text, strlen(cases[i].text), &ids, &count),
                   ATTN_EINVAL, cases[i].says);
  char *text = NULL;
  size_t bytes = 0;
  assert_refused(data_tokenizer_decode(t, (const int64_t[]){97, 256}, 2, &text, &bytes), ATTN_EINVAL,
                 "token 1 is 256");
  assert_refused(data_tokenizer_decode(t, (const int64_t[]){-1}, 1, &text, &bytes), ATTN_EINVAL,
                 "token 0 is -1");
  tokens_write_text(MODEL(VOCAB, "'merges':['a b']"));
  t = tokens_open_there();
  assert_refused(data_tokenizer_encode(t, "notes.txt", "abc", 3, &ids, &count), ATTN_EINVAL,
                 "no token for 'c'");
  cr_assert(!ids && !text);
}

/* As in token_map.c. */
static uint64_t hash(const char *key) {
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  for (; *key; key++) h = (h ^ (uint8_t)*key) * UINT64_C(0x100000001b3);
  h = (h ^ h >> 33) * UINT64_C(0xff51afd7ed558ccd);
  return h ^ h >> 33;
}

Test(data_tokens_hostile, keys_that_collide_are_refused) {
  enum { KEYS = 600 };
  static char keys[KEYS][16];
  token_map m;
  int added = 0;
  assert_ok(token_map_make(KEYS, &m));
  for (int i = 0, found = 0; found < KEYS; i++) {
    snprintf(keys[found], 16, "%d", i);
    found += (hash(keys[found]) & m.mask) == 0;
  }
  while (added < KEYS && token_map_add(&m, keys[added], strlen(keys[added]), added)) added++;
  cr_assert(added > 100 && added < KEYS);
  for (int i = 0; i < added; i++) cr_assert_eq(token_map_find(&m, keys[i], strlen(keys[i])), i);
  cr_assert_eq(token_map_find(&m, keys[added], strlen(keys[added])), -1);
  token_map_free(&m);
}
