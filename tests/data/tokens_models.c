/* tokens_models.c - WordPiece, Unigram, BPE with bytes and affixes, and what a text goes through before them:
 * encodings derived by hand. tests/python/tokens_test.py holds all of it against `tokenizers`. */
#include "tests/data/tokens_fixture.h"

TestSuite(data_tokens_models, .init = fixture_begin, .fini = fixture_end);

#define BLANK "\u2581"
#define FILE_OF(steps, model) "{" steps "'model':{" model "}}"
#define BERT                                                                             \
  "'normalizer':{'type':'BertNormalizer','clean_text':true,'handle_chinese_chars':true," \
  "'strip_accents':null,'lowercase':true},'pre_tokenizer':{'type':'BertPreTokenizer'},"

static data_tokenizer *open_text(const char *file) {
  tokens_write_text(file);
  return tokens_open_there();
}

static const char *decoded(const data_tokenizer *t, const int64_t *ids, int64_t count) {
  char *text = NULL;
  size_t bytes;
  assert_ok(data_tokenizer_decode(t, ids, count, &text, &bytes));
  const char *line = text_of("%s", text);
  free(text);
  return line;
}

Test(data_tokens_models, wordpiece_takes_the_longest_and_then_the_longest) {
  data_tokenizer *t =
      open_text(FILE_OF(BERT "'post_processor':{'type':'BertProcessing','sep':['[SEP]',9],'cls':['[CLS]',8]},"
                             "'added_tokens':[{'id':8,'content':'[CLS]'},{'id':9,'content':'[SEP]'}],",
                        "'type':'WordPiece','unk_token':'?!','continuing_subword_prefix':'##',"
                        "'max_input_chars_per_word':6,'vocab':{'?!':0,'un':1,'##aff':2,'##a':3,'##ab':4,"
                        "'una':5,'##le':6,'.':7,'#':10,'##f':12,'##':13,'\u4e2d':11,'unb':14}"));
  cr_assert_eq(data_tokenizer_bos(t), 8);
  cr_assert_str_eq(tokens_ids(t, "UN\xc3\x81"), "5");  /* lower case, without its accent */
  cr_assert_str_eq(tokens_ids(t, "unaff"), "5 12 12"); /* not un ##aff, which is shorter first */
  cr_assert_str_eq(tokens_ids(t, "unfab"), "1 12 4");
  cr_assert_str_eq(tokens_ids(t, "unab un.le"),
                   "0 1 7 0"); /* una leaves b, which is none, as is no end of unb; nor is le without ## */
  cr_assert_str_eq(tokens_ids(t, "unffff unfffff"), "1 12 12 12 12 0"); /* seven characters */
  cr_assert_str_eq(tokens_ids(t, "un\u4e2d\u4e2dun"), "1 11 11 1");
  cr_assert_str_eq(tokens_ids(t, "##"), "10 10");
  cr_assert_str_eq(tokens_ids(t, "u\x01n\tun"), "1 1");
  cr_assert_str_eq(tokens_ids(t, "[SEP]un"), "9 1");
  cr_assert_str_eq(decoded(t, (const int64_t[]){5, 12, 7, 1}, 4), "unaf . un");
}

#define META(scheme, split) \
  "'pre_tokenizer':{'type':'Metaspace','prepend_scheme':'" scheme "','split':" split "},"

Test(data_tokens_models, unigram_takes_the_largest_sum) {
  static const char file[] =
      FILE_OF(META("always", "true") "'added_tokens':[{'id':8,'content':'c','single_word':true}],",
              "'type':'Unigram','unk_id':0,'vocab':[['<unk>',0],['" BLANK
              "',-1],['a',-2],['b',-2],['ab',-3.5],['" BLANK "a',-2.5],['ba',-3],['xyz',-9]]");
  data_tokenizer *t = open_text(file);
  cr_assert_str_eq(tokens_ids(t, "ab"), "1 4");    /* -4.5, as _a b, which is found later */
  cr_assert_str_eq(tokens_ids(t, "aba"), "5 6");   /* -5.5 and not _ ab a, -6.5 */
  cr_assert_str_eq(tokens_ids(t, "bab"), "1 6 3"); /* -6 and not _ b ab, -6.5 */
  cr_assert_str_eq(tokens_ids(t, "a  a"), "5 1 5");
  /* Unknown ones are one token; -19 each, so that xyz is taken. */
  cr_assert_str_eq(tokens_ids(t, "accxb"), "5 0 3");
  cr_assert_str_eq(tokens_ids(t, "cxyzc<unk>.c"), "1 0 7 0 8"); /* as is what is written so */
  cr_assert_str_eq(decoded(t, (const int64_t[]){5, 3, 1, 6}, 4), "ab ba");
}

Test(data_tokens_models, an_unknown_character_costs_ten_more_than_any_token) {
  data_tokenizer *t = open_text(FILE_OF(
      "", "'type':'Unigram','unk_id':0,'vocab':[['<unk>',9],['b',10.5],['cb',1],['d',9.5],['cd',1]]"));
  cr_assert_str_eq(tokens_ids(t, "cbcd"),
                   "0 1 4"); /* 1 - 10 + 10.5 is more than 1, which 1 - 10 + 9.5 is not */
}

/* \x01 becomes ab, \r nothing, ! a; \t\x02 is no grapheme, so that it stays, and of 6 bytes none is. */
#define CHARSMAP                                                                                             \
  "kAAAAAAIAAAAAACAAAAAAAEFAAAAAACAAAAAgAAAAIAAAACAAgUAAAQAAAAAAACACQQAAAAAAIAAAACAAwAAAA0FAAAAAAAAAAAAAAAA" \
  "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAEAACAIQUAAGFiAABhAA=="

Test(data_tokens_models, the_first_piece_is_that_at_the_beginning_of_the_text) {
  static const struct {
    const char *before, *text, *ids;
  } cases[] = {{"WhitespaceSplit", "a a", "1 0 0"},
               {"WhitespaceSplit", " a a", "0 0"},
               {"Digits", "<s>a", "2 0"},
               {"Digits", "a<s>a", "1 0 2 0"},
               {"Digits", "a\001a", "1 0 0"},
               {"Digits", "\001aa", "0 0"}, /* what was the first is dropped */
               {"Digits", "xaa", "0 0"},
               {"Digits", " aa", "0 0"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    data_tokenizer *t = open_text(
        text_of("{'normalizer':{'type':'Sequence','normalizers':[{'type':'Nmt'},{'type':'Replace',"
                "'pattern':{'String':'x'},'content':''},{'type':'NFC'},{'type':'Strip','strip_left':true,"
                "'strip_right':false},{'type':'Precompiled','precompiled_charsmap':'" CHARSMAP
                "'}]},'added_tokens':[{'id':2,'content':'<s>'}],'pre_tokenizer':{'type':'Sequence',"
                "'pretokenizers':[{'type':'%s'},{'type':'Metaspace','prepend_scheme':'first'}]},"
                "'model':{'vocab':{'a':0,'" BLANK "':1},'merges':[]}}",
                cases[i].before));
    cr_assert_str_eq(tokens_ids(t, cases[i].text), cases[i].ids, "%s", cases[i].text);
  }
}

#define BYTES "'<0xC3>':10,'<0xA9>':11,'<0xC4>':12,'<0x80>z':13"
#define LETTERS "'<unk>':0,'" BLANK "':1,'a':2,'b':3,'ab':4,'" BLANK "ab':5," BYTES

Test(data_tokens_models, bpe_falls_back_to_bytes_and_fuses_what_is_unknown) {
  static const char *const wanted[] = {"5 10 11 2 0 0", "5 10 11 2 0"};
  for (int fuse = 0; fuse < 2; fuse++) {
    data_tokenizer *t = open_text(
        fuse
            ? FILE_OF(META("first", "false") "'added_tokens':[{'id':14,'content':'<0x80>'}],",
                      "'dropout':0,'byte_fallback':true,'unk_token':'<unk>','fuse_unk':true,'vocab':{" LETTERS
                      "},'merges':['a b','" BLANK " ab']")
            : FILE_OF("'normalizer':{'type':'Sequence','normalizers':[{'type':'Prepend','prepend':'" BLANK
                      "'},{'type':'Replace','pattern':{'String':' '},'content':'" BLANK
                      "'}]}," META("never", "false"),
                      "'byte_fallback':true,'unk_token':'<unk>','vocab':{" LETTERS "},'merges':['a b','" BLANK
                      " ab']"));
    /* Of U+0100 one byte has no token. */
    cr_assert_str_eq(tokens_ids(t, "ab\u00e9a\u0100\u0100"), wanted[fuse]);
    cr_assert_str_eq(tokens_ids(t, "b ab"), "1 3 5");
    cr_assert_str_eq(decoded(t, (const int64_t[]){5, 10, 11, 5}, 4), "ab\u00e9 ab");
    cr_assert_str_eq(decoded(t, (const int64_t[]){4, 5}, 2), "ab ab"); /* only a blank is left out */
  }
}

Test(data_tokens_models, bpe_with_a_prefix_and_a_suffix) {
  data_tokenizer *t = open_text(
      FILE_OF("'pre_tokenizer':{'type':'WhitespaceSplit'},",
              "'continuing_subword_prefix':'##','end_of_word_suffix':'</w>','vocab':{'a':0,'##a':1,'a</w>':2,"
              "'##a</w>':3,'aa</w>':4,'aa':5,'##aa</w>':6},'merges':['a ##a</w>','a ##a']"));
  cr_assert_str_eq(tokens_ids(t, "a aa aaa aaaa"), "2 4 5 3 5 1 3");
}

/* The pieces of a text, each behind a bar, which a second step puts before it. */
static const char *pieces(const char *step, const char *text) {
  static char line[400];
  int64_t *ids = NULL, count;
  data_tokenizer *t = open_text(
      text_of("{'pre_tokenizer':{'type':'Sequence','pretokenizers':[%s,{'type':'Metaspace','replacement':'|',"
              "'prepend_scheme':'always','split':false}]},'model':{'type':'BPE','vocab':{'|':0,'a':1,'b':2,"
              "'-':3,'1':4,'2':5},'merges':[]}}",
              step));
  assert_ok(data_tokenizer_encode(t, "text", text, strlen(text), &ids, &count));
  for (int64_t i = 0; i < count; i++) line[i] = "|ab-12"[ids[i]];
  line[count] = '\0';
  free(ids);
  return line;
}

#define SPLIT(rule, more) "{'type':'Split','pattern':{'String':'-'},'behavior':'" rule "'" more "}"

#define REGEX(text) "{'type':'Split','pattern':{'Regex':'" text "'},'behavior':'Isolated'}"

Test(data_tokens_models, pieces_are_those_of_each_rule) {
  static const struct {
    const char *step, *pieces;
  } cases[] = {{SPLIT("Isolated", ""), "|a|-|-|b|-|12"},
               {SPLIT("Removed", ""), "|a|b|12"},
               {SPLIT("Removed", ",\"invert\":true"), "|-|-|-"},
               {SPLIT("MergedWithPrevious", ""), "|a-|-|b-|12"},
               {SPLIT("MergedWithNext", ""), "|a|-|-b|-12"},
               {SPLIT("Contiguous", ""), "|a|--|b|-|12"},
               {SPLIT("MergedWithNext", ",\"invert\":true"), "|a-|-|b-|12"},
               {REGEX("\\\\d"), "|a--b-|1|2"},
               {REGEX("\\\\d{2}|\\\\p{L}{1,}"), "|a|--|b|-|12"},
               {REGEX("\\\\D{1,3}"), "|a--|b-|12"},
               {REGEX("[a\\\\d]"), "|a|--b-|1|2"},
               {REGEX("[^-]+"), "|a|--|b|-|12"},
               {REGEX("\\\\S+"), "|a--b-12"},
               {REGEX("\\\\s|(?i:B)"), "|a--|b|-12"},
               {REGEX("\\\\-\\\\P{Nd}"), "|a|--|b-12"},
               {REGEX("(?<=a)-|-(?=1)"), "|a|-|-b|-|12"},
               {REGEX("(?<!a)-(?!1)"), "|a-|-|b-12"},
               {REGEX("(?>-+)(b)"), "|a|--b|-12"},
               {"{'type':'Punctuation'}", "|a|-|-|b|-|12"},
               {"{'type':'Digits','individual_digits':true}", "|a--b-|1|2"},
               {"{'type':'Digits'}", "|a--b-|12"},
               {"{'type':'CharDelimiterSplit','delimiter':'b'}", "|a--|-12"},
               {"{'type':'Whitespace'}", "|a|--|b|-|12"},
               {"{'type':'WhitespaceSplit'}", "|a--b-12"},
               {"{'type':'BertPreTokenizer'}", "|a|-|-|b|-|12"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    cr_assert_str_eq(pieces(cases[i].step, "a--b-12"), cases[i].pieces, "%s: %s", cases[i].step,
                     pieces(cases[i].step, "a--b-12"));
}

Test(data_tokens_models, normalisers_rewrite) {
  static const struct {
    const char *step, *text, *becomes;
  } cases[] = {{"\"NFKD\"", "\ufb01\u00e9", "fie\u0301"},
               {"\"NFKC\"", "\ufb01e\u0301", "fi\u00e9"},
               {"\"NFD\"", "\ufb01\u00e9", "\ufb01e\u0301"},
               {"\"Lowercase\"", "\u00c9\u0130\u03a3", "\u00e9i\u0307\u03c3"},
               {"\"StripAccents\"", "e\u0301\u093e\u00e9", "e\u00e9"},
               {"\"Nmt\"", "a\x01\u200bi\tf", "a i f"},
               {"\"Strip\",\"strip_left\":true,\"strip_right\":false", "\u3000 a ", "a "},
               {"\"Strip\",\"strip_left\":false,\"strip_right\":true", " a\n\u3000", " a"},
               {"\"Replace\",\"pattern\":{\"Regex\":\"f+|i\"},\"content\":\"%%\"", "fffiaf", "%%%%a%%"},
               {"\"Replace\",\"pattern\":{\"String\":\".*\"},\"content\":\"\"", "a.*f.", "af."},
               {"\"Precompiled\",\"precompiled_charsmap\":\"" CHARSMAP "\"",
                "f\x01\r\n\t\x02!\u0301\u0301!\u0301\u20d0", "fab\t\002aa\u0301\u20d0"},
               {"\"BertNormalizer\",\"lowercase\":false", "\u4e2d\t\ufffd\u00c9\x01", " \u4e2d  \u00c9"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    /* Whose ids are the bytes of what is left. */
    json_t *file = tokens_file(GPT2_STEPS, NULL);
    char left[40] = "";
    int64_t *ids = NULL, count;
    const char *normalizer = text_of("{\"type\":%s}", cases[i].step);
    json_object_set_new(file, "normalizer", json_loads(normalizer, 0, NULL));
    data_tokenizer *t = tokens_open(file);
    assert_ok(data_tokenizer_encode(t, "text", cases[i].text, strlen(cases[i].text), &ids, &count));
    for (int64_t k = 0; k < count; k++) left[k] = (char)ids[k];
    cr_assert_str_eq(left, cases[i].becomes, "%s", cases[i].step);
    free(ids);
    /* A NUL is a character as others are, which no step drops but the cleaning one. */
    assert_ok(data_tokenizer_encode(t, "text", "a\0c", 3, &ids, &count));
    cr_assert(count == 3 - (strstr(normalizer, "Bert") != NULL) && ids[count - 1] == 'c');
    free(ids);
  }
}

Test(data_tokens_models, added_tokens_take_blanks_and_stand_alone) {
  data_tokenizer *t = open_text(
      FILE_OF("'normalizer':{'type':'Lowercase'},'added_tokens':[{'id':7,'content':'<X>','lstrip':true,"
              "'rstrip':true,'normalized':false},{'id':8,'content':'Ab','single_word':true,"
              "'normalized':true},{'id':9,'content':'aab'},{'id':10,'content':'c','single_word':true}],",
              "'unk_token':'.','vocab':{'a':0,'b':1,' ':2,'<':3,'x':4,'>':5,'.':6},'merges':[]"));
  cr_assert_str_eq(tokens_ids(t, "a \u2003<X> \t<X> a"), "0 7 7 0");
  cr_assert_str_eq(tokens_ids(t, "<x>"), "3 4 5");
  cr_assert_str_eq(tokens_ids(t, "AB.ab bab ab"), "8 6 8 2 1 0 1 2 8");
  cr_assert_str_eq(tokens_ids(t, "aab"), "9");
  cr_assert_str_eq(tokens_ids(t, "acb c"), "0 6 1 2 10"); /* inside a word it is no token of the model's */
  cr_assert_str_eq(tokens_ids(t, "AAB"), "0 0 1"); /* not before the normalizer, and no piece becomes it */
}
