/* budget.h - the size that theory requires of a variant for a given error on this input, and its present
 * size. */
#ifndef EXPERIMENTS_EVIDENCE_BUDGET_H
#define EXPERIMENTS_EVIDENCE_BUDGET_H

#include "experiments/evidence/judged_run.h"

/* In units of the variant: random features, projected rows, or keys that a row keeps. NaN: no theory, or too
 * expensive to evaluate. All on some rows of head 0 of batch 0. */
typedef struct budget {
  double used;
  /* For the relative Frobenius error asked for:
   *   features    m = sum v^2 / (error^2 sum |o|^2), v^2 of FAV-4, independent features; no error is
   *               predicted for m below
   *               rho - 1, where the normaliser is off by as much as itself
   *   projection  the least k with E |P E'F V - P V|^2 <= error^2 |P V|^2 (LIN-1: of the product, not of the
   *               softmax)
   *   pattern     keys in the centred window whose mean tail mass is at most the error (SP-2) */
  double needed;
  /* The least size of any variant of the kind: the rank below which no matrix is as close to the
   * exact weights (LIN-3, from up to 256 rows, so at most that; not causal), or the heaviest keys of each row
   * (SP-2). */
  double best;
  double tail; /* mean mass of the keys that a pattern leaves out */
  /* Relative Frobenius error at the present size, from the same formulas; of a pattern the exact one. */
  double predicted;
} budget;

/* plan, problem, view, inputs, exact and cache of the evidence are looked at, o is not. */
attn_status budget_find(const evidence *, double error, budget *);

/* Of a pattern or a selection: keys of a row, the exact mass that they keep, and the mass that the heaviest
 * keys, as many, hold above it. Over up to 256 rows of the sample, the same for every variant of a block, so
 * that settings compare; NaN: neither is there, or no row is finite. */
typedef struct kept_keys {
  double keys_mean, keys_max, mass_mean, mass_least, regret_mean;
  double read_share;  /* of the keys with a weight, over all these rows */
  double drawn_share; /* of weighted keys: their number over the sum of their weights; 1 without such keys */
} kept_keys;
attn_status budget_kept(const evidence *, kept_keys *);

/* Fills keys_*, kept_mass_mean, regret_mean, drawn_share, tail_mass, budget_*, need_* and err_predicted of
 * the row, for 10 % and 1 %. */
attn_status evidence_budget(const evidence *, result_row *);

#endif
