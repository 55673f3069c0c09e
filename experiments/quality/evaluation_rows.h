/* evaluation_rows.h - the runs of evaluations as a kind of row, for journals and what is made from them. A
 * line of a journal has every column by its name, then the series, and the checks: "by_window": {"dnll":
 * [...], ...}, "by_position": {...}, "by_layer": {...}   empty if it failed "checks": [{"name", and the names
 * of result_bound_columns}] */
#ifndef EXPERIMENTS_QUALITY_EVALUATION_ROWS_H
#define EXPERIMENTS_QUALITY_EVALUATION_ROWS_H

#include "experiments/quality/record.h"
#include "experiments/results/set.h"

typedef result_set quality_set; /* its rows are records */

extern const row_kind rows_of_evaluation;

/* A new reference; NULL (out of memory, recorded) on failure. */
json_t *quality_record_json(const quality_record *);

/* The record of the run, if need be one of an older program; NULL: there is none. */
const quality_record *quality_set_find(const quality_set *, const char *key);

#endif
