/* split_json.c - normalizer and pre_tokenizer of a tokenizer.json: how a text is cut before pieces are
 * merged. */
#include "data/tokens/tokenizer_json.h"

#include <stdlib.h>
#include <string.h>

#include "data/support/file.h"

static attn_status refuse_type(const char *place, json_t *object, const char *known) {
  const char *type = json_string_value(json_given(object, "type"));
  if (!type) return attn_fail(ATTN_EINVAL, "%s: type is missing", place);
  return attn_fail(ATTN_EUNSUPPORTED, "%s: type %s is not supported, only %s", place, type, known);
}

static attn_status read_normalizer(const char *place, json_t *object, bool *nfc) {
  size_t i;
  json_t *each, *list = json_given(object, "normalizers");
  attn_status status = ATTN_OK;
  if (json_is_type(object, "NFC")) {
    *nfc = true;
    return json_check_keys(place, object, (const char *const[]){"type", NULL});
  }
  if (!json_is_type(object, "Sequence")) return refuse_type(place, object, "NFC, or a Sequence of it");
  if (!json_is_array(list)) return attn_fail(ATTN_EINVAL, "%s.normalizers is not a list", place);
  json_array_foreach(list, i, each) {
    if (!status) status = read_normalizer(place, each, nfc);
  }
  return status;
}

static attn_status read_byte_level(data_tokenizer *t, const char *place, json_t *object) {
  static const char *const known[] = {"type", "add_prefix_space", "trim_offsets", "use_regex", NULL};
  bool prefix = false, cut = true;
  if (!json_given(object, "add_prefix_space"))
    return attn_fail(ATTN_EINVAL, "%s: add_prefix_space is missing", place);
  attn_status status = json_check_keys(place, object, known);
  if (!status) status = json_flag(place, object, "add_prefix_space", &prefix);
  if (!status && json_given(object, "use_regex")) status = json_flag(place, object, "use_regex", &cut);
  return status ? status : byte_level_step(t, place, prefix, cut ? byte_level_gpt2 : NULL);
}

static attn_status read_split(data_tokenizer *t, const char *place, json_t *object) {
  static const char *const known[] = {"type", "pattern", "behavior", "invert", NULL};
  json_t *text = json_given(json_given(object, "pattern"), "Regex");
  const char *behavior = json_string_value(json_given(object, "behavior"));
  bool invert = false;
  attn_status status = json_check_keys(place, object, known);
  if (!status) status = json_flag(place, object, "invert", &invert);
  if (status) return status;
  if (!behavior) return attn_fail(ATTN_EINVAL, "%s: behavior is missing", place);
  if (strcmp(behavior, "Isolated") != 0)
    return attn_fail(ATTN_EUNSUPPORTED, "%s: behavior %s is not supported, only Isolated", place, behavior);
  if (invert) return attn_fail(ATTN_EUNSUPPORTED, "%s: invert is not supported", place);
  if (!json_is_string(text))
    return attn_fail(ATTN_EUNSUPPORTED, "%s: only a pattern that is a Regex is computed", place);
  return byte_level_step(t, place, false, json_string_value(text));
}

/* Bytes become letters in ByteLevel, which has to be the last step therefore. */
static attn_status read_steps(data_tokenizer *t, const char *place, json_t *object, bool *last) {
  size_t i;
  json_t *each, *list = json_given(object, "pretokenizers");
  attn_status status = ATTN_OK;
  if (*last) return attn_fail(ATTN_EUNSUPPORTED, "%s: a step after ByteLevel is not supported", place);
  if (json_is_type(object, "ByteLevel")) {
    *last = true;
    return read_byte_level(t, place, object);
  }
  if (json_is_type(object, "Split")) return read_split(t, place, object);
  if (!json_is_type(object, "Sequence")) return refuse_type(place, object, "ByteLevel, Split and Sequence");
  if (!json_is_array(list)) return attn_fail(ATTN_EINVAL, "%s.pretokenizers is not a list", place);
  json_array_foreach(list, i, each) {
    char *inner = status ? NULL : text_format("%s[%zu]", place, i);
    if (!status) status = inner ? read_steps(t, inner, each, last) : ATTN_ENOMEM;
    free(inner);
  }
  return status;
}

attn_status read_splits(data_tokenizer *t, json_t *file) {
  bool last = false;
  attn_status status = ATTN_ENOMEM;
  json_t *normalizer = json_given(file, "normalizer"), *steps = json_given(file, "pre_tokenizer");
  char *of_normalizer = text_format("%s: normalizer", t->file),
       *of_steps = text_format("%s: pre_tokenizer", t->file);
  if (!of_normalizer || !of_steps) goto out;
  status = normalizer ? read_normalizer(of_normalizer, normalizer, &t->nfc) : ATTN_OK;
  if (!status && !steps)
    status = attn_fail(ATTN_EUNSUPPORTED, "%s is missing; only byte-level BPE is computed", of_steps);
  if (!status) status = read_steps(t, of_steps, steps, &last);
  if (!status && !last)
    status = attn_fail(ATTN_EUNSUPPORTED, "%s has no ByteLevel; only byte-level BPE is computed", of_steps);
out:
  free(of_normalizer);
  free(of_steps);
  return status;
}
