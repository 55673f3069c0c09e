/* token_map.h - numbers by byte strings, which stay where they are: a hash table with open addressing.
 * Internal to data/. */
#ifndef DATA_TOKENS_TOKEN_MAP_H
#define DATA_TOKENS_TOKEN_MAP_H

#include "attn.h"

typedef struct token_slot token_slot;

typedef struct token_map {
  token_slot *slot;
  size_t mask; /* slots - 1 */
} token_map;

/* For at most `count` keys. ENOMEM, recorded. */
attn_status token_map_make(size_t count, token_map *);
void token_map_free(token_map *);

/* The key must not be there. False: keys that collide as those of a file made for it do; then the table is
 * not to be used, as a search could take the time of a walk through all keys. */
bool token_map_add(token_map *, const void *key, size_t bytes, int32_t number);

/* The number of a key; -1: it is not there. */
int32_t token_map_find(const token_map *, const void *key, size_t bytes);

#endif
