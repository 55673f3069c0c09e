/* probe_rows.h - which (batch, head), rows and keys of a run its probe is made of. */
#ifndef EXPERIMENTS_EVIDENCE_PROBE_ROWS_H
#define EXPERIMENTS_EVIDENCE_PROBE_ROWS_H

#include "experiments/evidence/probe.h"

typedef struct probe_choice {
  int64_t batch, head; /* of the run */
  int64_t own_head;    /* of the probe's plan: 0 unless heads draw for themselves */
  int64_t count, keys; /* queries, and leading keys */
  int64_t first;       /* rows first ... first + count - 1, where `rows` is NULL */
  int64_t *rows;       /* [count], or NULL */
} probe_choice;

static inline int64_t probe_choice_row(const probe_choice *c, int64_t r) {
  return c->rows ? c->rows[r] : c->first + r;
}

/* (batch, head) at random, and as probe.h says: rows at random with edges, the rows of a window under a
 * causal mask with the keys up to them, every row, or the last ones. Release with probe_choice_free. */
attn_status probe_choose(const evidence *, probe_choice *);
/* Instead the last rows, or every row, and all keys. */
void probe_choose_last(const evidence *, probe_choice *);
void probe_choose_all(const evidence *, probe_choice *);
void probe_choice_free(probe_choice *);

/* Do the probe's queries see the same keys under its pattern as those of the run? */
bool probe_keeps_keys(const evidence *, const probe *);

#endif
