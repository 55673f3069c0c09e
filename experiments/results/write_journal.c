/* write_journal.c - appending rows so that no crash, full disk or second process loses or damages any. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/results/write_journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/results/scan_journal.h"

struct journal {
  int fd;
  char *path;
  json_t *header;
  bool has_header; /* this session's line is in the file */
  journal_rows all;
  json_t *known;     /* key -> place of its last row */
  const char *build; /* in header */
  int64_t session;
};

static bool is_journal(const char *path, const file_map *content) {
  (void)path;
  return journal_begins((const char *)content->at, content->bytes);
}

const output_kind kind_journal = {"the journal of a sweep", is_journal};

static attn_status no_memory(const journal *j) {
  return attn_fail(ATTN_ENOMEM, "%s: out of memory", j->path);
}

/* Makes the row's key refer to its place. */
static attn_status learn_row(journal *j, size_t place) {
  const json_int_t at = (json_int_t)place;
  return json_object_set_new(j->known, j->all.rows[place].key, json_integer(at)) ? no_memory(j) : ATTN_OK;
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
  char *text = NULL;
  size_t size = 0, valid = 0;
  attn_status status = journal_slurp(j->fd, j->path, &text, &size);
  if (!status && size == 0) sync_directory(j->path);
  if (!status) status = journal_scan(j->path, text, size, &j->all, &valid);
  for (size_t i = 0; !status && i < j->all.count; i++) status = learn_row(j, i);
  if (!status) j->session = (int64_t)json_array_size(j->all.sessions);
  if (!status && valid < size && (ftruncate(j->fd, (off_t)valid) || fdatasync(j->fd)))
    status = failed_call(j, "truncate");
  free(text);
  return status;
}

attn_status journal_open(const char *path, const char *build, const json_t *provenance, journal **out) {
  attn_status status = ATTN_OK;
  journal *j = calloc(1, sizeof *j);
  if (!j) return attn_fail(ATTN_ENOMEM, "%s: out of memory", path);
  j->fd = -1;
  j->path = strdup(path);
  j->known = json_object();
  if (journal_rows_make(&j->all) || !j->path || !j->known) {
    status = attn_fail(ATTN_ENOMEM, "%s: out of memory", path);
    goto out;
  }
  j->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
  if (j->fd < 0) {
    status = failed_call(j, "open");
    goto out;
  }
  if ((status = lock(j)) || (status = recover(j))) goto out;
  j->header =
      json_pack("{s:s, s:i, s:I, s:o, s:o}", "schema", JOURNAL_SCHEMA, "version", JOURNAL_SCHEMA_VERSION,
                "session", (json_int_t)j->session, "build", result_json_text(build), "provenance",
                provenance ? json_deep_copy(provenance) : json_object());
  if (!j->header) {
    status = attn_fail(ATTN_ENOMEM, "%s: out of memory", path);
    goto out;
  }
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
  journal_rows_free(&j->all);
  free(j->path);
  free(j);
}

int64_t journal_session(const journal *j) { return j->session; }

/* One write(2); a short one is taken back, so that the file always ends with a whole line. */
static attn_status append_line(journal *j, const json_t *json) {
  char *line = NULL;
  size_t length = 0;
  struct stat before;
  attn_status status = result_json_line(json, &line, &length);
  if (status) return status;
  if (fstat(j->fd, &before)) {
    status = failed_call(j, "stat");
    goto out;
  }
  ssize_t written;
  do written = write(j->fd, line, length);
  while (written < 0 && errno == EINTR);
  if (written < 0)
    status = failed_call(j, "write");
  else if ((size_t)written < length)
    status = attn_fail(ATTN_EFOREIGN, "%s: wrote %zd of %zu bytes: no space left", j->path, written, length);
  else if (fdatasync(j->fd))
    status = failed_call(j, "sync");
  if (!status) sha256_add(&j->all.digest, line, length);
  if (status && written > 0 && ftruncate(j->fd, before.st_size)) status = failed_call(j, "truncate");
out:
  free(line);
  return status;
}

attn_status journal_append(journal *j, const result_row *row) {
  result_row kept;
  attn_status status = ATTN_OK;
  json_t *json = result_row_to_json(row);
  if (!json) return ATTN_ENOMEM;
  if (json_object_set_new(json, "session", json_integer(j->session))) {
    status = no_memory(j);
    goto out;
  }
  if (!j->has_header) {
    if ((status = append_line(j, j->header))) goto out;
    j->has_header = true;
    if ((status = journal_rows_begin(&j->all, j->header))) goto out;
  }
  if ((status = append_line(j, json))) goto out;
  /* The row as a reader of the file gets it. */
  if ((status = result_row_from_json(json, &kept))) goto out;
  status = journal_rows_add(&j->all, &kept);
  result_row_free(&kept);
  if (!status) status = learn_row(j, j->all.count - 1);
out:
  json_decref(json);
  return status;
}

bool journal_find(const journal *j, const char *key, journal_entry *entry) {
  json_t *text = result_json_text(key); /* as the file has it */
  const json_t *place = json_object_get(j->known, json_string_value(text));
  json_decref(text);
  if (!place) return false;
  const result_row *row = &j->all.rows[json_integer_value(place)];
  const json_t *session = json_array_get(j->all.sessions, (size_t)row->session);
  if (entry) {
    entry->status = row->status;
    entry->dataset_sha256 = row->dataset_sha256;
    entry->stale = row->session != j->session &&
                   strcmp(json_string_value(json_object_get(session, "build")), j->build) != 0;
  }
  return true;
}

attn_status journal_set(const journal *j, result_set *out) {
  journal_rows all = j->all;
  return journal_set_make(&all, 1, true, out);
}
