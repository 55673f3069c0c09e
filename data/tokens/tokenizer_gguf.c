/* tokenizer_gguf.c - the tokenizer of a GGUF file: SentencePiece's BPE, which it calls "llama", or byte-level
 * BPE, which it calls "gpt2". */
#include <inttypes.h>
#include <stdlib.h>

#include "data/formats/gguf.h"
#include "data/tokens/tokenizer.h"

/* preset: of an absent key. */
static attn_status get_flag(const gguf *file, const char *key, bool preset, bool *out) {
  const setting s = gguf_get(file, key);
  const attn_status status = setting_flag(gguf_path(file), key, s, out);
  if (!status && s.kind == SETTING_ABSENT) *out = preset;
  return status;
}

/* -1: the key is absent. */
static attn_status get_id(const gguf *file, const char *key, int64_t count, int64_t *out) {
  const setting s = gguf_get(file, key);
  *out = s.kind == SETTING_ABSENT ? -1 : s.integer;
  if (s.kind == SETTING_ABSENT || (s.kind == SETTING_INTEGER && s.integer >= 0 && s.integer < count))
    return ATTN_OK;
  return attn_fail(ATTN_EINVAL, "%s: %s is not an id from 0 to %" PRId64, gguf_path(file), key, count - 1);
}

static attn_status wrong_item(const gguf *file, const char *key, int64_t i, const char *wanted) {
  return attn_fail(ATTN_EINVAL, "%s: %s[%" PRId64 "] is not %s", gguf_path(file), key, i, wanted);
}

/* The three lists; each has room for as many as there are tokens. scores, types NULL: the file has none. */
static attn_status take_lists(const gguf *file, int64_t count, data_piece *pieces, float *scores,
                              int32_t *types) {
  static const char *const keys[] = {"tokenizer.ggml.tokens", "tokenizer.ggml.scores",
                                     "tokenizer.ggml.token_type"};
  const bool given[] = {true, scores != NULL, types != NULL};
  for (int k = 0; k < 3; k++) {
    if (!given[k]) continue;
    gguf_list list = gguf_get_list(file, keys[k]);
    if (list.count != (uint64_t)count)
      return attn_fail(ATTN_EINVAL, "%s: %s has %" PRIu64 " items, for %" PRId64 " tokens", gguf_path(file),
                       keys[k], list.count, count);
    for (int64_t i = 0; i < count; i++) {
      const setting s = gguf_next(&list);
      const bool number = s.kind == SETTING_REAL || s.kind == SETTING_INTEGER;
      if (k == 0 && s.kind != SETTING_TEXT) return wrong_item(file, keys[k], i, "a text");
      if (k == 1 && !number) return wrong_item(file, keys[k], i, "a number");
      if (k == 2 && (s.kind != SETTING_INTEGER || s.integer < 0 || s.integer > INT32_MAX))
        return wrong_item(file, keys[k], i, "a type");
      if (k == 0) pieces[i] = (data_piece){s.text, s.bytes};
      if (k == 1) scores[i] = (float)s.real;
      if (k == 2) types[i] = (int32_t)s.integer;
    }
  }
  return ATTN_OK;
}

static attn_status make(const gguf *file, data_tokenizer **out) {
  const char *path = gguf_path(file), *model = "tokenizer.ggml.model";
  data_sentencepiece s = {.file = path};
  const bool bytes = setting_is(gguf_get(file, model), "gpt2");
  bool first = true, prefix = true;
  const uint64_t count = gguf_get_list(file, "tokenizer.ggml.tokens").count;
  if (gguf_get(file, model).kind == SETTING_ABSENT)
    return attn_fail(ATTN_ENOTFOUND, "%s: %s is missing", path, model);
  attn_status status = bytes ? ATTN_OK : setting_expect(path, model, gguf_get(file, model), "llama", true);
  if (!status && (count < 1 || count > TOKENS_MAX))
    status = attn_fail(ATTN_EINVAL, "%s: tokenizer.ggml.tokens has %" PRIu64 " items; expected 1 to %d", path,
                       count, TOKENS_MAX);
  s.count = (int64_t)count;
  if (!status)
    status = get_flag(file, "tokenizer.ggml.add_bos_token", !bytes || byte_level_begins(file), &first);
  if (!status) status = get_flag(file, "tokenizer.ggml.add_space_prefix", !bytes, &prefix);
  if (!status) status = get_id(file, "tokenizer.ggml.bos_token_id", s.count, &s.bos);
  if (!status) status = get_id(file, "tokenizer.ggml.unknown_token_id", s.count, &s.unknown);
  if (status) return status;
  const bool typed = gguf_get(file, "tokenizer.ggml.token_type").kind != SETTING_ABSENT;
  data_piece *pieces = malloc(count * sizeof *pieces);
  float *scores = bytes ? NULL : malloc(count * sizeof *scores);
  int32_t *types = typed ? malloc(count * sizeof *types) : NULL;
  if (!pieces || (!bytes && !scores) || (typed && !types))
    status = attn_fail(ATTN_ENOMEM, "%s: no memory for %" PRIu64 " tokens", path, count);
  if (!status) status = take_lists(file, s.count, pieces, scores, types);
  if (!first) s.bos = -1;
  s.prefix = prefix;
  s.pieces = pieces;
  s.scores = scores;
  s.types = types;
  if (!status) status = bytes ? byte_level_open_gguf(file, &s, out) : data_tokenizer_make(&s, out);
  free(pieces);
  free(scores);
  free(types);
  return status;
}

attn_status tokenizer_open_gguf(const char *path, data_tokenizer **out) {
  gguf *file = NULL;
  attn_status status = gguf_open(path, &file);
  if (status) return status;
  status = make(file, out);
  gguf_close(file);
  return status;
}
