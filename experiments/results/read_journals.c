/* read_journals.c - journals to one set of rows: sessions numbered over all of them, the last row of a key
 * kept. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "experiments/results/write_journal.h"
#include "experiments/results/set.h"

/* One journal in memory. */
typedef struct source {
  char digest[65];
  double start; /* of its first session */
  json_t *sessions;
  result_row *rows;
  size_t count, room;
} source;

static void source_free(source *s) {
  for (size_t i = 0; i < s->count; i++) result_row_free(&s->rows[i]);
  free(s->rows);
  json_decref(s->sessions);
}

static double member_number(const json_t *object, const char *name) {
  double x;
  const json_t *value = json_object_get(object, name);
  return value && result_json_read_number(value, &x) ? x : (double)NAN;
}

static attn_status take_session(void *context, int64_t session, const json_t *header) {
  source *s = context;
  json_t *about = json_deep_copy(json_object_get(header, "provenance"));
  if (json_object_set(about, "build", json_object_get(header, "build")) ||
      json_object_set_new(about, "end_time", json_null()) || json_array_append(s->sessions, about)) {
    json_decref(about);
    return attn_fail(ATTN_ENOMEM, "out of memory for the sessions of a journal");
  }
  if (session == 0 && !isnan(member_number(about, "start_time")))
    s->start = member_number(about, "start_time");
  json_decref(about);
  return ATTN_OK;
}

static attn_status take_row(void *context, result_row *row) {
  source *s = context;
  if (s->count == s->room) {
    size_t room = s->room ? 2 * s->room : 64;
    result_row *rows = room > SIZE_MAX / sizeof *rows ? NULL : realloc(s->rows, room * sizeof *rows);
    if (!rows) return attn_fail(ATTN_ENOMEM, "out of memory for %zu result rows", room);
    s->rows = rows;
    s->room = room;
  }
  /* A session ends when its last run does; replaced rows count, too. */
  json_t *about = json_array_get(s->sessions, (size_t)row->session);
  double end = member_number(about, "end_time");
  if (!isnan(row->end_time) && !(row->end_time <= end) &&
      (json_object_set_new(about, "end_time", result_json_number(row->end_time)) ||
       json_object_set_new(about, "load_end", result_json_number(row->load))))
    return attn_fail(ATTN_ENOMEM, "out of memory for the sessions of a journal");
  s->rows[s->count++] = *row;
  result_row_init(row);
  return ATTN_OK;
}

static int by_start(const void *a, const void *b) {
  const source *x = a, *y = b;
  if (x->start != y->start) return x->start < y->start ? -1 : 1;
  return strcmp(x->digest, y->digest);
}

static attn_status name_set(const source *sources, size_t count, char uuid[37]) {
  char hex[65];
  char *digests = calloc(count + 1, 64);
  if (!digests) return attn_fail(ATTN_ENOMEM, "out of memory for %zu journals", count);
  for (size_t i = 0; i < count; i++) memcpy(digests + 64 * i, sources[i].digest, 64);
  data_sha256(digests, 64 * count, hex);
  free(digests);
  /* RFC 9562, version 8: a custom hash. */
  hex[12] = '8';
  hex[16] = "89ab"[(hex[16] >= 'a' ? hex[16] - 'a' + 10 : hex[16] - '0') & 3];
  snprintf(uuid, 37, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16, hex + 20);
  return ATTN_OK;
}

typedef struct entry {
  result_row *row;
  size_t order;
} entry;

static int by_key(const void *a, const void *b) {
  const entry *x = a, *y = b;
  int order = strcmp(x->row->key, y->row->key);
  return order ? order : (x->order > y->order) - (x->order < y->order);
}

/* Moves the rows that count into the set. */
static attn_status select_rows(source *sources, size_t count, result_set *set) {
  size_t total = 0, filled = 0;
  for (size_t i = 0; i < count; i++) total += sources[i].count;
  if (total == 0) return ATTN_OK;
  entry *entries = calloc(total, sizeof *entries);
  if (!entries) goto out;
  int64_t first = 0;
  for (size_t i = 0; i < count; i++) {
    for (size_t r = 0; r < sources[i].count; r++) {
      sources[i].rows[r].session += first;
      entries[filled] = (entry){&sources[i].rows[r], filled};
      filled++;
    }
    first += (int64_t)json_array_size(sources[i].sessions);
  }
  qsort(entries, total, sizeof *entries, by_key);
  size_t kept = 0;
  for (size_t i = 0; i < total; i++)
    if (i + 1 == total || strcmp(entries[i].row->key, entries[i + 1].row->key) != 0)
      entries[kept++] = entries[i];
  set->rows = calloc(kept, sizeof *set->rows);
  if (!set->rows) goto out;
  for (size_t i = 0; i < kept; i++) {
    set->rows[i] = *entries[i].row;
    result_row_init(entries[i].row);
  }
  set->count = kept;
out:
  free(entries);
  return set->rows ? ATTN_OK : attn_fail(ATTN_ENOMEM, "out of memory for %zu result rows", total);
}

attn_status results_load(const char *const *journals, size_t count, result_set *out) {
  result_set set;
  result_set_init(&set);
  attn_status status = ATTN_OK;
  size_t used = 0;
  source *sources = calloc(count + 1, sizeof *sources);
  set.sessions = json_array();
  if (!sources || !set.sessions) {
    status = attn_fail(ATTN_ENOMEM, "out of memory for %zu journals", count);
    goto out;
  }
  for (size_t i = 0; i < count; i++) {
    source *s = &sources[used++];
    *s = (source){.sessions = json_array(), .start = (double)INFINITY};
    const journal_reader reader = {take_session, take_row, s};
    if ((status = journal_read(journals[i], &reader, s->digest))) goto out;
    for (source *other = sources; other < s; other++)
      if (strcmp(other->digest, s->digest) == 0) { /* the same journal twice */
        source_free(s);
        used--;
        break;
      }
  }
  qsort(sources, used, sizeof *sources, by_start);
  for (size_t i = 0; i < used; i++)
    if (json_array_extend(set.sessions, sources[i].sessions)) {
      status = attn_fail(ATTN_ENOMEM, "out of memory for the sessions of a journal");
      goto out;
    }
  if ((status = name_set(sources, used, set.uuid))) goto out;
  if ((status = select_rows(sources, used, &set))) goto out;
  if ((status = results_holm(set.rows, set.count, RESULTS_ALPHA))) goto out;
  *out = set;
  result_set_init(&set);
out:
  for (size_t i = 0; i < used; i++) source_free(&sources[i]);
  free(sources);
  result_set_free(&set);
  return status;
}
