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
#include "experiments/support/json_reader.h"
#include "experiments/support/names.h"

/* What is kept of a row. */
/* Of the files that a row was made from. */
enum { DATASET, PLUGIN, FILES, DIGESTS };
static const char *const digest_names[] = {"dataset_sha256", "plugin_sha256", "files_sha256"};

typedef struct known_row {
  run_status status;
  size_t session;
  const char *sha256[DIGESTS]; /* from names_keep */
} known_row;

struct journal {
  int fd;
  char *path;
  json_t *header;
  bool has_header; /* this session's line is in the file */
  bool torn;
  json_t *known; /* key -> index of what is kept of its last row */
  known_row *rows;
  size_t count, room;
  json_t *builds;    /* of each session */
  const char *build; /* of this one, in header */
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

/* Makes a key refer to its row. */
static attn_status learn(journal *j, const char *key, run_status row_status,
                         const char *const digests[DIGESTS]) {
  if (j->count == j->room) {
    const size_t room = 2 * j->room + 64;
    known_row *rows = realloc(j->rows, room * sizeof *rows);
    if (!rows) return no_memory(j);
    j->rows = rows;
    j->room = room;
  }
  known_row row = {row_status, json_array_size(j->builds) - 1, {NULL}};
  for (int d = 0; d < DIGESTS; d++) {
    row.sha256[d] = names_keep(digests[d] ? digests[d] : "");
    if (!row.sha256[d]) return no_memory(j);
  }
  j->rows[j->count] = row;
  return json_object_set_new(j->known, key, json_integer((json_int_t)j->count++)) ? no_memory(j) : ATTN_OK;
}

/* RUN_FAILED for a status of a newer program. */
static int64_t status_of(const char *name) {
  for (int64_t i = 0; run_status_names[i]; i++)
    if (strcmp(run_status_names[i], name) == 0) return i;
  return RUN_FAILED;
}

/* The members of a row that are kept. A line whose checksum is right needs no closer look: this program wrote it. */
static attn_status learn_checked(journal *j, const journal_line *line) {
  json_reader r = json_reader_of(line->text, line->length);
  char *key = NULL, digest[DIGESTS][65] = {""};
  const char *const digests[DIGESTS] = {digest[DATASET], digest[PLUGIN], digest[FILES]};
  int64_t status = RUN_OK;
  size_t count = 0;
  (void)json_reader_begin(&r, '{');
  while (json_reader_more(&r, '}', &count)) {
    if (!json_reader_name(&r)) break;
    const bool is_key = strcmp(r.text, "key") == 0, is_status = strcmp(r.text, "status") == 0;
    int d = 0;
    while (d < DIGESTS && strcmp(r.text, digest_names[d]) != 0) d++;
    if (!is_key && !is_status && d == DIGESTS) {
      (void)json_reader_skip(&r);
      continue;
    }
    if (!json_reader_text(&r)) break;
    if (is_key && !key) key = strdup(r.text);
    if (is_status) status = status_of(r.text);
    if (d < DIGESTS) column_cut_text(digest[d], sizeof digest[d], r.text);
  }
  attn_status out =
      r.wrong ? attn_fail(ATTN_EINVAL, "%s:%lld: expected %s", j->path, (long long)line->number, r.wrong)
      : key   ? learn(j, key, (run_status)status, digests)
              : no_memory(j);
  free(key);
  json_reader_free(&r);
  return out;
}

static attn_status learn_line(journal *j, const journal_reader *r, const journal_line *line) {
  journal_entry_text entry;
  result_row row;
  attn_status status = journal_line_classify(r, line, &entry);
  if (!status && entry.header && json_array_append(j->builds, json_object_get(entry.header, "build")))
    status = no_memory(j);
  json_decref(entry.header);
  if (status || !entry.is_row) return status;
  if (line->checksum == CHECKSUM_GOOD) return learn_checked(j, line);
  if ((status = journal_line_row(r, line, &row))) return status;
  status = learn(j, row.key, row.status,
                 (const char *const[]){row.dataset_sha256, row.plugin_sha256, row.files_sha256});
  result_row_free(&row);
  return status;
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
  while (!status && !(status = journal_reader_next(&r, &line)) && line.text)
    status = learn_line(j, &r, &line);
  if (!status && fstat(j->fd, &about)) status = failed_call(j, "stat");
  if (!status && about.st_size == 0) sync_directory(j->path);
  if (!status) status = journal_reader_end(&r);
  if (!status) j->session = (int64_t)json_array_size(j->builds);
  j->torn = journal_reader_torn(&r);
  if (!status && r.offset < about.st_size && (ftruncate(j->fd, (off_t)r.offset) || fdatasync(j->fd)))
    status = failed_call(j, "truncate");
  journal_reader_free(&r);
  return status;
}

attn_status journal_open(const char *path, const char *build, const json_t *provenance, journal **out) {
  attn_status status = ATTN_OK;
  journal *j = calloc(1, sizeof *j);
  if (!j) return attn_fail(ATTN_ENOMEM, "%s: out of memory", path);
  j->fd = -1;
  j->path = strdup(path);
  j->known = json_object();
  j->builds = json_array();
  if (!j->path || !j->known || !j->builds) {
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
  json_decref(j->builds);
  free(j->rows);
  free(j->path);
  free(j);
}

const char *journal_build(const journal *j) { return j->build; }

bool journal_torn(const journal *j) { return j->torn; }

int64_t journal_session(const journal *j) { return j->session; }

/* One write(2); a short one is taken back, so that the file always ends with a whole line. */
static attn_status append_line(journal *j, const json_t *json) {
  char *line = NULL;
  size_t length = 0;
  struct stat before;
  attn_status status = journal_line_make(json, &line, &length);
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
  if (status && written > 0 && ftruncate(j->fd, before.st_size)) status = failed_call(j, "truncate");
out:
  free(line);
  return status;
}

attn_status journal_append(journal *j, const result_row *row) {
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
    if (json_array_append_new(j->builds, result_json_text(j->build))) status = no_memory(j);
  }
  if (!status) status = append_line(j, json);
  if (!status) { /* the texts as a reader of the file gets them */
    const char *digests[DIGESTS];
    for (int d = 0; d < DIGESTS; d++) digests[d] = json_string_value(json_object_get(json, digest_names[d]));
    status = learn(j, json_string_value(json_object_get(json, "key")), row->status, digests);
  }
out:
  json_decref(json);
  return status;
}

bool journal_find(const journal *j, const char *key, journal_entry *entry) {
  json_t *text = result_json_text(key); /* as the file has it */
  const json_t *place = json_object_get(j->known, json_string_value(text));
  json_decref(text);
  if (!place) return false;
  const known_row *row = &j->rows[json_integer_value(place)];
  if (entry) {
    entry->status = row->status;
    entry->made = (identity){row->sha256[DATASET], row->sha256[PLUGIN], row->sha256[FILES],
                             json_string_value(json_array_get(j->builds, row->session))};
  }
  return true;
}
