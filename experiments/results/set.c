/* set.c - making and releasing sets of rows. */
#include "experiments/results/set.h"

#include <stdlib.h>

void result_set_init(result_set *set) { *set = (result_set){0}; }

void result_set_free(result_set *set) {
  if (!set) return;
  const row_kind *kind = set->kind ? set->kind : &rows_of_sweep;
  for (size_t i = 0; i < set->count; i++) {
    void *row = (char *)set->items + i * kind->size;
    if (set->lent)
      free(*row_bounds(kind, row));
    else
      kind->release(row);
  }
  free(set->items);
  json_decref(set->sessions);
  result_set_init(set);
}
