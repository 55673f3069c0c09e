/* region.h - arrays that are released together. Each is an allocation of the C library, so that sanitizers
 * see where it ends. A region of zeros holds nothing; one thread at a time takes from it. */
#ifndef EXPERIMENTS_SUPPORT_REGION_H
#define EXPERIMENTS_SUPPORT_REGION_H

#include "attn.h"

typedef struct region {
  struct region_array *last;
  bool refused; /* was there once no memory? */
} region;

/* `count` elements, which may be 0, undefined or all zeros. NULL without memory, which region_status tells:
 * several arrays are taken before it is asked. */
void *region_take(region *, int64_t count, size_t size);
void *region_zeros(region *, int64_t count, size_t size);

/* ENOMEM, "no memory PURPOSE", if an array was refused. */
attn_status region_status(const region *, const char *purpose);

void region_free(region *);

#endif
