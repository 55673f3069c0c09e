/* internal.h - what the files of core/ share and variants do not see. */
#ifndef ATTN_CORE_INTERNAL_H
#define ATTN_CORE_INTERNAL_H

#include "attn.h"
#include "core/kernels/kernels.h"

/* A growing region released as a whole; every piece is 64-byte aligned. */
typedef struct attn_arena {
  attn_allocator allocator;
  struct arena_chunk *chunks;
  size_t bytes; /* obtained from the allocator */
} attn_arena;

void *attn_arena_alloc(attn_arena *, int64_t count, size_t size); /* NULL with the error recorded */
void attn_arena_free(attn_arena *);

struct attn_builder {
  attn_context context;
  attn_arena *arena, *scratch;
};

extern const attn_allocator attn_allocator_libc;

/* Kernels of an instruction set ("": the environment's or the best); EINVAL names the known ones. */
attn_status attn_kernels_select(const char *isa, attn_dtype, const attn_kernels **);

/* The kernels and the number of threads that options (or NULL) ask for. */
attn_status attn_options_resolve(const attn_options *, attn_dtype, const attn_kernels **, int *threads);

/* The block sizes that options (or NULL) ask for, else those that fit this machine's caches; EINVAL: the
 * options' are out of range. */
attn_status attn_blocks_resolve(const attn_options *, const attn_kernels *, int64_t d_qk, int64_t d_v,
                                attn_blocks *);
/* Those that fit caches of l1 and l2 bytes. */
attn_blocks attn_blocks_for(const attn_kernels *, int64_t d_qk, int64_t d_v, int64_t l1, int64_t l2);

/* The size that the C library told if a cache can have it, else that of the files in directory/index*, else
 * an assumed one. */
attn_cache attn_cache_decide(int level, int64_t told, const char *directory);

/* Roundings of a score before its scaling is counted: in fp64 scale * log2(e) is itself rounded twice. */
static inline int64_t attn_score_chain(const attn_problem *p) {
  return p->d_qk + (p->dtype == ATTN_F64 ? 1 : 0);
}

static inline int64_t attn_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t attn_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t attn_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

#endif
