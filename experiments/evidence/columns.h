/* columns.h - the error columns of a run, and those that explain them. evidence_all (judged_run.h) fills them
 * in order. */
#ifndef EXPERIMENTS_EVIDENCE_COLUMNS_H
#define EXPERIMENTS_EVIDENCE_COLUMNS_H

#include "experiments/evidence/judged_run.h"

/* Fills err_*, rows_sampled, ref and profile_* of the row by comparing e->o with e->exact: with all rows
 * where it has them, else with the sample. err_rel_fro with its 95 % interval is the ratio estimator of the
 * stratified sample, as are the means; lo = hi = the point if every row was taken. err_rel_fro_cert_lo and
 * _hi hold with 95 % confidence for any distribution of errors (NaN without e->v), and err_max_tail says what
 * share of all rows may exceed the maxima (certify.h). A mean of relative errors or divergences has no
 * certificate: nothing bounds those of a row that is not looked at. Rows whose exact output is zero enter the
 * absolute columns only. A NaN in the output makes the columns NaN; of a variant whose weights may be
 * negative such rows are counted (rows_degenerate) and left out, and there is no certificate.
 * err_row_l1_max (of |p^ - p|_1) and err_kl_mean (of KL(p^ || p), for variants with convex weights) come from
 * V = I on sampled rows of head 0 of batch 0, if n_q n_kv <= 2^20; else NaN. e->plan, view and cache may be
 * NULL (an output without a plan): then both are NaN. */
attn_status evidence_errors(const evidence *e, result_row *);

/* Fills row_entropy_mean (nats), top16_mass_mean, eff_rank (exp of the entropy of the normalised singular
 * values of at most 64 exact rows of head 0, so at most 64) and score_osc (mean over rows of max - min of the
 * scores seen). They describe the input: computed once per cache. e->plan, view and o may be NULL. */
attn_status evidence_describe_input(const evidence *e, result_row *);

/* Fills eps_share and feature_ess of a run with random features: the largest and the least over up to 8 rows.
 * They stay NaN where the features of all keys exceed 2^24 numbers. */
attn_status evidence_features(const evidence *e, result_row *);

/* Fills grad_err_*, grad_cos_* and grad_time of a run whose plan gives gradients; they stay NaN where the
 * exact ones would take more than 2^38 multiply-adds. Exact gradients are computed once per cache. */
attn_status evidence_gradients(const evidence *e, result_row *);

/* Fills rank_ratio from the row's cell of LIN-3: the error of the weights over that of the best matrix of
 * their rank. NaN without such a cell, or where P itself is of that rank. */
void evidence_rank_ratio(result_row *);

/* Makes the row's map. The weights of all cells of keys take one execution with a value per cell: linear
 * memory, and the time of an execution with d_v = 128; the exact weights, n_q n_kv d in double precision, are
 * computed once per cache. None where a weight is not finite, or the variant takes no values as wide. e->plan
 * and cache are needed. */
attn_status evidence_map(const evidence *e, result_row *);

/* Implied weights of head 0 of batch 0, summed over the keys of a cell: [n_q, cells] in the problem's dtype
 * (release with free). Key j is in cell j * cells / n_kv; n_kv cells are the weights themselves. NULL: the
 * variant takes no values as wide. */
attn_status attention_map_weights(const evidence *e, int64_t cells, void **weights);

#endif
