/* quality_sets.h - sets of runs of evaluations, made by hand or read from a file. */
#ifndef TESTS_SUPPORT_QUALITY_SETS_H
#define TESTS_SUPPORT_QUALITY_SETS_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/quality/evaluation_file.h"
#include "experiments/quality/evaluation_rows.h"
#include "tests/support/basics/kept.h"

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

static inline void quality_set_release(void *set) { result_set_free(set); }

/* The runs of a file; kept. */
static inline quality_set quality_set_of(const char *path) {
  quality_set set;
  cr_assert_eq(quality_read(path, &set), ATTN_OK, "%s", attn_last_error());
  keep_copy(&set, sizeof set, quality_set_release);
  return set;
}

/* The first run of a spec that begins so. */
static inline const quality_record *quality_run_of(const quality_set *set, const char *spec) {
  for (size_t i = 0; i < set->count; i++)
    if (strncmp(set->records[i].spec, spec, strlen(spec)) == 0) return &set->records[i];
  cr_assert_fail("no run of %s", spec);
  return NULL;
}

#endif
