/* sample.c - attnlab test: keys that are drawn and weighed keep their law, or what is wrong with them is said
 * (plugins/planted_sample.c). */
#include "tests/support/command.h"

TestSuite(cli_sample, .init = command_enter, .fini = command_leave, .timeout = 300);

#define PLANTED " --problems fixed --plugin " TEST_BINARY_DIR "/tests/plugins/planted_sample.so"

static void expect(const char *arguments, int code, const char *told) {
  command_run(arguments, &result);
  cr_expect_eq(result.exit_code, code, "%s: exit %d\n%s%s", arguments, result.exit_code, result.out,
               result.err);
  cr_expect(strstr(result.out, told), "%s: '%s' is missing from\n%s", arguments, told, result.out);
}

Test(cli_sample, sound_samples_pass) {
  expect("test planted_sample" PLANTED, 0, ": 0 of ");
  expect("test planted_sample:replacement=yes,sample=12" PLANTED, 0, ": 0 of ");
}

Test(cli_sample, planted_faults_are_named) {
  expect("test planted_sample:fault=dropped" PLANTED, 1, "leaves out the others of");
  expect("test planted_sample:fault=neighbours" PLANTED, 1, "LAW-1         FAILED");
  expect("test planted_sample:fault=double" PLANTED, 1, "which it takes in any case");
}
