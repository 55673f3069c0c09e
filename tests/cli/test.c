/* test.c - attnlab test: sound variants pass, and each of six planted faults is named (plugins/planted.c).
 * Faults of particular shapes are in drawn.c, wrong arguments in cases/errors_commands.txt. */
#include "tests/support/command.h"

TestSuite(cli_test, .init = command_enter, .fini = command_leave, .timeout = 300);

#define PLANTED " --problems fixed --plugin " TEST_BINARY_DIR "/tests/plugins/planted.so"

static void expect(const char *arguments, int code, const char *told) {
  command_run(arguments, &result);
  cr_expect_eq(result.exit_code, code, "%s: exit %d\n%s%s", arguments, result.exit_code, result.out,
               result.err);
  cr_expect(strstr(result.out, told), "%s: '%s' is missing from\n%s", arguments, told, result.out);
}

Test(cli_test, sound_variants_pass) {
  expect("test full --problems fixed", 0, ": 0 of ");
  cr_expect(strstr(result.out, "PROP-HALF     pass"), "%s", result.out);
  expect("test tiled --time 2", 0, "drawn         pass");
  expect("test tiled:skip=0.3,block_q=2,block_k=4 --time 1", 0, ": 0 of ");
}

Test(cli_test, sound_approximations_pass) {
  expect("test longformer:window=16 --problems fixed", 0, ": 0 of ");
  expect("test bigbird:block=16 --problems fixed", 0, ": 0 of ");
  expect("test linformer:k=32 --problems fixed", 0, ": 0 of ");
  expect("test performer:features=16 --time 1", 0, ": 0 of ");
  expect("test template --problems fixed --plugin " TEST_BINARY_DIR "/tests/plugins/template.so", 0,
         "PROP-LEN      pass");
  expect("test planted" PLANTED, 0, "PROP-CAUSAL   pass");
}

Test(cli_test, planted_faults_are_named) {
  expect("test planted:fault=unnormalised" PLANTED, 1, "PROP-LEN      FAILED");
  cr_expect(strstr(result.out, "a sum is not normalised"), "%s", result.out);
  expect("test planted:fault=future" PLANTED, 1, "PROP-CAUSAL   FAILED");
  cr_expect(strstr(result.out, "rows depend on later keys"), "%s", result.out);
  expect("test planted:fault=unwritten" PLANTED, 1, "left o unwritten");
  cr_expect(strstr(result.out, "column 31"), "%s", result.out);
  expect("test planted:fault=overlapping" PLANTED, 1, "run           FAILED");
  expect("test planted:fault=off_by_one" PLANTED, 1, "keys contradict the law");
  cr_expect(strstr(result.out, "Probably the first cause: SP-0;"), "%s", result.out);
  cr_expect(strstr(result.out, "SP-0          FAILED") < strstr(result.out, "FP-1          FAILED"), "%s",
            result.out);
  expect("test planted:fault=stale" PLANTED, 1, "PROP-REPEAT   FAILED");
  cr_expect(strstr(result.out, "stale, not of the present Q, K, V"), "%s", result.out);
}

Test(cli_test, break_downs_are_findings) {
  static const char *const faults[][2] = {{"crash", "crashed: Segmentation fault"},
                                          {"division", "crashed: Floating point"},
                                          {"abort", "crashed: Aborted"},
                                          {"exit", "left the program with exit code 0"},
                                          {"loop", "did not come to an end within"},
                                          {"fork", "started a process (fork)"}};
  char command[200];
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    snprintf(command, sizeof command, "test planted:fault=%s --limit 3" PLANTED, faults[i][0]);
    expect(command, 1, faults[i][1]);
    cr_expect(strstr(result.out, "f32, causal, ordinary scores"), "%s: not the case\n%s", command,
              result.out);
  }
}

/* What shows neither in two batch entries nor in four heads. */
Test(cli_test, crowded_problems_are_judged) {
  expect("test planted:fault=third" PLANTED, 1, "PROP-LEN      FAILED");
  cr_expect(strstr(result.out, "3 heads on 3: batch 3"), "%s", result.out);
}

/* What says nothing of itself is never said to be right. */
Test(cli_test, what_describes_nothing_is_unchecked) {
  expect("test planted:fault=silent" PLANTED, 0, "UNCHECKED");
  expect("test planted:fault=zero" PLANTED, 1, "PROP-REPEAT   FAILED");
}

/* The options of apply: bounds are judged on that score and mask. */
Test(cli_test, scores_and_masks) {
  expect("test tiled --problems fixed --softcap 5 --alibi --sink 0 --mask prefix:40", 0,
         "score softcap=5,alibi,sink=0; mask prefix:40");
  cr_expect(strstr(result.out, "FP-2          pass"), "%s", result.out);
  command_run_good("pattern bigbird:block=16 --n 389 -o m.npy");
  expect("test tiled --problems fixed --mask m.npy", 0, "FP-2          pass");
}
