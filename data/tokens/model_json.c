/* model_json.c - model of a tokenizer.json, BPE, WordPiece or Unigram: the vocabulary with the texts of
 * added_tokens, merges, scores. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/file.h"
#include "data/tokens/tokenizer_json.h"

attn_status json_id(const char *file, json_t *value, const char *what, const char *name, int64_t *out) {
  if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) >= TOKENS_MAX)
    return attn_fail(ATTN_EINVAL, "%s: %s%s is not an id from 0 to %d", file, what, name, TOKENS_MAX - 1);
  *out = json_integer_value(value);
  return ATTN_OK;
}

/* ---- tokens -------------------------------------------------------------------------------------------- */

static attn_status add_words(data_tokenizer *t, json_t *vocab) {
  const char *text;
  json_t *value;
  attn_status status = ATTN_OK;
  json_object_foreach(vocab, text, value) {
    int64_t id = 0;
    if (!status) status = json_id(t->file, value, "model.vocab: the number of ", text, &id);
    if (!status) status = vocabulary_add(&t->words, t->file, text, strlen(text), id, TOKEN_NORMAL);
  }
  return status;
}

/* Texts with scores; the place of each is its id. */
static attn_status add_scored(data_tokenizer *t, json_t *vocab) {
  const size_t count = json_array_size(vocab);
  double least = (double)INFINITY;
  attn_status status = ATTN_OK;
  t->score = malloc((count + 1) * sizeof *t->score);
  if (!t->score) return attn_fail(ATTN_ENOMEM, "%s: no memory for %zu scores", t->file, count);
  for (size_t i = 0; !status && i < count; i++) {
    json_t *item = json_array_get(vocab, i), *text = json_array_get(item, 0),
           *score = json_array_get(item, 1);
    if (json_array_size(item) != 2 || !json_is_string(text) || !json_is_number(score))
      return attn_fail(ATTN_EINVAL, "%s: model.vocab[%zu] is not a text with a score", t->file, i);
    t->score[i] = json_number_value(score);
    least = fmin(least, t->score[i]);
    status = vocabulary_add(&t->words, t->file, json_string_value(text), json_string_length(text), (int64_t)i,
                            TOKEN_NORMAL);
  }
  t->unknown_score = least - 10;
  return status;
}

static attn_status add_tokens(data_tokenizer *t, json_t *vocab, json_t *added) {
  size_t bytes = 0, i;
  const char *text;
  json_t *value;
  json_object_foreach(vocab, text, value) bytes += strlen(text);
  json_array_foreach(vocab, i, value) bytes += json_string_length(json_array_get(value, 0));
  json_array_foreach(added, i, value) bytes += json_string_length(json_object_get(value, "content"));
  const size_t count = json_object_size(vocab) + json_array_size(vocab) + json_array_size(added);
  if (count > TOKENS_MAX) return attn_fail(ATTN_EUNSUPPORTED, "%s: %zu tokens", t->file, count);
  attn_status status = vocabulary_begin(&t->words, t->file, count, bytes);
  if (!status) status = json_is_array(vocab) ? add_scored(t, vocab) : add_words(t, vocab);
  if (!status) status = add_added(t, vocab, added);
  return status ? status : vocabulary_end(&t->words, t->file);
}

/* The tokens of bytes: those whose names are "<0x00>" to "<0xFF>". */
static void find_bytes(data_tokenizer *t) {
  for (size_t i = 0; i < t->words.count; i++) {
    token *at = &t->words.token[i];
    const int byte = at->added ? -1 : piece_byte(at->text, at->bytes);
    if (byte < 0) continue;
    t->byte_id[byte] = at->id;
    at->kind = TOKEN_BYTE;
  }
}

/* The model's tokens that begin with a prefix, without it. */
static attn_status sort_pieces(const data_tokenizer *t, const char *prefix, literals *out) {
  const size_t skip = strlen(prefix);
  size_t count = 0;
  token *items = malloc((t->words.count + 1) * sizeof *items);
  if (!items) return attn_fail(ATTN_ENOMEM, "%s: no memory for its tokens", t->file);
  for (size_t i = 0; i < t->words.count; i++) {
    const token *each = &t->words.token[i];
    if (each->added || each->bytes <= skip || memcmp(each->text, prefix, skip) != 0) continue;
    items[count] = *each;
    items[count].text += skip;
    items[count++].bytes -= (uint32_t)skip;
  }
  literals_make(out, items, count);
  return ATTN_OK;
}

/* ---- merges -------------------------------------------------------------------------------------------- */

/* "a b", or a list of two texts. */
static attn_status add_merge(data_tokenizer *t, json_t *merge, size_t i) {
  static const char where[] = "model.merges";
  json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
  if (json_array_size(merge) == 2 && json_is_string(a) && json_is_string(b))
    return bpe_merge(t, where, i, json_string_value(a), json_string_length(a), json_string_value(b),
                     json_string_length(b));
  if (json_is_string(merge))
    return bpe_merge_text(t, where, i, json_string_value(merge), json_string_length(merge));
  return attn_fail(ATTN_EINVAL, "%s: %s[%zu] is neither 'a b' nor a list of two texts", t->file, where, i);
}

static attn_status add_merges(data_tokenizer *t, json_t *merges) {
  size_t i;
  json_t *each;
  const size_t count = json_array_size(merges);
  attn_status status = bpe_merges(t, count);
  json_array_foreach(merges, i, each) {
    if (!status) status = add_merge(t, each, i);
  }
  return status;
}

/* ---- the model ----------------------------------------------------------------------------------------- */

/* The token that stands for what has none; a name that is no token is as none. */
static attn_status read_unknown(data_tokenizer *t, const char *place, json_t *model) {
  json_t *name = json_given(model, "unk_token");
  if (name && !json_is_string(name)) return attn_fail(ATTN_EINVAL, "%s.unk_token is not a text", place);
  const token *found = name ? tokenizer_find(t, json_string_value(name), json_string_length(name)) : NULL;
  t->unknown = found ? found->id : -1;
  return ATTN_OK;
}

/* *out: NULL if absent or empty. */
static attn_status read_affix(const char *place, json_t *model, const char *key, char **out) {
  json_t *value = json_given(model, key);
  if (value && !json_is_string(value)) return attn_fail(ATTN_EINVAL, "%s.%s is not a text", place, key);
  if (!value || !json_string_length(value)) return ATTN_OK;
  if (json_string_length(value) > TOKEN_BYTES_MAX)
    return attn_fail(ATTN_EUNSUPPORTED, "%s.%s has more than %d bytes", place, key, TOKEN_BYTES_MAX);
  *out = text_format("%s", json_string_value(value));
  return *out ? ATTN_OK : attn_fail(ATTN_ENOMEM, "%s: no memory for %s", place, key);
}

static attn_status read_bpe(data_tokenizer *t, const char *place, json_t *model, json_t *added) {
  json_t *dropout = json_given(model, "dropout"), *merges = json_given(model, "merges");
  bool fallback = false;
  const bool dropped = dropout && !(json_is_number(dropout) && !(json_number_value(dropout) > 0));
  if (dropped) return attn_fail(ATTN_EUNSUPPORTED, "%s.dropout is not supported", place);
  attn_status status = json_flag(place, model, "byte_fallback", &fallback);
  if (!status) status = json_flag(place, model, "fuse_unk", &t->fuse_unknown);
  if (!status) status = json_flag(place, model, "ignore_merges", &t->ignore_merges);
  if (!status) status = read_affix(place, model, "continuing_subword_prefix", &t->continuing);
  if (!status) status = read_affix(place, model, "end_of_word_suffix", &t->ending);
  if (status) return status;
  if (fallback && (t->continuing || t->ending))
    return attn_fail(ATTN_EUNSUPPORTED, "%s.byte_fallback with a prefix or suffix is not supported", place);
  if (!json_object_size(json_given(model, "vocab")))
    return attn_fail(ATTN_EINVAL, "%s.vocab is missing or empty", place);
  if (!json_is_array(merges)) return attn_fail(ATTN_EINVAL, "%s.merges is missing or not a list", place);
  status = add_tokens(t, json_given(model, "vocab"), added);
  if (!status) status = read_unknown(t, place, model);
  if (!status && fallback) find_bytes(t);
  return status ? status : add_merges(t, merges);
}

static attn_status read_wordpiece(data_tokenizer *t, const char *place, json_t *model, json_t *added) {
  json_t *most = json_given(model, "max_input_chars_per_word");
  t->characters = most ? json_integer_value(most) : 100;
  if (most && (!json_is_integer(most) || t->characters < 1))
    return attn_fail(ATTN_EINVAL, "%s.max_input_chars_per_word is not a positive number", place);
  if (!json_object_size(json_given(model, "vocab")))
    return attn_fail(ATTN_EINVAL, "%s.vocab is missing or empty", place);
  attn_status status = read_affix(place, model, "continuing_subword_prefix", &t->continuing);
  if (!status) status = add_tokens(t, json_given(model, "vocab"), added);
  if (!status) status = read_unknown(t, place, model);
  if (!status) status = sort_pieces(t, "", &t->pieces);
  return status ? status : sort_pieces(t, t->continuing ? t->continuing : "", &t->continued);
}

static attn_status read_unigram(data_tokenizer *t, const char *place, json_t *model, json_t *added) {
  json_t *vocab = json_given(model, "vocab"), *unknown = json_given(model, "unk_id");
  bool fallback = false;
  if (!json_is_array(vocab) || !json_array_size(vocab))
    return attn_fail(ATTN_EINVAL, "%s.vocab is missing or empty", place);
  attn_status status = json_flag(place, model, "byte_fallback", &fallback);
  if (!status && unknown) status = json_id(t->file, unknown, "model.unk_id", "", &t->unknown);
  if (!status && t->unknown >= (int64_t)json_array_size(vocab))
    status = attn_fail(ATTN_EINVAL, "%s.unk_id is %" PRId64 " of %zu tokens", place, t->unknown,
                       json_array_size(vocab));
  if (!status) status = add_tokens(t, vocab, added);
  if (!status && fallback) find_bytes(t);
  return status ? status : sort_pieces(t, "", &t->pieces);
}

static const struct model_type {
  const char *name;
  attn_status (*read)(data_tokenizer *, const char *place, json_t *model, json_t *added);
  piece_model *encode;
  const char *known[11];
} models[] = {{"BPE",
               read_bpe,
               bpe_encode,
               {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                "byte_fallback", "ignore_merges", "vocab", "merges"}},
              {"WordPiece",
               read_wordpiece,
               wordpiece_encode,
               {"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"}},
              {"Unigram", read_unigram, unigram_encode, {"type", "unk_id", "byte_fallback", "vocab"}}};

attn_status read_model(data_tokenizer *t, json_t *file) {
  json_t *model = json_given(file, "model"), *added = json_given(file, "added_tokens");
  char place[JSON_PLACE];
  snprintf(place, sizeof place, "%s: model", t->file);
  if (!json_is_object(model)) return attn_fail(ATTN_EINVAL, "%s is missing", place);
  if (added && !json_is_array(added))
    return attn_fail(ATTN_EINVAL, "%s: added_tokens is not a list", t->file);
  const struct model_type *type = models, *end = models + sizeof models / sizeof *models;
  while (json_given(model, "type") && type < end && !json_is_type(model, type->name)) type++;
  if (type == end)
    return attn_fail(ATTN_EUNSUPPORTED, "%s.type is not BPE, WordPiece or Unigram; nothing else is computed",
                     place);
  attn_status status = json_check_keys(place, model, type->known);
  t->model = type->encode;
  if (!status) status = type->read(t, place, model, added);
  return status ? status : read_added(t, added);
}
