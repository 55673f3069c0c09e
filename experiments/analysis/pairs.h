/* pairs.h - the runs that two results files have in common.
 *
 * Runs pair if variant with its parameters, seeds, dataset, score, mask and every axis agree. What depends on
 * the machine may differ: block sizes, and instruction set and number of threads where each file has the run
 * with one of them (with several, those that agree pair). A parameter that a run does not have, as in files
 * of earlier versions, counts as its default. */
#ifndef EXPERIMENTS_ANALYSIS_PAIRS_H
#define EXPERIMENTS_ANALYSIS_PAIRS_H

#include "experiments/results/set.h"

typedef struct result_pair {
  const result_row *a, *b;
} result_pair;

typedef struct result_pairs {
  result_pair *items;
  size_t count;
  const result_row **only_a, **only_b; /* the runs without a counterpart */
  size_t only_a_count, only_b_count;
  size_t other_isa, other_threads, other_data; /* pairs that differ in these; of data, the files' SHA-256 */
} result_pairs;

/* The sets must outlive the pairs. ENOMEM */
attn_status pairs_make(const result_set *a, const result_set *b, result_pairs *out);
void pairs_free(result_pairs *);

bool pair_same_data(const result_pair *);

#endif
