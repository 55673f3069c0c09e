/* spec.c - reading and replacing a parameter in the text of a spec. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/support/spec.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"

/* Where the value of a parameter begins, or NULL. */
static const char *value_of(const char *spec, const char *name) {
  size_t length = strlen(name);
  for (const char *at = strchr(spec, ':'); at; at = strchr(at + 1, ','))
    if (strncmp(at + 1, name, length) == 0 && at[1 + length] == '=') return at + length + 2;
  return NULL;
}

bool spec_names(const char *spec, const char *name) { return value_of(spec, name); }

int64_t spec_number(const char *spec, const char *name) {
  const char *value = value_of(spec, name);
  return value ? strtoll(value, NULL, 10) : 0;
}

attn_status spec_value(const char *spec, const char *name, char **out) {
  const char *value = value_of(spec, name);
  if (!value) return attn_fail(ATTN_EINVAL, "%s: no parameter %s", spec, name);
  char *text = strndup(value, strcspn(value, ","));
  if (!text) return attn_fail(ATTN_ENOMEM, "no memory for the value of %s", name);
  *out = text;
  return ATTN_OK;
}

attn_status spec_with(const char *spec, const char *name, int64_t value, char **out) {
  const char *at = name ? value_of(spec, name) : NULL;
  if (!at) return attn_fail(ATTN_EINVAL, "%s: no parameter %s", spec, name ? name : "to change");
  const size_t size = strlen(spec) + 32;
  char *text = malloc(size);
  if (!text) return attn_fail(ATTN_ENOMEM, "no memory for another value of %s", name);
  snprintf(text, size, "%.*s%" PRId64 "%s", (int)(at - spec), spec, value, at + strcspn(at, ","));
  *out = text;
  return ATTN_OK;
}

attn_status spec_without(const char *spec, const char *name, char **out) {
  const char *at = name ? value_of(spec, name) : NULL;
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

attn_status spec_check_output(const char *spec, const attn_param *table, const char *output,
                              const output_kind *kind) {
  attn_status status = ATTN_OK;
  for (; !status && table && table->name; table++) {
    char *path = NULL;
    if (table->type != ATTN_TEXT || !spec_names(spec, table->name)) continue;
    status = spec_value(spec, table->name, &path);
    if (!status) status = output_check(output, kind, (const char *const *)&path, 1);
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

attn_status spec_short(const char *spec, char **out) {
  const size_t name = strcspn(spec, ":");
  char *variant = text_format("%.*s", (int)name, spec), *made = text_format("%.*s", (int)name, spec);
  attn_spec *presets = NULL;
  if (variant && attn_spec_parse(&presets, variant)) presets = NULL;
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
