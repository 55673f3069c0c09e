/* page.h - pages of results: their data, their assets, and the files. */
#ifndef EXPERIMENTS_REPORT_PAGE_H
#define EXPERIMENTS_REPORT_PAGE_H

#include "data/support/output.h"
#include "experiments/analysis/other_times.h"
#include "experiments/support/json_stream.h"

/* Limits that the page begins with: a share, seconds, bytes. NaN: the page's own, which its reader
 * changes. times: beside errors; those of no run are marked. */
typedef struct report_limits {
  double error, time, memory;
  other_times times;
} report_limits;

/* All that the page shows (report.js reads it) except the runs; limits NULL: none. NULL: no memory,
 * recorded. */
json_t *report_json(const results_model *, const char *title, const report_limits *);

extern const output_kind kind_report;

typedef enum { REPORT_SWEEP, REPORT_MODEL, REPORT_THEORY, REPORT_TRAINING } report_page;
typedef void (*page_writer)(json_stream *data, const void *context);

/* Writes the page of this kind with the data that its script reads, one value that the function puts.
 * After a failure the old page is unchanged. EFOREIGN: a system call failed. ENOMEM. */
attn_status report_write_page(const char *path, report_page, page_writer, const void *context,
                              const char *title);

/* The page of a sweep. After a failure the old page is unchanged. EFOREIGN: a system call failed. ENOMEM. */
attn_status report_write(const char *path, const result_set *, const char *title, const report_limits *);

/* A text that the build put into the program. */
typedef struct report_asset {
  const char *name; /* report.css, and of each kind of page its .js and a .html, of which some share one */
  const unsigned char *bytes;
  size_t size;
} report_asset;
extern const report_asset report_assets[]; /* ends with a NULL name */

#endif
