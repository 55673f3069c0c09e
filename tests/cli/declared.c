/* declared.c - attnlab test, and a sweep: what a variant declares of itself is held
 * (plugins/planted_declared.c). */
#include "tests/support/command.h"

TestSuite(cli_declared, .init = command_enter, .fini = command_leave, .timeout = 300);

static void run_problems(const char *fault, const char *problems, int exit_code) {
  char command[300];
  snprintf(command, sizeof command,
           "test planted_declared:fault=%s --problems %s --plugin %s/tests/plugins/planted_declared.so",
           fault, problems, TEST_BINARY_DIR);
  command_run(command, &result);
  cr_expect_eq(result.exit_code, exit_code, "%s: exit %d\n%s%s", fault, result.exit_code, result.out,
               result.err);
}

static void run_fault(const char *fault, int exit_code) { run_problems(fault, "fixed", exit_code); }

static void expect_said(const char *fault, int exit_code, const char *const *words) {
  run_fault(fault, exit_code);
  for (; *words; words++)
    cr_expect(strstr(result.out, *words), "%s: '%s' is missing from\n%s", fault, *words, result.out);
}
#define SAID(fault, exit_code, ...) expect_said(fault, exit_code, (const char *const[]){__VA_ARGS__, NULL})

Test(cli_declared, what_is_kept) {
  run_fault("none", 0);
  cr_expect(strstr(result.out, ": 0 of ") && !strstr(result.out, "UNCHECKED") &&
                !strstr(result.out, "declares more rounding") && !strstr(result.out, "vacuous"),
            "%s", result.out);
}

Test(cli_declared, an_error_that_is_called_rounding) {
  SAID("rounding", 1, "run           FAILED", "rounding.weight = 0.0299999",
       "a larger error is not rounding");
}

Test(cli_declared, as_much_rounding_as_may_be) {
  SAID("generous", 0,
       "FP-0          uncertifiable (declares more rounding than the textbook's f32: operand = 0.00391 (0)",
       "FP-4          uncertifiable (vacuous: ");
}

Test(cli_declared, a_pattern_without_a_law) {
  SAID("lawless", 0, "SP-0          unchecked (states no law (attn_pattern.sees)",
       "lawless is UNCHECKED: SP-0: it states no law");
}

/* Its runs are unchecked, which the summary says with the reason. */
Test(cli_declared, a_pattern_without_a_law_in_a_sweep) {
  FILE *config = fopen("lawless.yaml", "w");
  cr_assert_not_null(config);
  fputs("schema: 1\n"
        "grid: {n: 96, heads: 2}\n"
        "variants: [planted_declared: {fault: [none, lawless]}]\n"
        "datasets: [gaussian]\n"
        "timing: {min_time: 0.001, max_time: 0.002}\n",
        config);
  fclose(config);
  command_run("run lawless.yaml -o lawless.h5 --plugin " TEST_BINARY_DIR "/tests/plugins/planted_declared.so",
              &result);
  cr_expect_eq(result.exit_code, 0, "%s%s", result.out, result.err);
  command_run("check lawless.h5", &result);
  cr_expect(strstr(result.out, "WARNING planted_declared: unchecked: SP-0: it states no law") &&
                strstr(result.out, "1 unchecked"),
            "%s", result.out);
}

Test(cli_declared, costs) {
  SAID("cheap", 1, "PROP-COST     FAILED", "and it takes at least", ": 1 of ");
  SAID("dear", 1, "PROP-COST     FAILED", "and the keys that are seen take", ": 1 of ");
}

Test(cli_declared, capabilities_where_they_break) {
  SAID("relu", 1, "PROP-EXTREME  FAILED", "queries of 1, keys of -1, convex weights: batch 0",
       "0/0: features", ": 1 of ");
}

/* Of the problems that are drawn. */
Test(cli_declared, exact_attention_that_describes_a_pattern) {
  run_problems("exact", "drawn", 1);
  cr_expect(strstr(result.out, "drawn         FAILED"), "%s", result.out);
}

Test(cli_declared, rounding_of_one_width) {
  run_problems("loose", "drawn", 0);
  cr_expect(strstr(result.out, "with more rounding declared than the textbook form has, in ") &&
                strstr(result.out, "drawn problems the rounding that it declares may be more than 1 %"),
            "%s", result.out);
}

Test(cli_declared, outputs_beside_a_log_sum_exp) {
  SAID("lse", 1, "PROP-LSE      FAILED", "without the log-sum-exp: batch 1", "if lse is not NULL", ": 1 of ");
}
