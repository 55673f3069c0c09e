/* quality_sets.h - sets of runs of evaluations, made by hand. */
#ifndef TESTS_SUPPORT_QUALITY_SETS_H
#define TESTS_SUPPORT_QUALITY_SETS_H

#include <stdlib.h>

#include "experiments/quality/evaluation_rows.h"

/* Takes the record over, in place of one with the same key. ENOMEM: it is the caller's still. */
static inline attn_status quality_set_add(quality_set *s, quality_record *r) {
  quality_record *known = (quality_record *)quality_set_find(s, r->key);
  if (!known) {
    quality_record *more = realloc(s->records, (s->count + 1) * sizeof *more);
    if (!more) return ATTN_ENOMEM;
    s->records = more;
    s->kind = &rows_of_evaluation;
    known = &more[s->count++];
  } else {
    quality_record_free(known);
  }
  *known = *r;
  *r = (quality_record){0};
  return ATTN_OK;
}

#endif
