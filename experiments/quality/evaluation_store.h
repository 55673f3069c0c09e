/* evaluation_store.h - where the runs of evaluations are kept: in a journal, NAME.jsonl, from which the file
 * NAME.h5 is made. */
#ifndef EXPERIMENTS_QUALITY_EVALUATION_STORE_H
#define EXPERIMENTS_QUALITY_EVALUATION_STORE_H

#include "experiments/quality/evaluation_file.h"
#include "experiments/results/write_journal.h"

typedef void quality_note(void *to, const char *line);

typedef struct quality_session {
  const char *path;          /* NAME.h5; NULL: the runs are kept in memory, and no file is written */
  const char *const *inputs; /* files that it must not be, NULL where there is none */
  size_t input_count;
  int argc; /* the command line, for the record */
  char *const *argv;
  bool hostname;      /* record the machine's name */
  quality_note *note; /* told in a line what a user should know; NULL: nobody */
  void *to;
} quality_session;

typedef struct quality_store {
  const quality_session *session;
  journal *journal;
  char build[65];
} quality_store;

/* Checks the paths, and writes nothing: a request that is refused leaves no file. EINVAL: the path or what it
 * names is none of an evaluation. */
attn_status quality_store_open(const quality_session *, quality_store *out);
/* Opens the journal unless it is open, or waits until no other process has it. A file without one, of an
 * older program or of `attnlab merge', gives its runs to a new journal. EINVAL: the journal or the file is
 * none of an evaluation. */
attn_status quality_store_begin(quality_store *);
void quality_store_close(quality_store *);

/* The runs: result_set_free before more are added. */
attn_status quality_store_set(const quality_store *, quality_set *out);
/* Writes the file from the runs. */
attn_status quality_store_write(const quality_store *);

#endif
