/* model_json.c - model and added_tokens of a tokenizer.json: the vocabulary, the merges, and the tokens that
 * a text is cut at before anything else. */
#include "data/tokens/tokenizer_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACE = 400 }; /* more than a message holds */

static attn_status get_id(const char *file, json_t *value, const char *what, const char *name, int64_t *out) {
  if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) >= TOKENS_MAX)
    return attn_fail(ATTN_EINVAL, "%s: %s%s is not an id from 0 to %d", file, what, name, TOKENS_MAX - 1);
  *out = json_integer_value(value);
  return ATTN_OK;
}

/* ---- tokens -------------------------------------------------------------------------------------------- */

/* One of added_tokens, which may be in the vocabulary, too, under the same id. */
static attn_status add_added(data_tokenizer *t, json_t *vocab, json_t *list, size_t i) {
  static const char *const absent[] = {"single_word", "lstrip", "rstrip"};
  int64_t id = 0, there = 0;
  char place[PLACE];
  json_t *each = json_array_get(list, i), *content = json_given(each, "content");
  if (!json_is_string(content) || !json_string_length(content))
    return attn_fail(ATTN_EINVAL, "%s: added_tokens[%zu].content is not a text", t->file, i);
  const char *text = json_string_value(content);
  attn_status status = get_id(t->file, json_given(each, "id"), "added_tokens: the id of ", text, &id);
  for (size_t k = 0; !status && k < sizeof absent / sizeof *absent; k++) {
    bool set;
    snprintf(place, sizeof place, "%s: added_tokens[%zu]", t->file, i);
    status = json_flag(place, each, absent[k], &set);
    if (!status && set)
      status =
          attn_fail(ATTN_EUNSUPPORTED, "%s: added_tokens[%zu].%s is not supported", t->file, i, absent[k]);
  }
  if (status) return status;
  json_t *same = json_object_get(vocab, text);
  if (same) status = get_id(t->file, same, "model.vocab: the number of ", text, &there);
  if (!status && same && there != id)
    status =
        attn_fail(ATTN_EINVAL, "%s: '%s' is token %" PRId64 " in added_tokens and %" PRId64 " in model.vocab",
                  t->file, text, id, there);
  if (status || same) return status;
  return vocabulary_add(&t->words, t->file, text, json_string_length(content), id, TOKEN_LITERAL);
}

static attn_status add_tokens(data_tokenizer *t, json_t *vocab, json_t *added) {
  size_t bytes = 0, i;
  const char *text;
  json_t *value;
  attn_status status = ATTN_OK;
  json_object_foreach(vocab, text, value) bytes += strlen(text);
  json_array_foreach(added, i, value) bytes += json_string_length(json_object_get(value, "content"));
  const size_t count = json_object_size(vocab) + json_array_size(added);
  if (count > TOKENS_MAX) return attn_fail(ATTN_EUNSUPPORTED, "%s: %zu tokens", t->file, count);
  status = vocabulary_begin(&t->words, t->file, count, bytes);
  json_object_foreach(vocab, text, value) {
    int64_t id = 0;
    if (!status) status = get_id(t->file, value, "model.vocab: the number of ", text, &id);
    if (!status) status = vocabulary_add(&t->words, t->file, text, strlen(text), id, TOKEN_NORMAL);
  }
  for (i = 0; !status && i < json_array_size(added); i++) status = add_added(t, vocab, added, i);
  return status ? status : vocabulary_end(&t->words, t->file);
}

static bool is_ascii(const char *text) {
  while (*text && (uint8_t)*text < 128) text++;
  return !*text;
}

/* Those of added_tokens that are looked for after the normalisation, or before it. */
static attn_status find_literals(data_tokenizer *t, json_t *added, bool normalised, literals *out) {
  size_t count = 0, i;
  json_t *each;
  attn_status status = ATTN_OK;
  token *items = calloc(json_array_size(added) + 1, sizeof *items);
  if (!items) return attn_fail(ATTN_ENOMEM, "%s: no memory for its added_tokens", t->file);
  json_array_foreach(added, i, each) {
    json_t *content = json_object_get(each, "content");
    bool late = false;
    char place[PLACE];
    snprintf(place, sizeof place, "%s: added_tokens[%zu]", t->file, i);
    if (!status) status = json_flag(place, each, "normalized", &late);
    if (status || late != normalised) continue;
    token *found = vocabulary_find(&t->words, json_string_value(content), json_string_length(content));
    found->kind = TOKEN_LITERAL;
    items[count++] = *found;
    if (late && t->nfc && !is_ascii(json_string_value(content)))
      status = attn_fail(ATTN_EUNSUPPORTED, "%s is normalized and not ASCII", place);
  }
  literals_make(out, items, count);
  return status;
}

/* ---- merges -------------------------------------------------------------------------------------------- */

/* "a b", or a list of two texts. */
static attn_status add_merge(data_tokenizer *t, json_t *merge, size_t i) {
  static const char where[] = "model.merges";
  json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
  if (json_array_size(merge) == 2 && json_is_string(a) && json_is_string(b))
    return byte_level_merge(t, where, i, json_string_value(a), json_string_length(a), json_string_value(b),
                            json_string_length(b));
  if (json_is_string(merge))
    return byte_level_merge_text(t, where, i, json_string_value(merge), json_string_length(merge));
  return attn_fail(ATTN_EINVAL, "%s: %s[%zu] is neither 'a b' nor a list of two texts", t->file, where, i);
}

static attn_status add_merges(data_tokenizer *t, json_t *merges) {
  size_t i;
  json_t *each;
  const size_t count = json_array_size(merges);
  attn_status status = byte_level_merges(t, count);
  json_array_foreach(merges, i, each) {
    if (!status) status = add_merge(t, each, i);
  }
  return status;
}

/* ---- the model ----------------------------------------------------------------------------------------- */

/* unk_token and fuse_unk concern characters without a token: each byte has one, or the text is refused. */
static attn_status refuse_variations(const char *place, json_t *model) {
  static const char *const known[] = {"type",
                                      "dropout",
                                      "unk_token",
                                      "continuing_subword_prefix",
                                      "end_of_word_suffix",
                                      "fuse_unk",
                                      "byte_fallback",
                                      "ignore_merges",
                                      "vocab",
                                      "merges",
                                      NULL};
  bool fallback = false;
  if (json_given(model, "type") && !json_is_type(model, "BPE"))
    return attn_fail(ATTN_EUNSUPPORTED, "%s.type is not BPE; nothing else is computed", place);
  attn_status status = json_check_keys(place, model, known);
  if (!status) status = json_flag(place, model, "byte_fallback", &fallback);
  if (status) return status;
  if (fallback) return attn_fail(ATTN_EUNSUPPORTED, "%s.byte_fallback is not supported", place);
  json_t *dropout = json_given(model, "dropout");
  const bool dropped = dropout && !(json_is_number(dropout) && !(json_number_value(dropout) > 0));
  if (dropped) return attn_fail(ATTN_EUNSUPPORTED, "%s.dropout is not supported", place);
  for (int k = 3; k < 5; k++) {
    json_t *affix = json_given(model, known[k]);
    if (affix && (!json_is_string(affix) || json_string_length(affix)))
      return attn_fail(ATTN_EUNSUPPORTED, "%s.%s is not supported", place, known[k]);
  }
  return ATTN_OK;
}

attn_status read_model(data_tokenizer *t, json_t *file) {
  json_t *model = json_given(file, "model"), *added = json_given(file, "added_tokens");
  json_t *vocab = json_given(model, "vocab"), *merges = json_given(model, "merges");
  char place[PLACE];
  if (!json_is_object(model)) return attn_fail(ATTN_EINVAL, "%s: model is missing", t->file);
  snprintf(place, sizeof place, "%s: model", t->file);
  attn_status status = refuse_variations(place, model);
  if (!status) status = json_flag(place, model, "ignore_merges", &t->ignore_merges);
  if (status) return status;
  if (!json_object_size(vocab)) return attn_fail(ATTN_EINVAL, "%s.vocab is missing or empty", place);
  if (!json_is_array(merges)) return attn_fail(ATTN_EINVAL, "%s.merges is missing or not a list", place);
  if (added && !json_is_array(added))
    return attn_fail(ATTN_EINVAL, "%s: added_tokens is not a list", t->file);
  status = add_tokens(t, vocab, added);
  if (!status) status = find_literals(t, added, false, &t->plain);
  if (!status) status = find_literals(t, added, true, &t->normalised);
  if (!status) status = add_merges(t, merges);
  if (!status) byte_level_bytes(t);
  return status;
}
