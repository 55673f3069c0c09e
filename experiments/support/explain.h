/* explain.h - what the terms of an expression do, in words. */
#ifndef EXPERIMENTS_SUPPORT_EXPLAIN_H
#define EXPERIMENTS_SUPPORT_EXPLAIN_H

#include "attn_expression.h"

#include <jansson.h>

/* [{"term": spec without presets, "depth": of parentheses, "does": text}], for this problem. Of a spec
 * without terms an empty list. NULL: there is no memory. */
json_t *explain_terms(const attn_spec *, const attn_problem *);

#endif
