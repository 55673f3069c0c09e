/* names.c - a sorted array of strings, searched by bisection. */
#include "experiments/support/names.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* The first index whose name is not below `name`. */
static size_t place(const names *set, const char *name) {
  size_t low = 0, high = set->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (strcmp(set->items[middle], name) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

attn_status names_add(names *set, const char *name) {
  size_t at = place(set, name);
  if (at < set->count && strcmp(set->items[at], name) == 0) return ATTN_OK;
  const char **items = realloc(set->items, (set->count + 2) * sizeof *items);
  if (!items) return attn_fail(ATTN_ENOMEM, "out of memory for %zu names", set->count + 1);
  memmove(items + at + 1, items + at, (set->count - at) * sizeof *items);
  items[at] = name;
  set->items = items;
  set->count++;
  set->items[set->count] = NULL;
  return ATTN_OK;
}

size_t names_find(const names *set, const char *name) {
  size_t at = place(set, name);
  return at < set->count && strcmp(set->items[at], name) == 0 ? at : set->count;
}

/* A hash table: there may be as many as messages of a million cells. */
const char *names_keep(const char *name) {
  static json_t *kept;
  if (!kept && !(kept = json_object())) return NULL;
  void *at = json_object_iter_at(kept, name);
  if (!at && !json_object_set_new_nocheck(kept, name, json_null())) at = json_object_iter_at(kept, name);
  return at ? json_object_iter_key(at) : NULL;
}

void names_free(names *set) {
  free(set->items);
  *set = (names){0};
}

const attn_param *names_param(const attn_param *table, const char *name) {
  for (; table && table->name; table++)
    if (strcmp(table->name, name) == 0) return table;
  return NULL;
}
