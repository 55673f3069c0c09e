/* evidence.h - what a run's output is judged by: exact rows in fp64, error columns, and the columns that
 * explain them.
 *
 * Order of use in a block (one Q, K, V and mask): block_cache_create, exact_rows_compute once; for every run
 * evidence_errors, evidence_explain, evidence_budget (budget.h), evidence_features, evidence_map where it is
 * wanted, checks_run and evidence_rank_ratio; at the end exact_rows_free, block_cache_free. */
#ifndef EXPERIMENTS_EVIDENCE_EVIDENCE_H
#define EXPERIMENTS_EVIDENCE_EVIDENCE_H

#include "experiments/checks/check.h"

/* Chooses rows and computes exact attention on them in fp64, in parallel over rows. All rows if there are at
 * most 4096 of them with at most 4 Mi weights; else up to 64 rows of every (batch, head), drawn without
 * replacement from equal strata of the position by a stream of `seed` (fewer where 64 would exceed 16 Mi
 * weights in all, never below 4). Q, K, V as in attn_plan_execute; the problem may have zero strides. Release
 * with exact_rows_free. */
attn_status exact_rows_compute(const attn_problem *, const void *q, const void *k, const void *v,
                               const int64_t *kv_len, uint64_t seed, exact_rows **);
void exact_rows_free(exact_rows *);

/* What several checks share. Holds results for one Q, K, V and mask, and during checks_run those for one
 * plan. NULL if there is no memory. */
struct block_cache *block_cache_create(void);
void block_cache_free(struct block_cache *);

/* Fills err_*, rows_sampled, ref and profile_* of the row by comparing e->o with e->exact. err_rel_fro with
 * its 95 % interval is the ratio estimator of the stratified sample, as are the means; lo = hi = the point if
 * every row was taken. err_rel_fro_cert_lo and _hi are certain at 95 % whatever the errors' distribution (NaN
 * without e->v), and err_max_tail says what share of all rows may exceed the maxima (certify.h). A mean of
 * relative errors or divergences has no certificate: nothing bounds those of a row that is not looked at.
 * Rows whose exact output is zero enter the absolute columns only. A NaN in the output makes the columns NaN.
 * err_row_l1_max (of |p^ - p|_1) and err_kl_mean (of KL(p^ || p), for variants with convex weights) come from
 * V = I on head 0 of batch 0, if n_q n_kv <= 2^20; else NaN. e->plan, view and cache may be NULL (an output
 * without a plan): then both are NaN. */
attn_status evidence_errors(const evidence *e, result_row *);

/* Fills row_entropy_mean (nats), top16_mass_mean, eff_rank (exp of the entropy of the normalised singular
 * values of at most 64 exact rows of head 0, so at most 64) and score_osc (mean over rows of max - min of the
 * scores seen). They describe the input: computed once per cache. e->plan, view and o may be NULL. */
attn_status evidence_explain(const evidence *e, result_row *);

/* Fills eps_share and feature_ess of a run with random features: the largest and the least over up to 8 rows.
 * They stay NaN where the features of all keys exceed 2^24 numbers. After evidence_budget, whose probe it
 * uses. */
attn_status evidence_features(const evidence *e, result_row *);

/* Makes the row's map. What the variant gives to all keys of a cell is one execution with a value per cell:
 * linear memory, and the time of an execution with d_v = 128; the exact weights, n_q n_kv d in double
 * precision, are computed once per cache. None where a weight is not finite. e->plan and cache are needed. */
attn_status evidence_map(const evidence *e, result_row *);

/* Fills rank_ratio from the row's cell of LIN-3: the error of the weights over that of the best matrix of
 * their rank. NaN without such a cell, or where P itself is of that rank. */
void evidence_rank_ratio(result_row *);

#endif
