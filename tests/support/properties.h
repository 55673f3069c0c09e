/* properties.h - what must hold for every variant that declares it, as one table.
 *
 * A subject is a variant with settings on a problem with inputs; a property looks at a subject and notes
 * failures. A new variant is tested by being registered: settings come from its parameter table, gates from
 * its caps. */
#ifndef TESTS_SUPPORT_PROPERTIES_H
#define TESTS_SUPPORT_PROPERTIES_H

#include "tests/support/oracle.h"

typedef struct subject {
  const char *spec;
  case_shape shape;
  attn_options options; /* one thread: more threads are a separate property */
  attn_plan *plan;
  attn_view view;
  inputs in;
  void *o;      /* of a plain run; NULL if it failed, which is noted */
  oracle exact; /* of that run, for properties that read it */
} subject;

static inline bool subject_exempt(const subject *s, unsigned from) {
  for (const attn_exemption *e = s->view.exempt; e && e->reason; e++)
    if (e->properties & from) return true;
  return false;
}

typedef struct property {
  const char *name;
  uint32_t caps;                    /* all of these are declared */
  bool (*applies)(const subject *); /* NULL: always */
  void (*check)(const subject *);
  bool by_oracle; /* it reads subject.exact */
} property;

extern const property properties_exact[]; /* bitwise; end with a NULL name */
extern const property properties_real[];  /* within rounding bounds */

enum { PROPERTIES_MAX = 32 };

/* Runs a table over shapes x dtypes x settings of a variant under an instruction set (NULL: the best), and
 * adds to applied[k] how many subjects property k applied to. only_count: without the checks. */
void property_suite_run(const property *table, const attn_variant *, const char *isa, bool only_count,
                        int applied[PROPERTIES_MAX]);

/* Is it linear in its values, up to the roundings of the arithmetic? */
static inline bool subject_keeps_values(const subject *s) {
  return !subject_exempt(s, ATTN_EXEMPT_VALUES) && !(s->view.recurrence && s->view.recurrence->rounds);
}

#endif
