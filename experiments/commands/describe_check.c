/* describe_check.c - attnlab describe of a check, and of all checks of a family. */
#include "experiments/commands/describe.h"

#include <stdio.h>
#include <string.h>

#include "data/support/json_text.h"
#include "experiments/quality/evaluation_checks.h"

json_t *sheet_of_check(const check *c) {
  static const char *const names[CHECK_NULLS] = {
      [CHECK_ZEROS] = "all zeros", [CHECK_MEAN_V] = "the mean of V", [CHECK_RANDOM_KEYS] = "random keys"};
  static const char *const kinds[] = {
      [KIND_HARD] = "a proven inequality; violated if it does not hold",
      [KIND_PROB] = "a statement of probability; violated if its p-value is too small over the whole sweep",
      [KIND_MODEL] = "rests on a model of randomness; never violated",
      [KIND_REPORT] = "a number for information; never violated",
      [KIND_PROPERTY] =
          "what every variant keeps unless it declares otherwise; judged on separate small problems",
  };
  json_t *sheet = json_object(), *nulls = json_object();
  bool good = sheet_put(sheet, "name", c->name) && sheet_put(sheet, "summary", c->statement) &&
              sheet_put(sheet, "kind", check_kind_names[c->kind]) &&
              sheet_put(sheet, "means", kinds[c->kind]) && sheet_put(sheet, "of_variants", c->of->text) &&
              sheet_put(sheet, "formula", c->formula) && sheet_put(sheet, "assumes", c->assumes) &&
              (!c->cause || sheet_put(sheet, "usual_cause", c->cause)) &&
              sheet_put(sheet, "source", c->source) && json_object_set_new(sheet, "nulls", nulls) == 0;
  for (int i = 0; good && i < CHECK_NULLS; i++) {
    char text[400];
    const check_null *null = &c->nulls[i];
    snprintf(text, sizeof text, "%s: %s", null->blind ? "blind" : "rejected on",
             null->blind ? null->blind : null->rejected_on);
    good = sheet_put(nulls, names[i], text);
  }
  return json_whole(sheet, good);
}

const check *listed_check(size_t place, const char **family) {
  const check *c = quality_check_at(place);
  *family = c ? check_family(c) : NULL;
  if (!*family) *family = "whole models";
  return c;
}

bool check_family_exists(const char *name) {
  const char *family;
  for (size_t i = 0; listed_check(i, &family); i++)
    if (strcmp(family, name) == 0) return true;
  return false;
}

json_t *sheet_of_family(const char *name) {
  json_t *sheet = json_object(), *list = json_array();
  bool good = sheet_put(sheet, "name", name) && json_object_set_new(sheet, "checks", list) == 0;
  const char *family;
  const check *c;
  for (size_t i = 0; good && (c = listed_check(i, &family)); i++)
    if (strcmp(family, name) == 0) good = json_array_append_new(list, sheet_of_check(c)) == 0;
  return json_whole(sheet, good);
}

void print_check(json_t *sheet) {
  static const char *const heads[] = {"name", "summary", "kind", "means", "nulls"};
  const char *name;
  json_t *text;
  printf("%s: %s\n\n", sheet_get(sheet, "name"), sheet_get(sheet, "summary"));
  char kind[200];
  snprintf(kind, sizeof kind, "%s: %s", sheet_get(sheet, "kind"), sheet_get(sheet, "means"));
  sheet_print_paragraph("kind", kind);
  json_object_foreach(sheet, name, text) {
    bool printed = false;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) printed = printed || !strcmp(name, heads[i]);
    if (!printed) sheet_print_paragraph(name, json_string_value(text));
  }
  puts("\nnull approximations in place of the output or the algorithm:");
  json_object_foreach(json_object_get(sheet, "nulls"), name, text)
      sheet_print_paragraph(name, json_string_value(text));
}

void print_family(json_t *sheet) {
  size_t i;
  json_t *one;
  json_array_foreach(json_object_get(sheet, "checks"), i, one) {
    if (i) putchar('\n');
    print_check(one);
  }
}
