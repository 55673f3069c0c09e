/* read_journals.c - journals to one set of rows: sessions numbered over all of them, the last row of a key
 * kept. */
#include "experiments/results/scan_journal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/data.h"
#include "data/support/file.h"
#include "experiments/results/identity.h"

attn_status journal_rows_make(const row_kind *kind, journal_rows *j) {
  *j = (journal_rows){.kind = kind, .sessions = json_array(), .start = (double)INFINITY};
  sha256_begin(&j->digest);
  return j->sessions ? ATTN_OK : attn_fail(ATTN_ENOMEM, "out of memory for a journal");
}

void *journal_rows_at(const journal_rows *j, size_t i) { return j->rows + i * j->kind->size; }

void journal_rows_free(journal_rows *j) {
  for (size_t i = 0; i < j->count; i++) j->kind->release(journal_rows_at(j, i));
  free(j->rows);
  json_decref(j->sessions);
}

static double member_number(const json_t *object, const char *name) {
  double x;
  const json_t *value = json_object_get(object, name);
  return value && result_json_read_number(value, &x) ? x : (double)NAN;
}

static attn_status begin_session(journal_rows *j, int64_t line, const json_t *header) {
  const char *rows = json_string_value(json_object_get(header, "rows"));
  if ((rows != NULL) != (j->kind->name != NULL) || (rows && strcmp(rows, j->kind->name) != 0))
    return attn_fail(ATTN_EINVAL, "%s:%lld: rows of kind '%.40s'; expected those of %s", j->path,
                     (long long)line, rows ? rows : "sweep", j->kind->of);
  json_t *about = json_deep_copy(json_object_get(header, "provenance"));
  if (json_object_set(about, "build", json_object_get(header, "build")) ||
      json_object_set_new(about, "end_time", json_null()) || json_array_append(j->sessions, about)) {
    json_decref(about);
    return attn_fail(ATTN_ENOMEM, "out of memory for the sessions of a journal");
  }
  if (json_array_size(j->sessions) == 1 && !isnan(member_number(about, "start_time")))
    j->start = member_number(about, "start_time");
  json_decref(about);
  return ATTN_OK;
}

/* Moves the row. */
static attn_status add_row(journal_rows *j, void *row) {
  const row_kind *kind = j->kind;
  if (j->count == j->room) {
    size_t room = j->room ? 2 * j->room : 64;
    char *rows = room > SIZE_MAX / kind->size ? NULL : realloc(j->rows, room * kind->size);
    if (!rows) return attn_fail(ATTN_ENOMEM, "out of memory for %zu result rows", room);
    j->rows = rows;
    j->room = room;
  }
  /* A session ends when its last run does; replaced rows count, too. */
  *row_session(kind, row) = (int64_t)json_array_size(j->sessions) - 1;
  const row_head head = kind->head(row);
  json_t *about = json_array_get(j->sessions, (size_t)*row_session(kind, row));
  double end = member_number(about, "end_time");
  if (!isnan(head.end_time) && !(head.end_time <= end) &&
      (json_object_set_new(about, "end_time", result_json_number(head.end_time)) ||
       json_object_set_new(about, "load_end", result_json_number(head.load))))
    return attn_fail(ATTN_ENOMEM, "out of memory for the sessions of a journal");
  memcpy(journal_rows_at(j, j->count++), row, kind->size);
  return ATTN_OK;
}

static void digest_of(const journal_rows *j, char hex[65]) {
  sha256 digest = j->digest;
  sha256_end(&digest, hex);
}

static int compare_digests(const journal_rows *a, const journal_rows *b) {
  char x[65], y[65];
  digest_of(a, x);
  digest_of(b, y);
  return strcmp(x, y);
}

static int by_start(const void *a, const void *b) {
  const journal_rows *x = a, *y = b;
  if (x->start != y->start) return x->start < y->start ? -1 : 1;
  return compare_digests(x, y);
}

static attn_status name_set(const journal_rows *journals, size_t count, char uuid[37]) {
  char hex[65];
  char *digests = calloc(count + 1, 64);
  if (!digests) return attn_fail(ATTN_ENOMEM, "out of memory for %zu journals", count);
  for (size_t i = 0; i < count; i++) {
    digest_of(&journals[i], hex);
    memcpy(digests + 64 * i, hex, 64);
  }
  data_sha256(digests, 64 * count, hex);
  free(digests);
  /* RFC 9562, version 8: a custom hash. */
  hex[12] = '8';
  hex[16] = "89ab"[(hex[16] >= 'a' ? hex[16] - 'a' + 10 : hex[16] - '0') & 3];
  snprintf(uuid, 37, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16, hex + 20);
  return ATTN_OK;
}

typedef struct entry {
  void *row;
  const char *key;
  bool good;           /* it ended well */
  size_t order, first; /* among all rows; of the key's first row */
  const journal_rows *journal;
  int64_t session; /* number of the first session of its journal */
} entry;

static int by_key(const void *a, const void *b) {
  const entry *x = a, *y = b;
  int order = strcmp(x->key, y->key);
  return order ? order : (x->order > y->order) - (x->order < y->order);
}

static int by_first(const void *a, const void *b) {
  const entry *x = a, *y = b;
  return (x->first > y->first) - (x->first < y->first);
}

static identity_row identity_of(const entry *e) {
  const row_kind *kind = e->journal->kind;
  identity made = kind->head(e->row).made;
  if (!*made.build) {
    const json_t *session = json_array_get(e->journal->sessions, (size_t)*row_session(kind, e->row));
    const char *build = json_string_value(json_object_get(session, "build"));
    made.build = build ? build : "";
  }
  return (identity_row){e->journal->path, e->row, *row_bounds(kind, e->row), *row_bounds_count(kind, e->row),
                        made};
}

static bool is_same(const row_kind *kind, const char *key, const char *newer) {
  return kind->same ? kind->same(key, newer) : strcmp(key, newer) == 0;
}

/* Keeps the last row of each key. Within a journal a later row is there to replace an earlier one; the last
 * ones of several journals must agree. */
static attn_status keep_last(const row_kind *kind, entry *entries, size_t total, size_t *kept) {
  const entry *good = NULL; /* of the key at hand, the last row of a journal that ended well */
  attn_status status = ATTN_OK;
  size_t first = 0;
  bool begins = true;
  for (size_t i = 0; !status && i < total; i++) {
    const entry *e = &entries[i];
    const bool last = i + 1 == total || !is_same(kind, e->key, e[1].key);
    if (begins || e->order < first) first = e->order;
    begins = last;
    if ((last || e->journal != e[1].journal) && e->good) {
      const identity_row a = identity_of(good ? good : e), b = identity_of(e);
      if (good) status = identity_agree(kind->columns, e->key, &a, &b);
      if (!status && good && kind->adopt) kind->adopt(e->row, good->row);
      good = e;
    }
    if (!last) continue;
    entry chosen = kind->adopt && good ? *good : *e;
    chosen.first = first;
    good = NULL;
    entries[(*kept)++] = chosen;
  }
  return status;
}

/* A row of a set: moved, or lent with bounds that verdicts may be written into. */
static attn_status give_row(const entry *e, bool kept, void *to) {
  const row_kind *kind = e->journal->kind;
  memcpy(to, e->row, kind->size);
  *row_session(kind, to) += e->session;
  if (!kept) {
    memset(e->row, 0, kind->size);
    return ATTN_OK;
  }
  const size_t bytes = (size_t)*row_bounds_count(kind, to) * sizeof(result_bound);
  result_bound *bounds = malloc(bytes + 1);
  if (bounds && bytes) memcpy(bounds, *row_bounds(kind, to), bytes);
  *row_bounds(kind, to) = bounds;
  return bounds ? ATTN_OK : attn_fail(ATTN_ENOMEM, "out of memory for the bounds of a run");
}

static attn_status select_rows(const journal_rows *journals, size_t count, result_set *set) {
  size_t total = 0, filled = 0, kept = 0;
  int64_t session = 0;
  attn_status status = ATTN_OK;
  for (size_t i = 0; i < count; i++) total += journals[i].count;
  entry *entries = calloc(total + 1, sizeof *entries);
  for (size_t i = 0; entries && i < count; i++) {
    for (size_t r = 0; r < journals[i].count; r++, filled++) {
      void *row = journal_rows_at(&journals[i], r);
      const row_head head = set->kind->head(row);
      entries[filled] = (entry){row, head.key, head.status == RUN_OK, filled, 0, &journals[i], session};
    }
    session += (int64_t)json_array_size(journals[i].sessions);
  }
  if (entries) qsort(entries, total, sizeof *entries, by_key);
  if (!entries) status = attn_fail(ATTN_ENOMEM, "out of memory for %zu result rows", total);
  if (!status) status = keep_last(set->kind, entries, total, &kept);
  if (!status && set->kind->in_order) qsort(entries, kept, sizeof *entries, by_first);
  if (!status && !(set->items = calloc(kept + 1, set->kind->size)))
    status = attn_fail(ATTN_ENOMEM, "out of memory for %zu result rows", kept);
  for (; !status && set->count < kept; set->count += !status)
    status = give_row(&entries[set->count], set->lent, (char *)set->items + set->count * set->kind->size);
  free(entries);
  return status;
}

attn_status journal_rows_set(const row_kind *kind, journal_rows *journals, size_t count, bool kept,
                             result_set *out) {
  result_set set = {.kind = kind, .sessions = json_array(), .lent = kept};
  attn_status status = ATTN_OK;
  qsort(journals, count, sizeof *journals, by_start);
  for (size_t i = 0; i < count; i++) {
    set.torn += journals[i].torn;
    if (json_array_extend(set.sessions, journals[i].sessions)) status = ATTN_ENOMEM;
  }
  if (status || !set.sessions) status = attn_fail(ATTN_ENOMEM, "out of memory for the sessions of a journal");
  if (!status) status = name_set(journals, count, set.uuid);
  if (!status) status = select_rows(journals, count, &set);
  if (!status) status = kind->settle(&set);
  if (!status)
    *out = set;
  else
    result_set_free(&set);
  return status;
}

/* The digest tells journals apart, for which checksums and lengths of their lines do. */
static void digest_line(sha256 *digest, const journal_line *line) {
  unsigned char bytes[12];
  for (size_t i = 0; i < 4; i++) bytes[i] = (unsigned char)(line->sum >> 8 * i);
  for (size_t i = 0; i < 8; i++) bytes[4 + i] = (unsigned char)((uint64_t)line->length >> 8 * i);
  sha256_add(digest, bytes, sizeof bytes);
}

attn_status journal_rows_take(journal_rows *j, const journal_line *line) {
  journal_entry_text found;
  void *row = NULL;
  attn_status status = journal_line_classify(j->path, line, &found);
  if (!status && found.header) status = begin_session(j, line->number, found.header);
  if (!status && found.is_row && !(row = malloc(j->kind->size)))
    status = attn_fail(ATTN_ENOMEM, "out of memory for a result row");
  if (!status && row && !(status = journal_line_row(j->kind, j->path, line, row)) &&
      (status = add_row(j, row)))
    j->kind->release(row);
  free(row);
  json_decref(found.header);
  if (!status) digest_line(&j->digest, line);
  return status;
}

/* The rows and sessions of a file, as if they were a journal's. */
static attn_status take_file(const char *path, journal_rows *out) {
  file_map content;
  result_set set;
  attn_status status = out->kind->read_file(path, &set);
  if (status) return status;
  if (!(status = file_map_open(path, &content))) {
    sha256_add(&out->digest, content.at, content.bytes);
    file_map_close(&content);
  }
  json_decref(out->sessions);
  out->sessions = json_incref(set.sessions);
  if (json_array_size(out->sessions) == 0 && json_array_append_new(out->sessions, json_object()))
    status = attn_fail(ATTN_ENOMEM, "out of memory for the sessions of a journal");
  const double start = member_number(json_array_get(out->sessions, 0), "start_time");
  if (!isnan(start)) out->start = start;
  for (size_t i = 0; i < set.count; i++) {
    int64_t *session = row_session(out->kind, (char *)set.items + i * out->kind->size);
    if ((uint64_t)*session >= json_array_size(out->sessions)) *session = 0;
  }
  out->rows = set.items;
  out->count = out->room = set.count;
  set.items = NULL;
  set.count = 0;
  result_set_free(&set);
  return status;
}

static bool is_hdf5(int fd) {
  static const char begin[4] = "\x89HDF";
  char bytes[4];
  return pread(fd, bytes, 4, 0) == 4 && memcmp(bytes, begin, 4) == 0;
}

/* Reads a journal without changing or locking it. */
static attn_status read_journal(const char *path, journal_rows *out) {
  journal_reader r = {0};
  journal_line line;
  size_t bytes = 0;
  int fd = -1;
  attn_status status = file_open(path, &fd, &bytes);
  if (status) return status;
  if (out->kind->read_file && is_hdf5(fd)) {
    close(fd);
    return take_file(path, out);
  }
  status = journal_reader_open(&r, fd, path);
  while (!status && !(status = journal_reader_next(&r, &line)) && line.text)
    status = journal_rows_take(out, &line);
  if (!status) status = journal_reader_end(&r);
  out->torn = journal_reader_torn(&r);
  journal_reader_free(&r);
  close(fd);
  return status;
}

attn_status rows_load(const row_kind *kind, const char *const *paths, size_t count, result_set *out) {
  attn_status status = ATTN_OK;
  size_t used = 0;
  journal_rows *journals = calloc(count + 1, sizeof *journals);
  if (!journals) return attn_fail(ATTN_ENOMEM, "out of memory for %zu journals", count);
  for (size_t i = 0; !status && i < count; i++) {
    journal_rows *j = &journals[used++];
    status = journal_rows_make(kind, j);
    j->path = paths[i];
    if (!status) status = read_journal(paths[i], j);
    for (journal_rows *other = journals; !status && other < j; other++)
      if (compare_digests(other, j) == 0) { /* the same journal twice */
        journal_rows_free(j);
        used--;
        break;
      }
  }
  if (!status) status = journal_rows_set(kind, journals, used, false, out);
  for (size_t i = 0; i < used; i++) journal_rows_free(&journals[i]);
  free(journals);
  return status;
}

attn_status results_load(const char *const *journals, size_t count, result_set *out) {
  return rows_load(&rows_of_sweep, journals, count, out);
}
