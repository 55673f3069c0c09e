/* json_reader.h - JSON (RFC 8259) read in one pass, without a tree: for the lines of journals, which are many
 * and long.
 *
 * Each function reads one thing from where the last one stopped. False: it is not there; `wrong` then says
 * what was expected at `at`, and nothing more can be read. */
#ifndef EXPERIMENTS_SUPPORT_JSON_READER_H
#define EXPERIMENTS_SUPPORT_JSON_READER_H

#include "attn.h"

typedef enum {
  JSON_READ_OBJECT,
  JSON_READ_ARRAY,
  JSON_READ_TEXT,
  JSON_READ_NUMBER,
  JSON_READ_TRUE,
  JSON_READ_FALSE,
  JSON_READ_NULL,
  JSON_READ_NOTHING
} json_read_kind;

typedef struct json_reader {
  const char *at, *end;
  char *text; /* the latest text, ended by a NUL; grows */
  size_t length, room;
  const char *wrong;
  bool starved; /* what is wrong is that memory ran out */
} json_reader;

json_reader json_reader_of(const char *text, size_t length);
void json_reader_free(json_reader *);

/* What comes next. */
json_read_kind json_reader_peek(json_reader *);
/* The beginning of an object, { or [. */
bool json_reader_begin(json_reader *, char open);
/* Whether another member or element follows, behind its comma; else the end, } or ], is read. *count: 0 at
 * the beginning; counts them. */
bool json_reader_more(json_reader *, char close, size_t *count);
/* A text, of valid UTF-8 and without a NUL. */
bool json_reader_text(json_reader *);
/* A member's name and the colon behind it. */
bool json_reader_name(json_reader *);
/* To the nearest double; a number beyond its range is wrong. integer: not NULL where no fraction and no
 * exponent are allowed, and it is to fit. Both NULL: the number is passed over, whatever its size. */
bool json_reader_number(json_reader *, double *x, int64_t *integer);
/* true, false or null */
bool json_reader_word(json_reader *);
/* Any value. */
bool json_reader_skip(json_reader *);
/* Nothing but blanks is left. */
bool json_reader_end(json_reader *);

#endif
