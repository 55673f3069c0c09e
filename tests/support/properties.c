/* properties.c - drives the property tables over a variant (properties.h). */
#include "tests/support/properties.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool subject_make(subject *s, const char *spec, case_shape shape, attn_dtype dtype, const char *isa) {
  attn_problem problem = shape_problem(shape, dtype);
  *s = (subject){.spec = spec, .shape = shape, .options = {.threads = 1, .isa = isa}};
  s->plan = plan_or_note(&problem, spec, &s->options);
  if (!s->plan) return false;
  if (attn_plan_inspect(s->plan, &s->view)) note_failure("inspect: %s", attn_last_error());
  s->in = inputs_make(&problem, shape.padded, 11, 1);
  return true;
}

static void subject_free(subject *s) {
  attn_plan_destroy(s->plan);
  inputs_free(&s->in);
  free(s->o);
  oracle_free(&s->exact);
}

/* Every shape sees the first two settings, and a fifth of the others in turn: each setting sees two of the
 * ten shapes. A smaller share where an emulator takes a hundred times as long. */
#ifdef EMULATED
enum { SHARE = 12 };
#else
enum { SHARE = 5 };
#endif
/* Under instruction sets other than the best, half as many of those that are not always tried. */
static bool chosen(int setting, int turn, const char *isa) {
  const int share = isa && strcmp(isa, attn_isa_list()[0]) != 0 ? 2 * SHARE : SHARE;
  return setting < (share > SHARE ? 1 : 2) || (setting + turn) % share == 0;
}

static bool gate(const property *p, const subject *s) {
  return (s->view.caps & p->caps) == p->caps && (!p->applies || p->applies(s));
}

static void run_on_subject(const property *table, subject *s, bool only_count, const char *where,
                           int *applied) {
  note_context("run %s", where);
  if (!only_count) {
    s->o = run_plain(s->plan, &s->in);
    bool asked = false;
    for (int k = 0; table[k].name; k++) asked |= table[k].by_oracle;
    if (asked) s->exact = oracle_of(s->plan, &s->in);
  }
  for (int k = 0; table[k].name; k++) {
    if (!gate(&table[k], s)) continue;
    note_context("%s %s", table[k].name, where);
    applied[k]++;
    if (!only_count && s->o) table[k].check(s);
  }
}

static int run_on_shape(const property *table, const attn_variant *variant, int turn, attn_dtype dtype,
                        const char *isa, bool only_count, int *applied) {
  case_shape shape = property_shapes[turn];
  attn_problem problem = shape_problem(shape, dtype);
  if (shape.padded && !(variant->caps & ATTN_CAP_PADDING)) return 0;
  spec_list specs = specs_for(variant, &problem, 64);
  int count = specs.count;
  for (int k = 0; k < count; k++) {
    if (!chosen(k, turn, isa)) continue;
    const char *where = text_of("%s %s %s %s", specs.text[k], shape_text(shape),
                                dtype == ATTN_F64 ? "f64" : "f32", isa ? isa : "");
    note_context("plan %s", where);
    subject s;
    if (!subject_make(&s, specs.text[k], shape, dtype, isa)) continue;
    run_on_subject(table, &s, only_count, where, applied);
    subject_free(&s);
  }
  spec_list_free(&specs);
  return count;
}

void property_suite_run(const property *table, const attn_variant *variant, const char *isa, bool only_count,
                        int applied[PROPERTIES_MAX]) {
  int admitted = 0;
  for (int k = 0; k < property_shape_count; k++) {
    admitted += run_on_shape(table, variant, k, ATTN_F32, isa, only_count, applied);
    if (k % 2 == 0) admitted += run_on_shape(table, variant, k, ATTN_F64, isa, only_count, applied);
  }
  note_context("%s", variant->name);
  if (!admitted) note_failure("no setting of this variant admits any shape");
  for (int k = 0; table[k].name; k++)
    if (!table[k].caps && !table[k].applies && !applied[k])
      note_failure("%s, a property of every variant, applied to none", table[k].name);
}
