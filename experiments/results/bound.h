/* bound.h - the cell of a bound: how it gets its verdict, and the worst verdict of a run. */
#ifndef EXPERIMENTS_RESULTS_BOUND_H
#define EXPERIMENTS_RESULTS_BOUND_H

#include "experiments/results/row.h"

/* An empty cell: all numbers NaN, not applicable. The name is not copied. */
void bound_begin(result_bound *, const char *name, check_kind);
/* Such a cell of a file stands for a bound that was not checked. */
bool bound_is_empty(const result_bound *);

/* Sets the message: at most 191 bytes of it, whole characters. */
void bound_say(result_bound *, const char *format, ...);

/* The functions below return ATTN_OK, so that a check can end with one of them. */

/* HARD: sets value, measured, margin and PASS or VIOLATED by !(measured <= value * (1 + 1e-6)); UNCERTIFIABLE
 * by an infinite value, which nothing exceeds. */
attn_status bound_hard(result_bound *, double measured, double value);
/* PROB: value, measured and p; CONSISTENT (Holm's correction later turns small p-values into violations). */
attn_status bound_prob(result_bound *, double measured, double value, double p_value);
/* MODEL: CONSISTENT, or UNCERTIFIABLE with a warning where measured exceeds value, or value is
 * infinite; never a violation. */
attn_status bound_model(result_bound *, double measured, double value);
/* PROPERTY: PASS or VIOLATED as HARD. */
attn_status bound_property(result_bound *, double measured, double value);
/* REPORT and hypotheses that are not met. */
attn_status bound_report(result_bound *, double measured, double value);
/* A verdict without numbers, and why. */
attn_status bound_excuse(result_bound *, check_verdict, const char *why);
attn_status bound_uncertifiable(result_bound *, const char *why);
/* The hypotheses do not hold for these parameters or this problem: not a finding. */
attn_status bound_not_applicable(result_bound *, const char *why);

/* Worst verdict of a run: violated > error > unchecked > uncertifiable > consistent > pass; unchecked, too,
 * if none of the checks of its kind of variant got one of these. A check is unchecked where the variant does
 * not state what the check would hold it against, so that others hold the output against the variant itself.
 * Properties may only fail: that they hold says nothing of what is computed. Nor may what is reported only;
 * and a model, which proves nothing, has no part in it. */
check_verdict bounds_worst(const result_bound *, int count);

/* Sets both verdicts of a row from its bounds: bounds_worst, and the worst of its models in the same order,
 * not applicable without one. A run without an error, or with rows that are not finite, is uncertifiable at
 * best. */
void result_row_judge(result_row *);

#endif
