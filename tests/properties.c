/* properties.c - drives the property tables over the registry (properties.h). */
#include "properties.h"

#include <stdio.h>

static bool subject_make(subject *s, const char *spec, case_shape shape, attn_dtype dtype, const char *isa) {
  attn_problem problem = shape_problem(shape, dtype);
  *s = (subject){.spec = spec, .shape = shape, .options = {.isa = isa}};
  s->plan = plan_or_note(&problem, spec, &s->options);
  if (!s->plan) return false;
  if (attn_plan_inspect(s->plan, &s->view) != ATTN_OK) note_failure("inspect: %s", attn_last_error());
  s->in = inputs_make(&problem, shape.padded, 11, 1);
  return true;
}

static void subject_free(subject *s) {
  attn_plan_destroy(s->plan);
  inputs_free(&s->in);
}

/* Every shape sees the first two settings, and a third of the others in turn. */
static bool chosen(int setting, int shape) { return setting < 2 || (setting + shape) % 3 == 0; }

static int run_on_shape(const property *p, const attn_variant *variant, int shape_index, attn_dtype dtype,
                        const char *isa) {
  case_shape shape = property_shapes[shape_index];
  if (shape.padded && !(variant->caps & ATTN_CAP_PADDING)) return 0;
  attn_problem problem = shape_problem(shape, dtype);
  spec_list specs = specs_for(variant, &problem, 64);
  int applied = 0;
  for (int k = 0; k < specs.count; k++) {
    if (!chosen(k, shape_index)) continue;
    char where[96];
    shape_print(shape, where, sizeof where);
    note_context("%s %s %s %s", p->name, specs.text[k], where, dtype == ATTN_F64 ? "f64" : "f32");
    subject s;
    if (!subject_make(&s, specs.text[k], shape, dtype, isa)) continue;
    if ((s.view.caps & p->caps) == p->caps && (!p->applies || p->applies(&s))) {
      p->check(&s);
      applied++;
    }
    subject_free(&s);
  }
  spec_list_free(&specs);
  return applied;
}

int property_run(const property *p, const char *isa) {
  int applied = 0;
  for (size_t v = 0; v < attn_variant_count(); v++) {
    const attn_variant *variant = attn_variant_at(v);
    int before = applied, admitted = 0;
    for (int k = 0; k < property_shape_count; k++) {
      attn_problem problem = shape_problem(property_shapes[k], ATTN_F32);
      spec_list specs = specs_for(variant, &problem, 1);
      admitted += specs.count;
      spec_list_free(&specs);
      applied += run_on_shape(p, variant, k, ATTN_F32, isa);
      if (k % 2 == 0) applied += run_on_shape(p, variant, k, ATTN_F64, isa);
    }
    note_context("%s %s", p->name, variant->name);
    if (!admitted) note_failure("no setting of this variant admits any shape");
    if (!p->caps && !p->applies && applied == before)
      note_failure("a property of every variant applied to none");
  }
  return applied;
}
