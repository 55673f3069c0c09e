/* json_stream.h - JSON written value by value, where a tree of all of it would be too large. '<' becomes
 * \u003c, so that no text ends the element of a page that holds it, or nests another one. */
#ifndef EXPERIMENTS_SUPPORT_JSON_STREAM_H
#define EXPERIMENTS_SUPPORT_JSON_STREAM_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

typedef struct json_stream {
  FILE *out;
  bool ok;    /* false: no memory for a value, or an error of the file; what is written is of no use */
  bool begun; /* a value stands before the next one */
} json_stream;

void json_stream_open(json_stream *, char bracket);
void json_stream_close(json_stream *, char bracket);
void json_stream_name(json_stream *, const char *name); /* of the member whose value follows */
/* A member of an object without its name, an item of an array, or the whole; NULL: out of memory. Releases
 * the value. */
void json_stream_value(json_stream *, json_t *);

#endif
