/* summary_bounds.h - the second half of a summary: runs that are not ok, verdicts, violations. Internal to
 * it. */
#ifndef EXPERIMENTS_REPORT_SUMMARY_BOUNDS_H
#define EXPERIMENTS_REPORT_SUMMARY_BOUNDS_H

#include "experiments/report/summary.h"

/* table: with the counts of each bound and variant. */
attn_status summary_bounds(FILE *, const result_set *, bool table, table_format);

#endif
