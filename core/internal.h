/* internal.h - what the files of core/ share and variants do not see. */
#ifndef ATTN_CORE_INTERNAL_H
#define ATTN_CORE_INTERNAL_H

#include "core/kernels/kernels.h"

/* A growing region released as a whole; every piece is 64-byte aligned. */
typedef struct attn_arena {
  attn_allocator allocator;
  struct arena_chunk *chunks;
  struct arena_handle *handles; /* foreign ones, released first */
  size_t bytes;                 /* obtained from the allocator */
} attn_arena;

void *attn_arena_alloc(attn_arena *, int64_t count, size_t size); /* NULL with the error recorded */
void attn_arena_free(attn_arena *);

struct attn_builder {
  attn_context context;
  attn_arena *arena, *scratch;
};

extern const attn_allocator attn_allocator_libc;

/* The kernels and the number of threads that options (or NULL) ask for. */
attn_status attn_options_resolve(const attn_options *, attn_dtype, const attn_kernels **, int *threads);

/* The block sizes that options (or NULL) ask for, else those that fit this machine's caches; EINVAL: the
 * options' are out of range. */
attn_status attn_blocks_resolve(const attn_options *, const attn_kernels *, int64_t d_qk, int64_t d_v,
                                attn_blocks *);
/* Those that fit caches of l1 and l2 bytes. */
attn_blocks attn_blocks_for(const attn_kernels *, int64_t d_qk, int64_t d_v, int64_t l1, int64_t l2);

/* The size that the C library reported if a cache can have it, else that in the files directory/index*, else
 * an assumed one. */
attn_cache attn_cache_decide(int level, int64_t reported, const char *directory);

/* EINVAL where what a variant says of itself cannot be followed; EABI: it was built for another interface. */
attn_status attn_variant_check(const attn_variant *);
attn_status attn_pattern_check(const attn_pattern *);
attn_status attn_feature_map_check(const attn_feature_map *);
attn_status attn_projection_check(const attn_projection *);
attn_status attn_view_check(const attn_variant *, const attn_view *);

#endif
