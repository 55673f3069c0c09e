/* check.c - `attnlab check' on a sweep with a wrong variant: the explanation, its JSON, the run alone
 * again. */
#include <jansson.h>
#include <sys/wait.h>

#include "tests/support/command.h"

static const char config[] =
    "schema: 1\n"
    "grid: {n: [24, 32], heads: 2, d: 16, data_seed: 3}\n"
    "variants: [fault: {mode: [none, wrong, fail]}, bigbird: {block: 8}]\n"
    "datasets: [gaussian: {std_q: 2}]\n"
    "timing: {min_time: 0.0005, max_time: 0.002, warmup: 0.0002, sample_time: 1e-4}\n";

static void enter(void) {
  command_enter();
  command_write_text("small.yaml", config);
  setenv("ATTN_PLUGIN_PATH", TEST_BINARY_DIR "/tests/fault.so", 1);
}

TestSuite(cli_check, .init = enter, .fini = command_leave, .timeout = 300);

static json_t *check_json(const char *arguments) {
  command_run(arguments, &result);
  cr_assert_eq(result.exit_code, 1, "attnlab %s: exit %d\n%s", arguments, result.exit_code, result.err);
  json_t *json = json_loads(result.out, 0, NULL);
  cr_assert_not_null(json, "%s", result.out);
  return json;
}

static const char *text_of(const json_t *object, const char *name) {
  const char *text = json_string_value(json_object_get(object, name));
  cr_assert_not_null(text, "%s", name);
  return text;
}

Test(cli_check, a_violation_is_explained_and_runs_again_alone) {
  command_run("run small.yaml -o out.h5", &result);
  cr_assert_eq(result.exit_code, 1, "%s", result.err);

  command_run("check out.h5", &result);
  cr_expect_eq(result.exit_code, 1);
  static const char *const told[] = {
      "VIOLATED FP-1: measured ",
      "variant=fault:mode=wrong\n  The bound: every component differs from exact fp64",
      "It is proven",
      "attnlab describe FP-1",
      "This run alone: printf '%s\\n' '{schema: 1, ",
      ", n: 24, data_seed: 3}, variants: [\"fault:mode=wrong\"]}' >one.yaml && ATTN_ISA=",
      "14 runs: 12 ok, 2 failed"};
  for (size_t i = 0; i < sizeof told / sizeof *told; i++)
    cr_expect(strstr(result.out, told[i]), "'%s' is missing from\n%s", told[i], result.out);

  json_t *json = check_json("check --json out.h5"), *list = json_object_get(json, "violations");
  cr_expect_eq(json_integer_value(json_object_get(json, "runs")), 14);
  cr_expect_eq(json_array_size(json_object_get(json, "failures")), 2);
  cr_expect_eq(json_array_size(json_object_get(json, "errors")), 0);
  size_t explained = 0;
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *one = json_array_get(list, i);
    if (strcmp(text_of(one, "check"), "FP-1") != 0) continue;
    explained++;
    cr_expect_str_eq(text_of(one, "kind"), "hard");
    cr_expect_str_eq(text_of(one, "verdict"), "violated");
    cr_expect(strstr(text_of(one, "key"), "data_seed=3") && *text_of(one, "statement"));
    cr_expect(json_number_value(json_object_get(one, "measured")) >
              json_number_value(json_object_get(one, "value")));

    char command[2000];
    snprintf(command, sizeof command,
             "rm -f one.*; export PATH=" TEST_BINARY_DIR "/experiments:$PATH; %s 2>/dev/null",
             text_of(one, "rerun"));
    const int status = system(command);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 1, "%s", command);
    json_t *alone = check_json("check --json one.h5");
    const json_t *again = json_array_get(json_object_get(alone, "violations"), 0);
    cr_expect_eq(json_integer_value(json_object_get(alone, "runs")), 1);
    cr_expect_str_eq(text_of(again, "key"), text_of(one, "key"));
    cr_expect_eq(json_number_value(json_object_get(again, "measured")),
                 json_number_value(json_object_get(one, "measured")));
    json_decref(alone);
  }
  cr_expect_eq(explained, 2);
  json_decref(json);
}
