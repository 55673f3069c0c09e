/* tell.h - an advice as a sentence, a command and a table; and as JSON. */
#ifndef EXPERIMENTS_ADVICE_TELL_H
#define EXPERIMENTS_ADVICE_TELL_H

#include <jansson.h>
#include <stdio.h>

#include "experiments/advice/advice.h"

/* operands: of `attnlab apply SPEC`, after the spec. */
attn_status advice_print(FILE *, const advice_request *, const advice *, const char *operands);

/* NULL: no memory. */
json_t *advice_json(const advice_request *, const advice *);

#endif
