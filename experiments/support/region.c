/* region.c - a list of arrays, each behind its link to the one before. */
#include "experiments/support/region.h"

#include <stddef.h>
#include <stdlib.h>

typedef struct region_array {
  struct region_array *before;
  max_align_t at[];
} region_array;

static void *take(region *r, int64_t count, size_t size, bool zeros) {
  const uint64_t most = (PTRDIFF_MAX - sizeof(region_array)) / (size ? size : 1);
  region_array *a = NULL;
  if ((uint64_t)count <= most) {
    const size_t bytes = sizeof *a + (size_t)count * size;
    a = zeros ? calloc(1, bytes) : malloc(bytes);
  }
  if (!a) {
    r->refused = true;
    return NULL;
  }
  a->before = r->last;
  r->last = a;
  return a->at;
}

void *region_take(region *r, int64_t count, size_t size) { return take(r, count, size, false); }
void *region_zeros(region *r, int64_t count, size_t size) { return take(r, count, size, true); }

attn_status region_status(const region *r, const char *purpose) {
  return r->refused ? attn_fail(ATTN_ENOMEM, "no memory %s", purpose) : ATTN_OK;
}

void region_free(region *r) {
  for (region_array *a = r->last, *before; a; a = before) {
    before = a->before;
    free(a);
  }
  *r = (region){.last = NULL};
}
