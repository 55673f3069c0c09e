/* write_journal.c - appending rows so that no crash, full disk or second process loses or damages any. */
#include "experiments/results/write_journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/support/file.h"
#include "experiments/results/scan_journal.h"

struct journal {
  int fd;
  char *path;
  json_t *header;
  bool has_header; /* this session's line is in the file */
  bool torn;
  journal_rows table; /* what the file holds */
  json_t *known;      /* key -> index of its last row */
  const char *build;  /* of this session, in header */
  int64_t session;
};

static bool is_journal(const char *path, const file_map *content) {
  (void)path;
  return journal_begins((const char *)content->at, content->bytes);
}

const output_kind kind_journal = {"the journal of a sweep or an evaluation", is_journal};

bool journal_has(const row_kind *kind, const char *path) {
  file_map content;
  journal_entry_text entry = {0};
  if (file_map_open(path, &content)) return false;
  const char *text = (const char *)content.at,
             *end = content.bytes ? memchr(text, '\n', content.bytes) : NULL;
  const journal_line first = journal_line_of(text, end ? (size_t)(end - text) : 0, 1);
  if (end && journal_line_classify(path, &first, &entry)) entry.header = NULL;
  const char *rows = json_string_value(json_object_get(entry.header, "rows"));
  const bool has = entry.header && (rows ? kind->name && strcmp(rows, kind->name) == 0 : !kind->name);
  json_decref(entry.header);
  file_map_close(&content);
  return has;
}

static attn_status no_memory(const journal *j) {
  return attn_fail(ATTN_ENOMEM, "%s: out of memory", j->path);
}

/* Adds a line of the file to the table. */
static attn_status learn(journal *j, const journal_line *line) {
  const size_t before = j->table.count;
  const attn_status status = journal_rows_take(&j->table, line);
  if (status || j->table.count == before) return status;
  const row_head head = j->table.kind->head(journal_rows_at(&j->table, before));
  return json_object_set_new(j->known, head.key, json_integer((json_int_t)before)) ? no_memory(j) : ATTN_OK;
}

static attn_status failed_call(const journal *j, const char *call) {
  return attn_fail(ATTN_EFOREIGN, "%s: %s: %s", j->path, call, strerror(errno));
}

/* A new file is durable only once its directory is; not every file system can sync one, so failure is no
 * error. */
static void sync_directory(const char *path) {
  const char *slash = strrchr(path, '/');
  char *directory = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
  int fd = directory ? open(directory, O_RDONLY | O_CLOEXEC | O_DIRECTORY) : -1;
  if (fd >= 0) {
    fsync(fd);
    close(fd);
  }
  free(directory);
}

static attn_status lock(journal *j) {
  struct stat about;
  if (fstat(j->fd, &about)) return failed_call(j, "stat");
  if (!S_ISREG(about.st_mode)) return attn_fail(ATTN_EINVAL, "%s: not a regular file", j->path);
  if (!flock(j->fd, LOCK_EX | LOCK_NB)) return ATTN_OK;
  if (errno == EWOULDBLOCK) return attn_fail(ATTN_EEXIST, "%s: in use by another process", j->path);
  return failed_call(j, "lock");
}

/* Reads what is there, and cuts off a torn line. */
static attn_status recover(journal *j) {
  journal_reader r;
  journal_line line;
  struct stat about;
  attn_status status = journal_reader_open(&r, j->fd, j->path);
  while (!status && !(status = journal_reader_next(&r, &line)) && line.text) status = learn(j, &line);
  if (!status && fstat(j->fd, &about)) status = failed_call(j, "stat");
  if (!status && about.st_size == 0) sync_directory(j->path);
  if (!status) status = journal_reader_end(&r);
  if (!status) j->session = (int64_t)json_array_size(j->table.sessions);
  j->torn = journal_reader_torn(&r);
  if (!status && r.offset < about.st_size && (ftruncate(j->fd, (off_t)r.offset) || fdatasync(j->fd)))
    status = failed_call(j, "truncate");
  journal_reader_free(&r);
  return status;
}

/* The line above the rows of this session. */
static attn_status make_header(journal *j, const char *build, const json_t *provenance) {
  const row_kind *kind = j->table.kind;
  j->header = json_pack("{s:s, s:i, s:I, s:o, s:o}", "schema", JOURNAL_SCHEMA, "version", kind->version,
                        "session", (json_int_t)j->session, "build", result_json_text(build), "provenance",
                        provenance ? json_deep_copy(provenance) : json_object());
  if (!j->header || (kind->name && json_object_set_new(j->header, "rows", json_string(kind->name))))
    return no_memory(j);
  return ATTN_OK;
}

attn_status journal_open(const char *path, const row_kind *kind, const char *build, const json_t *provenance,
                         journal **out) {
  attn_status status = ATTN_OK;
  journal *j = calloc(1, sizeof *j);
  if (!j) return attn_fail(ATTN_ENOMEM, "out of memory for a journal");
  j->fd = -1;
  j->path = strdup(path ? path : "the evaluation");
  j->known = json_object();
  status = journal_rows_make(kind, &j->table);
  if (!status && (!j->path || !j->known)) status = attn_fail(ATTN_ENOMEM, "out of memory for a journal");
  if (status) goto out;
  j->table.path = j->path;
  if (path) {
    j->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    if (j->fd < 0) {
      status = failed_call(j, "open");
      goto out;
    }
    if ((status = lock(j)) || (status = recover(j))) goto out;
  }
  if ((status = make_header(j, build, provenance))) goto out;
  j->build = json_string_value(json_object_get(j->header, "build"));
  *out = j;
  j = NULL;
out:
  journal_close(j);
  return status;
}

void journal_close(journal *j) {
  if (!j) return;
  if (j->fd >= 0) close(j->fd);
  json_decref(j->header);
  json_decref(j->known);
  journal_rows_free(&j->table);
  free(j->path);
  free(j);
}

const char *journal_build(const journal *j) { return j->build; }

bool journal_torn(const journal *j) { return j->torn; }

int64_t journal_session(const journal *j) { return j->session; }

/* One write(2); a short one is taken back, so that the file always ends with a whole line. */
static attn_status write_line(journal *j, const char *line, size_t length) {
  struct stat before;
  attn_status status = ATTN_OK;
  if (fstat(j->fd, &before)) return failed_call(j, "stat");
  ssize_t written;
  do written = write(j->fd, line, length);
  while (written < 0 && errno == EINTR);
  if (written < 0)
    status = failed_call(j, "write");
  else if ((size_t)written < length)
    status = attn_fail(ATTN_EFOREIGN, "%s: wrote %zd of %zu bytes: no space left", j->path, written, length);
  else if (fdatasync(j->fd))
    status = failed_call(j, "sync");
  if (status && written > 0 && ftruncate(j->fd, before.st_size)) status = failed_call(j, "truncate");
  return status;
}

/* What was written is read as any reader of the file reads it. */
static attn_status append_line(journal *j, const char *text, size_t size) {
  char *line = NULL;
  size_t length = 0;
  attn_status status = journal_line_make(text, size, &line, &length);
  if (!status && j->fd >= 0) status = write_line(j, line, length);
  if (!status) {
    const journal_line added = journal_line_of(line, length - 1, 0);
    status = learn(j, &added);
  }
  free(line);
  return status;
}

static attn_status append_json(journal *j, const json_t *json) {
  char *text = NULL;
  size_t length = 0;
  attn_status status = result_json_line(json, &text, &length);
  if (!status) status = append_line(j, text, length - 1);
  free(text);
  return status;
}

static attn_status begin(journal *j) {
  const attn_status status = j->has_header ? ATTN_OK : append_json(j, j->header);
  if (!status) j->has_header = true;
  return status;
}

attn_status journal_append_text(journal *j, const char *text, size_t length) {
  const attn_status status = begin(j);
  return status ? status : append_line(j, text, length);
}

attn_status journal_append(journal *j, const void *row) {
  json_t *json = j->table.kind->to_json(row);
  if (!json) return ATTN_ENOMEM;
  attn_status status =
      json_object_set_new(json, "session", json_integer(j->session)) ? no_memory(j) : begin(j);
  if (!status) status = append_json(j, json);
  json_decref(json);
  return status;
}

bool journal_find(const journal *j, const char *key, journal_entry *entry) {
  json_t *text = result_json_text(key); /* as the file has it */
  const json_t *place = json_object_get(j->known, json_string_value(text));
  json_decref(text);
  if (!place) return false;
  void *row = journal_rows_at(&j->table, (size_t)json_integer_value(place));
  const row_head head = j->table.kind->head(row);
  const json_t *session = json_array_get(j->table.sessions, (size_t)*row_session(j->table.kind, row));
  if (entry) {
    *entry = (journal_entry){head.status, head.made};
    if (!*head.made.build) entry->made.build = json_string_value(json_object_get(session, "build"));
  }
  return true;
}

attn_status journal_set(journal *j, result_set *out) {
  return journal_rows_set(j->table.kind, &j->table, 1, true, out);
}
