/* help.c - lists and descriptions in JSON. What help prints is in cases/help.txt. */
#include <jansson.h>

#include "experiments/quality/evaluation_checks.h"
#include "tests/support/command.h"

TestSuite(cli_help, .init = command_enter, .fini = command_leave);

static json_t *document(const char *arguments) {
  json_error_t error;
  command_run_good(arguments);
  json_t *made = json_loads(result.out, 0, &error);
  cr_assert_not_null(made, "%s: %s\n%s", arguments, error.text, result.out);
  return made;
}

static const char *text_of(const json_t *of, const char *name) {
  const char *text = json_string_value(json_object_get(of, name));
  return text ? text : "";
}

Test(cli_help, lists_and_descriptions_are_json_too) {
  json_t *lists = document("list --json"), *variants = json_object_get(lists, "variants");
  cr_expect_eq(json_array_size(variants), attn_variant_count());
  cr_expect_str_eq(text_of(json_array_get(variants, 0), "name"), attn_variant_at(0)->name);
  cr_expect_geq(json_array_size(json_object_get(lists, "checks")), QUALITY_CHECKS + 50);
  json_decref(lists);
  lists = document("list datasets --json");
  cr_expect_eq(json_object_size(lists), 1);
  json_decref(lists);
  json_t *sheet = document("describe performer:kernel=trig --json");
  const json_t *first = json_array_get(json_object_get(sheet, "parameters"), 0);
  cr_expect(*text_of(first, "name") && *text_of(first, "preset") && *text_of(first, "takes"));
  cr_expect(strstr(text_of(json_object_get(sheet, "laws"), "features"), "trigonometric"));
  cr_expect_str_eq(text_of(json_object_get(sheet, "laws"), "accuracy_by"), "features");
  json_decref(sheet);
  sheet = document("describe SP-1 --json");
  cr_expect_str_eq(text_of(sheet, "kind"), "hard");
  json_decref(sheet);
  sheet = document("info --json");
  cr_expect(*text_of(sheet, "processor") && json_integer_value(json_object_get(sheet, "threads")) >= 1);
  json_decref(sheet);
}
