/* evaluation_tables.h - the runs of one question for people, and for programs. */
#ifndef EXPERIMENTS_QUALITY_EVALUATION_TABLES_H
#define EXPERIMENTS_QUALITY_EVALUATION_TABLES_H

#include <stdio.h>

#include "experiments/quality/evaluation_rows.h"
#include "experiments/support/table.h"

/* A table of the runs that ended well; where layers were replaced one by one, or mixes asked for, another of
 * how the model answers; and what is to be doubted. */
attn_status quality_print(FILE *, const quality_record *const *runs, size_t count, table_format);
/* A line for each cell of the run with this verdict, after the command unless that is NULL. Returns how many
 * they are. */
size_t quality_print_cells(FILE *, const char *command, const quality_record *, check_verdict);

/* For quality_answer: prints the runs of each question, and says which failed and what is violated. */
typedef struct quality_teller {
  const char *command; /* for messages */
  FILE *out, *errors;
  bool json;
  size_t failed, violated; /* runs and checks, checks */
} quality_teller;
/* Prints a line for people. */
void quality_tell_note(void *teller, const char *line);
attn_status quality_tell(void *teller, const quality_set *, const quality_record *const *runs, size_t count);

#endif
