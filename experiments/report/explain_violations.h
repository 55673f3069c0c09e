/* explain_violations.h - a violated bound in words: which run, what does not hold, by how much, and how to
 * run it again alone (repeat_command.h). */
#ifndef EXPERIMENTS_REPORT_EXPLAIN_VIOLATIONS_H
#define EXPERIMENTS_REPORT_EXPLAIN_VIOLATIONS_H

#include "experiments/results/set.h"
#include "experiments/report/summary.h"

/* A cell that is VIOLATED, or ERROR where the check could not be evaluated, or a MODEL that was exceeded. */
bool explain_wanted(const result_bound *);

/* One paragraph, or list item, about such a cell. ENOMEM. */
attn_status explain_print(FILE *, const result_row *, const result_bound *, table_format);

/* {"runs", "statuses", "verdicts" (each property of a setting once), "bounds" (of runs), "properties",
 * "settings" (how many have properties), "violations": [{"check", "kind", "verdict", "statement", "measured",
 * "value", "margin", "p_value", "p_repeat", "message", "key", "rerun"}], "errors", "warnings": [the same],
 * "failures": [{"key", "status", "message"}], "unchecked": [variants]}. Numbers as in
 * results/row_json.h. NULL: no memory. */
json_t *explain_json(const result_set *);

#endif
