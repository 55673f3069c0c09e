/* check.c - `attnlab check' on a sweep with a wrong variant: the explanation, its JSON, the run alone
 * again. */
#include <sys/wait.h>

#include "tests/support/command_json.h"

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
  return answer();
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
    if (strcmp(json_text(one, "check"), "FP-1") != 0) continue;
    explained++;
    cr_expect_str_eq(json_text(one, "kind"), "hard");
    cr_expect_str_eq(json_text(one, "verdict"), "violated");
    cr_expect(strstr(json_text(one, "key"), "data_seed=3") && *json_text(one, "statement"));
    cr_expect(number(one, "measured") > number(one, "value"));

    const char *command =
        text_of("rm -f one.*; export PATH=" TEST_BINARY_DIR "/experiments:$PATH; %s 2>/dev/null",
                json_text(one, "rerun"));
    const int status = system(command);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 1, "%s", command);
    json_t *alone = check_json("check --json one.h5");
    const json_t *again = json_array_get(json_object_get(alone, "violations"), 0);
    cr_expect_eq(json_integer_value(json_object_get(alone, "runs")), 1);
    cr_expect_str_eq(json_text(again, "key"), json_text(one, "key"));
    cr_expect_eq(number(again, "measured"), number(one, "measured"));
  }
  cr_expect_eq(explained, 2);
}
