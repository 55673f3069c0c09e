/* oracle_parts.h - what oracle.c and oracle_engines.c share. */
#ifndef TESTS_SUPPORT_ORACLE_PARTS_H
#define TESTS_SUPPORT_ORACLE_PARTS_H

#include "tests/support/cases.h"

double oracle_gamma(double k, double u); /* k u / (1 - k u); infinite where that means nothing */
void *calloc_or_abort(size_t count, size_t size);

static inline double element_at(attn_dtype dtype, const void *x, int64_t i) { return attn_get(x, i, dtype); }

/* Row 0 of a head of an input. */
const void *head_rows(const inputs *, tensor, int64_t batch, int64_t head);

#endif
