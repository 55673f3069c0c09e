/* visible.h - which keys a query sees, written from the definitions and apart from the engines: causality
 * (position of the key <= position of the query), padding (key < kv_len), the problem's mask, biases of -Inf,
 * and the law of a pattern. */
#ifndef EXPERIMENTS_REFERENCE_VISIBLE_H
#define EXPERIMENTS_REFERENCE_VISIBLE_H

#include "attn_variant.h"

/* The number of leading keys, of `keys`, that causality leaves to query i. Without a mask of the problem it
 * sees all of them. */
int64_t visible_keys(const attn_problem *, int64_t i, int64_t keys);

/* The longest row that a pattern (or NULL) or the problem's own graph has, in runs: at least 1. */
int64_t visible_most_runs(const attn_pattern *, const attn_problem *);

/* The runs of a pattern as its function gives them, of keys that exist and lie in the past of query i,
 * whatever the problem masks besides; runs has room for max_runs (1 where the pattern is NULL). Returns how
 * many. What is malformed is left out: SP-0 names it. */
int64_t visible_runs(const attn_pattern *, const attn_problem *, int64_t head, int64_t i, int64_t keys,
                     attn_run *runs);

/* Marks the keys that query i sees, inside [n_kv], and returns how many: those that the problem does not mask
 * and the pattern's law says, and of the pattern's own function only what was drawn among the law's
 * candidates. A pattern that states no law is taken at its word, as is the problem's graph. runs:
 * visible_most_runs. */
int64_t visible_mark(const attn_pattern *, const attn_problem *, int64_t batch, int64_t head, int64_t i,
                     int64_t keys, attn_run *runs, bool *inside);

#endif
