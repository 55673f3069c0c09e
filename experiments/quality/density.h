/* density.h - how much of a causal attention a variant reads. */
#ifndef EXPERIMENTS_QUALITY_DENSITY_H
#define EXPERIMENTS_QUALITY_DENSITY_H

#include "experiments/quality/evaluate.h"

/* Adds the keys that a sample of queries of each head reads, and those that causality leaves them; and of a
 * sample at positions first ... end - 1 the exact weight of the keys that are not read. A variant
 * that neither skips keys nor is exact (features, projections) adds NaN. bits: that a cache holds after the
 * last position of a window, a mean over the elements of the keys and values of all positions; NaN of what
 * does not read keys one by one. */
attn_status quality_density(const data_llama_attention *, int64_t first, int64_t end, quality_layer *);

#endif
