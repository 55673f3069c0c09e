/* select.c - attnlab test: selections of keys are sound, or what is wrong with them is said (plugins/planted_select.c). */
#include "tests/support/command.h"

TestSuite(cli_select, .init = command_enter, .fini = command_leave, .timeout = 300);

#define PLANTED " --problems fixed --plugin " TEST_BINARY_DIR "/tests/plugins/planted_select.so"

static void expect(const char *arguments, int code, const char *told, const char *also) {
  command_run(arguments, &result);
  cr_expect_eq(result.exit_code, code, "%s: exit %d\n%s%s", arguments, result.exit_code, result.out,
               result.err);
  cr_expect(strstr(result.out, told) && strstr(result.out, also), "%s: '%s' or '%s' is missing from\n%s",
            arguments, told, also, result.out);
}

Test(cli_select, sound_selections_pass) {
  expect("test topk:k=5,window=4 --problems fixed", 0, "SEL-0         pass\nSEL-1         pass", ": 0 of ");
  expect("test pages:page=8,budget=40 --problems fixed", 0, "SEL-2         pass\nSEL-3         pass",
         "SEL-6         pass");
  expect("test pages:page=8,budget=40,score=mean,share=tile,first=1 --problems fixed", 0,
         "SEL-2         pass", ": 0 of ");
}

Test(cli_select, other_sound_selections_pass) {
  expect("test lsh --problems fixed", 0, "LSH-1         pass", ": 0 of ");
  expect("test planted_select" PLANTED, 0, "SEL-6         pass", ": 0 of ");
}

Test(cli_select, planted_faults_are_named) {
  expect("test planted_select:fault=magnitude" PLANTED, 1, "SEL-1         FAILED", "and leaves key");
  expect("test planted_select:fault=half" PLANTED, 1, "SEL-1         FAILED", "and leaves key");
  expect("test planted_select:fault=last" PLANTED, 1, "SEL-1         FAILED", "the last keys are not ranked");
  expect("test planted_select:fault=later" PLANTED, 1, "SEL-1         FAILED", "the lower comes first");
}

Test(cli_select, planted_breaches_are_named) {
  expect("test planted_select:fault=more" PLANTED, 1, "run           FAILED", "has more than max_keys keys");
  expect("test planted_select:fault=future" PLANTED, 1, "SEL-0         FAILED", "is in its future");
  expect("test planted_select:fault=padding" PLANTED, 1, "SEL-0         FAILED", "which is padding");
  expect("test planted_select:fault=unnested" PLANTED, 1, "SEL-6         FAILED",
         "does not with twice the budget");
}

static void refuse(const char *arguments, const char *where) {
  command_run(arguments, &result);
  const char *end = strchr(result.err, '\n');
  cr_expect(result.exit_code == 2 && end && !end[1] && strstr(result.err, where), "%s: exit %d\n%s",
            arguments, result.exit_code, result.err);
}

Test(cli_select, bad_parameters_are_refused_in_a_line) {
  refuse("test pages:page=0", "page");
  refuse("test pages:budget=64,score=best", "best");
  refuse("test topk:p=1.5", "p");
  refuse("test topk:k=0", "k");
}
