/* summary.c - the summary: every variant, length and verdict; medians over seeds; reasons; both formats. */

#include "experiments/report/explain_violations.h"
#include "experiments/checks/check.h"
#include "experiments/results/bound.h"
#include "tests/support/results_fixture.h"
#include "experiments/mathematics/statistics.h"
#include "experiments/support/table.h"

static void put(journal *j, const char *variant, const char *params, int64_t n, int64_t seed, double error,
                double time) {
  result_row row = fixture_row(0);
  free(row.key);
  row.key = strdup(text_of("%s %s n=%lld seed=%lld", variant, params, (long long)n, (long long)seed));
  row.variant = variant;
  row.params = params;
  fixture_must(result_row_complete(&row, false, true)); /* its label */
  row.n = row.n_kv = n;
  row.seed = seed;
  row.err_rel_fro = error < 0 ? (double)NAN : error;
  row.time_median = time;
  row.time_ci_lo = 0.95 * time;
  row.time_ci_hi = 1.05 * time;
  row.peak_alloc = 1024. * (double)n; /* 512 KiB at n = 512 */
  row.peak_rss = 0x1p20 * (double)n * (seed == 1 ? 1 : 0.5);
  row.bounds_count = 1;
  if (seed == 7) {
    row.bounds[0].verdict = row.verdict = VERDICT_VIOLATED;
    row.bounds[0].margin = 1.25;
  }
  if (error < 0) {
    row.status = RUN_UNSUPPORTED;
    row.message = strdup("no such mask");
  }
  cr_assert_eq(journal_append(j, &row), ATTN_OK);
  result_row_free(&row);
}

static const char *printed(const result_set *set, unsigned what, table_format format) {
  char *text = NULL;
  size_t size = 0;
  FILE *file = open_memstream(&text, &size);
  cr_assert_eq(summary_print(file, set, what, format), ATTN_OK);
  fclose(file);
  return kept_memory(text);
}

/* The summary of a small sweep, of which the first row by key is violated. */
static const char *summarise(table_format format) {
  const char *path = fixture_path("summary.jsonl");
  journal *j = NULL;
  unlink(path);
  cr_assert_eq(journal_open(path, &rows_of_sweep, "b", NULL, &j), ATTN_OK);
  put(j, "quick", "{\"width\":\"32\",\"seed\":\"1\"}", 512, 1, 0.25, 1e-3);
  put(j, "quick", "{\"width\":\"32\",\"seed\":\"2\"}", 512, 2, 0.75, 3e-3);
  put(j, "quick", "{\"width\":\"32\",\"seed\":\"3\"}", 512, 3, 0.5, 2e-3);
  put(j, "quick", "{\"width\":\"32\",\"seed\":\"1\"}", 2048, 1, 0.0625, 32e-3);
  put(j, "quick", "{\"width\":\"128\",\"seed\":\"1\"}", 512, 1, 0.0125, 5e-3);
  put(j, "lazy", "{}", 512, 1, 0.6, 4e-3);
  put(j, "useless", "{}", 512, 1, 1.25, 1e-3);
  put(j, "lazy", "{}", 2048, 7, 3.14e-7, 64e-3);
  put(j, "wrong", "{}", 512, 1, -1, 0);
  journal_close(j);
  result_set set = load_results(path);
  const char *text = printed(&set, SUMMARY_RUNS | SUMMARY_BOUNDS, format);
  cr_assert(summary_violations(&set) == 1 && summary_failures(&set) == 0);
  FILE *file = fopen("/dev/full", "w");
  cr_assert_eq(summary_print(file, &set, SUMMARY_RUNS | SUMMARY_BOUNDS, format), ATTN_EFOREIGN);
  fclose(file);
  return text;
}

static void expect_line(const char *text, const char *line) {
  cr_assert(strstr(text, line), "missing: %s\nin:\n%s", line, text);
}

Test(results_summary, cells_are_medians_over_seeds_with_marks_and_reasons) {
  const char *text = summarise(TABLE_TEXT);
  expect_line(text, "captured: d = 64, 4 heads, not causal, f32, 2 threads, avx2\n");
  /* Medians 0.5 and 2 ms at 512, from 1 to 3 ms: the exponent might be anything from 1.6 to 2.4. */
  expect_line(text, "quick:width=32    0.50 2.00 ms*   0.062 32.0 ms*                 -  2.00 MiB   n^1.0\n");
  expect_line(text, "quick:width=128  0.013 5.00 ms*                                      512 KiB\n");
  /* Time grows by 16 when n does by 4. Beaten by quick:width=32 at 512; violated at 2048. */
  expect_line(text, "lazy              0.60 4.00 ms   3.1e-7 64.0 ms!  n^2.0 [1.9, 2.1]  2.00 MiB   n^1.0\n");
  /* The largest run of each length, of whatever seed and variant. */
  expect_line(text, "process                512 MiB         2.00 GiB                                n^1.0\n");
  /* As fast as the fastest; zeros would err less. */
  expect_line(text, "useless            1.2 1.00 ms^");
  expect_line(text, "  ^         no better than zeros, or than the mean of V\n");
  expect_line(text, "wrong              unsupported\n");
  expect_line(text, "unsupported: wrong (1 run): no such mask\n");
  expect_line(text,
              "FP-1   hard  quick       5           .         .              .      .          .    .      "
              "0.12          0.25\n");
  expect_line(text, "VIOLATED FP-1: measured 0.125, bound 0.5, margin 1.25: lazy {} n=2048 seed=7");
  expect_line(text, "9 runs: 8 ok, 1 unsupported.");
  cr_expect(!strstr(text, "builds") && !strstr(text, "NOTE"), "%s", text);
  expect_line(text, "1 violated");
}

/* The counts by bound are many lines, below which nobody would find the errors. */
Test(results_summary, counts_by_bound_are_a_table_of_their_own) {
  result_row row = kept_row(fixture_row(0));
  result_set set = {.rows = &row, .count = 1};
  for (int bounds = 0; bounds < 2; bounds++) {
    const char *text = printed(&set, bounds ? SUMMARY_BOUNDS : SUMMARY_RUNS, TABLE_TEXT);
    cr_expect_eq(strstr(text, "error, time") != NULL, !bounds, "%s", text);
    cr_expect_eq(strstr(text, "worst margin") != NULL, bounds, "%s", text);
    expect_line(text, "1 runs: ");
  }
}

/* Of two runs that were timed one has few samples; the third was not timed. */
Test(results_summary, doubtful_times_are_counted) {
  result_row rows[3] = {kept_row(fixture_row(0)), kept_row(fixture_row(0)), kept_row(fixture_row(0))};
  result_set set = {.rows = rows, .count = 3};
  for (int i = 0; i < 3; i++) {
    rows[i].time_median = i < 2 ? 1e-3 : (double)NAN;
    rows[i].time_ci_lo = 0.99 * rows[i].time_median;
    rows[i].time_ci_hi = 1.01 * rows[i].time_median;
    rows[i].drift_ratio = 1;
    rows[i].n_outliers = 0;
    rows[i].iters_per_sample = 2;
  }
  const int64_t samples = rows[1].n_samples;
  for (int few = 0; few < 2; few++) {
    rows[1].n_samples = few ? 3 : samples;
    const char *text = printed(&set, SUMMARY_RUNS, TABLE_TEXT);
    if (few)
      expect_line(text,
                  "\nDoubtful times: of 1 of 2 runs: few 1; `attnlab report' marks them and says why.\n");
    else
      cr_expect_null(strstr(text, "Doubtful"), "%s", text);
  }
}

Test(results_summary, markdown_has_the_same_tables) {
  const char *text = summarise(TABLE_MARKDOWN);
  expect_line(text, "### captured: d = 64, 4 heads, not causal, f32, 2 threads, avx2\n\n| error, time");
  expect_line(text, "|:----------------|---------------:|");
  expect_line(text, "| quick:width=32  |  0.50 2.00 ms* |");
  expect_line(text, "- VIOLATED FP-1");
}

/* What nothing checked may be fast and exact: it gets no star, and does not take that of others. A report's
 * warning is told once for a label, and that runs come from several builds. */
Test(results_summary, unchecked_variants_are_named_and_get_no_star) {
  result_row rows[2] = {fixture_row(0), fixture_row(0)};
  result_set set = {
      .rows = rows, .count = 2, .sessions = json_pack("[{s:s}, {s:s}]", "build", "a", "build", "b")};
  for (int i = 0; i < 2; i++) {
    rows[i].session = i;
    rows[i].variant = i ? "stranger" : "honest";
    rows[i].err_rel_fro = i ? 0 : 0.5;
    rows[i].time_median = i ? 1e-9 : 1e-3;
    rows[i].bounds_count = 1;
    fixture_add_bound(&rows[i], "MEM-1", KIND_REPORT, VERDICT_UNCERTIFIABLE, (double)NAN)->message =
        "too much";
    rows[i].verdict = VERDICT_PASS;
  }
  bound_not_applicable(&rows[1].bounds[0], "the variant describes no rounding");
  rows[1].verdict = bounds_worst(rows[1].bounds, 1);
  const char *text = printed(&set, SUMMARY_RUNS | SUMMARY_BOUNDS, TABLE_TEXT);
  expect_line(text, "0.50 1.00 ms*");
  expect_line(text, "1.00 ns?");
  expect_line(text, "WARNING stranger: unchecked");
  cr_expect_null(strstr(text, "WARNING honest"));
  const char *note =
      strstr(text, "\nNOTE full: MEM-1: too much\nThese runs come from 2 builds of the program: ");
  cr_expect(note && strstr(text, "\nNOTE") == note, "%s", text);
  json_t *json = explain_json(&set);
  cr_expect_str_eq(json_string_value(json_array_get(json_object_get(json, "unchecked"), 0)), "stranger");
  json_decref(json), json_decref(set.sessions);
  for (int i = 0; i < 2; i++) result_row_free(&rows[i]);
}

/* A model that is exceeded is reported, and neither a violation nor a failure; one that does not apply is
 * not, nor is what was not decided. */
Test(results_summary, what_does_not_hold_is_explained) {
  static const struct {
    const char *name;
    check_kind kind;
    check_verdict verdict;
    double value, repeat;
    const char *list, *begins, *says; /* NULL: nothing */
  } cases[] = {
      {"FP-5", KIND_MODEL, VERDICT_CONSISTENT, 0.5, 0, NULL, NULL, NULL},
      {"FP-5", KIND_MODEL, VERDICT_UNCERTIFIABLE, (double)NAN, 0, NULL, NULL, NULL},
      {"FP-1", KIND_HARD, VERDICT_UNCERTIFIABLE, 0.5, 0, NULL, NULL, NULL},
      {"FP-5", KIND_MODEL, VERDICT_UNCERTIFIABLE, 0.5, 0, "warnings", "WARNING", "It rests on a model"},
      {"FP-1", KIND_HARD, VERDICT_VIOLATED, 0.5, 0.25, "violations", "VIOLATED", "It is proven, so the"},
      {"FP-1", KIND_HARD, VERDICT_ERROR, 0.5, 0, "errors", "ERROR",
       "The check could not be evaluated.\n  Its formula"},
      {"LIN-1", KIND_PROB, VERDICT_VIOLATED, 0.5, 0.25, "violations", "VIOLATED", "If it held,"},
      {"LIN-1", KIND_PROB, VERDICT_VIOLATED, 0.5, 0, "violations", "VIOLATED", "If it held,"},
      {"PROP-LEN", KIND_PROPERTY, VERDICT_VIOLATED, 0.5, 0, "violations", "VIOLATED", "Every variant must"},
      {"of a plug-in", KIND_HARD, VERDICT_VIOLATED, 0.5, 0, "violations", "VIOLATED", "It is proven,"}};
  static const char *const lists[] = {"violations", "errors", "warnings"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *name = cases[i].name;
    const bool wanted = cases[i].list, drawn = cases[i].kind == KIND_PROB;
    const check *c = check_find(name);
    char *text = NULL, told[1024];
    size_t size;
    result_row row = fixture_row(0);
    const result_set set = {.rows = &row, .count = 1};
    row.bounds_count = 0;
    row.dataset_sha256 = "0d";
    row.files_sha256 = i % 2 ? "0f" : "";
    row.verdict = cases[i].verdict;
    result_bound *b = fixture_add_bound(&row, name, cases[i].kind, cases[i].verdict, 1e-7);
    b->value = cases[i].value;
    b->p_repeat = cases[i].repeat;
    b->message = i % 2 ? "row 7" : "";
    cr_expect(summary_violations(&set) == (cases[i].verdict == VERDICT_VIOLATED) &&
                  summary_failures(&set) == (cases[i].verdict == VERDICT_ERROR) &&
                  explain_wanted(b) == wanted,
              "%zu", i);
    json_t *json = explain_json(&set);
    for (int l = 0; l < 3; l++) {
      const json_t *list = json_object_get(json, lists[l]), *cell = json_array_get(list, 0);
      cr_expect_eq(json_array_size(list), wanted && strcmp(cases[i].list, lists[l]) == 0, "%zu", i);
      for (const result_column *of = result_bound_columns; cell && of->name; of++) {
        json_t *value = result_column_json(b, of);
        cr_expect(json_equal(json_object_get(cell, of->name), value), "%zu: %s", i, of->name);
        json_decref(value);
      }
      cr_expect(!cell || strcmp(json_string_value(json_object_get(cell, "key")), row.key) == 0);
    }
    json_decref(json);
    FILE *file = open_memstream(&text, &size);
    if (wanted) cr_assert_eq(explain_print(file, &row, b, TABLE_TEXT), ATTN_OK);
    fclose(file);
    snprintf(told, sizeof told,
             "%s %s: measured 0.125, bound 0.5, margin 0.25%s%s: run 00000000\n%s%s%s%s  %s", cases[i].begins,
             name, drawn ? ", p = 1e-07" : "", drawn && b->p_repeat > 0 ? ", repeated p = 0.25" : "",
             i % 2 ? "  Here: row 7.\n" : "", c ? "  The bound: " : "", c ? c->statement : "", c ? ".\n" : "",
             cases[i].says);
    cr_expect(!wanted || strncmp(text, told, strlen(told)) == 0, "%s, not %s", text, told);
    snprintf(told, sizeof told, "  Files of the dataset: SHA-256 0d\n%s  This run alone: printf",
             i % 2 ? "  Files of the variant's parameters and the score: SHA-256 0f\n" : "");
    cr_expect(!wanted || strstr(text, told), "%s, not %s", text, told);
    free(text), result_row_free(&row);
  }
}

/* Reasons that differ in numbers alone are one, with the first of them. */
Test(results_summary, reasons_are_told_once) {
  static const struct {
    const char *variant, *message;
    run_status status;
  } of[] = {{"a", "needs 12 keys", RUN_UNSUPPORTED},      {"a", "needs 12 keys", RUN_CRASHED},
            {"a", "needs 3.75 keys", RUN_UNSUPPORTED},    {"b", "needs 12 keys", RUN_UNSUPPORTED},
            {"a", "needs 12 keys more", RUN_UNSUPPORTED}, {"a", "needs keys", RUN_UNSUPPORTED},
            {"a", "needs 7 keys", RUN_UNSUPPORTED},       {"a", "needs 12", RUN_UNSUPPORTED}};
  enum { COUNT = sizeof of / sizeof *of };
  result_row rows[COUNT];
  const result_set set = {.rows = rows, .count = COUNT};
  for (int i = 0; i < COUNT; i++) {
    rows[i] = kept_row(fixture_row(6));
    rows[i].variant = of[i].variant;
    rows[i].status = of[i].status;
    rows[i].message = kept_memory(strdup(of[i].message));
  }
  const char *text = printed(&set, SUMMARY_BOUNDS, TABLE_TEXT);
  expect_line(text, "unsupported: a (3 runs): needs 12 keys\ncrashed: a (1 run): needs 12 keys\n"
                    "unsupported: b (1 run): needs 12 keys\nunsupported: a (1 run): needs 12 keys more\n"
                    "unsupported: a (1 run): needs keys\nunsupported: a (1 run): needs 12\n\n");
}

Test(results_summary, nothing_to_say_is_no_failure) {
  result_set set;
  result_set_init(&set);
  printed(&set, SUMMARY_RUNS | SUMMARY_BOUNDS, TABLE_TEXT);
}

/* The last digit is rounded. */
static void expect_rounded(double x, const char *text, double unit, int least, int most) {
  const char *c = text;
  int digits = 0, decimals = 0;
  for (bool point = false; strspn(c, ".0123456789"); point = point || *c == '.', c++) {
    digits += *c != '.' && (digits || *c != '0');
    decimals += point;
  }
  const double last = unit * pow(10, (*c == 'e' ? atoi(c + 1) : 0) - decimals);
  cr_assert(fabs(atof(text) * unit - x) <= 0.5000001 * last && digits >= least && digits <= most, "%.17g: %s",
            x, text);
}

/* A number has two digits, or those before its point; a quantity three, of the last unit of which it is one
 * at least, or two minutes or hours. */
Test(results_summary, numbers_are_short) {
  static const char *const units[][6] = {{"ns", "us", "ms", "s", "min", "h"},
                                         {"B", "KiB", "MiB", "GiB", "TiB", ""}};
  static const double scales[][6] = {{1e-9, 1e-6, 1e-3, 1, 60, 3600}, {1, 0x1p10, 0x1p20, 0x1p30, 0x1p40, 0}};
  char text[SHORT_TEXT], negative[SHORT_TEXT];
  for (double x = 1e-9; x < 1e14; x *= 1.0007) {
    short_number(x, text);
    const char *power = strchr(text, 'e');
    cr_assert_eq(power == NULL, x >= 0.000995 && x < 9950, "%s", text);
    expect_rounded(x, text, 1, 2, x < 99.5 ? 3 : power ? 2 : 4);
    cr_assert(snprintf(negative, sizeof negative, "-%s", text) <= 7 &&
              !strcmp(short_number(-x, text), negative));
    for (int bytes = x >= 3.6e6; bytes <= (x >= 1); bytes++) {
      size_t u = 0;
      const char *unit = strchr(bytes ? short_bytes(x, text) : short_time(x, text), ' ') + 1;
      while (strcmp(units[bytes][u], unit) != 0) u++;
      expect_rounded(x, text, scales[bytes][u], atof(text) < 1 ? 2 : 3, 3);
      cr_assert(atof(text) >= (bytes   ? 0.97
                               : u > 3 ? 1.99
                                       : 1) &&
                    atof(text) < (u == 3 && !bytes ? 120 : 1000),
                "%g: %s", x, text);
    }
  }
  cr_assert_str_eq(short_number(0, text), "0");
  cr_assert_str_eq(short_number((double)NAN, text), "-");
  cr_assert_str_eq(short_number((double)INFINITY, text), "inf");
  cr_assert_str_eq(short_number(-(double)INFINITY, text), "-inf");
  cr_assert_str_eq(short_time(0, text), "0.00 ns");
  cr_assert_str_eq(short_bytes(0x1p60, text), "1048576 TiB");
  for (double odd = -1; odd == -1 || isinf(odd); odd = isinf(odd) ? (double)NAN : (double)INFINITY)
    cr_assert(!strcmp(short_time(odd, text), "-") && !strcmp(short_bytes(odd, text), "-"), "%s", text);
}

Test(results_summary, median_passes_over_nan) {
  double odd[] = {3, (double)NAN, 1, 2}, even[] = {4, 1}, none[] = {(double)NAN};
  cr_assert(median_of(odd, 4) == 2 && median_of(even, 2) == 2.5 && isnan(median_of(none, 1)));
}

/* Four runs of two settings, read from a file: what was verified of a setting counts once, whoever copied
 * it. */
Test(results_summary, properties_of_a_setting_count_once) {
  static const char *const labels[] = {"a:x=1", "a:x=2"};
  result_row rows[4];
  for (size_t i = 0; i < 4; i++) {
    result_row row = fixture_row(0);
    row.label = labels[i % 2];
    row.data_seed = (int64_t)i;
    fixture_add_bound(&row, "PROP-A", KIND_PROPERTY, i % 2 ? VERDICT_VIOLATED : VERDICT_PASS, (double)NAN);
    fixture_add_bound(&row, "PROP-B", KIND_PROPERTY, VERDICT_PASS, (double)NAN);
    cr_assert_eq(result_row_refer(&row), ATTN_OK);
    cr_expect_str_eq(result_row_cell(&row, result_row_cells(&row) - 1)->name, "PROP-B");
    rows[i] = row;
  }
  cr_expect(rows[0].properties == rows[2].properties && rows[0].properties != rows[1].properties);
  const result_set set = {.rows = rows, .count = 4};
  result_verdicts v;
  cr_assert_eq(results_verdicts(&set, &v), ATTN_OK);
  size_t violated = 0;
  for (size_t i = 0; i < v.count; i++)
    if (v.cells[i].bound->verdict == VERDICT_VIOLATED) violated += v.cells[i].row == &rows[1];
  cr_expect(v.settings == 2 && v.properties == 4 && violated == 1);
  cr_expect(v.bounds == 4 * (size_t)rows[0].bounds_count && v.count == v.bounds + v.properties);
  free(v.cells);
  for (size_t i = 0; i < 4; i++) result_row_free(&rows[i]);
}
