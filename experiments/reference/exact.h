/* exact.h - the rows of an output that are compared, and exact attention on them. */
#ifndef EXPERIMENTS_REFERENCE_EXACT_H
#define EXPERIMENTS_REFERENCE_EXACT_H

#include "attn_variant.h"
#include "experiments/support/region.h"

/* A row of the output that is compared with the reference. */
typedef struct sample_row {
  int64_t batch, head, i;
} sample_row;

/* Strata of the row sample: bins of the position within each (batch, head). One bin with all rows takes every
 * row. */
typedef struct sampling {
  int64_t bins, per_stratum;
} sampling;

/* Exact attention on the sampled rows, computed once for all variants of a block (same Q, K, V, mask). */
typedef struct exact_rows {
  region memory; /* of all but `all` */
  sampling design;
  int64_t count;    /* the sample: every row if count = batch * heads * n_q */
  int64_t judged;   /* with the edges after it, which checks look at and no estimate rests on */
  sample_row *rows; /* [judged] ascending by batch, head, i: the sample, and the edges */
  int64_t *keys;    /* number of leading keys that include all the row sees */
  double *p;        /* [judged, n_kv] exact weights: 0 of a key that is masked */
  double *sink;     /* that of each row's sink, with which the weights add up to 1 */
  double *o;        /* [judged, d_v] */
  bool complete;    /* rows are all rows */
  double *all;      /* [batch, heads, n_q, d_v] outputs of every row (census.h); NULL: of those above alone */
} exact_rows;

/* Chooses rows and computes exact attention on them in fp64, in parallel over rows. All rows if there are at
 * most 4096 of them with at most 4 Mi weights; else up to 64 rows of every (batch, head), drawn without
 * replacement from equal strata of the position by a stream of `seed` (fewer where 64 would exceed 16 Mi
 * weights in all, never below 4), and of each at most half as many, up to 6, at edges: the first and the last
 * row, and neighbours at a multiple of the sizes that tiles and chunks have. Q, K, V as in attn_plan_execute;
 * the problem may have zero strides. Release
 * with exact_rows_free. */
attn_status exact_rows_compute(const attn_problem *, const void *q, const void *k, const void *v,
                               const int64_t *kv_len, uint64_t seed, exact_rows **);
/* The same with a sample of `rows` rows of every (batch, head) instead of 64, all of them if there are no
 * more; 0: as above. */
attn_status exact_rows_draw(const attn_problem *, const void *q, const void *k, const void *v,
                            const int64_t *kv_len, uint64_t seed, int64_t rows, exact_rows **);
void exact_rows_free(exact_rows *);

/* The first row of the sample that is of a (batch, head), and how many there are. */
int64_t exact_line(const exact_rows *, int64_t batch, int64_t head, int64_t *count);

/* `count` <= n rows, ascending, one at random from each of as many equal parts of 0 ... n-1; about half of
 * them on an edge: the first or the last of all, or at a multiple of 64 or 96 or before one. */
void rows_spread(attn_rng *, int64_t n, int64_t count, int64_t *rows);

/* rows: of each (batch, head), as of exact_rows_draw. */
sampling sampling_of(const attn_problem *, int64_t rows);
int64_t sampling_start(const sampling *, int64_t n_q, int64_t bin); /* first row of a bin */
int64_t sampling_bin(const sampling *, int64_t n_q, int64_t i);     /* the bin of a row */

typedef struct stratum {
  int64_t first, count; /* rows of the sample */
  double size;          /* rows in the stratum */
} stratum;

/* The stratum after *at; {0} is before the first. false at the end. */
bool stratum_next(const attn_problem *, const exact_rows *, stratum *at);

#endif
