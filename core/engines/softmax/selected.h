/* selected.h - the keys that were selected for a block of queries, as the rows of a tile take them. */
#ifndef ATTN_CORE_ENGINES_SOFTMAX_SELECTED_H
#define ATTN_CORE_ENGINES_SOFTMAX_SELECTED_H

#include "core/engines/softmax/softmax.h"

typedef struct selected_keys {
  attn_picks picks;
  int64_t *next;        /* of each selection, the first run that is not taken whole */
  int64_t *begin, *end; /* the keys that each row sees */
  uint64_t *seen;       /* of the keys of a step: the rows that take them */
  uint64_t *taken;      /* of the keys of a step, a bit each: some row takes it; where few are taken */
} selected_keys;

/* Room for `rows` queries, and steps of at most `step` keys. */
selected_keys attn_selected_carve(const attn_selector *, int64_t rows, int64_t step, attn_carver *);

/* Of picks that are sound; begin and end are of the tile's rows. */
void attn_selected_take(const attn_selector *, const softmax_task *, selected_keys *, softmax_worker *);

#endif
