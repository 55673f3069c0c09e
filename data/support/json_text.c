/* json_text.c - jansson with an allocator that never returns NULL. */
#include "data/support/json_text.h"

#include <setjmp.h>
#include <stdlib.h>

static _Thread_local jmp_buf starved;

/* jansson 2.14 drops characters, and frees what it does not own, where an allocation fails: it is left
 * instead. What it had allocated for the text is lost. */
static void *checked_malloc(size_t bytes) {
  void *at = malloc(bytes);
  if (!at) longjmp(starved, 1);
  return at;
}

typedef struct allocator {
  json_malloc_t allocate;
  json_free_t release;
} allocator;

static allocator replace_allocator(allocator by) {
  allocator before;
  json_get_alloc_funcs(&before.allocate, &before.release);
  json_set_alloc_funcs(by.allocate, by.release);
  return before;
}

attn_status json_parse(const char *text, size_t bytes, json_error_t *error, json_t **out) {
  const allocator before = replace_allocator((allocator){checked_malloc, free});
  if (setjmp(starved)) {
    replace_allocator(before);
    return attn_fail(ATTN_ENOMEM, "out of memory for %zu bytes of JSON", bytes);
  }
  json_t *json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, error);
  replace_allocator(before);
  if (!json) return ATTN_EINVAL;
  *out = json;
  return ATTN_OK;
}

char *json_print(const json_t *json, size_t flags) {
  const allocator before = replace_allocator((allocator){checked_malloc, free});
  char *text = NULL;
  if (!setjmp(starved)) text = json_dumps(json, flags);
  replace_allocator(before);
  if (!text) attn_fail(ATTN_ENOMEM, "out of memory for a text of JSON");
  return text;
}

attn_status json_write(FILE *file, const json_t *json, size_t flags) {
  char *text = json_print(json, flags);
  if (!text) return ATTN_ENOMEM;
  const bool written = fprintf(file, "%s\n", text) > 0;
  free(text);
  return written ? ATTN_OK : attn_fail(ATTN_EFOREIGN, "cannot write JSON");
}

void json_put(json_t *object, const char *name, json_t *value, bool *ok) {
  if (json_object_set_new(object, name, value)) *ok = false;
}

void json_add(json_t *array, json_t *value, bool *ok) {
  if (json_array_append_new(array, value)) *ok = false;
}

json_t *json_whole(json_t *made, bool ok) {
  if (ok) return made;
  json_decref(made);
  return NULL;
}
