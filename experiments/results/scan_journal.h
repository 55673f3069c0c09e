/* scan_journal.h - the lines of a journal, one after another, and the sets of rows that they make. Internal
 * to the journal. */
#ifndef EXPERIMENTS_RESULTS_SCAN_JOURNAL_H
#define EXPERIMENTS_RESULTS_SCAN_JOURNAL_H

#include "data/support/sha256.h"
#include "experiments/results/write_journal.h"

/* A line's last member is the checksum (CRC-32) of all that stands before it: ,"check":"0123abcd"}. Lines of
 * older programs have none. */
typedef enum { CHECKSUM_NONE, CHECKSUM_GOOD, CHECKSUM_BAD } line_checksum;

typedef struct journal_line {
  const char *text; /* length bytes, without '\n'; until the next line is read */
  size_t length;
  int64_t number; /* from 1 */
  line_checksum checksum;
  uint32_t sum;
} journal_line;

/* Reads a file by pieces: what is in memory is at least one line, and little more. */
typedef struct journal_reader {
  int fd;
  const char *path;
  char *buffer;
  size_t begin, end, room; /* of the buffer: what has been read and not yet taken */
  int64_t offset, number;  /* of the lines taken: their bytes, and how many */
  bool over;               /* the file has no more bytes */
} journal_reader;

attn_status journal_reader_open(journal_reader *, int fd, const char *path);
void journal_reader_free(journal_reader *); /* does not close fd */
/* The next whole line; text is NULL at the end. A torn line, without '\n', is not taken. EFOREIGN, ENOMEM. */
attn_status journal_reader_next(journal_reader *, journal_line *);
/* Whether the bytes can be the start of a journal that this program wrote, however short it is. */
bool journal_begins(const char *text, size_t size);
/* At the end: whether bytes are left that are no whole line. */
bool journal_reader_torn(const journal_reader *);
/* At the end: EINVAL if the file has no whole line, and what it has is not the start of a journal's first. */
attn_status journal_reader_end(const journal_reader *);

/* The line of a text, which it does not copy, with its checksum compared. */
journal_line journal_line_of(const char *text, size_t length, int64_t number);
/* The line of an object's text as it is written, with its checksum and '\n': to be freed. ENOMEM. */
attn_status journal_line_make(const char *text, size_t length, char **line, size_t *size);

/* What a line is: one of the two is set. EINVAL names the place. */
typedef struct journal_entry_text {
  json_t *header; /* a new reference */
  bool is_row;
} journal_entry_text;
attn_status journal_line_classify(const char *path, const journal_line *, journal_entry_text *);
/* The row of a line. EINVAL names the place. */
attn_status journal_line_row(const row_kind *, const char *path, const journal_line *, void *row);

typedef struct journal_rows {
  const row_kind *kind;
  const char *path;
  sha256 digest;    /* of the lines that count: their checksums and lengths */
  double start;     /* of the first session */
  json_t *sessions; /* as in result_set */
  char *rows;       /* in the order of the lines, with the number of the header above them */
  size_t count, room;
  bool torn; /* the last line is left out */
} journal_rows;

attn_status journal_rows_make(const row_kind *, journal_rows *); /* ENOMEM */
void journal_rows_free(journal_rows *);
void *journal_rows_at(const journal_rows *, size_t);
/* Appends the session or the row of a line. EINVAL names the place. */
attn_status journal_rows_take(journal_rows *, const journal_line *);
/* One set of journals, which it sorts by their start: of rows with one key the last, settled (Holm's
 * correction), the sessions numbered over all. The rows are moved into it, or, if kept, lent to it: then *out
 * does not outlive them. */
attn_status journal_rows_set(const row_kind *, journal_rows *journals, size_t count, bool kept,
                             result_set *out);

#endif
