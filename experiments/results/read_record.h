/* read_record.h - records from their JSON texts, in one pass, driven by a table of columns: what the kinds
 * of rows share. Messages name the member, and what was expected of it. */
#ifndef EXPERIMENTS_RESULTS_READ_RECORD_H
#define EXPERIMENTS_RESULTS_READ_RECORD_H

#include "experiments/results/row.h"
#include "experiments/support/json_reader.h"

enum { RECORD_COLUMNS = 192, RECORD_MEMBERS = 16 }; /* at most */

typedef struct record_reading {
  const result_column *columns; /* the first is the key */
  void *record;
  const char *const *members; /* those that are no columns; ends with NULL */
  attn_status (*read)(json_reader *, size_t member, void *context);
  void *context;
  bool seen[RECORD_COLUMNS + RECORD_MEMBERS];
} record_reading;

/* Reads an object's text into the record. Members may stand in any order; unknown ones are passed over,
 * absent texts become "". EINVAL: a member is wrong or stands twice, or the key is empty. */
attn_status record_read(record_reading *, const char *text, size_t length);
/* Whether the text had the column. */
bool record_has(const record_reading *, const char *column);

/* EINVAL */
attn_status record_wrong(const char *member, const char *expected);
attn_status record_no_memory(void);

/* A number, null, "inf" or "-inf", as result_json_number writes them. */
bool record_number(json_reader *, double *x);

/* An array of numbers; items are to be freed, also after a failure. */
typedef struct record_vector {
  double *items;
  size_t count, room;
  bool there;
} record_vector;
attn_status record_vector_read(json_reader *, const char *member, record_vector *);

/* An array of bounds, which are appended. */
attn_status record_bounds_read(json_reader *, const char *member, result_bound **bounds, int *count);

#endif
