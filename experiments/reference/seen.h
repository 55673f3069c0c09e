/* seen.h - which keys the queries of a run see: those of the variant's pattern, or those that its selector
 * takes from this run's Q and K, recorded for the rows that are judged. */
#ifndef EXPERIMENTS_REFERENCE_SEEN_H
#define EXPERIMENTS_REFERENCE_SEEN_H

#include "experiments/reference/exact.h"

struct recorded;

/* in: as in attn_plan_select. */
typedef struct seen_run {
  const attn_plan *plan;
  const attn_view *view;
  attn_tensors in;
} seen_run;

typedef struct seen_keys {
  region memory;                  /* of the arrays of known lengths */
  const attn_problem *problem;    /* the plan's */
  const attn_pattern *pattern;    /* the view's, of every batch entry; NULL: every key, or a selection */
  struct recorded *entries;       /* [batch] selections; NULL: nothing is selected */
  attn_pattern *selected;         /* [batch] the same as patterns that state membership alone */
  int64_t *place, *begin, *count; /* [batch, heads, n_q] a row's place, or -1; [places] its runs */
  attn_run *runs;
  double *log_weights; /* of the runs; NULL: keys have none */
} seen_keys;

/* Rows ascending by batch, head, i, of those with take[r] set (NULL: all). */
attn_status seen_make(const seen_run *, const sample_row *rows, const bool *take, int64_t count, seen_keys *);
void seen_free(seen_keys *);

/* For row_support and visible_mark; NULL: every key. Of a selection only recorded rows see anything. */
const attn_pattern *seen_of(const seen_keys *, int64_t batch);

/* The runs of a recorded row as the selector gave them, before causality and padding. Returns how many. */
int64_t seen_picks(const seen_keys *, const sample_row *, const attn_run **runs);

/* What is added to the scores of `keys`, ascending, all of which a recorded row takes. */
void seen_log_weights(const seen_keys *, const sample_row *, const int64_t *keys, int64_t count, double *out);

#endif
