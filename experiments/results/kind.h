/* kind.h - kinds of rows: the runs of sweeps, and of evaluations of models. What journals, merges and
 * results files need to know of a row stands here, so that they treat all kinds alike. */
#ifndef EXPERIMENTS_RESULTS_KIND_H
#define EXPERIMENTS_RESULTS_KIND_H

#include <jansson.h>

#include "experiments/results/identity.h"

typedef struct result_set result_set;

/* What every row says. */
typedef struct row_head {
  const char *key;
  run_status status;
  double end_time, load; /* NaN: not known */
  identity made;         /* build "": that of the row's session */
} row_head;

typedef struct row_kind {
  const char *of;   /* "a sweep": what the rows are runs of */
  const char *name; /* in headers of journals, as "rows"; NULL: those of sweeps have no such member */
  int version;      /* of journals with such rows */
  size_t size;      /* of a row, in bytes */
  const result_column *columns; /* the first is the key */
  size_t session, bounds,
      bounds_count; /* where a row has its session (int64_t), its bounds (result_bound *), and */
                    /* their number (int) */
  bool in_order;    /* sets have the rows in the order of their first lines, else by key */
  row_head (*head)(const void *row);
  void (*release)(void *row); /* frees what a row owns */
  json_t *(*to_json)(const void *row);
  attn_status (*parse)(const char *text, size_t length, void *row);
  attn_status (*settle)(result_set *);              /* what its rows say of each other */
  bool (*same)(const char *key, const char *newer); /* of one run? NULL: if they are equal */
  attn_status (*read_file)(const char *path,
                           result_set *); /* a file that is merged as a journal is; NULL: none is */
  /* Two rows of a run from different journals agree, and the first is kept: takes over what only the other
   * has. NULL: nothing; then the last row is kept, however it ended, else the last that ended well. */
  void (*adopt)(void *row, const void *other);
} row_kind;

extern const row_kind rows_of_sweep;

int64_t *row_session(const row_kind *, void *row);
result_bound **row_bounds(const row_kind *, void *row);
int *row_bounds_count(const row_kind *, void *row);

#endif
