/* sweep.c - whole sweeps through the program: results, resuming, shards, signals. */
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/command_json.h"
#include "tests/support/sweep_fixture.h"

#define SMALL                                                                                     \
  "schema: 1\ngrid: {n: [32, 48], heads: 2, d: 16, causal: [no, yes]}\nvariants: [full, tiled]\n" \
  "datasets: gaussian\n" TIMING

TestSuite(sweep, .init = command_enter, .fini = command_leave, .timeout = 120);

Test(sweep, end_to_end) {
  const result_set *set = sweep("--no-hostname", 0, SMALL);
  cr_expect_str_empty(result.out);
  cr_expect_eq(fixture_entries(), 3); /* x.yaml x.h5 x.jsonl */
  cr_expect_eq(set->count, 4 * (2 + 3));
  for (size_t i = 0; i < set->count; i++) expect_measured(&set->rows[i]);
  /* Baselines have a scale of their own; with all keys within the budget, random keys are exact. */
  cr_expect_float_eq(find_row(set, "null_zeros")->err_rel_fro, 1, 1e-12);
  cr_expect(find_row(set, "null_mean_v")->err_rel_fro > 0.1);
  cr_expect(find_row(set, "null_random_keys")->err_rel_fro < 1e-6);
  const json_t *session = json_array_get(set->sessions, 0);
  cr_expect_str_eq(json_string_value(json_object_get(session, "config_text")), SMALL);
  cr_expect_str_empty(json_string_value(json_object_get(session, "hostname")));
}

Test(sweep, times_what_selections_take) {
  const result_set *set =
      sweep("-q", 0,
            "schema: 1\ngrid: {n: 256, heads: 4, kv_heads: 2, d: 16, causal: yes}\n"
            "variants: [{topk: {k: 8}}, {topk: {k: 8, share: group}}, {topk: {k: 4Ki}}, {lsh: {buckets: 8}}, "
            "{pages: {page: 8, budget: 16, share: tile}}, {longformer: {window: 8}}, {tiled: {skip: 0.1}}]\n"
            "datasets: gaussian\n" TIMING);
  static const char *const selecting[] = {"topk:k=8,p=0,by=exact,r=16,sink=0,window=0,share=row",
                                          "share=group", "lsh", "pages"};
  for (size_t i = 0; i < sizeof selecting / sizeof *selecting; i++) {
    const double share = find_row(set, selecting[i])->select_share;
    cr_expect(share > 0 && share < 1, "%s: %g", selecting[i], share);
  }
  cr_expect_eq(find_row(set, "topk:k=4096")->select_share, 0, "all keys are taken");
  cr_expect(isnan(find_row(set, "longformer")->select_share) && isnan(find_row(set, "tiled")->select_share));
}

Test(sweep, a_second_time_there_is_nothing_to_do) {
  sweep("-q", 0, SMALL);
  cr_expect_str_empty(result.err);
  const long bytes = size_of("x.jsonl");
  cr_assert_eq(run("run x.yaml -o x.h5 -q"), 0);
  cr_expect_eq(size_of("x.jsonl"), bytes);
  /* A longer grid keeps what is there. */
  const result_set *set = sweep_again("-q --set grid.n=32,48,64 --set grid.causal=no", 0);
  cr_expect_eq(set->count, 5 * 5);
  cr_expect_eq(find_row(set, " n=64 ")->session, 1);
  cr_expect_eq(find_row(set, " n=32 ")->session, 0);
  /* Without its journal a file is not replaced. */
  remove("x.jsonl");
  cr_expect_eq(run("run x.yaml -o x.h5 -q"), 2);
  expect_says(result.err, "x.jsonl is not there");
  command_write_text("y.yaml", SMALL "exclude: [{causal: no}, {causal: yes}]\n");
  cr_expect_eq(run("run y.yaml -o y.h5 -q"), 2);
}

Test(sweep, only_and_dry_run) {
  command_write_text("x.yaml", SMALL);
  cr_assert_eq(run("run x.yaml -o x.h5 --dry-run --only n=48*causal=yes*variant=tiled"), 0);
  cr_expect_eq(fixture_entries(), 1);
  cr_expect(strstr(result.out, ": n = 48, d = ") && strstr(result.out, "\ntiled ") &&
                !strstr(result.out, "\nfull "),
            "%s", result.out);
  cr_expect(!strstr(result.err, "about"), "%s", result.err);
  expect_says(result.err, "1 runs of unknown time");
  cr_expect(!strstr(result.out, "execution"), "one size does not predict another within a factor of two");
  for (const char *line = result.out; line; line = strchr(line, '\n')) {
    line += *line == '\n';
    cr_expect(strcspn(line, "\n") <= 100, "%.120s", line);
  }
  cr_assert_eq(run("run x.yaml -o x.h5 --json"), 2);
  cr_expect_eq(sweep_again("-q --only n=48*causal=yes*variant=tiled", 0)->count, 1);
  cr_expect_eq(run("run x.yaml -o x.h5 --only nothing"), 2);
}

/* A number of the first run of a dry run's document; NaN: null. */
static double printed(const char *name) {
  const json_t *first = json_array_get(json_object_get(answer(), "runs"), 0),
               *value = json_object_get(first, name);
  cr_assert_not_null(value, "%s: %s", name, result.out);
  return number(first, name);
}

Test(sweep, a_dry_run_estimates_by_a_calibration_that_is_kept) {
  command_write_text("x.yaml", SMALL);
  cr_assert_eq(run("run x.yaml -o x.h5 --dry-run --json --only n=48*causal=yes*variant=tiled"), 0);
  cr_expect(isnan(printed("time_s")) && printed("time_s") != 0, "%s", result.out);
  cr_assert_eq(setenv("ATTNLAB_CALIBRATION", "made/here.jsonl", 1), 0);
  cr_assert_eq(run("run x.yaml -o x.h5 --dry-run --json --only n=48*causal=yes*variant=tiled"), 0, "%s",
               result.err);
  const double execution = printed("time_s"), whole = printed("sweep_time_s");
  cr_expect(execution > 0 && whole > execution, "%s", result.out);
  const long kept = size_of("made/here.jsonl");
  cr_expect(kept > 0 && size_of("x.jsonl") < 0 && size_of("x.h5") < 0);
  /* Four times the work by the formula is four times the time. */
  cr_assert_eq(run("run x.yaml -o x.h5 --dry-run --json --set grid.n=96 --only causal=no*variant=tiled"), 0);
  const double shorter = printed("time_s"), work = printed("mul_add");
  cr_assert_eq(run("run x.yaml -o x.h5 --dry-run --json --set grid.n=192 --only causal=no*variant=tiled"), 0);
  cr_expect_float_eq(printed("time_s") / shorter, printed("mul_add") / work, 0.02);
  cr_expect_eq(size_of("made/here.jsonl"), kept);
  cr_assert_eq(run("run x.yaml -o x.h5 --dry-run --json --set budget.memory=1Ki"), 0);
  expect_says(result.out, "beyond budget.memory");
  cr_assert_eq(run("run x.yaml -o x.h5 --dry-run --set budget.memory=1Ki"), 0);
  expect_says(result.err, " runs: nothing will run\n");
  cr_expect_eq(size_of("x.jsonl"), -1);
}

static double estimated(const char *settings) {
  cr_assert_eq(run(text_of("run x.yaml -o x.h5 --dry-run --json %s", settings)), 0, "%s", result.err);
  return printed("sweep_time_s");
}

/* A cold run is timed for max_time; a verification is in proportion to heads, width and, of all rows, n^2. */
Test(sweep, a_dry_run_prices_verification_and_timing) {
  command_write_text("x.yaml", "schema: 1\ngrid: {n: 48, heads: 2, d: 16}\nvariants: tiled\ncache: cold\n"
                               "datasets: gaussian\ntiming: {max_time: 1, warmup: 1, min_time: 0.1}\n");
  cr_assert_eq(setenv("ATTNLAB_CALIBRATION", "kept.jsonl", 1), 0);
  const double part = estimated("") - 1;
  cr_expect_float_eq(estimated("--set grid.heads=6") - 1, 3 * part, 1e-9);
  cr_expect_float_eq(estimated("--set grid.d=32") - 1, 2 * part, 1e-9);
  cr_expect_float_eq(estimated("--set grid.n=96") - 1, 4 * part, 1e-9);
  cr_expect_float_eq(estimated("--set timing.max_time=3") - 3, part, 1e-9);
  cr_expect_float_eq(estimated("--set cache=warm --set timing.warmup=2"), estimated("--set cache=warm") + 1,
                     1e-9);
  cr_expect_float_eq(estimated("--set cache=warm --set timing.sample_time=0.8"),
                     estimated("--set cache=warm --set timing.sample_time=0.5") + 0.6, 1e-9); /* two rounds */
  cr_expect_eq(estimated("--set budget.time=1"), 1);
  /* Of many blocks, which take turns of threads; what is estimated of other threads does not matter. */
  const double alone = estimated("--set threads=1");
  cr_expect_eq(run("run x.yaml -o x.h5 --dry-run --set threads=1,3 --set grid.n=1:2049"), 0, "%s",
               result.err);
  cr_expect_eq(estimated("--set threads=1"), alone);
  cr_expect(part > 1e-6 && estimated("--only variant=null_zeros") < 1, "a baseline is not timed");
  cr_expect_eq(printed("time_s"), 0);
}

Test(sweep, a_dry_run_estimates_expressions) {
  command_write_text("x.yaml", "schema: 1\ngrid: {n: 48, d: 8, heads: 1, causal: yes}\ndatasets: gaussian\n"
                               "variants: ['dyadic(longformer:window=8,global=2,base=16)']\n");
  cr_assert_eq(setenv("ATTNLAB_CALIBRATION", "kept.jsonl", 1), 0);
  cr_assert_eq(run("run x.yaml -o x.h5 --dry-run --json"), 0, "%s", result.err);
  cr_expect(printed("time_s") > 0, "%s", result.out);
}

Test(sweep, rows_keep_what_a_dry_run_said) {
  result_set set = *sweep("-q --only n=48*causal=yes*variant=tiled", 0, SMALL);
  cr_expect(isnan(set.rows[0].est_time) && isnan(set.rows[0].est_run), "nothing was calibrated");
  const double memory = set.rows[0].est_memory;
  cr_expect(memory > set.rows[0].work_bytes && set.rows[0].run_time > 0 && set.rows[0].load >= 0);
  cr_assert_eq(setenv("ATTNLAB_CALIBRATION", "kept.jsonl", 1), 0);
  cr_assert_eq(run("run x.yaml -o y.h5 -q --only n=48*causal=yes*variant=tiled"), 0, "%s", result.err);
  cr_expect(size_of("kept.jsonl") < 0, "a sweep does not calibrate");
  cr_assert_eq(run("run x.yaml -o z.h5 --dry-run --json --only n=48*causal=yes*variant=tiled"), 0, "%s",
               result.err);
  const double execution = printed("time_s"), whole = printed("sweep_time_s");
  cr_assert_eq(run("run x.yaml -o z.h5 -q --only n=48*causal=yes*variant=tiled"), 0, "%s", result.err);
  set = read_results("z.h5");
  cr_assert_eq(set.count, 1);
  cr_expect_float_eq(set.rows[0].est_time, execution, 0.01 * execution);
  cr_expect_float_eq(set.rows[0].est_run, whole, 0.01 * whole);
  cr_expect_eq(set.rows[0].est_memory, memory);
  const json_t *session = json_array_get(set.sessions, 0);
  cr_expect(json_is_number(json_object_get(session, "load_start")));
  cr_expect_eq(json_number_value(json_object_get(session, "load_end")), set.rows[0].load);
  command_write_text("kept.jsonl", "no journal\n");
  cr_assert_eq(run("run x.yaml -o w.h5 --only n=48*causal=yes*variant=tiled"), 0, "%s", result.err);
  expect_says(result.err, "no estimates: kept.jsonl:1");
}

/* Starts a sweep that hangs in its last variant, and waits until the journal has a row. */
static pid_t start_hanging(void) {
  command_write_text(
      "x.yaml", "schema: 1\ngrid: {n: [32, 48], heads: 1, d: 16}\nvariants: [fault: {mode: [fail, hang]}]\n"
                "datasets: gaussian\nnulls: no\nbudget: {time: 100}\n" TIMING);
  const pid_t child = command_start("run x.yaml -o x.h5" FAULT);
  /* A header and a row. */
  for (int i = 0; i < 600 && fixture_lines("x.jsonl") < 2; i++)
    nanosleep(&(struct timespec){0, 50000000}, NULL);
  cr_assert(fixture_lines("x.jsonl") >= 2);
  return child;
}

static int end_with(pid_t child, int signal_number) {
  kill(child, signal_number);
  return command_exit_of(child);
}

Test(sweep, signals_end_it_with_a_snapshot) {
  static const struct { int number, code; } signals[] = {{SIGTERM, 75}, {SIGUSR1, 75}, {SIGINT, 130}};
  for (size_t i = 0; i < 3; i++) {
    cr_expect_eq(end_with(start_hanging(), signals[i].number), signals[i].code);
    result_set set = read_results("x.h5");
    cr_expect_eq(set.count, 1);
    cr_expect_eq(set.rows[0].status, RUN_FAILED);
    unlink("x.jsonl");
    unlink("x.h5");
  }
}

Test(sweep, one_at_a_time) {
  const pid_t child = start_hanging();
  cr_expect(run("run x.yaml -o x.h5" FAULT) == 75 && command_diagnostics(&result) == 1);
  end_with(child, SIGTERM);
}
