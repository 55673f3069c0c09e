/* scan_journal.h - a journal in memory: its sessions and all its rows, each parsed once. Internal to the
 * journal. */
#ifndef EXPERIMENTS_RESULTS_SCAN_JOURNAL_H
#define EXPERIMENTS_RESULTS_SCAN_JOURNAL_H

#include "data/support/sha256.h"
#include "experiments/results/write_journal.h"

typedef struct journal_rows {
  sha256 digest;    /* of the lines that count */
  double start;     /* of the first session */
  json_t *sessions; /* as in result_set */
  result_row *rows; /* in the order of the lines, with the number of the header above them */
  size_t count, room;
} journal_rows;

attn_status journal_rows_make(journal_rows *); /* ENOMEM */
void journal_rows_free(journal_rows *);
/* Appends a session. */
attn_status journal_rows_begin(journal_rows *, const json_t *header);
/* Appends a row of the last session, which is moved out of *row. */
attn_status journal_rows_add(journal_rows *, result_row *row);

/* Reads a whole file into *text (release with free), from its start. */
attn_status journal_slurp(int fd, const char *path, char **text, size_t *size);

/* Whether a file, which begins with this text, is a journal, be its first line torn. */
bool journal_begins(const char *text, size_t size);

/* Appends the lines that are whole; *valid is their length. Text that is no journal is refused, even where a
 * torn line is all there is. */
attn_status journal_scan(const char *path, const char *text, size_t size, journal_rows *, size_t *valid);

/* One set of journals, in the order of their start: of rows with one key the last, Holm's correction applied,
 * the sessions numbered over all. The set borrows what its rows own, but for their bounds, where `borrow` is
 * set (journal_set_return), and else takes the rows. */
attn_status journal_set_make(journal_rows *journals, size_t count, bool borrow, result_set *);

#endif
