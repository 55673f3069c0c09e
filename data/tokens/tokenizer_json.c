/* tokenizer_json.c - tokenizer.json of a Hugging Face model directory
 * (https://huggingface.co/docs/tokenizers). truncation, padding, post_processor and decoder say what becomes
 * of the ids; of them only the token that post_processor puts first is read. */
#include "data/tokens/tokenizer_json.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/support/file.h"
#include "data/support/json_text.h"

json_t *json_given(json_t *object, const char *key) {
  json_t *value = json_object_get(object, key);
  return json_is_null(value) ? NULL : value;
}

attn_status json_check_keys(const char *place, json_t *object, const char *const *known) {
  const char *key;
  json_t *value;
  json_object_foreach(object, key, value) {
    size_t i = 0;
    while (known[i] && strcmp(known[i], key) != 0) i++;
    if (!known[i] && !json_is_null(value))
      return attn_fail(ATTN_EUNSUPPORTED, "%s.%s is not supported", place, key);
  }
  return ATTN_OK;
}

attn_status json_flag(const char *place, json_t *object, const char *key, bool *out) {
  json_t *value = json_given(object, key);
  if (value && !json_is_boolean(value))
    return attn_fail(ATTN_EINVAL, "%s.%s is neither true nor false", place, key);
  *out = json_is_true(value);
  return ATTN_OK;
}

bool json_is_type(json_t *object, const char *wanted) {
  const char *type = json_string_value(json_given(object, "type"));
  return type && strcmp(type, wanted) == 0;
}

/* The name of the token that a post-processor, or one of its sequence, puts before a text. */
static const char *first_of_processor(json_t *processor) {
  size_t i;
  json_t *each;
  if (json_is_type(processor, "BertProcessing") || json_is_type(processor, "RobertaProcessing"))
    return json_string_value(json_array_get(json_object_get(processor, "cls"), 0));
  if (json_is_type(processor, "TemplateProcessing")) {
    json_t *first = json_array_get(json_object_get(processor, "single"), 0);
    return json_string_value(json_object_get(json_object_get(first, "SpecialToken"), "id"));
  }
  json_array_foreach(json_object_get(processor, "processors"), i, each) {
    const char *name = json_object_get(each, "processors") ? NULL : first_of_processor(each);
    if (name) return name;
  }
  return NULL;
}

static attn_status read_bos(data_tokenizer *t, json_t *file) {
  const char *name = first_of_processor(json_object_get(file, "post_processor"));
  const token *bos = name ? vocabulary_find(&t->words, name, strlen(name)) : NULL;
  if (name && !bos)
    return attn_fail(ATTN_EINVAL, "%s: post_processor begins with '%s', which is not a token", t->file, name);
  if (bos) t->bos = bos->id;
  return ATTN_OK;
}

/* WordPiece's decoder: a token that continues no word has a blank before it. */
static attn_status decode_word(const data_tokenizer *t, const token *from, buffer *to) {
  const size_t prefix = t->continuing ? strlen(t->continuing) : 0;
  const bool continues = prefix && from->bytes > prefix && memcmp(from->text, t->continuing, prefix) == 0;
  attn_status status = continues || !to->bytes ? ATTN_OK : buffer_put(to, " ", 1);
  const size_t skip = continues ? prefix : 0;
  return status ? status : buffer_put(to, from->text + skip, from->bytes - skip);
}

/* What tokens stand for follows from what made them: letters of bytes, words, or texts with U+2581. */
static const tokenizer_kind *choose_kind(const data_tokenizer *t) {
  static const tokenizer_kind words = {encode_by_steps, decode_word},
                              pieces = {encode_by_steps, piece_decode};
  if (t->model == wordpiece_encode) return &words;
  for (int i = 0; i < t->cutter.count; i++)
    if (t->cutter.item[i].apply == step_letters) return &byte_level;
  return &pieces;
}

static attn_status read_all(data_tokenizer *t, json_t *file) {
  if (!json_is_object(file)) return attn_fail(ATTN_EINVAL, "%s: not a JSON object", t->file);
  attn_status status = read_steps(t, file);
  if (!status) status = read_model(t, file);
  if (!status) t->kind = choose_kind(t);
  return status ? status : read_bos(t, file);
}

attn_status tokenizer_open_json(const char *directory, data_tokenizer **out) {
  attn_status status = ATTN_ENOMEM;
  data_tokenizer *t = NULL;
  file_map map = {0};
  json_t *file = NULL;
  json_error_t error;
  char *path = file_join(directory, "tokenizer.json");
  if (!path) return status;
  if (access(path, F_OK) != 0) {
    status = attn_fail(ATTN_ENOTFOUND, "%s: there is no tokenizer.json", directory);
    goto out;
  }
  status = file_map_open(path, &map);
  if (!status) status = tokenizer_begin(path, NULL, &t);
  if (status) goto out;
  status = json_parse((const char *)map.at, map.bytes, &error, &file);
  if (status == ATTN_EINVAL)
    status = attn_fail(ATTN_EINVAL, "%s:%d:%d: not JSON: %s", path, error.line, error.column, error.text);
  if (!status) status = read_all(t, file);
  if (!status) {
    *out = t;
    t = NULL;
  }
out:
  data_tokenizer_close(t);
  json_decref(file);
  file_map_close(&map);
  free(path);
  return status;
}
