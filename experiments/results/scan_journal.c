/* scan_journal.c - reading journals line by line: header lines, row lines, checksums, a torn end. Format:
 * write_journal.h. */
#include "experiments/results/scan_journal.h"

#include "data/support/json_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { PIECE = 1 << 20, LINE_MAX_BYTES = 64 << 20, CHECK_LENGTH = 20 };

static const char check_begin[] = ",\"check\":\"", check_end[] = "\"}";

/* -- checksums -- */

static uint32_t sum_of(const char *text, size_t length) {
  return (uint32_t)crc32_z(crc32_z(0, NULL, 0), (const unsigned char *)text, length);
}

attn_status journal_line_make(const char *text, size_t length, char **line, size_t *size) {
  char *out = malloc(length + CHECK_LENGTH + 2);
  if (!out) return attn_fail(ATTN_ENOMEM, "out of memory for a line of a journal");
  length--; /* "}" gives way to the checksum */
  memcpy(out, text, length);
  snprintf(out + length, CHECK_LENGTH + 2, "%s%08lx%s\n", check_begin, (unsigned long)sum_of(text, length),
           check_end);
  *line = out;
  *size = length + CHECK_LENGTH + 1;
  return ATTN_OK;
}

journal_line journal_line_of(const char *text, size_t length, int64_t number) {
  const size_t begin = strlen(check_begin), end = strlen(check_end);
  const char *tail = length >= CHECK_LENGTH ? text + length - CHECK_LENGTH : NULL;
  journal_line line = {.text = text, .length = length, .number = number, .checksum = CHECKSUM_NONE};
  if (!tail || memcmp(tail, check_begin, begin) != 0 ||
      memcmp(tail + CHECK_LENGTH - end, check_end, end) != 0) {
    line.sum = sum_of(text, length);
    return line;
  }
  char stated[9] = "", own[9];
  memcpy(stated, tail + begin, 8);
  line.sum = sum_of(text, length - CHECK_LENGTH);
  snprintf(own, sizeof own, "%08lx", (unsigned long)line.sum);
  line.checksum = strcmp(stated, own) == 0 ? CHECKSUM_GOOD : CHECKSUM_BAD;
  return line;
}

/* -- lines -- */

attn_status journal_reader_open(journal_reader *r, int fd, const char *path) {
  *r = (journal_reader){.fd = fd, .path = path, .room = PIECE};
  r->buffer = malloc(r->room);
  return r->buffer ? ATTN_OK : attn_fail(ATTN_ENOMEM, "%s: out of memory", path);
}

void journal_reader_free(journal_reader *r) {
  free(r->buffer);
  r->buffer = NULL;
}

/* Reads another piece behind what is left. */
static attn_status fill(journal_reader *r) {
  memmove(r->buffer, r->buffer + r->begin, r->end - r->begin);
  r->end -= r->begin;
  r->begin = 0;
  if (r->room - r->end < PIECE / 2) {
    const size_t room = 2 * r->room;
    char *buffer = realloc(r->buffer, room);
    if (!buffer) return attn_fail(ATTN_ENOMEM, "%s: out of memory for a line of %zu bytes", r->path, r->end);
    r->buffer = buffer;
    r->room = room;
  }
  ssize_t got;
  do got = pread(r->fd, r->buffer + r->end, r->room - r->end, (off_t)r->offset + (off_t)r->end);
  while (got < 0 && errno == EINTR);
  if (got < 0) return attn_fail(ATTN_EFOREIGN, "%s: read: %s", r->path, strerror(errno));
  r->end += (size_t)got;
  r->over = got == 0;
  return ATTN_OK;
}

attn_status journal_reader_next(journal_reader *r, journal_line *out) {
  attn_status status = ATTN_OK;
  size_t looked = 0; /* bytes from begin that hold no '\n' */
  *out = (journal_line){0};
  for (;;) {
    char *from = r->buffer + r->begin;
    char *end = memchr(from + looked, '\n', r->end - r->begin - looked);
    looked = end ? (size_t)(end - from) : r->end - r->begin;
    if (looked > LINE_MAX_BYTES)
      return attn_fail(ATTN_EINVAL, "%s:%lld: a line of more than %d MiB", r->path, (long long)r->number + 1,
                       LINE_MAX_BYTES >> 20);
    if (end) {
      *out = journal_line_of(from, looked, ++r->number);
      r->begin += looked + 1;
      r->offset += (int64_t)looked + 1;
      return ATTN_OK;
    }
    if (r->over) return ATTN_OK;
    if ((status = fill(r))) return status;
  }
}

/* -- what a line holds -- */

static attn_status at_line(const char *path, int64_t line, const char *problem) {
  return attn_fail(ATTN_EINVAL, "%s:%lld: %s", path, (long long)line, problem);
}

static attn_status check_header(const char *path, int64_t line, const json_t *json) {
  const json_t *schema = json_object_get(json, "schema"), *version = json_object_get(json, "version");
  if (!json_is_string(schema) || strcmp(json_string_value(schema), JOURNAL_SCHEMA) != 0)
    return at_line(path, line,
                   "not an attnlab journal: expected a header with schema \"" JOURNAL_SCHEMA "\"");
  if (!json_is_integer(version) || json_integer_value(version) < 1)
    return at_line(path, line, "header: version: expected a positive integer");
  if (json_integer_value(version) > JOURNAL_SCHEMA_VERSION)
    return attn_fail(ATTN_EINVAL, "%s:%lld: journal of version %lld; this program reads up to version %d",
                     path, (long long)line, (long long)json_integer_value(version), JOURNAL_SCHEMA_VERSION);
  if (!json_is_string(json_object_get(json, "build")))
    return at_line(path, line, "header: build: expected a string");
  if (!json_is_object(json_object_get(json, "provenance")))
    return at_line(path, line, "header: provenance: expected an object");
  return ATTN_OK;
}

static bool torn_header(const char *text, size_t size) {
  static const char start[] = "{\"schema\":\"" JOURNAL_SCHEMA "\"";
  return memcmp(text, start, size < sizeof start - 1 ? size : sizeof start - 1) == 0;
}

/* The first line has the schema, in whatever spacing. */
bool journal_begins(const char *text, size_t size) {
  const char *end = memchr(text, '\n', size);
  if (!end) return torn_header(text, size);
  json_error_t error;
  json_t *header = NULL;
  if (json_parse(text, (size_t)(end - text), &error, &header)) return false;
  const char *schema = json_string_value(json_object_get(header, "schema"));
  const bool yes = schema && strcmp(schema, JOURNAL_SCHEMA) == 0;
  json_decref(header);
  return yes;
}

bool journal_reader_torn(const journal_reader *r) { return r->begin < r->end; }

attn_status journal_reader_end(const journal_reader *r) {
  return r->number || journal_begins(r->buffer + r->begin, r->end - r->begin)
             ? ATTN_OK
             : check_header(r->path, 1, NULL);
}

/* Rows have no member of this name, and headers begin with it. */
static bool says_schema(const journal_line *line) {
  static const char name[] = "\"schema\"";
  const char *at = line->text, *end = at + line->length;
  while (at < end && (*at == '{' || *at == ' ' || *at == '\t')) at++;
  return (size_t)(end - at) >= sizeof name - 1 && memcmp(at, name, sizeof name - 1) == 0;
}

attn_status journal_line_classify(const char *path, const journal_line *line, journal_entry_text *out) {
  attn_status status = ATTN_OK;
  json_error_t error;
  *out = (journal_entry_text){0};
  const bool header = says_schema(line);
  if (line->number == 1 && !header) return check_header(path, 1, NULL);
  if (line->checksum == CHECKSUM_BAD)
    return at_line(
        path, line->number,
        "damaged: its checksum does not match; `attnlab check --repair' keeps the lines that are whole");
  out->is_row = !header;
  if (!header) return ATTN_OK;
  status = json_parse(line->text, line->length, &error, &out->header);
  if (status == ATTN_ENOMEM) return status;
  status =
      out->header ? check_header(path, line->number, out->header) : at_line(path, line->number, error.text);
  if (status) {
    json_decref(out->header);
    out->header = NULL;
  }
  return status;
}

attn_status journal_line_row(const row_kind *kind, const char *path, const journal_line *line, void *out) {
  char problem[256];
  const attn_status status = kind->name && line->checksum != CHECKSUM_GOOD
                                 ? attn_fail(ATTN_EINVAL, "result row: expected a checksum at its end")
                                 : kind->parse(line->text, line->length, out);
  if (!status) return status;
  snprintf(problem, sizeof problem, "%s", attn_last_error());
  return attn_fail(status, "%s:%lld: %s", path, (long long)line->number, problem);
}
