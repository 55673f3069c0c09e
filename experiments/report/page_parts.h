/* page_parts.h - parts of the JSON of a page (json.c); *ok as of json_put. */
#ifndef EXPERIMENTS_REPORT_PAGE_PARTS_H
#define EXPERIMENTS_REPORT_PAGE_PARTS_H

#include "experiments/analysis/model.h"
#include "experiments/support/json_stream.h"
#include "experiments/support/names.h"

/* [mid, lo, hi] */
json_t *report_interval(const fit_interval *, bool *ok);

/* runs_json.c: a column for each number of a run, what was checked, and the commands that repeat it.
 *
 * {"group", "line", "doubts", "status", "verdict", "model_verdict", "message", the columns: [one of each
 *  run], "columns": [[name, unit, meaning] of those that the panel of a run has],
 *  "checks": [[name, kind, statement]], "verdicts": [name], "messages": [text],
 *  "bounds": [[[check, verdict, value, measured, margin, p, message: numbers]] of each run],
 *  "properties": [the same of a setting], "property": [the place of its setting's of each run],
 *  "apply", "run": {"ends": [[how all begin, how all end] of each group], "middle": [text of each run; null:
 *  none]}} */
void runs_put(json_stream *, const results_model *);

/* dataset_names.c: what the datasets of files are called on a page, the shortest end of a path that tells
 * them apart. */
typedef struct dataset_names {
  names specs;
  char **shorts; /* of each */
} dataset_names;
/* ENOMEM */
attn_status dataset_names_make(const results_model *, dataset_names *);
const char *dataset_names_of(const dataset_names *, const char *spec);
void dataset_names_free(dataset_names *);

#endif
