/* witness.h - the tensors of a problem of attnlab test as files, for whoever looks into a failure. */
#ifndef EXPERIMENTS_CONFORMANCE_WITNESS_H
#define EXPERIMENTS_CONFORMANCE_WITNESS_H

#include <jansson.h>

#include "experiments/conformance/drawn_problem.h"

/* Writes q.npy, k.npy and v.npy [batch, heads, n, d] of a problem into a directory that exists, and the
 * variant's output, o.npy, unless it refuses the problem or fails. Keys that do not exist are NaN. EFOREIGN,
 * ENOMEM. */
attn_status witness_write(const attn_spec *, const problem *, const char *directory);

/* What the tensors do not say: {"causal", "scale", "kv_len": a number for each batch entry, or null}; NULL
 * without memory. */
json_t *witness_json(const problem *);

#endif
