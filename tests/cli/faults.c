/* faults.c - attnlab test: what shows only in a log-sum-exp, under strides, at the edge of memory, far down a
 * long sequence, on particular inputs, under one instruction set (plugins/planted.c), or of tensors that are
 * stored in 16 bits (plugins/planted_shape.c). */
#include "tests/support/command.h"

#include "attn.h"

TestSuite(cli_faults, .init = command_enter, .fini = command_leave, .timeout = 300);

/* Words that the test of a fault must say. */
static void expect_said(const char *fault, const char *const *words) {
  char command[300];
  snprintf(command, sizeof command,
           "test planted:fault=%s --problems fixed --plugin %s/tests/plugins/planted.so", fault,
           TEST_BINARY_DIR);
  command_run(command, &result);
  cr_expect_eq(result.exit_code, 1, "%s: exit %d\n%s%s", fault, result.exit_code, result.out, result.err);
  for (; *words; words++)
    cr_expect(strstr(result.out, *words), "%s: '%s' is missing from\n%s", fault, *words, result.out);
}
#define SAID(fault, ...) expect_said(fault, (const char *const[]){__VA_ARGS__, NULL})

Test(cli_faults, wrong_log_sum_exp) {
  SAID("lse_off", "PROP-LSE      FAILED", "off by 0.69314", ": 1 of ");
  SAID("lse_head", "PROP-LSE      FAILED", "that is the sum of head 3", ": 1 of ");
  SAID("lse_base", "PROP-LSE      FAILED", "that is the logarithm to base 2", ": 1 of ");
  SAID("lse_nothing", "PROP-LSE      FAILED", "lse is 0, expected -inf: the query sees no key", ": 1 of ");
}

Test(cli_faults, strides_that_are_ignored) {
  SAID("strides", "PROP-STRIDES  FAILED", "[batch, n, heads, d]: batch", "instead of i * stride.row",
       ": 1 of ");
}

Test(cli_faults, reads_beyond_the_tensors) {
  SAID("beyond", "PROP-BOUNDS   FAILED", "K 0 bytes behind the end of its last row that exists");
  SAID("padding", "PROP-BOUNDS   FAILED", "K 0 bytes behind the end of its last row that exists", ": 1 of ");
}

Test(cli_faults, far_down_a_long_sequence) {
  SAID("late", "PROP-LONG     FAILED", "2309 queries, 2309 keys", ": 1 of ");
}

Test(cli_faults, queries_that_see_nothing) {
  SAID("empty", "PROP-EMPTY    FAILED", "it sees no key: batch 0", "0/0", ": 2 of ");
}

Test(cli_faults, outputs_that_are_clipped) { SAID("values", "PROP-VALUES   FAILED", "outputs are clipped"); }

Test(cli_faults, state_that_calls_share) {
  SAID("shared", "PROP-REENTRANT FAILED", "beside another call of the same plan", ": 1 of ");
}

Test(cli_faults, particular_inputs) {
  SAID("needle", "FP-1          FAILED", "one key of a large score");
  SAID("flat", "FP-1          FAILED", "keys all alike");
  SAID("large", "FP-1          FAILED", "large norms");
}

/* Keys read as another type, and outputs cut off, where tensors are stored in 16 bits. */
Test(cli_faults, stored_in_sixteen_bits) {
  static const char *const faults[] = {"half_keys", "half_cut"};
  char command[300];
  for (int f = 0; f < 2; f++) {
    snprintf(command, sizeof command,
             "test planted_shape:fault=%s --problems fixed --plugin %s/tests/plugins/planted_shape.so",
             faults[f], TEST_BINARY_DIR);
    command_run(command, &result);
    cr_expect_eq(result.exit_code, 1, "%s%s", result.out, result.err);
    cr_expect(strstr(result.out, "PROP-HALF     FAILED"), "%s", result.out);
  }
}

/* Skipped where the machine has one set alone: nothing can differ there. */
Test(cli_faults, one_instruction_set) {
  const char *const *isas = attn_isa_list();
  if (!isas[1]) cr_skip_test("one instruction set");
  SAID("isa", "PROP-LEN      FAILED", "d_v = 32, scalar)");
}
