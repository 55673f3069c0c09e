/* ring_judge.h - whether an output of the ring is exact attention, and whether it agrees with that of one
 * process. */
#ifndef EXPERIMENTS_RING_RING_JUDGE_H
#define EXPERIMENTS_RING_RING_JUDGE_H

#include "experiments/evidence/judged_run.h"

/* The largest log-sum-exp that a row may have: |scale| max |q_i| max |k_j| + log n. */
double ring_lse_bound(const attn_problem *, const void *q, const void *k);

/* Judges sampled rows of two outputs of one problem, each computed as its rounding says. e: o is the one,
 * view holds its rounding; plan may be NULL. exact: o against attention in fp64 (FP-2, or FP-4); apart: o
 * against `other`, whose distances from exact attention add up. */
attn_status ring_judge(const evidence *e, const void *other, const attn_rounding *other_rounding,
                       result_bound *exact, result_bound *apart);

#endif
