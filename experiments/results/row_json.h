/* row_json.h - a result row as a JSON object: a line of the journal, and a worker's message to its parent.
 *
 * Every column by its name (numbers, text, true/false, flags by their names), then
 *   "p": {"window": 256, "projection": "srht"}   parameters as numbers and texts
 *   "samples": [s, ...], "rounds": [0, ...]      if there are any
 *   "profile": {"l2": [64], "max": [64]}         if any bin is set
 *   "map": {"exact": text, "approx": text}       if there is one: row-major little-endian f32 in base64
 *   "bounds": [{"name", and the names of result_bound_columns}]
 * NaN is null, infinities are "inf" and "-inf" (a parameter has none). Absent members keep result_row_init's
 * values or are found from others (result_row_complete), and unknown ones are passed over, because a schema
 * may gain columns. Bytes of a text that are not UTF-8 are written as
 * \xHH. */
#ifndef EXPERIMENTS_RESULTS_ROW_JSON_H
#define EXPERIMENTS_RESULTS_ROW_JSON_H

#include "experiments/results/row.h"

#include <jansson.h>

/* A new reference; NULL (out of memory, recorded) on failure. */
json_t *result_row_to_json(const result_row *);

/* The row of a JSON object's text, in one pass. Overwrites *row, which need not be initialised. EINVAL names
 * the member that is wrong, or that stands twice. Texts are never NULL. */
attn_status result_row_parse(const char *text, size_t length, result_row *row);

/* *out: the params of a row as an object, to be released; NULL where they are none. ENOMEM. */
attn_status result_row_params(const result_row *, json_t **out);

/* One line ending in '\n', full precision, the same in every locale. *line: release with free. */
attn_status result_json_line(const json_t *, char **line, size_t *length);

/* The value of a column of a record; NULL: no memory. */
json_t *result_column_json(const void *record, const result_column *);
/* An array of objects: each bound's name and columns; and of numbers. NULL: no memory. */
json_t *result_bounds_json(const result_bound *, int count);
json_t *result_numbers_json(const double *, int64_t count);

/* A JSON string from any bytes, and a number or null, "inf", "-inf". */
json_t *result_json_text(const char *);
json_t *result_json_number(double);

/* A number as written by result_json_number; false if it is none. */
bool result_json_read_number(const json_t *, double *);

#endif
