/* means.h - what is asked of the draws of a row, and how far off a draw is: numbers to which the law of its
 * weights (law.h) gives a mean and a deviation. */
#ifndef EXPERIMENTS_EVIDENCE_WEIGHTS_MEANS_H
#define EXPERIMENTS_EVIDENCE_WEIGHTS_MEANS_H

#include "experiments/evidence/weights/selector_draws.h"

#include "attn_variant.h"

enum { WEIGHT_COLUMNS = 1 + WEIGHT_DIRECTIONS };

/* The law of a draw of a row. */
typedef struct weight_law {
  double *m, *log_weight; /* [end][end] M - 1; [end] */
  double draws; /* of keys that may be drawn several times, how many draws there are; 0: once at most */
  double variance[WEIGHT_COLUMNS];
} weight_law;

/* What is known of a row whatever is drawn, and its law under the run's seed. */
typedef struct weight_line {
  int64_t i, end;               /* it sees keys 0 ... end - 1 */
  double *p, *x;                /* [end]; [end][WEIGHT_COLUMNS] 1, and v - o along signs */
  double least[WEIGHT_COLUMNS]; /* below such a deviation fp64's rounding is all there is */
  weight_law law;
} weight_line;

/* Query i of the only head of a call without score transforms, and its law; signs are drawn by the seed.
 * keys: 0, 1, ... */
attn_status weight_line_make(weight_line *, const attn_selector *, const attn_call *, int64_t i,
                             uint64_t seed, const int64_t *keys);
void weight_line_free(weight_line *);
/* law: m and log_weight have room. */
void weight_law_find(weight_law *, const weight_line *, const attn_selector *, const attn_query *,
                     const int64_t *keys);
/* Is the law of this draw for certain that of the run's seed? Then keys that are always taken are there, and
 * no kept key has another weight. Where keys may be drawn again it may be a whole multiple, which differs by
 * key: half as many draws give each key twice the weight. */
bool weight_law_holds(const weight_line *, const attn_selector *, const double *weight);

/* Adds the tests of row number r. room: [end]. */
void weight_ask(weight_draws *, int r, const weight_line *, const attn_selector *, int64_t *room);
/* How far draw number t of row number r is off, by its own law; weight: of each key, 0 where it is not
 * kept. */
void weight_note(weight_draws *, int r, int64_t t, const weight_line *, const weight_law *,
                 const attn_selector *, const double *weight);

#endif
