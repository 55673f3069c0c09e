/* specs.c - settings of a variant for a problem, derived from its parameter table alone (cases.h).
 *
 * Presets are made for long sequences: on the short ones of a test a window or a block of the preset would
 * cover everything. So besides the presets there is a base with every large integer made small, varied one
 * parameter at a time. Settings that the variant refuses for the problem are left out. */
#include "tests/support/cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARAMS_MAX = 16, VALUE_SIZE = 32, TEXT_SIZE = 512, SMALL = 8 };

typedef struct setting {
  char value[PARAMS_MAX][VALUE_SIZE]; /* empty: the preset */
} setting;

static void setting_print(const attn_variant *variant, const setting *s, char text[TEXT_SIZE]) {
  size_t at = (size_t)snprintf(text, TEXT_SIZE, "%s", variant->name);
  char separator = ':';
  for (int i = 0; i < PARAMS_MAX && variant->params && variant->params[i].name; i++)
    if (s->value[i][0] && at < TEXT_SIZE) {
      at += (size_t)snprintf(text + at, TEXT_SIZE - at, "%c%s=%s", separator, variant->params[i].name,
                             s->value[i]);
      separator = ',';
    }
}

static bool admitted(const attn_problem *problem, const char *text) {
  attn_plan *plan = NULL;
  attn_status status = attn_plan_create(&plan, problem, text, NULL);
  if (status && status != ATTN_EINVAL && status != ATTN_EUNSUPPORTED && status != ATTN_ENOTFOUND)
    note_failure("plan of \"%s\" gave %s: %s", text, attn_status_name(status), attn_last_error());
  attn_plan_destroy(plan);
  return !status;
}

/* Adds the setting if it is admitted and its canonical text is new. */
static void add(spec_list *list, int limit, const attn_variant *variant, const attn_problem *problem,
                const setting *s) {
  char text[TEXT_SIZE];
  setting_print(variant, s, text);
  attn_spec *spec = NULL;
  if (list->count == limit || list->count == (int)(sizeof list->text / sizeof *list->text)) return;
  if (attn_spec_parse(&spec, text)) return;
  bool known = false;
  for (int k = 0; k < list->count; k++) known |= strcmp(list->text[k], spec->text) == 0;
  if (!known && admitted(problem, spec->text)) {
    list->text[list->count] = malloc(strlen(spec->text) + 1);
    if (list->text[list->count]) strcpy(list->text[list->count++], spec->text);
  }
  attn_spec_destroy(spec);
}

static bool is_size(const attn_variant *v, const attn_param *p) {
  return p->type == ATTN_INT && !(v->seed && strcmp(p->name, v->seed) == 0);
}

static setting small_base(const attn_variant *variant, const attn_problem *problem) {
  setting s = {0};
  for (int small = SMALL; small >= 1; small /= 2) {
    for (int i = 0; i < PARAMS_MAX && variant->params && variant->params[i].name; i++) {
      const attn_param *p = &variant->params[i];
      if (is_size(variant, p) && strtod(p->preset, NULL) > small && (double)small >= p->min &&
          (double)small <= p->max)
        snprintf(s.value[i], VALUE_SIZE, "%d", small);
    }
    char text[TEXT_SIZE];
    setting_print(variant, &s, text);
    if (admitted(problem, text)) break;
  }
  return s;
}

/* The values that a parameter is varied over; NULL-terminated. */
static const char *const *values_of(const attn_variant *variant, const attn_param *p) {
  static const char *const none[] = {NULL}, *const reals[] = {"0", "1e-3", "0.5", NULL};
  static const char *const sizes[] = {"0", "1", "2", "3", "5", "16", "64", NULL}, *const lists[] = {
                                                                                      "0", "1+4+9", NULL};
  switch (p->type) {
  case ATTN_INT:
    return is_size(variant, p) ? sizes : none;
  case ATTN_REAL:
    return reals;
  case ATTN_CHOICE:
    return p->choices;
  case ATTN_INT_LIST:
    return lists;
  default:
    return none;
  }
}

static void vary(spec_list *list, int limit, const attn_variant *variant, const attn_problem *problem,
                 setting base, int i) {
  for (const char *const *value = values_of(variant, &variant->params[i]); *value; value++) {
    snprintf(base.value[i], VALUE_SIZE, "%s", *value);
    add(list, limit, variant, problem, &base);
  }
}

bool causal_only(const attn_variant *variant) {
  attn_problem p = attn_problem_make(1, 1, 512, 8);
  if (!attn_estimate(&p, variant->name, NULL, NULL, NULL)) return false;
  p.causal = true;
  return !attn_estimate(&p, variant->name, NULL, NULL, NULL);
}

spec_list specs_for(const attn_variant *variant, const attn_problem *problem, int limit) {
  spec_list list = {0};
  setting presets = {0}, base = small_base(variant, problem);
  add(&list, limit, variant, problem, &base);
  add(&list, limit, variant, problem, &presets);
  for (int i = 0; i < PARAMS_MAX && variant->params && variant->params[i].name; i++)
    vary(&list, limit, variant, problem, base, i);
  return list;
}

void spec_list_free(spec_list *list) {
  for (int k = 0; k < list->count; k++) free(list->text[k]);
  list->count = 0;
}
