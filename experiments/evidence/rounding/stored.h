/* stored.h - outputs that are stored in 16 bits: what is computed in fp32 or fp64, rounded once. */
#ifndef EXPERIMENTS_EVIDENCE_ROUNDING_STORED_H
#define EXPERIMENTS_EVIDENCE_ROUNDING_STORED_H

#include "attn.h"

/* EFOREIGN: an element is not that of `wide`, off by the storage's unit at most, and by the roundings of the
 * arithmetic where a variant computes in fp64. */
attn_status stored_check(const void *stored, attn_dtype as, const void *wide, attn_dtype arithmetic,
                         int64_t count);

#endif
