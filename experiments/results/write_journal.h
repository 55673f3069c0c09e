/* write_journal.h - the append-only record of a sweep or of an evaluation: JSON Lines, one file per process.
 *
 * A session starts with a header line
 *   {"schema": "attnlab-journal", "version": 1, "session": 0, "build": "...", "provenance": {...}}
 * with a member "rows" that names the kind of rows, unless they are of a sweep (kind.h), and each finished
 * run is one line (row_json.h), written by one write(2) and fdatasync. The last member of a line is a
 * checksum of what stands before it. Nothing is ever rewritten; the last line with a key wins. A last line
 * without '\n' was torn by a crash and does not count. */
#ifndef EXPERIMENTS_RESULTS_WRITE_JOURNAL_H
#define EXPERIMENTS_RESULTS_WRITE_JOURNAL_H

#include "experiments/results/identity.h"
#include "experiments/results/set.h"

#define JOURNAL_SCHEMA "attnlab-journal"
#define JOURNAL_SCHEMA_VERSION 3 /* the newest that is read */

typedef struct journal journal;

extern const output_kind kind_journal;

/* Whether the file is a journal with rows of the kind. */
bool journal_has(const row_kind *, const char *path);

/* Opens a journal for appending, makes it if there is none, truncates a torn last line, and reads the rows
 * that it holds. build: text that identifies this build of the program. provenance: an object of the columns
 * of /provenance that a session knows at its start: git_commit git_dirty compiler cflags cpu_model cpu_flags
 * n_cores governor boost smt aslr kernel lib_versions argv env_omp job_id hostname start_time load_start
 * config_text config_sha256; others become text columns. It is copied; NULL is {}. The header line is written
 * before the first row, so that a session that finds nothing to do changes nothing. EEXIST: another process
 * has it open (exit code 75). EINVAL: not a journal, of a newer version, or malformed, with file:line.
 * EFOREIGN: a system call failed. path NULL: there is no file, and what is appended is kept in memory. */
attn_status journal_open(const char *path, const row_kind *, const char *build, const json_t *provenance,
                         journal **out);
void journal_close(journal *);

/* The text that identifies this build. */
const char *journal_build(const journal *);
/* Whether opening it cut a torn line off. */
bool journal_torn(const journal *);
/* The session number that appended rows get. */
int64_t journal_session(const journal *);

/* Appends a row (its session replaced by this one) and makes it durable. After a failure the file is as
 * before. */
attn_status journal_append(journal *, const void *row);
/* The same of a row's JSON text, one object in a line without '\n', whose session is this one. */
attn_status journal_append_text(journal *, const char *text, size_t length);

typedef struct journal_entry {
  run_status status;
  identity made; /* as in the row and its session; valid until the next append */
} journal_entry;

/* Whether a run with this key is recorded; if so, fills *entry (which may be NULL) from its last line. */
bool journal_find(const journal *, const char *key, journal_entry *entry);

/* What results_load makes of the file, from the rows in memory: to be freed before the journal is appended
 * to or closed. ENOMEM. */
attn_status journal_set(journal *, result_set *out);

/* Keeps the lines of a journal that are whole, and moves the others to PATH.damaged, which must not exist.
 * Calls found with the place and reason of each of those. *damaged: how many; 0: the file stays as it is.
 * EEXIST: another process has the journal open. EINVAL: it is no journal. */
typedef void journal_found(void *context, const char *what);
attn_status journal_repair(const char *path, journal_found *, void *context, size_t *lines, size_t *damaged);

#endif
