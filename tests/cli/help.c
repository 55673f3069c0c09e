/* help.c - lists and descriptions in JSON. What help prints is in cases/help.txt. */
#include "experiments/quality/evaluation_checks.h"
#include "tests/support/command_json.h"

TestSuite(cli_help, .init = command_enter, .fini = command_leave);

Test(cli_help, lists_and_descriptions_are_json_too) {
  json_t *lists = ask("list --json"), *variants = json_object_get(lists, "variants");
  cr_expect_eq(json_array_size(variants), attn_variant_count());
  cr_expect_str_eq(json_text(json_array_get(variants, 0), "name"), attn_variant_at(0)->name);
  cr_expect_geq(json_array_size(json_object_get(lists, "checks")), QUALITY_CHECKS + 50);
  lists = ask("list datasets --json");
  cr_expect_eq(json_object_size(lists), 1);
  json_t *sheet = ask("describe performer:kernel=trig --json");
  const json_t *first = json_array_get(json_object_get(sheet, "parameters"), 0);
  cr_expect(*json_text(first, "name") && *json_text(first, "preset") && *json_text(first, "takes"));
  cr_expect(strstr(json_text(json_object_get(sheet, "laws"), "features"), "trigonometric"));
  cr_expect_str_eq(json_text(json_object_get(sheet, "laws"), "accuracy_by"), "features");
  sheet = ask("describe SP-1 --json");
  cr_expect_str_eq(json_text(sheet, "kind"), "hard");
  sheet = ask("info --json");
  cr_expect(*json_text(sheet, "processor") && json_integer_value(json_object_get(sheet, "threads")) >= 1);
}
