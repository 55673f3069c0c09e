/* compression.h - what the files of the compression engine share. */
#ifndef ATTN_CORE_ENGINES_COMPRESSION_COMPRESSION_H
#define ATTN_CORE_ENGINES_COMPRESSION_COMPRESSION_H

#include "core/internal.h"

/* The variant's project under attn_plan_verify: what it leaves unwritten, and what it writes elsewhere.
 * Returns what project returns. */
int64_t compression_project_watched(const attn_projection *, const attn_call *, const attn_slab *);

#endif
