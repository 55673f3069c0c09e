/* oracle.h - the exact value of a row and a bound on its rounding, computed independently of the library.
 *
 * Scores, weights and sums in long double by the textbook formula on the stored inputs; the bounds FP-1 and
 * FP-2 |o^_l - o_l| <= [sum p_j (e^{h_j} - 1) |v_jl - o_l| + G sum p_j e^{h_j} |v_jl|] / sum p_j e^{-h_j}
 * with h_j the error of log weight j and G = gamma of the two sums and the division (Lemma P and Higham's
 * gamma). */
#ifndef TESTS_SUPPORT_ORACLE_H
#define TESTS_SUPPORT_ORACLE_H

#include "tests/support/cases.h"

/* Keys that query row i of a head sees: pattern (NULL: all), causality, padding. keys has room for n_kv. */
int64_t oracle_keys(const inputs *, const attn_pattern *, int64_t batch, int64_t head, int64_t i,
                    int64_t *keys);

/* Errors that keys and values carry already: [n_kv, d_qk] and [n_kv, d_v]. */
typedef struct slot_errors {
  const double *k, *v;
} slot_errors;

/* o and bound [d_v] of a row over the given keys; bound includes the oracle's own rounding. o is NaN or
 * infinite where the textbook form is; the bound then means nothing. Either may be NULL, and a NULL rounding
 * gives no bound. */
void oracle_row(const inputs *, const attn_rounding *, const slot_errors *, int64_t batch, int64_t head,
                int64_t i, const int64_t *keys, int64_t count, bool every_key, double *o, double *bound);

/* The whole output of a plan's variant, [batch, heads, n_q, d_v], with its bounds: the softmax over the
 * plan's pattern, the quadratic form of its feature map, or the softmax over its projected slots. A variant
 * that is not exact and shows none of these has o = NULL and the bound of sequential exact attention. */
typedef struct oracle {
  double *o, *bound;
} oracle;
oracle oracle_of(const attn_plan *, const inputs *);
/* The same, the bound covering the rounding of projections too: for comparing runs of different inputs. */
oracle oracle_of_run(const attn_plan *, const inputs *);
void oracle_free(oracle *);

/* The descriptor of the sequential textbook form: for variants that give none. */
attn_rounding sequential_rounding(const attn_problem *);

/* Notes a failure where !(|o - expected| <= bound), or where classes (NaN, +Inf, -Inf, finite) differ. */
void expect_within(const attn_problem *, const void *o, const oracle *, const char *what);
/* A run (run_plain) that must be within oracle_of; and plan, such a run, destroy. */
void *run_within(const attn_plan *, const inputs *, const char *what);
void expect_spec_within(const char *spec, const attn_options *, const inputs *, const char *what);

/* Indices of an element of [batch, heads, n_q, d_v]. */
static inline size_t output_index(const attn_problem *p, int64_t b, int64_t h, int64_t i, int64_t l) {
  return (size_t)(((b * p->heads + h) * p->n_q + i) * p->d_v + l);
}

#endif
