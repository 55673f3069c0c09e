/* reseed.c - see reseed.h. */
#include "experiments/checks/reseed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

attn_status reseed(const char *spec, int64_t seed, char **fresh) {
  const char *at = strstr(spec, ":seed=");
  if (!at) at = strstr(spec, ",seed=");
  if (!at) {
    *fresh = NULL;
    return ATTN_OK;
  }
  const char *rest = at + 1 + strcspn(at + 1, ",");
  const size_t size = strlen(spec) + 32;
  char *out = malloc(size);
  if (!out) return attn_fail(ATTN_ENOMEM, "no memory for another seed of %s", spec);
  snprintf(out, size, "%.*sseed=%" PRId64 "%s", (int)(at + 1 - spec), spec, seed, rest);
  *fresh = out;
  return ATTN_OK;
}
