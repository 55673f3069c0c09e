/* repair_journal.c - takes the damaged lines out of a journal: those whose checksum is wrong, that are no row
 * or header, that have no header above them, or that are torn. */
#include "experiments/results/scan_journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "data/support/json_text.h"
#include "data/support/output.h"

/* Stretches of the file: lines of one sort that follow each other are one. */
typedef struct stretches {
  file_part *parts;
  size_t count, room;
} stretches;

static attn_status stretch(stretches *s, const uint8_t *at, size_t bytes) {
  if (s->count && (const uint8_t *)s->parts[s->count - 1].at + s->parts[s->count - 1].bytes == at) {
    s->parts[s->count - 1].bytes += bytes;
    return ATTN_OK;
  }
  if (s->count == s->room) {
    const size_t room = 2 * s->room + 64;
    file_part *parts = realloc(s->parts, room * sizeof *parts);
    if (!parts) return attn_fail(ATTN_ENOMEM, "out of memory for the parts of a journal");
    s->parts = parts;
    s->room = room;
  }
  s->parts[s->count++] = (file_part){at, bytes};
  return ATTN_OK;
}

/* The session of the lines at hand. */
typedef struct session {
  bool begun;
  bool sweep; /* its rows are a sweep's: lines of older programs have no checksum, and are looked at */
  int64_t number;
} session;

static attn_status session_of(const journal_line *line, int64_t *number) {
  json_error_t error;
  json_t *row = NULL;
  const attn_status status = json_parse(line->text, line->length, &error, &row);
  *number = json_integer_value(json_object_get(row, "session"));
  json_decref(row);
  return status;
}

/* EINVAL: the line is damaged. */
static attn_status examine(const char *path, const journal_line *line, session *at) {
  journal_entry_text entry;
  result_row row;
  attn_status status = journal_line_classify(path, line, &entry);
  if (status) return status;
  if (entry.header)
    *at = (session){true, !json_object_get(entry.header, "rows"),
                    json_integer_value(json_object_get(entry.header, "session"))};
  json_decref(entry.header);
  if (!entry.is_row) return ATTN_OK;
  if (!at->begun)
    return attn_fail(ATTN_EINVAL, "%s:%lld: a row without a header above it", path, (long long)line->number);
  int64_t number = -1;
  if (!at->sweep && line->checksum != CHECKSUM_GOOD)
    return attn_fail(ATTN_EINVAL, "%s:%lld: the line has no checksum", path, (long long)line->number);
  status = at->sweep ? journal_line_row(&rows_of_sweep, path, line, &row) : session_of(line, &number);
  if (status) return status;
  if (at->sweep) {
    number = row.session;
    result_row_free(&row);
  }
  if (number == at->number) return ATTN_OK;
  return attn_fail(ATTN_EINVAL, "%s:%lld: a row of session %lld, under the header of session %lld", path,
                   (long long)line->number, (long long)number, (long long)at->number);
}

/* Sorts the lines of the file. */
static attn_status sort_lines(int fd, const char *path, const file_map *content, journal_found *found,
                              void *context, stretches *whole, stretches *damaged, size_t *lines,
                              size_t *bad) {
  journal_reader r;
  journal_line line;
  session at = {.begun = false};
  int64_t from = 0;
  attn_status status = journal_reader_open(&r, fd, path);
  for (; !status && !(status = journal_reader_next(&r, &line)) && line.text; from = r.offset) {
    const attn_status one = examine(path, &line, &at);
    if (one == ATTN_ENOMEM) status = one;
    if (one) found(context, attn_last_error());
    *bad += one != ATTN_OK;
    ++*lines;
    if (!status) status = stretch(one ? damaged : whole, content->at + from, (size_t)(r.offset - from));
  }
  if (!status && (size_t)from < content->bytes) {
    char what[300];
    snprintf(what, sizeof what, "%.200s:%lld: torn: the line has no end", path, (long long)r.number + 1);
    found(context, what);
    ++*bad;
    ++*lines;
    status = stretch(damaged, content->at + from, content->bytes - (size_t)from);
  }
  if (!status && !at.begun)
    status = attn_fail(ATTN_EINVAL, "%s: not an attnlab journal: no line of it is a whole header", path);
  journal_reader_free(&r);
  return status;
}

static attn_status move_apart(const char *path, const stretches *whole, const stretches *damaged) {
  char *aside = text_format("%s.damaged", path);
  if (!aside) return ATTN_ENOMEM;
  attn_status status =
      access(aside, F_OK) == 0
          ? attn_fail(ATTN_EINVAL, "%s: it exists: damaged lines would replace others", aside)
          : output_write(aside, &kind_journal, damaged->parts, damaged->count);
  if (!status) status = output_write(path, &kind_journal, whole->parts, whole->count);
  free(aside);
  return status;
}

attn_status journal_repair(const char *path, journal_found *found, void *context, size_t *lines,
                           size_t *damaged) {
  stretches whole = {0}, bad = {0};
  file_map content = {0};
  size_t bytes = 0;
  int fd = -1;
  *lines = *damaged = 0;
  attn_status status = file_open(path, &fd, &bytes);
  if (status) return status;
  if (flock(fd, LOCK_EX | LOCK_NB))
    status = errno == EWOULDBLOCK ? attn_fail(ATTN_EEXIST, "%s: in use by another process", path)
                                  : attn_fail(ATTN_EFOREIGN, "%s: lock: %s", path, strerror(errno));
  if (!status) status = file_map_open(path, &content);
  if (!status) status = sort_lines(fd, path, &content, found, context, &whole, &bad, lines, damaged);
  if (!status && *damaged) status = move_apart(path, &whole, &bad);
  if (content.at) file_map_close(&content);
  close(fd);
  free(whole.parts);
  free(bad.parts);
  return status;
}
