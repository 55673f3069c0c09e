/* report.h - a results file as the report sees it: groups of lines of cells, what is estimated of them, and
 * the page.
 *
 * A cell holds the runs of one line at one length n, over seeds; a line, those of one variant with its
 * parameters; a group, those that compare with each other (setting_group_compare). */
#ifndef EXPERIMENTS_REPORT_REPORT_H
#define EXPERIMENTS_REPORT_REPORT_H

#include "experiments/analysis/setting.h"
#include "experiments/results/write_hdf5.h"

typedef struct report_interval {
  double mid, lo, hi; /* NaN: unknown; infinite: beyond the lengths that were run */
} report_interval;

/* value ~ n^exponent.mid. The interval is 95 %; NaN ends for a single length. */
typedef struct report_fit {
  report_interval exponent;
  size_t points; /* lengths */
} report_fit;

typedef enum {
  CROSSING_UNKNOWN, /* fewer than two lengths in common with exact attention */
  CROSSING_FASTER,  /* none in range: faster everywhere */
  CROSSING_SLOWER,  /* none in range: slower everywhere */
  CROSSING_TO_FASTER,
  CROSSING_TO_SLOWER
} report_crossing_kind;

extern const char *const report_crossing_names[];

typedef struct report_crossing {
  report_crossing_kind kind;
  report_interval n; /* of the first change */
} report_crossing;

typedef struct report_cell {
  size_t first, count; /* runs: model->rows[first ... first + count - 1] */
  int64_t n;
  size_t ok;
  run_status status;             /* of the first run, where none is ok */
  bool judged, violated;         /* a bound was checked, so it is no null baseline; one does not hold */
  bool front_time, front_memory; /* nothing as accurate is faster, or smaller */
  unsigned doubts;               /* report_doubts of the runs, or-ed */
  report_interval error;   /* median over seeds; from the least end of a run's interval to the largest */
  report_interval time;    /* seconds; likewise */
  report_interval memory;  /* bytes; likewise */
  report_interval speedup; /* over the group's exact line, 95 % */
} report_cell;

typedef struct report_line {
  size_t setting; /* model->settings */
  report_cell *cells;
  size_t count; /* of cells, ascending in n */
  report_fit time, memory;
  report_crossing crossing;
} report_line;

typedef struct report_length {
  int64_t n;
  double process; /* bytes: peak resident memory of the largest run, tensors and checks included */
} report_length;

typedef struct report_group {
  report_line *lines;
  size_t count;
  report_length *lengths; /* ascending */
  size_t lengths_count;
  report_fit process;
  size_t exact; /* the line that others are compared with; count if there is none */
} report_group;

typedef struct report_model {
  const result_set *set;
  const result_row **rows; /* by group, line, n and seed */
  size_t *setting_of;      /* of each of rows */
  setting *settings;       /* distinct, in order */
  char **labels;
  size_t settings_count;
  report_cell *cells;
  report_line *lines;
  report_length *lengths;
  report_group *groups;
  size_t groups_count;
} report_model;

/* Sorts a set's runs and estimates what follows from them. The set must outlive the model. ENOMEM. */
attn_status report_model_make(const result_set *, report_model *out);
void report_model_free(report_model *);

const report_cell *report_cell_at(const report_line *, int64_t n); /* NULL: no run of that length */

/* Slope of log y against log n by weighted least squares. sigma: standard error of each log y, at least 1 %
 * is assumed. Where the points scatter more than that, the interval follows the scatter. */
report_fit report_exponent(const double *n, const double *y, const double *sigma, size_t count);

/* Log ratios of times, one per round, of a line over exact attention at one n. */
typedef struct report_ratios {
  double n;
  double *log; /* sorted by report_cross */
  size_t count;
} report_ratios;

/* Where the median ratio first passes 1, interpolated in log n, and the speed-up at each n, with 95 %
 * bootstrap intervals over rounds; their ends are NaN where a length has one round alone. n ascends, counts
 * >= 1. ENOMEM. */
attn_status report_cross(report_ratios *, size_t count, report_crossing *, report_interval *speedups);

/* Fills speed-ups and crossings of a group. ENOMEM. */
attn_status report_compare(const report_model *, report_group *);

/* Why a run's numbers may mislead: a set of bits, bit i of report_doubt_list[i]. */
typedef struct report_doubt {
  const char *name, *text;
} report_doubt;
extern const report_doubt report_doubt_list[]; /* ends with a NULL name */
unsigned report_doubts(const result_row *);

/* Texts that warn of the sessions: governor, frequency boost, other builds, ... A new array, NULL without
 * memory. */
json_t *report_warnings(const result_set *);

/* What was estimated of the runs beforehand against what they took: an array of {"line": setting, "time",
 * "run", "memory": [runs, median of actual over estimate, the ratio farthest from 1, its n]}, of the settings
 * of which anything was estimated. NULL without memory. */
json_t *report_estimates(const report_model *);

/* The attention maps of the cells, at the first seed that has one (maps.c names the members). Pictures are
 * made coarser where there are too many of them for a page. NULL: no memory. */
json_t *report_maps(const report_model *);

/* All that the page shows (report.js reads it). NULL: no memory, recorded. */
json_t *report_json(const report_model *, const char *title);

/* Writes the page: whole, or not at all (the old one stays). EFOREIGN: a system call failed. ENOMEM. */
attn_status report_write(const char *path, const result_set *, const char *title);

/* A text that the build put into the program. */
typedef struct report_asset {
  const char *name; /* chart.js report.js report.css report.html */
  const unsigned char *bytes;
  size_t size;
} report_asset;
extern const report_asset report_assets[]; /* ends with a NULL name */

#endif
