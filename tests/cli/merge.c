/* merge.c - attnlab merge as a user runs it: journals that are torn, and those that disagree. */
#include "tests/support/command.h"
#include "tests/support/results_fixture.h"

TestSuite(cli_merge, .init = command_enter, .fini = command_leave, .timeout = 60);

static void tear(const char *path) {
  FILE *file = fopen(path, "ab");
  cr_assert(file && fputs("{\"key\":\"torn", file) >= 0 && fclose(file) == 0);
}

Test(cli_merge, torn_lines_are_counted_aloud) {
  cr_assert_eq(fixture_journal("a.jsonl", 0, 2, 4, 1e9), ATTN_OK);
  cr_assert_eq(fixture_journal("b.jsonl", 1, 2, 4, 2e9), ATTN_OK);
  command_run_good("merge -o all.h5 a.jsonl b.jsonl");
  cr_expect_str_eq(result.err, "");
  tear("a.jsonl");
  command_run_good("merge -o all.h5 a.jsonl b.jsonl");
  cr_expect(strstr(result.err, ": 1 torn line left out\n"), "%s", result.err);
  tear("b.jsonl");
  command_run_good("merge -o all.h5 a.jsonl b.jsonl");
  cr_expect(strstr(result.err, ": 2 torn lines left out\n"), "%s", result.err);
  result_set set;
  cr_assert_eq(results_read("all.h5", &set), ATTN_OK, "%s", attn_last_error());
  cr_expect_eq(set.count, 8);
  result_set_free(&set);
}

Test(cli_merge, a_sweep_that_resumes_counts_them_too) {
  command_write_text("x.yaml",
                     "schema: 1\ngrid: {n: 8, heads: 1, d: 4}\nvariants: [full]\ndatasets: gaussian\n"
                     "threads: 1\nnulls: no\ntiming: {min_time: 0, max_time: 0, warmup: 0}\n");
  command_run_good("run x.yaml -o x.h5");
  cr_expect_null(strstr(result.err, "torn"), "%s", result.err);
  tear("x.jsonl");
  command_run_good("run x.yaml -o x.h5");
  cr_expect(strstr(result.err, "1 torn line left out of x.jsonl\n"), "%s", result.err);
  command_run_good("run x.yaml -o x.h5");
  cr_expect_null(strstr(result.err, "torn"), "%s", result.err);
}
