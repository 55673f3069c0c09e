/* compare.c - `attnlab compare' on fabricated files: exit codes, what stands first, JSON, bad input. */
#include <hdf5_hl.h>
#include <jansson.h>

#include "tests/support/command.h"
#include "tests/support/results_fixture.h"

/* NAME.h5 of the fixture's first 40 rows, of which some are changed. */
static void write_file(const char *name, void (*change)(result_set *)) {
  result_set set = kept_set(fixture_set(40));
  set.rows[17].mask = "prefix:64";
  if (change) change(&set);
  cr_assert_eq(results_write(name, &set), ATTN_OK, "%s", attn_last_error());
}

static void slow_down(result_set *s) {
  scale_time(&s->rows[9], 1.5);
  s->rows[10].time_ci_lo = s->rows[10].time_ci_hi = (double)NAN; /* of one sample */
  json_object_set_new(json_array_get(s->sessions, 0), "compiler", json_string("gcc 13"));
  json_object_set_new(json_array_get(s->sessions, 0), "n_cores", json_integer(77));
}

static void violate(result_set *s) {
  for (result_row *row = s->rows + 2; row < s->rows + 4; row++) {
    fixture_add_bound(row, "SP-0", KIND_HARD, VERDICT_VIOLATED, (double)NAN);
    row->verdict = VERDICT_VIOLATED;
  }
}

/* Of two sessions, the first of which began last. */
static void lose_times(result_set *s) {
  for (size_t i = 0; i < s->count; i++) s->rows[i].time_median = (double)NAN;
  json_array_append_new(s->sessions, fixture_provenance(1e9));
}

static void set_flags(result_set *s, const char *flags) {
  json_object_set_new(json_array_get(s->sessions, 0), "cpu_flags", json_string(flags));
}
/* What is a part of another word is another word. */
static void flags_of_a(result_set *s) { set_flags(s, "avx2 fma sse avx51 ss"); }
static void flags_of_b(result_set *s) { set_flags(s, "sse ss avx fma avx512"); }

static void crash(result_set *s) { s->rows[3].status = RUN_CRASHED; }

static void err(result_set *s) {
  s->rows[5].err_rel_fro *= 50;
  s->rows[11].dataset = "elsewhere";
}

static void move(result_set *s) {
  for (size_t i = 0; i < s->count; i++) s->rows[i].dataset = "elsewhere";
}

static void enter(void) {
  command_enter();
  write_file("a.h5", NULL);
}

TestSuite(cli_compare, .init = enter, .fini = command_leave, .timeout = 120);

static void expect(const char *arguments, int code, const char *text) {
  command_run(arguments, &result);
  cr_expect_eq(result.exit_code, code, "attnlab %s: exit %d\n%s%s", arguments, result.exit_code, result.out,
               result.err);
  cr_expect(strstr(code == 2 ? result.err : result.out, text), "attnlab %s: '%s' is missing from\n%s%s",
            arguments, text, result.out, result.err);
  cr_expect_null(strstr(result.out, "[nan"), "%s", result.out);
}

#define DATED                                                                                       \
  "A: a.h5, 40 runs of 2023-11-14 22:13 UTC; while they were timed the machine's speed drifted by " \
  "x0.000333 to x0.0133.\nB: a.h5, 40 runs of "

Test(cli_compare, nothing_changed) {
  expect("compare a.h5 a.h5", 0, "40 runs in both; 0 of A and 0 of B without a counterpart.");
  expect_says(result.out, "geometric mean x1 [");
  expect("compare a.h5 a.h5 --max-slowdown 0%", 0, "No verdict and no status changed.");
  /* 1.7e9 seconds; drifts are (i + 1) / 3000. */
  cr_expect_eq(strncmp(result.out, DATED, strlen(DATED)), 0, "%s", result.out);
  expect_says(result.out, "\nAlike: git_commit, git_dirty, compiler, n_cores.\n");
  write_file("b.h5", lose_times);
  expect("compare a.h5 b.h5", 0, "\nB: b.h5, 40 runs of 2001-09-09 01:46 UTC.\n");
  expect_says(result.out, "\n\nNo run was timed in both.\n\nNo error changed by more than a hundredth and by "
                          "more than rounding.\n\nNo verdict and no status changed.\n");
  write_file("a.h5", flags_of_a);
  write_file("b.h5", flags_of_b);
  expect("compare a.h5 b.h5", 0, "cpu_flags  avx2 avx51  avx avx512\n");
}

Test(cli_compare, a_regression) {
  write_file("b.h5", slow_down);
  expect("compare a.h5 b.h5", 1, "slower");
  const char *differs = strstr(result.out, "differs"), *mean = strstr(result.out, "geometric mean"),
             *table = mean ? strstr(mean, " run\n") : NULL;
  cr_assert(differs && table, "%s", result.out);
  const char *compiler = strstr(differs, "gcc 13"), *cores = strstr(differs, " 77\n");
  cr_expect(compiler && cores && compiler < cores && cores < mean, "where they come from stands first:\n%s",
            result.out);
  /* Row 9 took 10 / 3e3 s in A; of what runs differ in, its name has what does not follow from the rest. */
  const char *worst =
      strstr(table, "3.33 ms  5.00 ms  slower  bigbird:block=64,projection=2.5 n=1024 causal=yes captured\n");
  cr_expect(strncmp(table, " run\n x1.5 ", 11) == 0 && worst && worst < strchr(table + 5, '\n'),
            "what is worst is the first line:\n%s", result.out);
  expect_says(result.out, "and 25 more: --all");
  expect("compare a.h5 b.h5 --all", 1, "tiled");
  cr_expect_null(strstr(result.out, "more: --all"));
  expect("compare a.h5 b.h5 --max-slowdown 60%", 0, "x1.5");
  expect("compare a.h5 b.h5 --max-slowdown 0.6", 0, "x1.5");
  expect("compare b.h5 a.h5", 0, "faster");
}

Test(cli_compare, errors_verdicts_and_failures) {
  write_file("violated.h5", violate);
  write_file("crashed.h5", crash);
  write_file("error.h5", err);
  expect("compare a.h5 violated.h5", 1, "pass  violated  SP-0");
  expect_says(strstr(result.out, "violated  SP-0") + 1, "violated  SP-0");
  expect("compare violated.h5 a.h5", 0, "became violated: 0");
  expect("compare a.h5 crashed.h5", 3, "crashed");
  expect("compare a.h5 error.h5", 0,
         "and by more than rounding: 1.\n     A     B  run\n"
         "0.0020  0.10  performer:features=256 n=512 causal=yes captured\n\n");
  expect("compare a.h5 error.h5 --all", 0, "Only in A:\n  run 00000011\nOnly in B:\n  run 00000011\n");
}

/* Of A: what is no longer violated, and what still is. */
static void violate_others(result_set *s) {
  for (result_row *row = s->rows + 3; row < s->rows + 19; row += 15) {
    fixture_add_bound(row, "SP-0", KIND_HARD, VERDICT_VIOLATED, (double)NAN);
    row->verdict = VERDICT_VIOLATED;
  }
}

/* Everything at once. */
static void change_all(result_set *s) {
  slow_down(s);
  violate(s);
  err(s);
  s->rows[4].status = RUN_CRASHED;
  s->rows[7].model_verdict = VERDICT_UNCERTIFIABLE;
  scale_time(&s->rows[8], 0.5), scale_time(&s->rows[31], 0.5);
  s->rows[14].isa = "neon";
  s->rows[15].threads = s->rows[32].threads = 3;
  s->rows[16].dataset_sha256 = s->rows[28].dataset_sha256 = s->rows[29].dataset_sha256 = "0123";
}

/* Each run says what its rows say, and the counts are those of the runs. */
Test(cli_compare, json) {
  static const char *const members[][10] = {
      {"key", "time", "error", "verdict", "model_verdict", "status", "label", "dataset", "n", "seed"},
      {"key", "time_median", "err_rel_fro", "verdict", "model_verdict", "status", "label", "dataset", "n",
       "seed"}};
  static const char *const counts[][5] = {{"timed", "undecided", "slower", "faster", "errors"},
                                          {"verdicts", "statuses", "violated", "failed", "pairs"},
                                          {"only_a", "only_b", "other_isa", "other_threads", "other_data"}};
  result_set sets[] = {kept_set(fixture_set(40)), kept_set(fixture_set(40))};
  violate_others(&sets[0]);
  change_all(&sets[1]);
  write_file("a.h5", violate_others);
  write_file("b.h5", change_all);
  expect("compare --json a.h5 b.h5", 1, "\"limit\": 1.05");
  json_t *json = json_loads(result.out, 0, NULL), *run;
  cr_assert(json, "%s", result.out);
  size_t i, found[3][5] = {[2] = {json_array_size(json_object_get(json, "alone_a")),
                                  json_array_size(json_object_get(json, "alone_b")), 1, 2, 3}};
  json_array_foreach(json_object_get(json, "runs"), i, run) {
    const long k = strtol(json_string_value(json_object_get(run, "key_a")) + strlen("run "), NULL, 10);
    for (int m = 0; m < 20; m++) { /* of both rows, and of B */
      char name[32];
      snprintf(name, sizeof name, "%s%s", members[0][m / 2], m > 11 ? "" : m % 2 ? "_b" : "_a");
      json_t *wanted =
          result_column_json(&sets[m > 11 || m % 2].rows[k], result_column_named(members[1][m / 2]));
      cr_expect(json_equal(json_object_get(run, name), wanted), "run %ld: %s", k, name);
      json_decref(wanted);
    }
    const result_row *x = &sets[0].rows[k], *y = &sets[1].rows[k];
    const json_t *ratio = json_array_get(json_object_get(run, "ratio"), 0);
    const bool timed = json_is_number(ratio), slower = k == 9, faster = k == 8 || k == 31,
               once = json_is_null(json_object_get(run, "p_slower")),
               error = json_is_true(json_object_get(run, "error_changed")),
               verdict = x->verdict != y->verdict || x->model_verdict != y->model_verdict,
               violated = json_array_size(json_object_get(run, "violated"));
    cr_expect_str_eq(json_string_value(json_object_get(run, "time")),
                     slower   ? "slower"
                     : faster ? "faster"
                     : timed  ? ""
                              : "untimed",
                     "run %ld", k);
    cr_expect(!timed || fabs(json_number_value(ratio) * x->time_median / y->time_median - 1) < 1e-12);
    cr_expect(i || slower, "worst first");
    const bool of[][5] = {{timed, timed && once, slower, faster, error},
                          {verdict, x->status != y->status, violated, y->status == RUN_CRASHED, true}};
    for (int c = 0; c < 10; c++) found[c / 5][c % 5] += of[c / 5][c % 5];
  }
  for (int c = 0; c < 15; c++) {
    const json_int_t told = json_integer_value(json_object_get(json, counts[c / 5][c % 5]));
    cr_expect(told > 0 && (size_t)told == found[c / 5][c % 5], "%s: %d", counts[c / 5][c % 5], (int)told);
  }
  const char *file, *differs[2];
  double runs, least, most;
  cr_assert_eq(json_unpack(json, "{s:{s:s, s:F, s:[F, F]}, s:{s:[[s, *], [s, *]!]}}", "b", "file", &file,
                           "runs", &runs, "drift", &least, &most, "provenance", "differ", &differs[0],
                           &differs[1]),
               0);
  cr_expect(runs == 40 && strcmp(file, "b.h5") == 0 && strcmp(differs[0], "compiler") == 0);
  cr_expect(fabs(least - 1 / 3e3) + fabs(most - 40 / 3e3) < 1e-15);
  expect("compare --all a.h5 b.h5", 1,
         " 1 with another instruction set. 2 with another number of threads. 3 with other data or files "
         "(SHA-256), so");
  expect_says(result.out,
              "slower (at 95 %, over all runs together): 1; as much faster: 2. With a single sample, "
              "which decides nothing: 1.\n");
  cr_expect(
      strstr(result.out, " performer:features=256 n=2048 causal=yes threads=2 mask=prefix:64 captured\n"));
  json_decref(json);
}

/* Several files are one page; an evaluation has another page. */
Test(cli_compare, files_on_one_page) {
  write_file("b.h5", slow_down);
  command_write_text("plain.txt", "neither one nor the other");
  command_run_good("report a.h5 b.h5 -o all.html");
  cr_expect_eq(system("grep -q '\"source\":\"b\"' all.html && grep -q '2 results files' all.html"), 0);
  command_run_good("report ./a.h5 -o one.html");
  cr_expect_eq(system("grep -q '<title>attnlab: a.h5' one.html"), 0);
  expect("report a.h5 a.h5 -o twice.html", 2, "a.h5: the same results file twice");
  expect("report a.h5 plain.txt -o none.html", 2, "plain.txt");
  expect("report a.h5 b.h5 -o b.h5", 2, "b.h5");
}

Test(cli_compare, bad_input) {
  write_file("elsewhere.h5", move);
  command_write_text("plain.txt", "neither one nor the other");
  expect("compare a.h5 plain.txt", 2, "plain.txt");
  expect("compare a.h5 elsewhere.h5", 2, "no run in common");
  cr_expect_eq(command_diagnostics(&result), 1, "%s", result.err);
}

/* A file of a later version is refused by every command that reads it. */
Test(cli_compare, newer_files) {
  static const char *const commands[] = {"check a.h5", "export --csv a.h5", "report a.h5 -o report.html"};
  const hid_t file = H5Fopen("a.h5", H5F_ACC_RDWR, H5P_DEFAULT);
  cr_assert(H5LTset_attribute_int(file, "/", "schema_version", (int[]){99}, 1) >= 0);
  H5Fclose(file);
  const int entries = fixture_entries();
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    expect(commands[i], 2, "a.h5: ");
    cr_expect(strstr(result.err, "99") && command_diagnostics(&result) == 1, "%s", result.err);
    cr_expect(result.out[0] == '\0' && fixture_entries() == entries, "%s", commands[i]);
  }
}
