/* bpe_parts.c - what files give BPE: the steps of byte-level BPE, and merges. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/file.h"
#include "data/tokens/tokenizer.h"

const char byte_level_gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

attn_status byte_level_steps(step_list *l, const char *place, bool prefix, const char *cuts) {
  step blank = {.apply = step_prepend, .where = PREPEND_UNLESS_THERE};
  attn_status status = ATTN_OK;
  if (prefix && !(blank.text = text_format(" ")))
    status = attn_fail(ATTN_ENOMEM, "%s: no memory for a step", place);
  if (!status && prefix) status = steps_add(l, place, blank, NULL);
  if (!status && cuts) status = steps_add(l, place, (step){.apply = step_split}, cuts);
  return status ? status : steps_add(l, place, (step){.apply = step_letters}, NULL);
}

attn_status bpe_merges(data_tokenizer *t, size_t count) {
  if (count > TOKENS_MAX) return attn_fail(ATTN_EUNSUPPORTED, "%s: %zu merges", t->file, count);
  t->pair = calloc(count ? count : 1, sizeof *t->pair);
  if (!t->pair) return attn_fail(ATTN_ENOMEM, "%s: no memory for %zu merges", t->file, count);
  t->pairs = count;
  return token_map_make(count, &t->by_pair);
}

/* *out: the token of a text. */
static attn_status find_token(const data_tokenizer *t, const char *where, size_t i, const char *text,
                              size_t bytes, const token **out) {
  *out = vocabulary_find(&t->words, text, bytes);
  if (*out) return ATTN_OK;
  return attn_fail(ATTN_EINVAL, "%s: %s[%zu]: '%.*s' is no token", t->file, where, i,
                   (int)(bytes < 100 ? bytes : 100), text);
}

attn_status bpe_merge(data_tokenizer *t, const char *where, size_t i, const char *left, size_t left_bytes,
                      const char *right, size_t right_bytes) {
  char whole[2 * TOKEN_BYTES_MAX];
  const token *a, *b, *into;
  const size_t prefix = t->continuing ? strlen(t->continuing) : 0;
  attn_status status = find_token(t, where, i, left, left_bytes, &a);
  if (!status) status = find_token(t, where, i, right, right_bytes, &b);
  if (status) return status;
  if (right_bytes < prefix)
    return attn_fail(ATTN_EINVAL, "%s: %s[%zu]: '%.*s' does not begin with '%s'", t->file, where, i,
                     (int)right_bytes, right, t->continuing);
  memcpy(whole, left, left_bytes);
  memcpy(whole + left_bytes, right + prefix, right_bytes - prefix);
  status = find_token(t, where, i, whole, left_bytes + right_bytes - prefix, &into);
  if (status) return status;
  merge_pair *pair = &t->pair[i];
  *pair = (merge_pair){a->id, b->id, into->id};
  const int32_t same = token_map_find(&t->by_pair, pair, 2 * sizeof pair->left);
  if (same >= 0)
    return attn_fail(ATTN_EINVAL, "%s: %s[%zu] is %s[%" PRId32 "] again", t->file, where, i, where, same);
  if (!token_map_add(&t->by_pair, pair, 2 * sizeof pair->left, (int32_t)i))
    return attn_fail(ATTN_EINVAL, "%s: %s are crafted to collide in a hash table", t->file, where);
  return ATTN_OK;
}

attn_status bpe_merge_text(data_tokenizer *t, const char *where, size_t i, const char *text, size_t bytes) {
  const char *blank = bytes ? memchr(text, ' ', bytes) : NULL;
  const size_t left = blank ? (size_t)(blank - text) : 0, right = blank ? bytes - left - 1 : 0;
  if (!blank || memchr(blank + 1, ' ', right))
    return attn_fail(ATTN_EINVAL, "%s: %s[%zu] is neither 'a b' nor a list of two texts", t->file, where, i);
  return bpe_merge(t, where, i, text, left, blank + 1, right);
}
