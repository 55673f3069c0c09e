/* column.h - the fields of a record as columns: one table over them drives JSON, HDF5 and CSV. */
#ifndef EXPERIMENTS_RESULTS_COLUMN_H
#define EXPERIMENTS_RESULTS_COLUMN_H

#include "attn.h"

typedef enum { COLUMN_TEXT, COLUMN_F64, COLUMN_I64, COLUMN_I32, COLUMN_FLAG, COLUMN_BOOL } column_type;

/* The field is an int64_t where the column is an axis; else of COLUMN_TEXT an owned char *, or one from
 * names_keep; of COLUMN_F64 a double, of COLUMN_I64 and COLUMN_I32 an int64_t, of COLUMN_FLAG and
 * COLUMN_BOOL an int. */
typedef struct result_column {
  const char *name; /* in the file */
  column_type type;
  size_t offset;
  const char *units, *long_name;
  const char *const *flags; /* names of 0, 1, ...: COLUMN_FLAG, and COLUMN_TEXT of an axis */
  bool measure; /* a result, not an identity: gets the attribute coordinates, and a column of CSV */
  bool axis;    /* of result_row.axis */
  bool kept;    /* a text from names_keep */
  bool varies;  /* the same run may have another value the next time: times, memory, what other runs say */
  double least, most; /* of numbers, other than NaN; both 0: any */
} result_column;

/* Text is never NULL here. */
const char *result_column_text(const void *record, const result_column *);
double result_column_f64(const void *record, const result_column *);
int64_t result_column_int(const void *record, const result_column *); /* all but TEXT and F64, or any axis */

void result_column_set_f64(void *record, const result_column *, double);
void result_column_set_int(void *record, const result_column *, int64_t);
/* Copies the text. EINVAL, without a message: it is none of the flags. ENOMEM. */
attn_status result_column_set_text(void *record, const result_column *, const char *);

/* Is the number in the column's range? If not, *expected says what is. */
enum { COLUMN_RANGE = 64 };
bool result_column_allows(const result_column *, double, char expected[COLUMN_RANGE]);

/* Copies what fits into size bytes, whole characters of UTF-8. */
void column_cut_text(char *out, size_t size, const char *text);

#endif
