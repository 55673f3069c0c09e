/* verdicts.h - what an evaluation's runs come to, for attnlab check: their tables, how often each check
 * holds, and what does not. */
#ifndef EXPERIMENTS_QUALITY_VERDICTS_H
#define EXPERIMENTS_QUALITY_VERDICTS_H

#include <stdio.h>

#include "experiments/quality/evaluation_rows.h"
#include "experiments/support/table.h"

/* The table of each question, or, of bounds, of each check the counts of its verdicts; then the runs that
 * did not end well, and every violation. ENOMEM */
attn_status quality_verdicts_print(FILE *, const quality_set *, bool bounds, table_format);

/* {"runs", "statuses", "verdicts", "violations", "errors": [{"check", "verdict", "statement", "measured",
 * "value", "message", "key"}], "failures": [{"key", "status", "message"}]}. NULL: no memory, recorded. */
json_t *quality_verdicts_json(const quality_set *);

/* Runs with a check that is violated; runs that failed, or with a check that could not be evaluated. */
size_t quality_violations(const quality_set *);
size_t quality_failures(const quality_set *);

#endif
