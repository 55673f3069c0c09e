/* guard.h - memory between inaccessible pages, for what a variant reads and writes while it is
 * measured.
 *
 * A block ends where a forbidden page begins, or less than `alignment` bytes before it; from its first page's
 * beginning to its own, and from its end to the forbidden page, stand bytes whose value is known. So a write
 * beyond a block is a SIGSEGV, or shows later. */
#ifndef EXPERIMENTS_INSTRUMENTS_GUARD_H
#define EXPERIMENTS_INSTRUMENTS_GUARD_H

#include "attn.h"

typedef struct guard {
  unsigned char *at; /* NULL: none */
  size_t bytes;
  unsigned char *first, *end; /* of the pages that may be touched */
} guard;

/* bytes > 0; alignment: a power of two, at most a page. The content is 0. ENOMEM. */
attn_status guard_open(guard *, size_t bytes, size_t alignment);
void guard_close(guard *); /* of a zero object too */

/* Where bytes outside the block were written since guard_open or the last guard_reset: nowhere, before the
 * block, or behind it. */
typedef enum { GUARD_INTACT, GUARD_BEFORE, GUARD_BEHIND } guard_state;
guard_state guard_check(const guard *);
void guard_reset(const guard *);

/* From now on a write to the block is a SIGSEGV. EFOREIGN. */
attn_status guard_freeze(const guard *);
/* It can be written again. EFOREIGN. */
attn_status guard_thaw(const guard *);

/* Moves malloc'ed bytes into a frozen guard and frees them: *memory is NULL then. */
attn_status guard_adopt(guard *, void **memory, size_t bytes, size_t alignment);

/* Until guard_unwatch a read or write on the forbidden page before or behind one of these blocks is noted,
 * and the program continues: the page then holds zeros. The first is kept. One watch at a time in a process,
 * at most GUARD_WATCHED blocks, which outlive it. EFOREIGN. */
enum { GUARD_WATCHED = 4 };
typedef struct guard_touch {
  int block;    /* -1: none was touched */
  int64_t byte; /* from the block's beginning: negative, or at least its size */
} guard_touch;
attn_status guard_watch(const guard *const *blocks, int count);
guard_touch guard_unwatch(void);

#endif
