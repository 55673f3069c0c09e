/* version.c - which library this is, for callers that were compiled separately. */
#include "attn_variant.h"

#include <string.h>

unsigned attn_abi(void) { return ATTN_ABI; }
const char *attn_version(void) { return ATTN_VERSION; }

#define STRUCT(name) \
  { #name, sizeof(attn_##name) }
static const struct {
  const char *name;
  size_t bytes;
} structs[] = {
    STRUCT(allocator), STRUCT(bias),        STRUCT(budget),    STRUCT(feature_law), STRUCT(blocks),
    STRUCT(cache),     STRUCT(call),        STRUCT(carver),    STRUCT(context),     STRUCT(cost),
    STRUCT(extra),     STRUCT(feature_map), STRUCT(gradients), STRUCT(int_list),    STRUCT(key_positions),
    STRUCT(mask),      STRUCT(matrix),      STRUCT(options),   STRUCT(packed),      STRUCT(param),
    STRUCT(pattern),   STRUCT(positions),   STRUCT(problem),   STRUCT(projection),  STRUCT(rng),
    STRUCT(rounding),  STRUCT(run),         STRUCT(score),     STRUCT(slab),        STRUCT(slices),
    STRUCT(spec),      STRUCT(stride),      STRUCT(tensors),   STRUCT(tiling),      STRUCT(transform_job),
    STRUCT(variant),   STRUCT(view),
};

size_t attn_sizeof(const char *name) {
  for (size_t i = 0; name && i < sizeof structs / sizeof *structs; i++)
    if (!strcmp(structs[i].name, name)) return structs[i].bytes;
  return 0;
}
