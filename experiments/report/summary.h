/* summary.h - the tables that a sweep prints: error and time against n, then the verdicts on the bounds. */
#ifndef EXPERIMENTS_REPORT_SUMMARY_H
#define EXPERIMENTS_REPORT_SUMMARY_H

#include "experiments/results/set.h"
#include "experiments/support/table.h"

/* Which tables. Of runs: for each dataset and mask one, variants with their settings as rows, n as columns,
 * in each cell the relative Frobenius error against exact attention and the median time, both medians over
 * seeds; beside them memory and the exponents of time and memory in n. Of bounds: a count of verdicts for
 * each bound and variant with the worst margin. */
typedef enum { SUMMARY_RUNS = 1, SUMMARY_BOUNDS = 2 } summary_parts;

/* The tables; then runs that are not ok, every violation in a paragraph, and totals. EFOREIGN if the stream
 * fails, ENOMEM. */
attn_status summary_print(FILE *, const result_set *, summary_parts, table_format);

/* Number of runs with verdict violated. */
size_t summary_violations(const result_set *);

/* Adds the variants with runs of which no check applied. ENOMEM. */
struct names;
attn_status summary_unchecked(const result_set *, struct names *variants);

/* Number of runs that failed, timed out, ran out of memory or crashed, or whose checks could not be
 * evaluated. */
size_t summary_failures(const result_set *);

#endif
