/* message.h - lines from a worker to its parent: a token that only the two know, a digest of the rest, the
 * time, and an object of JSON or the text of a row. What else somebody writes into the pipe is no message. */
#ifndef EXPERIMENTS_RUNNER_MESSAGE_H
#define EXPERIMENTS_RUNNER_MESSAGE_H

#include <jansson.h>

#include "attn.h"

enum { MESSAGE_TOKEN = 33 };

void message_token(char token[MESSAGE_TOKEN]); /* a new one */

typedef enum { MESSAGE_OBJECT = 'o', MESSAGE_ROW = 'r' } message_kind;

typedef struct worker_message {
  message_kind kind;
  double at;        /* by timing_now of the worker */
  const char *text; /* length bytes of the line */
  size_t length;
} worker_message;

/* *line: to be freed, ends with a line break. ENOMEM. */
attn_status message_write(const char *token, message_kind, double at, const json_t *, char **line,
                          size_t *length);
/* false: a damaged line (without its line break). */
bool message_read(const char *token, const char *line, size_t length, worker_message *out);

#endif
