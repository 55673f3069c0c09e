/* changed_spec.c - specs made from specs: with another value of a parameter, or one term; and parameters by
 * name. */
#define _POSIX_C_SOURCE 200809L
#include "core/decimal.h"
#include "core/expression/expression.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- the variants of a spec -- */

static attn_status visit(const attn_expression *e, bool within, attn_spec_visitor see, void *context) {
  attn_status status = e->atom ? attn_spec_each(e->atom, within, see, context) : ATTN_OK;
  for (int64_t t = 0; t < e->count && !status; t++) status = visit(e->terms[t], within, see, context);
  return status;
}

attn_status attn_spec_each(const attn_spec *spec, bool within, attn_spec_visitor see, void *context) {
  if (!spec) return attn_null("spec", "spec");
  if (!see) return attn_null("spec", "visitor");
  const bool terms = attn_spec_is_expression(spec);
  const attn_status status = terms ? ATTN_OK : see(context, spec);
  return !status && spec->expression && (terms || within) ? visit(spec->expression, within, see, context)
                                                          : status;
}

/* -- parameters by name -- */

/* A name in a spec, and what is found of it. */
typedef struct parameter {
  const char *name;
  bool seeds; /* it is that of an expression's seed */
  bool named;
  const attn_spec *atom;   /* the first that has it; NULL: none */
  const attn_param *param; /* of that */
  double min, max;         /* what every atom takes */
} parameter;

static const attn_param *find(const parameter *x, const attn_spec *atom) {
  const char *name = x->seeds && atom->variant->seed ? atom->variant->seed : x->name;
  for (const attn_param *p = atom->variant->params; p->name; p++)
    if (strcmp(p->name, name) == 0) return p;
  return NULL;
}

static bool assigns(const char *items, const char *name) {
  const size_t length = strlen(name);
  for (; items; items = strchr(items, ',') ? strchr(items, ',') + 1 : NULL)
    if (strncmp(items, name, length) == 0 && items[length] == '=') return true;
  return false;
}

static attn_status look_at(void *context, const attn_spec *atom) {
  parameter *x = context;
  const attn_param *p = find(x, atom);
  if (!p) return ATTN_OK;
  x->named = x->named || assigns(expression_named(atom), p->name);
  x->min = fmax(x->min, p->min);
  x->max = fmin(x->max, p->max);
  if (x->atom) return ATTN_OK;
  x->atom = atom;
  x->param = p;
  return ATTN_OK;
}

static parameter look_up(const attn_spec *spec, const char *name) {
  parameter x = {.name = name, .min = -0x1p53, .max = 0x1p53};
  if (!spec || !name) return x;
  x.seeds = attn_spec_is_expression(spec) && spec->variant->seed && strcmp(spec->variant->seed, name) == 0;
  attn_spec_each(spec, false, look_at, &x);
  return x;
}

bool attn_spec_names(const attn_spec *spec, const char *name) { return look_up(spec, name).named; }

double attn_spec_number(const attn_spec *spec, const char *name) {
  const parameter x = look_up(spec, name);
  return x.atom ? attn_param_number(x.param, x.atom->params) : (double)NAN;
}

bool attn_spec_equal(const attn_spec *a, const attn_spec *b) {
  return a && b && strcmp(a->text, b->text) == 0;
}

/* -- copies -- */

typedef struct change {
  const parameter *of; /* NULL: nothing changes */
  const char *value;
} change;

static bool is_other(void *context, const attn_spec *of, const attn_param *p, bool preset) {
  (void)of, (void)preset;
  return p != context;
}

/* The variant's parser reads the other parameters, and the value. */
static attn_status with_value(const attn_spec *atom, const attn_param *p, const char *value,
                              attn_spec **out) {
  char *others = NULL;
  attn_status status = attn_spec_print(atom, is_other, (void *)(uintptr_t)p, &others);
  if (status) return status;
  const size_t size = strlen(others) + strlen(p->name) + strlen(value) + 3;
  char *text = malloc(size);
  if (text) {
    snprintf(text, size, "%s%c%s=%s", others, strchr(others, ':') ? ',' : ':', p->name, value);
    status = expression_parse_atom(text, 0, out);
  } else {
    status = attn_fail(ATTN_ENOMEM, "no memory for another value of %s", p->name);
  }
  free(text);
  free(others);
  return status;
}

static attn_status change_atom(const change *x, const attn_spec *atom, attn_spec **out) {
  const attn_param *p = x->of ? find(x->of, atom) : NULL;
  if (p) return with_value(atom, p, x->value, out);
  *out = attn_spec_share(atom);
  return ATTN_OK;
}

static attn_status copy(const attn_expression *from, const change *x, attn_expression **out) {
  attn_expression *e = calloc(1, sizeof *e);
  attn_expression **terms = calloc((size_t)from->count + 1, sizeof(attn_expression *));
  attn_status status = e && terms ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for an expression");
  if (status) {
    free(e);
    free(terms);
    return status;
  }
  *e = *from;
  e->atom = NULL, e->text = NULL, e->count = 0, e->terms = terms;
  if (from->atom) status = change_atom(x, from->atom, &e->atom);
  for (int64_t t = 0; t < from->count && !status; t++) {
    status = copy(from->terms[t], x, &terms[t]);
    e->count += !status;
  }
  if (!status) status = expression_set_text(e);
  if (status)
    expression_free(e);
  else
    *out = e;
  return status;
}

static attn_status copy_spec(const attn_expression *from, const change *x, attn_spec **out) {
  attn_expression *e = NULL;
  if (from->atom) return change_atom(x, from->atom, out);
  const attn_status status = copy(from, x, &e);
  return status ? status : expression_spec(e, out);
}

attn_status attn_spec_at(const attn_expression *e, attn_spec **out) {
  if (!e) return attn_null("spec", "expression");
  if (!out) return attn_null("spec", "spec");
  return copy_spec(e, &(change){NULL, NULL}, out);
}

attn_status attn_spec_with(const attn_spec *spec, const char *name, const char *value, attn_spec **out) {
  if (!spec) return attn_null("spec", "spec");
  if (!name) return attn_fail(ATTN_EINVAL, "%s: no parameter to change", spec->text);
  if (!value) return attn_null("spec", "value");
  if (!out) return attn_null("spec", "result");
  const parameter found = look_up(spec, name);
  if (!found.atom) return attn_fail(ATTN_EINVAL, "%s: no parameter %s", spec->text, name);
  const change x = {&found, value};
  const attn_locale outer = attn_locale_enter();
  const attn_status status =
      attn_spec_is_expression(spec) ? copy_spec(spec->expression, &x, out) : change_atom(&x, spec, out);
  attn_locale_leave(outer);
  return status;
}

attn_status attn_spec_with_int(const attn_spec *spec, const char *name, int64_t value, attn_spec **out) {
  char text[24];
  snprintf(text, sizeof text, "%" PRId64, value);
  return attn_spec_with(spec, name, text, out);
}

attn_status attn_spec_with_seed(const attn_spec *spec, const char *name, int64_t seed, attn_spec **out) {
  const parameter x = look_up(spec, name);
  const int64_t first = (int64_t)x.min, count = (int64_t)fmax(x.max - x.min, 0) + 1,
                place = (seed - first) % count;
  return attn_spec_with_int(spec, name, first + (place < 0 ? place + count : place), out);
}
