/* message.h - lines from a worker to its parent: a token that only the two know, a digest, and an object of JSON.
 * What else somebody writes into the pipe is no message. */
#ifndef EXPERIMENTS_RUNNER_MESSAGE_H
#define EXPERIMENTS_RUNNER_MESSAGE_H

#include <jansson.h>

#include "attn.h"

enum { MESSAGE_TOKEN = 33 };

void message_token(char token[MESSAGE_TOKEN]); /* a new one */

/* *line: to be freed, ends with a line break. ENOMEM. */
attn_status message_write(const char *token, const json_t *object, char **line, size_t *length);
/* A new reference; NULL: a damaged line (without its line break). */
json_t *message_read(const char *token, const char *line, size_t length);

#endif
