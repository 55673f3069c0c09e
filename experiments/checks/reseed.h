/* reseed.h - the spec of a variant with another seed. */
#ifndef EXPERIMENTS_CHECKS_RESEED_H
#define EXPERIMENTS_CHECKS_RESEED_H

#include "attn.h"

/* *fresh: the canonical spec with this seed, to be freed; NULL if the variant has no seed. */
attn_status reseed(const char *spec, int64_t seed, char **fresh);

#endif
