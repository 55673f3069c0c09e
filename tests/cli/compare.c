/* compare.c - `attnlab compare' on fabricated files: exit codes, what stands first, JSON, bad input. */
#include <hdf5_hl.h>
#include <jansson.h>

#include "tests/support/command.h"
#include "tests/support/results_fixture.h"

/* NAME.h5 of the fixture's first 40 rows, of which some are changed. */
static void write_file(const char *name, void (*change)(result_set *)) {
  result_set set = fixture_set(40);
  if (change) change(&set);
  cr_assert_eq(results_write(name, &set), ATTN_OK, "%s", attn_last_error());
  result_set_free(&set);
}

static void slow_down(result_set *s) {
  result_row *row = &s->rows[9];
  row->time_median *= 1.5;
  row->time_ci_lo *= 1.5;
  row->time_ci_hi *= 1.5;
  s->rows[10].time_ci_lo = s->rows[10].time_ci_hi = (double)NAN; /* of one sample */
  json_object_set_new(json_array_get(s->sessions, 0), "compiler", json_string("gcc 13"));
}

static void violate(result_set *s) {
  for (result_row *row = s->rows + 2; row < s->rows + 4; row++) {
    fixture_add_bound(row, "SP-0", KIND_HARD, VERDICT_VIOLATED, (double)NAN);
    row->verdict = VERDICT_VIOLATED;
  }
}

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

Test(cli_compare, nothing_changed) {
  expect("compare a.h5 a.h5", 0, "40 runs in both; 0 of A and 0 of B without a counterpart.");
  cr_expect(strstr(result.out, "geometric mean x1 ["), "%s", result.out);
  expect("compare a.h5 a.h5 --max-slowdown 0%", 0, "No verdict and no status changed.");
}

Test(cli_compare, a_regression) {
  write_file("b.h5", slow_down);
  expect("compare a.h5 b.h5", 1, "slower");
  const char *differs = strstr(result.out, "differs"), *mean = strstr(result.out, "geometric mean"),
             *table = mean ? strstr(mean, " run\n") : NULL;
  cr_assert(differs && table, "%s", result.out);
  cr_expect(strstr(differs, "gcc 13") < mean, "where they come from stands first:\n%s", result.out);
  const char *worst = strstr(table, "bigbird:block=64,projection=2.5 n=1024"), *end = strchr(table + 5, '\n');
  cr_expect(worst && worst < end && strstr(table, "slower") < end, "what is worst is the first line:\n%s",
            result.out);
  cr_expect(strstr(result.out, "and 25 more: --all"), "%s", result.out);
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
  cr_expect(strstr(strstr(result.out, "violated  SP-0") + 1, "violated  SP-0"), "%s", result.out);
  expect("compare violated.h5 a.h5", 0, "became violated: 0");
  expect("compare a.h5 crashed.h5", 3, "crashed");
  expect("compare a.h5 error.h5", 0, "and by more than rounding: 1.");
  expect("compare a.h5 error.h5 --all", 0, "Only in A:\n  run 00000011\nOnly in B:\n  run 00000011\n");
}

Test(cli_compare, json) {
  write_file("b.h5", slow_down);
  expect("compare --json a.h5 b.h5", 1, "\"limit\": 1.05");
  json_error_t error;
  json_t *json = json_loads(result.out, 0, &error);
  cr_assert(json, "%s", error.text);
  const json_t *worst = json_array_get(json_object_get(json, "runs"), 0);
  int pairs, slower, wrong[7];
  cr_assert_eq(json_unpack(json, "{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "pairs", &pairs, "slower",
                           &slower, "faster", wrong, "errors", wrong + 1, "verdicts", wrong + 2, "statuses",
                           wrong + 3, "violated", wrong + 4, "failed", wrong + 5, "only_a", wrong + 6),
               0);
  cr_expect(pairs == 40 && slower == 1);
  for (int i = 0; i < 7; i++) cr_expect_eq(wrong[i], 0);
  cr_expect_str_eq(json_string_value(json_object_get(worst, "time")), "slower");
  cr_expect_float_eq(json_number_value(json_array_get(json_object_get(worst, "ratio"), 0)), 1.5, 1e-12);
  cr_expect(json_is_null(json_object_get(json_array_get(json_object_get(json, "runs"), 39), "time_a")));
  const json_t *differ = json_object_get(json_object_get(json, "provenance"), "differ");
  cr_expect(json_array_size(differ) == 1 &&
            strcmp(json_string_value(json_array_get(json_array_get(differ, 0), 0)), "compiler") == 0);
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
