/* help.c - what the program says of itself: near names, `attnlab help', documents in JSON. */
#include <jansson.h>
#include <unistd.h>

#include "experiments/quality/checks.h"
#include "experiments/results/axes.h"
#include "tests/support/command.h"

TestSuite(cli_help, .init = command_enter, .fini = command_leave);

static void expect_hint(const char *arguments, const char *hint) {
  command_run(arguments, &result);
  cr_expect_eq(result.exit_code, 2, "%s", arguments);
  cr_expect(strstr(result.err, hint), "%s: no %s in\n%s", arguments, hint, result.err);
}

Test(cli_help, misspelt_names_get_the_near_one) {
  expect_hint("raport x.h5", "(did you mean 'report'?)");
  expect_hint("describe longfromer", "(did you mean 'longformer'?)");
  expect_hint("describe SP1", "(did you mean 'SP-1'?)");
  expect_hint("describe EV-11", "(did you mean 'EV-1'?)");
  expect_hint("describe gausian", "(did you mean 'gaussian'?)");
  expect_hint("describe longformer:windw=3", "'windw' (did you mean 'window'?)");
  expect_hint("describe performer:kernel=tirg", "kernel=tirg (did you mean 'trig'?)");
  command_write_text("x.yaml",
                     "schema: 1\ngrid: {n: 8, casual: yes}\nvariants: [full]\ndatasets: [gaussian]\n");
  expect_hint("run x.yaml -o x.h5", "x.yaml:2:14: unknown key 'casual' (did you mean 'causal'?) in grid");
  command_write_text("x.yaml",
                     "schema: 1\ngrid: {n: 8}\nvariants: [tiled: {blok_q: 8}]\ndatasets: [gaussian]\n");
  expect_hint("run x.yaml -o x.h5", "'blok_q' (did you mean 'block_q'?)");
  command_write_text("x.yaml", "schema: 1\neval: {model: m, txt: t}\nvariants: [full]\n");
  expect_hint("run x.yaml -o x.h5", "'txt' (did you mean 'text'?) in eval");
}

Test(cli_help, names_that_are_not_near_get_none) {
  static const char *const far[] = {"xyzzy", "describe xyzzy", "describe l", "describe full:k=1"};
  for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
    command_run(far[i], &result);
    cr_expect_eq(result.exit_code, 2);
    cr_expect_null(strstr(result.err, "did you mean"), "%s: %s", far[i], result.err);
  }
}

Test(cli_help, help_is_a_command_too) {
  char *help;
  command_run_good("--help");
  help = strdup(result.out);
  command_run_good("help");
  cr_expect_str_eq(result.out, help);
  free(help);
  command_run_good("report --help");
  help = strdup(result.out);
  command_run_good("help report");
  cr_expect_str_eq(result.out, help);
  free(help);
  expect_hint("help reprot", "unknown command 'reprot' (did you mean 'report'?)");
}

/* A line of the help that begins with the key. */
static bool explains(const char *key) {
  char line[40];
  snprintf(line, sizeof line, "\n%s ", key);
  if (strstr(result.out, line)) return true;
  snprintf(line, sizeof line, "\n  %s ", key);
  return strstr(result.out, line);
}

/* Every key that a configuration may have: those that the message of an unknown one lists. */
static void expect_keys(const char *yaml) {
  command_write_text("x.yaml", yaml);
  command_run("run x.yaml -o x.h5", &result);
  const char *at = strstr(result.err, "known: ");
  cr_assert_not_null(at, "%s", result.err);
  char *known = strdup(at + strlen("known: "));
  known[strcspn(known, "\n")] = '\0';
  command_run_good("help config");
  int count = 0;
  for (char *key = strtok(known, ", "); key; key = strtok(NULL, ", "), count++)
    cr_expect(explains(key), "%s is missing from\n%s", key, result.out);
  cr_expect_geq(count, 2);
  free(known);
}

Test(cli_help, config_explains_every_key) {
  expect_keys("schema: 1\nnosuch: 1\n");
  expect_keys("schema: 1\ngrid: {nosuch: 1}\n");
  expect_keys("schema: 1\ntiming: {nosuch: 1}\ngrid: {n: 1}\n");
  expect_keys("schema: 1\nbudget: {nosuch: 1}\ngrid: {n: 1}\n");
  expect_keys("schema: 1\neval: {nosuch: 1}\nvariants: [full]\n");
  for (const char *line = result.out; line; line = strchr(line, '\n')) {
    line += *line == '\n';
    cr_expect(strcspn(line, "\n") <= 110, "%.130s", line);
  }
}

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

Test(cli_help, a_plugin_beside_the_user_needs_no_path) {
  cr_assert_eq(symlink(TEST_BINARY_DIR "/tests/plugins/template.so", "mine.so"), 0);
  command_run_good("describe template --plugin mine.so");
  command_run("describe template --plugin nosuch.so", &result);
  cr_expect_eq(result.exit_code, 2);
}

/* yes and true, 1k and 1Ki and 1024 are the same, in configurations and in specs. */
Test(cli_help, values_as_users_write_them) {
  command_write_text("x.yaml", "schema: 1\ngrid: {n: 1k, causal: [true, false]}\nnulls: false\n"
                               "variants: [performer: {orthogonal: [true, false]}]\ndatasets: [gaussian]\n");
  command_run_good("run x.yaml -o x.h5 --dry-run");
  cr_expect(strstr(result.err, "4 runs"), "%s", result.err);
  char *first = strdup(result.out);
  command_write_text("x.yaml", "schema: 1\ngrid: {n: 1Ki, causal: [yes, no]}\nnulls: no\n"
                               "variants: [performer: {orthogonal: [yes, no]}]\ndatasets: [gaussian]\n");
  command_run_good("run x.yaml -o x.h5 --dry-run");
  cr_expect_str_eq(result.out, first);
  free(first);
  command_run_good("describe performer:features=1k,orthogonal=false");
  cr_expect(strstr(result.out, "1024 vectors, independent"), "%s", result.out);
  expect_hint("describe performer:features=1x", "expected an integer, such as 16384, 16k or 16Ki");
}
