/* scan_journal.c - reading journals: header lines, row lines, a torn end. Format: write_journal.h. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/results/scan_journal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

attn_status journal_slurp(int fd, const char *path, char **text, size_t *size) {
  struct stat about;
  if (fstat(fd, &about)) return attn_fail(ATTN_EFOREIGN, "%s: stat: %s", path, strerror(errno));
  if (!S_ISREG(about.st_mode)) return attn_fail(ATTN_EINVAL, "%s: not a regular file", path);
  size_t room = (size_t)about.st_size, filled = 0;
  char *buffer = malloc(room + 1);
  if (!buffer) return attn_fail(ATTN_ENOMEM, "%s: out of memory for %zu bytes", path, room);
  while (filled < room) {
    ssize_t got = pread(fd, buffer + filled, room - filled, (off_t)filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      free(buffer);
      return attn_fail(ATTN_EFOREIGN, "%s: read: %s", path, strerror(errno));
    }
    if (got == 0) break; /* cut meanwhile */
    filled += (size_t)got;
  }
  *text = buffer;
  *size = filled;
  return ATTN_OK;
}

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

static attn_status scan_row(const char *path, int64_t line, const json_t *json, journal_rows *out) {
  result_row row;
  char problem[256];
  attn_status status = result_row_from_json(json, &row);
  if (status) {
    snprintf(problem, sizeof problem, "%s", attn_last_error());
    return attn_fail(status, "%s:%lld: %s", path, (long long)line, problem);
  }
  status = journal_rows_add(out, &row);
  result_row_free(&row);
  return status;
}

/* Whether a torn first line can be the start of a header that this program wrote. */
static bool torn_header(const char *text, size_t size) {
  static const char start[] = "{\"schema\":\"" JOURNAL_SCHEMA "\"";
  size_t common = size < sizeof start - 1 ? size : sizeof start - 1;
  return memcmp(text, start, common) == 0;
}

/* The first line says so, in whatever spacing. */
bool journal_begins(const char *text, size_t size) {
  const char *end = memchr(text, '\n', size);
  if (!end) return torn_header(text, size);
  json_t *header = json_loadb(text, (size_t)(end - text), JSON_REJECT_DUPLICATES, NULL);
  const char *schema = json_string_value(json_object_get(header, "schema"));
  const bool yes = schema && strcmp(schema, JOURNAL_SCHEMA) == 0;
  json_decref(header);
  return yes;
}

attn_status journal_scan(const char *path, const char *text, size_t size, journal_rows *out, size_t *valid) {
  attn_status status = ATTN_OK;
  int64_t line = 0;
  size_t at = 0;
  while (!status) {
    const char *end = at < size ? memchr(text + at, '\n', size - at) : NULL;
    if (!end) break;
    line++;
    json_error_t error;
    json_t *json = json_loadb(text + at, (size_t)(end - (text + at)), JSON_REJECT_DUPLICATES, &error);
    if (line == 1 && !json_object_get(json, "schema"))
      status = check_header(path, line, NULL);
    else if (!json)
      status = at_line(path, line, error.text);
    else if (!json_object_get(json, "schema"))
      status = scan_row(path, line, json, out);
    else if (!(status = check_header(path, line, json)))
      status = journal_rows_begin(out, json);
    json_decref(json);
    at = (size_t)(end - text) + 1;
  }
  if (!status && line == 0 && !torn_header(text, size)) status = check_header(path, 1, NULL);
  if (!status) sha256_add(&out->digest, text, *valid = at);
  return status;
}
