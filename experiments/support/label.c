/* label.c - see label.h. */
#include "experiments/support/label.h"

#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"
#include "data/support/file.h"

typedef struct filter {
  bool seed;
  int64_t place, at; /* the parameter that is left out; the next one */
} filter;

static bool is(const char *name, const attn_param *p) { return name && strcmp(name, p->name) == 0; }

static bool is_printed(void *context, const attn_spec *of, const attn_param *p, bool preset) {
  filter *x = context;
  if (x->at++ == x->place || (!x->seed && is(of->variant->seed, p))) return false;
  return !preset || is(of->variant->budget.parameter, p);
}

attn_status label_make(const attn_spec *spec, bool seed, char **out) {
  return attn_spec_print(spec, is_printed, &(filter){.seed = seed, .place = -1}, out);
}

attn_status label_of_text(const char *text, char **out) {
  attn_spec *spec = NULL;
  attn_status status = attn_spec_parse(&spec, text);
  if (!status) {
    status = label_make(spec, true, out);
  } else if (status != ATTN_ENOMEM) {
    *out = text_format("%s", text);
    status = *out ? ATTN_OK : ATTN_ENOMEM;
  }
  attn_spec_destroy(spec);
  return status;
}

attn_status label_without(const attn_spec *spec, int64_t place, char **out) {
  filter x = {.seed = true, .place = place};
  char *text = NULL;
  const attn_status status = attn_spec_print(spec, is_printed, &x, &text);
  if (status) return status;
  *out = place < x.at ? text : NULL;
  if (!*out) free(text);
  return ATTN_OK;
}

static const char *budget_of(const char *variant) {
  for (size_t i = 0; i < attn_variant_count(); i++)
    if (strcmp(attn_variant_at(i)->name, variant) == 0) return attn_variant_at(i)->budget.parameter;
  return NULL;
}

attn_status label_method(const char *label, const char *variant, char **out) {
  const char *name = budget_of(variant), *item = name ? strchr(label, ':') : NULL;
  const size_t length = name ? strlen(name) : 0;
  while (item && !(strncmp(item + 1, name, length) == 0 && item[1 + length] == '='))
    item = strchr(item + 1, ',');
  const char *rest = item ? item + 1 + strcspn(item + 1, ",") : "";
  const size_t before = item ? (size_t)(item - label) + (*rest == ',') : strlen(label);
  *out = text_format("%.*s%s", (int)before, label, *rest == ',' ? rest + 1 : rest);
  return *out ? ATTN_OK : ATTN_ENOMEM;
}
