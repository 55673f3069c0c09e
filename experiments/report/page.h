/* page.h - the page of a results file: its data, its assets, and the file. */
#ifndef EXPERIMENTS_REPORT_PAGE_H
#define EXPERIMENTS_REPORT_PAGE_H

#include "data/support/output.h"
#include "experiments/analysis/model.h"

/* All that the page shows (report.js reads it). NULL: no memory, recorded. */
json_t *report_json(const results_model *, const char *title);

extern const output_kind kind_report;

/* Writes the page. After a failure the old page is unchanged. EFOREIGN: a system call failed. ENOMEM. */
attn_status report_write(const char *path, const result_set *, const char *title);

/* A text that the build put into the program. */
typedef struct report_asset {
  const char *name; /* chart.js report.js report.css report.html */
  const unsigned char *bytes;
  size_t size;
} report_asset;
extern const report_asset report_assets[]; /* ends with a NULL name */

#endif
