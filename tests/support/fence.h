/* fence.h - tensors between pages that may not be touched: a read or write beyond a row that exists is
 * SIGSEGV. */
#ifndef TESTS_SUPPORT_FENCE_H
#define TESTS_SUPPORT_FENCE_H

#include "tests/support/cases.h"

typedef struct placing {
  bool at_end;  /* every head's rows end where a forbidden page begins; else they begin where one ends */
  size_t shift; /* elements left free between that page and the rows */
  int64_t gap;  /* elements between rows */
} placing;

/* Rows of `batch` x `heads` blocks, a forbidden page before and behind each block. */
typedef struct fence {
  unsigned char *map, *at; /* at: row 0 of the first block */
  attn_stride stride;      /* in elements */
  int64_t batch, heads, columns;
  int64_t rows[MAX_BATCH]; /* of each block of a batch entry */
  size_t mapped, size;     /* size: of an element */
} fence;

/* Room for a tensor of the problem whose batch entry b has rows[b] rows; at most two entries. Every byte is
 * `fill`. */
fence fence_make(const attn_problem *, tensor, const int64_t *rows, placing, unsigned char fill);
/* `bytes` bytes without further structure. */
fence fence_block(size_t bytes, placing, unsigned char fill);
/* Copies the rows of a tensor; they can then be read only. */
void fence_load(const fence *, const inputs *, tensor);
/* The rows as contiguous [batch, heads, rows, columns]; free it. All entries have the same number of rows. */
void *fence_gather(const fence *);
/* Does every accessible byte outside the rows still hold `fill`? */
bool fence_intact(const fence *, unsigned char fill);
void fence_free(fence *);

#endif
