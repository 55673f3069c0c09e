/* table.h - a table of texts that prints aligned or as Markdown, and the short forms of numbers in it. */
#ifndef EXPERIMENTS_SUPPORT_TABLE_H
#define EXPERIMENTS_SUPPORT_TABLE_H

#include <stdio.h>

#include "attn.h"

typedef enum { TABLE_TEXT, TABLE_MARKDOWN } table_format;

typedef struct text_table {
  size_t columns, left; /* the first `left` columns are aligned to the left, the others to the right */
  bool last_left;       /* but the last one to the left */
  size_t count, room;
  char **cells; /* row after row; the first row is the header */
  bool failed;  /* a cell was lost because memory ran out */
} text_table;

/* Appends a printf-style cell, escaped (escape.h). */
void table_add(text_table *, const char *format, ...);
attn_status table_print(FILE *, const text_table *, table_format); /* ENOMEM, also if a cell was lost */
void table_free(text_table *);

enum { SHORT_TEXT = 24 };
/* A relative error in at most 7 characters: 0.012, 3.1e-7; "-" for NaN. */
const char *short_number(double, char out[SHORT_TEXT]);
/* A time in at most 8 characters: 812 ns, 12.3 ms, 29.0 min; "-" for NaN. */
const char *short_time(double seconds, char out[SHORT_TEXT]);
/* Bytes in at most 8 characters: 812 B, 1.42 GiB; "-" for NaN. */
const char *short_bytes(double, char out[SHORT_TEXT]);

#endif
