/* expression.c - expressions wherever a variant is named: what they print, and what is wrong with them in one line. */
#define _GNU_SOURCE /* memmem */
#include "tests/support/command.h"

TestSuite(cli_expression, .init = command_enter, .fini = command_leave);

Test(cli_expression, are_explained) {
  command_run_good("describe streaming:sink=4,window=64+lsh:rounds=2");
  const char *const words[] = {"\nterms:\n",
                               "streaming:window=64  takes the keys of its pattern",
                               "takes those that remain",
                               "laws (512 positions, d = 64, causal)",
                               "by 2 hashes of 64 buckets; some in any case",
                               "gives the log-sum-exp"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    cr_expect(strstr(result.out, words[i]), "'%s' is missing in\n%s", words[i], result.out);
  command_run_good("describe --checks streaming:sink=4,window=64+lsh:rounds=2");
  cr_expect(strstr(result.out, "SEL-0") && strstr(result.out, "LSH-1"), "%s", result.out);
  command_run_good("describe --json 0.5*dyadic(tiled)+0.5*(tiled+topk)");
  cr_expect(strstr(result.out, "\"terms\"") && strstr(result.out, "attends from each later half"), "%s",
            result.out);
  cr_expect(strstr(result.out, "takes every key") && strstr(result.out, "times 0.5"), "%s", result.out);
}

static void expect_line(const char *arguments, const char *place, const char *reason) {
  command_run(arguments, &result);
  cr_expect(result.exit_code != 0, "%s", arguments);
  cr_expect_eq(command_diagnostics(&result), 1, "%s", result.err);
  cr_expect(strstr(result.err, place) && strstr(result.err, reason), "%s", result.err);
}

Test(cli_expression, what_is_wrong_is_one_line_with_its_place) {
  static const char *const commands[] = {"describe %s", "test %s",
                                         "apply %s --q q.npy --k q.npy --v q.npy -o o.npy",
                                         "matrix %s --q q.npy --k q.npy -o o.npy"};
  static const struct {
    const char *spec, *place, *reason;
  } wrong[] = {{"tiled+0.5*topk", "at 7 (\"0.5*topk\")", "do not mix"},
               {"tiled+lhs", "at 7 (\"lhs\")", "did you mean 'lsh'?"},
               {"tiled+(topk", "at 7 (\"(topk\")", "not closed"},
               {"tiled+", "at 7 (the end)", "missing"},
               {"streaming+linformer:k=8", "at 11 (\"linformer:k=...\")", "cannot restrict itself"},
               {"dyadic(linformer)", "at 8 (\"linformer:", "log-sum-exps"}};
  for (size_t c = 0; c < sizeof commands / sizeof *commands; c++)
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
      char arguments[200];
      snprintf(arguments, sizeof arguments, commands[c], wrong[i].spec);
      expect_line(arguments, wrong[i].place, wrong[i].reason);
    }
}

Test(cli_expression, in_a_sweep) {
  static const char label[] = "streaming:window=16 + lsh:rounds=2";
  command_write_text(
      "x.yaml", "schema: 1\n"
                "grid: {n: 64, d: 8, heads: 1, causal: yes, seed: 0:1}\n"
                "variants: [tiled, \"streaming:sink=4,window=16+lsh:rounds=2\", 0.5*tiled + 0.5*streaming,\n"
                "  1e300*tiled, \"dyadic(sample:count=4,base=8)\"]\n"
                "datasets: [gaussian]\n"
                "timing: {min_time: 0.001, max_time: 0.002, warmup: 0.0002}\n");
  command_run_good("run x.yaml -o x.h5");
  command_run_good("report x.h5 -o x.html");
  size_t size;
  char *page = fixture_bytes("x.html", &size);
  cr_expect(memmem(page, size, label, strlen(label)), "no label in the page");
  free(page);
  command_write_text("y.yaml",
                     "schema: 1\ngrid: {n: 64, d: 8}\nvariants: [tiled + lhs]\ndatasets: [gaussian]\n");
  expect_line("run y.yaml -o y.h5", "y.yaml:3",
              "at 9 (\"lhs\"): unknown variant 'lhs' (did you mean 'lsh'?)");
  command_write_text("y.yaml",
                     "schema: 1\ngrid: {n: 64, d: 8}\nvariants:\n  - streaming: {sink: [\"4 + topk\"]}\n"
                     "datasets: [gaussian]\n");
  expect_line("run y.yaml -o y.h5", "y.yaml:4", "'4 + topk' would begin another term");
  command_write_text("y.yaml",
                     "schema: 1\ngrid: {n: 64, d: 8}\nvariants:\n  - streaming + sample: {count: [4, 8]}\n"
                     "datasets: [gaussian]\n");
  expect_line("run y.yaml -o y.h5", "y.yaml:4", "inside it, NAME=[A,B] for several values");
  command_write_text("y.yaml", "schema: 1\ngrid: {n: 64, d: 8, causal: yes}\nvariants:\n"
                               "  - streaming:window=[16, 32] + sample:count=[4,8,16]\n"
                               "datasets: [gaussian]\n");
  command_run_good("run y.yaml -o y.h5 --dry-run");
  cr_expect(strstr(result.err, "9 runs") && strstr(result.out, "streaming:window=32 + sample:count=8 "),
            "%s%s", result.out, result.err);
  command_write_text("y.yaml", "schema: 1\ngrid: {n: 64, d: 8}\nvariants:\n"
                               "  - streaming + sample:count=[4,x]\ndatasets: [gaussian]\n");
  expect_line("run y.yaml -o y.h5", "y.yaml:4", "count=x");
}
