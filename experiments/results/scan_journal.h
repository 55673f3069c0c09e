/* scan_journal.h - the lines of a journal held in memory. Internal to write_journal.c and scan_journal.c. */
#ifndef EXPERIMENTS_RESULTS_SCAN_JOURNAL_H
#define EXPERIMENTS_RESULTS_SCAN_JOURNAL_H

#include "experiments/results/write_journal.h"

/* Reads a whole file into *text (release with free), from its start. */
attn_status journal_slurp(int fd, const char *path, char **text, size_t *size);

/* Tells the reader of each line; *valid is the length of the lines that are whole. Text that is no journal is
 * refused, even where a torn line is all there is. */
attn_status journal_scan(const char *path, const char *text, size_t size, const journal_reader *,
                         size_t *valid);

#endif
