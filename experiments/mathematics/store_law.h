/* store_law.h - the numbers that a row becomes in a type in which caches hold it, from the definition of the
 * type, and how far they may be from the given ones. Written apart from core/kernels/codes.h. */
#ifndef EXPERIMENTS_MATHEMATICS_STORE_LAW_H
#define EXPERIMENTS_MATHEMATICS_STORE_LAW_H

#include "attn_variant.h"

/* x [count], numbers of fp32: kept [count] what is stored of them, and step [count] at most |kept - x|; NaN
 * and Inf where a number is not finite or too large for the type. */
void store_law(attn_dtype, const double *x, int64_t count, double *kept, double *step);
/* The same of `count` numbers that are a block of int<bits>. */
void store_law_block(int bits, const double *x, int64_t count, double *kept, double *step);
/* The same of the keys [keys, d] of a head in groups with one scale each (attn_kv_groups). step: NULL if it
 * is not wanted; mean: [d], room. */
void store_law_groups(const attn_kv_store *, const double *x, int64_t keys, int64_t d, double *kept,
                      double *step, double *mean);

#endif
