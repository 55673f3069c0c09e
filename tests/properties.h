/* properties.h - what must hold for every variant that declares it (bounds.md section 6), as one table.
 *
 * A subject is a variant with settings on a problem with inputs; a property looks at a subject and notes
 * failures. A new variant is tested by being registered: settings come from its parameter table, gates from
 * its caps. */
#ifndef TESTS_PROPERTIES_H
#define TESTS_PROPERTIES_H

#include "oracle.h"

typedef struct subject {
  const char *spec;
  case_shape shape;
  attn_options options;
  attn_plan *plan;
  attn_view view;
  inputs in;
} subject;

typedef struct property {
  const char *name;
  uint32_t caps;                    /* all of these are declared */
  bool (*applies)(const subject *); /* NULL: always */
  void (*check)(const subject *);
} property;

extern const property properties_exact[]; /* bitwise; end with a NULL name */
extern const property properties_real[];  /* within rounding bounds */

/* Runs a property over variants x shapes x dtypes x settings under an instruction set (NULL: the best).
 * Returns how many subjects it applied to. */
int property_run(const property *, const char *isa);

#endif
