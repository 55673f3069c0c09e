/* normaliser.h - what the files of the normaliser engine share. */
#ifndef ATTN_CORE_ENGINES_NORMALISER_NORMALISER_H
#define ATTN_CORE_ENGINES_NORMALISER_NORMALISER_H

#include "core/internal.h"

/* Elements of a product of a query and a key. */
int64_t normaliser_depth(const attn_problem *, const attn_normaliser *);
/* The gates of all heads, [batch, heads, n_kv]. */
attn_status normaliser_fill_gates(const attn_normaliser *, const attn_call *, double *gates);
/* Adds to x[count], scores of query i for these of the keys that exist, what the gates of its head say. */
void normaliser_add_gates(const attn_problem *, int64_t i, int64_t exist, const double *gates, int64_t count,
                          const int64_t *keys, double *x);

#endif
