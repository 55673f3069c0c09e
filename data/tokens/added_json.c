/* added_json.c - added_tokens of a tokenizer.json: the tokens that a text is cut at, before the normaliser or
 * behind it. */
#include <inttypes.h>
#include <stdio.h>

#include "data/tokens/tokenizer_json.h"

/* ---- texts --------------------------------------------------------------------------------------------- */

/* The id of a text in model.vocab, an object of ids or a list of texts with scores; NULL: it is not there. */
static json_t *find_in_vocab(json_t *vocab, const char *text, json_t *id) {
  if (!json_is_array(vocab)) return json_object_get(vocab, text);
  json_t *item = json_array_get(vocab, (size_t)json_integer_value(id));
  const char *there = json_string_value(json_array_get(item, 0));
  return there && strcmp(there, text) == 0 ? id : NULL;
}

static attn_status add_one(data_tokenizer *t, json_t *vocab, json_t *each, size_t i) {
  int64_t id = 0, there = 0;
  json_t *content = json_given(each, "content"), *number = json_given(each, "id");
  if (!json_is_string(content) || !json_string_length(content))
    return attn_fail(ATTN_EINVAL, "%s: added_tokens[%zu].content is not a text", t->file, i);
  const char *text = json_string_value(content);
  attn_status status = json_id(t->file, number, "added_tokens: the id of ", text, &id);
  if (status) return status;
  json_t *same = find_in_vocab(vocab, text, number);
  if (same) status = json_id(t->file, same, "model.vocab: the number of ", text, &there);
  if (!status && same && there != id)
    status =
        attn_fail(ATTN_EINVAL, "%s: '%s' is token %" PRId64 " in added_tokens and %" PRId64 " in model.vocab",
                  t->file, text, id, there);
  if (status || same) return status;
  status = vocabulary_add(&t->words, t->file, text, json_string_length(content), id, TOKEN_LITERAL);
  if (!status) t->words.token[t->words.count - 1].added = true;
  return status;
}

attn_status add_added(data_tokenizer *t, json_t *vocab, json_t *added) {
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < json_array_size(added); i++)
    status = add_one(t, vocab, json_array_get(added, i), i);
  return status;
}

/* ---- where a text is cut ------------------------------------------------------------------------------- */

typedef struct cuts {
  data_tokenizer *t;
  pattern_work *match;
  token *plain, *normalised;
  size_t plains, normaliseds;
  buffer text; /* what the normaliser makes of the second, one after another */
} cuts;

static attn_status collect(void *context, const uint8_t *text, size_t bytes, bool first) {
  cuts *c = context;
  (void)first;
  return buffer_put(&c->text, text, bytes);
}

static attn_status add_cut(cuts *c, json_t *each, size_t i) {
  char place[JSON_PLACE];
  json_t *content = json_object_get(each, "content");
  bool late = false;
  token *found = vocabulary_find(&c->t->words, json_string_value(content), json_string_length(content));
  snprintf(place, sizeof place, "%s: added_tokens[%zu]", c->t->file, i);
  attn_status status = json_flag(place, each, "normalized", &late);
  if (!status) status = json_flag(place, each, "lstrip", &found->lstrip);
  if (!status) status = json_flag(place, each, "rstrip", &found->rstrip);
  if (!status) status = json_flag(place, each, "single_word", &found->single_word);
  if (status) return status;
  found->kind = TOKEN_LITERAL;
  token *cut = late ? &c->normalised[c->normaliseds++] : &c->plain[c->plains++];
  *cut = *found;
  if (!late) return ATTN_OK;
  const size_t before = c->text.bytes;
  status =
      steps_run(&c->t->normaliser, c->match, collect, c, (const uint8_t *)found->text, found->bytes, true);
  cut->bytes = (uint32_t)(c->text.bytes - before);
  if (!status && (!cut->bytes || cut->bytes > TOKEN_BYTES_MAX))
    status = attn_fail(ATTN_EUNSUPPORTED, "%s has a text of %" PRIu32 " bytes after the normalizer", place,
                       cut->bytes);
  return status;
}

static attn_status check_distinct(const data_tokenizer *t) {
  const literals *l = &t->normalised;
  for (size_t i = 1; i < l->count; i++)
    if (l->item[i].bytes == l->item[i - 1].bytes &&
        memcmp(l->item[i].text, l->item[i - 1].text, l->item[i].bytes) == 0)
      return attn_fail(ATTN_EUNSUPPORTED,
                       "%s: added_tokens %" PRId32 " and %" PRId32 " are the same text after the normalizer",
                       t->file, l->item[i - 1].id, l->item[i].id);
  return ATTN_OK;
}

attn_status read_added(data_tokenizer *t, json_t *added) {
  const size_t count = json_array_size(added);
  cuts c = {.t = t,
            .plain = calloc(count + 1, sizeof *c.plain),
            .normalised = calloc(count + 1, sizeof *c.normalised)};
  attn_status status = pattern_work_make(&c.match);
  if (!status && (!c.plain || !c.normalised))
    status = attn_fail(ATTN_ENOMEM, "%s: no memory for its added_tokens", t->file);
  for (size_t i = 0; !status && i < count; i++) status = add_cut(&c, json_array_get(added, i), i);
  pattern_work_free(c.match);
  t->normalised_text = (char *)c.text.at;
  if (status) {
    free(c.plain);
    free(c.normalised);
    return status;
  }
  const char *text = t->normalised_text;
  for (size_t i = 0; i < c.normaliseds; text += c.normalised[i++].bytes) c.normalised[i].text = text;
  literals_make(&t->plain, c.plain, c.plains);
  literals_make(&t->normalised, c.normalised, c.normaliseds);
  return check_distinct(t);
}
