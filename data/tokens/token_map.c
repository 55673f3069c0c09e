/* token_map.c - numbers by byte strings. The hash is 64-bit FNV-1a (Fowler, Noll, Vo) with the last steps of
 * MurmurHash3 (Appleby) behind it, because the low bits of FNV-1a alone spread little. */
#include "data/tokens/token_map.h"

#include <stdlib.h>
#include <string.h>

struct token_slot {
  const void *key; /* NULL: free */
  uint32_t bytes, hash;
  int32_t number;
};

/* Of a table that is half full by chance, the longest run has some tens of keys. */
enum { RUN_MAX = 512 };

static uint64_t hash(const void *key, size_t bytes) {
  const uint8_t *at = key;
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < bytes; i++) h = (h ^ at[i]) * UINT64_C(0x100000001b3);
  h = (h ^ h >> 33) * UINT64_C(0xff51afd7ed558ccd);
  return h ^ h >> 33;
}

attn_status token_map_make(size_t count, token_map *out) {
  size_t slots = 16;
  while (slots / 2 < count) slots *= 2;
  token_slot *slot = calloc(slots, sizeof *slot);
  if (!slot) return attn_fail(ATTN_ENOMEM, "no memory for a table of %zu tokens", count);
  *out = (token_map){slot, slots - 1};
  return ATTN_OK;
}

void token_map_free(token_map *m) {
  free(m->slot);
  *m = (token_map){0};
}

bool token_map_add(token_map *m, const void *key, size_t bytes, int32_t number) {
  const uint64_t h = hash(key, bytes);
  for (size_t run = 0, at = h & m->mask; run < RUN_MAX; run++, at = (at + 1) & m->mask) {
    if (m->slot[at].key) continue;
    m->slot[at] = (token_slot){key, (uint32_t)bytes, (uint32_t)(h >> 32), number};
    return true;
  }
  return false;
}

int32_t token_map_find(const token_map *m, const void *key, size_t bytes) {
  const uint64_t h = hash(key, bytes);
  for (size_t at = h & m->mask;; at = (at + 1) & m->mask) {
    const token_slot *s = &m->slot[at];
    if (!s->key) return -1;
    if (s->hash == (uint32_t)(h >> 32) && s->bytes == bytes && memcmp(s->key, key, bytes) == 0)
      return s->number;
  }
}
