/* vocabulary.c - texts with ids. Ids may have gaps, so that they are found in a sorted list. */
#include "data/tokens/vocabulary.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

attn_status vocabulary_begin(vocabulary *v, const char *where, size_t count, size_t bytes) {
  vocabulary made = {.capacity = count, .pool_bytes = bytes};
  made.token = calloc(count ? count : 1, sizeof *made.token);
  made.pool = malloc(bytes ? bytes : 1);
  if (!made.token || !made.pool) {
    vocabulary_free(&made);
    return attn_fail(ATTN_ENOMEM, "%s: no memory for %zu tokens", where, count);
  }
  *v = made;
  return ATTN_OK;
}

attn_status vocabulary_add(vocabulary *v, const char *where, const char *text, size_t bytes, int64_t id,
                           token_kind kind) {
  if (bytes > TOKEN_BYTES_MAX)
    return attn_fail(ATTN_EINVAL, "%s: token %" PRId64 " has %zu bytes, more than %d", where, id, bytes,
                     TOKEN_BYTES_MAX);
  char *copy = v->pool + v->used;
  memcpy(copy, text, bytes);
  v->token[v->count++] =
      (token){.text = copy, .bytes = (uint32_t)bytes, .id = (int32_t)id, .kind = kind, .rank = 0};
  v->used += bytes;
  if (bytes > v->longest) v->longest = (uint32_t)bytes;
  return ATTN_OK;
}

static int by_id(const void *a, const void *b) {
  const int32_t x = ((const token *)a)->id, y = ((const token *)b)->id;
  return (x > y) - (x < y);
}

attn_status vocabulary_end(vocabulary *v, const char *where) {
  qsort(v->token, v->count, sizeof *v->token, by_id);
  attn_status status = token_map_make(v->count, &v->by_text);
  for (size_t i = 0; !status && i < v->count; i++) {
    const token *t = &v->token[i];
    const token *same = vocabulary_find(v, t->text, t->bytes);
    if (i && t->id == v->token[i - 1].id)
      status = attn_fail(ATTN_EINVAL, "%s: id %" PRId32 " belongs to both '%.*s' and '%.*s'", where, t->id,
                         (int)v->token[i - 1].bytes, v->token[i - 1].text, (int)t->bytes, t->text);
    else if (same)
      status = attn_fail(ATTN_EINVAL, "%s: '%.*s' is the text of both token %" PRId32 " and token %" PRId32,
                         where, (int)t->bytes, t->text, same->id, t->id);
    else if (t->bytes && !token_map_add(&v->by_text, t->text, t->bytes, (int32_t)i))
      status = attn_fail(ATTN_EINVAL, "%s: its tokens are crafted to collide in a hash table", where);
  }
  return status;
}

void vocabulary_free(vocabulary *v) {
  free(v->token);
  free(v->pool);
  token_map_free(&v->by_text);
  *v = (vocabulary){0};
}

token *vocabulary_find(const vocabulary *v, const void *text, size_t bytes) {
  const int32_t at = bytes && bytes <= TOKEN_BYTES_MAX ? token_map_find(&v->by_text, text, bytes) : -1;
  return at < 0 ? NULL : &v->token[at];
}

const token *vocabulary_at(const vocabulary *v, int64_t id) {
  if (id < 0 || id > INT32_MAX) return NULL;
  return bsearch(&(token){.id = (int32_t)id}, v->token, v->count, sizeof *v->token, by_id);
}

int64_t vocabulary_size(const vocabulary *v) { return v->count ? (int64_t)v->token[v->count - 1].id + 1 : 0; }
