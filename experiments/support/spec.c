/* spec.c - reading and replacing a parameter in the text of a spec. In an expression it is that of every term that has one,
 * and reading takes the first. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/support/spec.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_expression.h"

/* -- a variant with its parameters -- */

/* Where the value of a parameter begins, or NULL. */
static const char *value_of(const char *spec, const char *name) {
  size_t length = strlen(name);
  for (const char *at = strchr(spec, ':'); at; at = strchr(at + 1, ','))
    if (strncmp(at + 1, name, length) == 0 && at[1 + length] == '=') return at + length + 2;
  return NULL;
}

static attn_status atom_with(const char *spec, const char *name, int64_t value, char **out) {
  const char *at = value_of(spec, name);
  char *text = at ? text_format("%.*s%" PRId64 "%s", (int)(at - spec), spec, value, at + strcspn(at, ","))
                  : strdup(spec);
  if (!text) return attn_fail(ATTN_ENOMEM, "no memory for another value of %s", name);
  *out = text;
  return ATTN_OK;
}

static attn_status atom_without(const char *spec, const char *name, char **out) {
  const char *at = value_of(spec, name);
  char *text = strdup(spec);
  if (!text) return attn_fail(ATTN_ENOMEM, "no memory for a spec");
  if (at) {
    const char *rest = at + strcspn(at, ",");
    char *mark = text + (at - spec) - strlen(name) - 2; /* ':' or ',' */
    if (*rest)
      memmove(mark + 1, rest + 1, strlen(rest));
    else
      *mark = '\0';
  }
  *out = text;
  return ATTN_OK;
}

/* -- specs -- */

/* NULL: the text is no expression, or none that can be parsed here. */
static attn_spec *expression_of(const char *text) {
  attn_spec *spec = NULL;
  if (!strpbrk(text, "+-*(") || attn_spec_parse(&spec, text)) return NULL;
  if (attn_spec_is_expression(spec)) return spec;
  attn_spec_destroy(spec);
  return NULL;
}

static bool draws_by(const attn_spec *spec, const char *name) {
  return spec->variant->seed && strcmp(spec->variant->seed, name) == 0;
}

/* What becomes of an atom. */
typedef struct change {
  const char *name;
  bool seeds; /* name is that of the expression's seed */
  int64_t value;
  attn_status (*make)(const struct change *, const char *spec, const char *name, char **out);
} change;

static attn_status make_with(const change *x, const char *spec, const char *name, char **out) {
  return atom_with(spec, name, x->value, out);
}
static attn_status make_without(const change *x, const char *spec, const char *name, char **out) {
  (void)x;
  return atom_without(spec, name, out);
}

static attn_status change_atom(void *context, const attn_spec *atom, char **out) {
  const change *x = context;
  const char *seed = atom->variant->seed;
  return x->make(x, atom->text, x->seeds && seed ? seed : x->name, out);
}

/* *out stays where the text is no expression. */
static attn_status change_expression(const char *text, change *x, bool *is, char **out) {
  attn_spec *spec = expression_of(text);
  attn_status status = ATTN_OK;
  if ((*is = spec)) {
    x->seeds = draws_by(spec, x->name);
    status = attn_expression_print(spec->expression, change_atom, x, out);
  }
  attn_spec_destroy(spec);
  return status;
}

static attn_status visit(const attn_expression *e, spec_visitor see, void *context) {
  attn_status status = e->atom ? see(context, e->atom) : ATTN_OK;
  for (int64_t t = 0; t < e->count && !status; t++) status = visit(e->terms[t], see, context);
  return status;
}

static attn_status visit_within(const attn_expression *e, spec_visitor see, void *context) {
  attn_status status = e->atom ? spec_each_within(e->atom, see, context) : ATTN_OK;
  for (int64_t t = 0; t < e->count && !status; t++) status = visit_within(e->terms[t], see, context);
  return status;
}

attn_status spec_each_within(const attn_spec *spec, spec_visitor see, void *context) {
  const attn_status status = attn_spec_is_expression(spec) ? ATTN_OK : see(context, spec);
  return status || !spec->expression ? status : visit_within(spec->expression, see, context);
}

attn_status spec_each(const attn_spec *spec, spec_visitor see, void *context) {
  return attn_spec_is_expression(spec) ? visit(spec->expression, see, context) : see(context, spec);
}

/* In the text of an expression, parameters stand behind ':' and ','. */
bool spec_names(const char *spec, const char *name) {
  const size_t length = strlen(name);
  attn_spec *expression = expression_of(spec);
  if (!expression) return value_of(spec, name);
  attn_spec_destroy(expression);
  for (const char *at = strpbrk(spec, ":,"); at; at = strpbrk(at + 1, ":,"))
    if (strncmp(at + 1, name, length) == 0 && at[1 + length] == '=') return true;
  return false;
}

typedef struct search {
  const char *name;
  bool seeds;
  char *value; /* of the first atom that has it */
} search;

static attn_status search_atom(void *context, const attn_spec *atom) {
  search *x = context;
  const char *name = x->seeds && atom->variant->seed ? atom->variant->seed : x->name,
             *value = x->value ? NULL : value_of(atom->text, name);
  if (!value) return ATTN_OK;
  x->value = strndup(value, strcspn(value, ","));
  return x->value ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for the value of %s", x->name);
}

attn_status spec_value(const char *spec, const char *name, char **out) {
  attn_spec *expression = expression_of(spec);
  search found = {.name = name};
  attn_status status = ATTN_OK;
  if (expression) {
    found.seeds = draws_by(expression, name);
    status = spec_each(expression, search_atom, &found);
  } else {
    const char *value = value_of(spec, name);
    if (value && !(found.value = strndup(value, strcspn(value, ","))))
      status = attn_fail(ATTN_ENOMEM, "no memory for the value of %s", name);
  }
  attn_spec_destroy(expression);
  if (!status && !found.value) status = attn_fail(ATTN_EINVAL, "%s: no parameter %s", spec, name);
  if (!status) *out = found.value;
  return status;
}

int64_t spec_number(const char *spec, const char *name) {
  char *value = NULL;
  const int64_t number = spec_value(spec, name, &value) ? 0 : strtoll(value, NULL, 10);
  free(value);
  return number;
}

attn_status spec_with(const char *spec, const char *name, int64_t value, char **out) {
  change x = {.name = name, .value = value, .make = make_with};
  char *old = NULL;
  bool is = false;
  attn_status status =
      name ? spec_value(spec, name, &old) : attn_fail(ATTN_EINVAL, "%s: no parameter to change", spec);
  free(old);
  if (!status) status = change_expression(spec, &x, &is, out);
  return status || is ? status : atom_with(spec, name, value, out);
}

typedef struct seed_range {
  const char *name;
  bool seeds;
  double min, max; /* that every atom takes */
} seed_range;

static attn_status narrow(void *context, const attn_spec *atom) {
  seed_range *x = context;
  const char *name = x->seeds && atom->variant->seed ? atom->variant->seed : x->name;
  for (const attn_param *p = atom->variant->params; p && p->name; p++) {
    if (strcmp(p->name, name) != 0) continue;
    x->min = fmax(x->min, p->min);
    x->max = fmin(x->max, p->max);
  }
  return ATTN_OK;
}

attn_status spec_seed(const char *spec, const char *name, int64_t value, char **out) {
  seed_range x = {.name = name, .min = -0x1p53, .max = 0x1p53};
  attn_spec *parsed = NULL;
  attn_status status = name ? attn_spec_parse(&parsed, spec) : spec_with(spec, name, value, out);
  if (status) return status;
  x.seeds = attn_spec_is_expression(parsed) && draws_by(parsed, name);
  status = spec_each(parsed, narrow, &x);
  attn_spec_destroy(parsed);
  const int64_t first = (int64_t)x.min, count = (int64_t)fmax(x.max - x.min, 0) + 1,
                place = (value - first) % count;
  return status ? status : spec_with(spec, name, first + (place < 0 ? place + count : place), out);
}

attn_status spec_without(const char *spec, const char *name, char **out) {
  change x = {.name = name ? name : "", .make = make_without};
  bool is = false;
  const attn_status status = name ? change_expression(spec, &x, &is, out) : ATTN_OK;
  return is ? status : atom_without(spec, x.name, out);
}

typedef struct output_request {
  const char *output;
  const output_kind *kind;
} output_request;

static attn_status check_atom(void *context, const attn_spec *atom) {
  const output_request *x = context;
  return spec_check_output(atom->text, atom->variant->params, x->output, x->kind);
}

attn_status spec_check_files(const attn_spec *spec, const char *output, const output_kind *kind) {
  return spec_each(spec, check_atom, &(output_request){output, kind});
}

attn_status spec_check_output(const char *spec, const attn_param *table, const char *output,
                              const output_kind *kind) {
  attn_status status = ATTN_OK;
  for (; !status && table && table->name; table++) {
    const char *value = table->type == ATTN_TEXT ? value_of(spec, table->name) : NULL;
    if (!value) continue;
    char *path = strndup(value, strcspn(value, ","));
    if (!path) return attn_fail(ATTN_ENOMEM, "no memory for the value of %s", table->name);
    status = output_check(output, kind, (const char *const *)&path, 1);
    free(path);
  }
  return status;
}

/* Whether a list "a=1,b=2" has the item. */
static bool lists(const char *list, const char *item, size_t length) {
  for (; list; list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL)
    if (strcspn(list, ",") == length && strncmp(list, item, length) == 0) return true;
  return false;
}

static bool is_parameter(const char *item, const char *name) {
  const size_t length = name ? strlen(name) : 0;
  return name && strncmp(item, name, length) == 0 && item[length] == '=';
}

static attn_status shorten(const char *spec, char **out) {
  const size_t name = strcspn(spec, ":");
  char *variant = text_format("%.*s", (int)name, spec), *made = text_format("%.*s", (int)name, spec);
  attn_spec *presets = NULL;
  const attn_status parsed =
      variant ? attn_spec_parse(&presets, variant) : attn_fail(ATTN_ENOMEM, "no memory for a spec");
  if (parsed == ATTN_ENOMEM) {
    free(variant);
    free(made);
    return parsed;
  }
  if (parsed) presets = NULL;
  const char *item = spec[name] ? spec + name + 1 : "", *mark = ":",
             *common = presets ? strchr(presets->text, ':') : NULL,
             *budget = presets ? presets->variant->budget.parameter : NULL;
  while (made && *item) {
    const size_t length = strcspn(item, ",");
    if (!common || is_parameter(item, budget) || !lists(common + 1, item, length)) {
      char *longer = text_format("%s%s%.*s", made, mark, (int)length, item);
      free(made);
      made = longer;
      mark = ",";
    }
    item += length + (item[length] == ',');
  }
  attn_spec_destroy(presets);
  free(variant);
  if (!made) return attn_fail(ATTN_ENOMEM, "no memory for a spec");
  *out = made;
  return ATTN_OK;
}

static attn_status shorten_atom(void *context, const attn_spec *atom, char **out) {
  (void)context;
  return shorten(atom->text, out);
}

attn_status spec_short(const char *spec, char **out) {
  attn_spec *expression = expression_of(spec);
  const attn_status status = expression
                                 ? attn_expression_print(expression->expression, shorten_atom, NULL, out)
                                 : shorten(spec, out);
  attn_spec_destroy(expression);
  return status;
}

/* Which parameter is left out, counted from the present term; below 0: it was. */
typedef struct cut {
  int64_t place;
} cut;

static attn_status cut_atom(void *context, const attn_spec *atom, char **out) {
  cut *x = context;
  const char *mark = strchr(atom->text, ':');
  for (; mark && x->place > 0; x->place--) mark = strchr(mark + 1, ',');
  if (!mark || x->place < 0) return shorten(atom->text, out);
  x->place = -1;
  char *name = strndup(mark + 1, strcspn(mark + 1, "=")), *rest = NULL;
  attn_status status =
      name ? atom_without(atom->text, name, &rest) : attn_fail(ATTN_ENOMEM, "no memory for a spec");
  if (!status) status = shorten(rest, out);
  free(rest);
  free(name);
  return status;
}

attn_status spec_short_without(const char *spec, int64_t place, char **out) {
  attn_spec *expression = expression_of(spec);
  cut x = {place};
  char *text = NULL;
  const attn_status status =
      expression ? attn_expression_print(expression->expression, cut_atom, &x, &text) : ATTN_OK;
  attn_spec_destroy(expression);
  if (status) return status;
  *out = x.place < 0 ? text : NULL;
  if (!*out) free(text);
  return ATTN_OK;
}
