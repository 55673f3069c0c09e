/* tokens_fixture.h - tokenizers for tests: a small tokenizer.json, and ids as a text. */
#ifndef TESTS_DATA_TOKENS_FIXTURE_H
#define TESTS_DATA_TOKENS_FIXTURE_H

#include <inttypes.h>
#include <jansson.h>

#include "tests/support/data_fixture.h"

#define GPT2_STEPS \
  "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}"
#define PREFIX_STEPS "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}"
/* A regular expression before bytes become letters; text as it stands in JSON. */
#define SPLIT_STEPS(text)                                                                        \
  "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" text \
  "\"},\"behavior\":\"Isolated\",\"invert\":false},"                                             \
  "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}"
/* Llama 3's; Qwen's takes one digit at a time. */
#define LLAMA3_PATTERN                                                                   \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| " \
  "?[^\\\\s\\\\p{L}\\\\p{N}]+["                                                          \
  "\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"

/* GPT-2's letter of a byte, from its definition: printable bytes are their own letters, the others follow
 * from 256 on. */
static inline void tokens_letter(int byte, char out[3]) {
  int letter = byte, others = 0;
  for (int b = 0; b <= byte; b++) {
    const bool prints = (b > 32 && b < 127) || (b > 160 && b < 173) || b > 173;
    if (b == byte && !prints) letter = 256 + others;
    others += !prints;
  }
  memset(out, 0, 3);
  if (letter < 128) out[0] = (char)letter;
  if (letter >= 128) {
    out[0] = (char)(0xc0 | letter >> 6);
    out[1] = (char)(0x80 | (letter & 63));
  }
}

/* The letters of all bytes, whose ids are the bytes. */
static inline json_t *tokens_letters(void) {
  json_t *vocab = json_object();
  for (int b = 0; b < 256; b++) {
    char letter[3];
    tokens_letter(b, letter);
    json_object_set_new(vocab, letter, json_integer(b));
  }
  return vocab;
}

/* A tokenizer.json in the fixture's directory: bytes, and merges "a b" whose results get the ids from 256
 * on. */
static inline json_t *tokens_file(const char *steps, const char *const *merges) {
  json_t *vocab = tokens_letters(), *list = json_array();
  for (size_t i = 0; merges && merges[i]; i++) {
    const size_t half = strcspn(merges[i], " ");
    const char *whole = text_of("%.*s%s", (int)half, merges[i], merges[i] + half + 1);
    if (!json_object_get(vocab, whole))
      json_object_set_new(vocab, whole, json_integer((json_int_t)json_object_size(vocab)));
    json_array_append_new(list, json_string(merges[i]));
  }
  return json_pack("{s:s, s:n, s:o, s:{s:s, s:b, s:o, s:o}}", "version", "1.0", "normalizer", "pre_tokenizer",
                   json_loads(steps, 0, NULL), "model", "type", "BPE", "ignore_merges", 0, "vocab", vocab,
                   "merges", list);
}

/* Writes it; *file goes. */
static inline void tokens_write(json_t *file) {
  char *text = json_dumps(file, JSON_COMPACT);
  cr_assert_not_null(text);
  fixture_write(fixture_path("tokenizer.json"), text, strlen(text));
  free(text);
  json_decref(file);
}

/* Writes a text as it is, except that " stands for each '. */
static inline void tokens_write_text(const char *text) {
  char *file = strdup(text);
  for (char *at = file; (at = strchr(at, '\'')); at++) *at = '"';
  fixture_write(fixture_path("tokenizer.json"), file, strlen(file));
  free(file);
}

static inline void close_tokenizer(void *tokenizer) { data_tokenizer_close(tokenizer); }

/* Of a path; tokenizers go with the process. */
static inline data_tokenizer *tokens_open_path(const char *path) {
  data_tokenizer *t = NULL;
  assert_ok(data_tokenizer_open(path, &t));
  return keep_object(t, close_tokenizer);
}

/* The one that is there. */
static inline data_tokenizer *tokens_open_there(void) { return tokens_open_path(fixture_directory); }

static inline data_tokenizer *tokens_open(json_t *file) {
  tokens_write(file);
  return tokens_open_there();
}

/* "259 262 263" */
static inline const char *tokens_ids(const data_tokenizer *t, const char *text) {
  static char line[4096];
  int64_t *ids = NULL, count = 0;
  size_t used = 0;
  assert_ok(data_tokenizer_encode(t, "text", text, strlen(text), &ids, &count));
  for (int64_t i = 0; i < count; i++) {
    used += (size_t)snprintf(line + used, sizeof line - used, "%s%" PRId64, i ? " " : "", ids[i]);
    cr_assert(used < sizeof line);
  }
  free(ids);
  return line;
}

static inline void tokens_round_trip(const data_tokenizer *t, const char *text, size_t bytes) {
  int64_t *ids = NULL, count = 0;
  char *again = NULL;
  size_t length = 0;
  assert_ok(data_tokenizer_encode(t, "text", text, bytes, &ids, &count));
  assert_ok(data_tokenizer_decode(t, ids, count, &again, &length));
  cr_assert(length == bytes && memcmp(text, again, bytes) == 0, "'%s' became '%s'", text, again);
  free(ids);
  free(again);
}

#endif
