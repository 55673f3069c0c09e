/* join_files.c - several results files as one set. */
#include "experiments/results/set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "data/support/file.h"
#include "experiments/support/names.h"

static attn_status no_memory(void) { return attn_fail(ATTN_ENOMEM, "out of memory to join results files"); }

/* The name of a path without directories and .h5. */
static const char *short_name(const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  const size_t length = strlen(name);
  const bool suffix = length > 3 && strcmp(name + length - 3, ".h5") == 0;
  char *text = text_format("%.*s", (int)(suffix ? length - 3 : length), name);
  const char *kept = text ? names_keep(text) : NULL;
  free(text);
  return kept;
}

/* Of each path the name that its rows have. */
static attn_status name_sources(const char *const *paths, size_t count, const char **out) {
  for (size_t i = 0; i < count; i++) {
    bool alike = false;
    if (!(out[i] = short_name(paths[i]))) return no_memory();
    for (size_t j = 0; j < count; j++) {
      const char *other = short_name(paths[j]);
      if (!other) return no_memory();
      if (j < i && strcmp(paths[i], paths[j]) == 0)
        return attn_fail(ATTN_EINVAL, "%s: the same results file twice", paths[i]);
      alike = alike || (i != j && strcmp(other, out[i]) == 0);
    }
    if (alike && !(out[i] = names_keep(paths[i]))) return no_memory();
  }
  return ATTN_OK;
}

/* Moves a set's rows and sessions to the end of another. */
static attn_status append(result_set *to, result_set *from, const char *source) {
  const int64_t first = (int64_t)json_array_size(to->sessions);
  json_t *session;
  size_t i;
  result_row *rows = realloc(to->rows, (to->count + from->count + 1) * sizeof *rows);
  if (!rows) return no_memory();
  to->rows = rows;
  json_array_foreach(from->sessions, i, session) {
    if (json_object_set_new(session, "source", result_json_text(source)) ||
        json_array_append(to->sessions, session))
      return no_memory();
  }
  for (i = 0; i < from->count; i++) {
    result_row *row = &to->rows[to->count++];
    *row = from->rows[i];
    row->session += first;
    row->source = source;
  }
  from->count = 0;
  return ATTN_OK;
}

/* Keeps the names of the contents in order, so that the whole has one name whatever the order of the
 * files. */
static void insert_uuid(const char *uuid, char (*all)[37], size_t count) {
  size_t at = count;
  for (; at > 0 && strcmp(all[at - 1], uuid) > 0; at--) memcpy(all[at], all[at - 1], sizeof *all);
  snprintf(all[at], sizeof *all, "%s", uuid);
}

attn_status results_join(const char *const *paths, size_t count, result_set *out) {
  result_set all = {.sessions = json_array()};
  const char **sources = calloc(count + 1, sizeof *sources);
  char(*uuids)[37] = calloc(count + 1, sizeof *uuids), hex[65];
  attn_status status = all.sessions && sources && uuids ? name_sources(paths, count, sources) : no_memory();
  for (size_t i = 0; !status && i < count; i++) {
    result_set one;
    if ((status = results_read(paths[i], &one))) break;
    insert_uuid(one.uuid, uuids, i);
    status = append(&all, &one, sources[i]);
    result_set_free(&one);
  }
  if (!status) {
    data_sha256(uuids, count * sizeof *uuids, hex);
    snprintf(all.uuid, sizeof all.uuid, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16,
             hex + 20);
    *out = all;
  } else {
    result_set_free(&all);
  }
  free(sources);
  free(uuids);
  return status;
}
