/* bench.c - attnlab bench: every group on tiny sizes, and the file it writes; cases/errors_commands.txt has
 * what it refuses. No time is asserted. */
#include <sys/stat.h>

#include "tests/support/command_json.h"

TestSuite(bench, .init = command_enter, .fini = command_leave);

/* With one blank where there are several. */
static const char *squeezed(char *text) {
  char *to = text;
  for (const char *c = text; *c; c++)
    if (*c != ' ' || (c[1] && c[1] != ' ')) *to++ = *c;
  *to = '\0';
  return text;
}

/* The table in result.out, which is written over, has a line for each row of the file; a ratio is inside its
 * interval, and with a target has a verdict, or a note. */
static void expect_table(const json_t *document) {
  size_t i;
  json_t *row;
  char *rest, *line = strtok_r(result.out, "\n", &rest);
  json_array_foreach(json_object_get(document, "rows"), i, row) {
    const char *group, *what, *figure, *verdict;
    int n, d, most;
    double ratio = (double)NAN, low = ratio, high = ratio, target = ratio;
    char told[600] = "", *at = told;
    cr_assert(!json_unpack(row, "{s:s, s:s, s:i, s:i, s:s, s:s, s:b}", "group", &group, "what", &what, "n",
                           &n, "d", &d, "figure", &figure, "verdict", &verdict, "at_most", &most));
    json_unpack(row, "{s:F, s:[F, F]}", "ratio", &ratio, "interval", &low, &high);
    json_unpack(row, "{s:F}", "target", &target);
    const bool judged = !isnan(ratio + target), met = most ? ratio <= target : ratio >= target;
    if (strcmp(verdict, "met") == 0 || strcmp(verdict, "missed") == 0)
      cr_expect(judged && met == !strcmp(verdict, "met"), "%s: %s", what, verdict);
    cr_expect_not(ratio < low || ratio > high, "%s: %g", what, ratio);
    at += sprintf(at, "%s %s %.0d %.0d %s ", group, what, n, d, figure);
    if (!isnan(ratio)) at += sprintf(at, "%.3f ", ratio);
    if (low < high) at += sprintf(at, "%.3f ... %.3f ", low, high);
    if (!isnan(target)) at += sprintf(at, "%s %.2f ", most ? "<=" : ">=", target);
    sprintf(at, "%s", verdict);
    cr_assert(line && (line = strtok_r(NULL, "\n", &rest)) && strlen(told) < 500, "no line of %s", what);
    cr_expect_str_eq(squeezed(line), squeezed(told));
  }
}

static json_t *run(const char *arguments) {
  command_run_good(arguments);
  cr_expect(result.err[0] == '\0', "attnlab %s: %s", arguments, result.err);
  json_error_t error;
  json_t *document = json_load_file("bench.json", 0, &error);
  cr_assert(document, "attnlab %s: line %d: %s", arguments, error.line, error.text);
  expect_table(document);
  return kept_json(document);
}

static json_t *row_of(const json_t *document, const char *group, const char *what) {
  size_t i;
  json_t *row;
  json_array_foreach(json_object_get(document, "rows"), i, row) {
    if (strcmp(json_string_value(json_object_get(row, "group")), group) == 0 &&
        strstr(json_string_value(json_object_get(row, "what")), what))
      return row;
  }
  cr_assert_fail("no row '%s' in group %s", what, group);
  return NULL;
}

/* A row with a ratio, an interval and a target. */
static void expect_ratio(const json_t *document, const char *group, const char *what) {
  double ratio = 0, low, high, target;
  const char *verdict;
  cr_assert(!json_unpack(row_of(document, group, what), "{s:F, s:[F, F], s:F, s:s}", "ratio", &ratio,
                         "interval", &low, &high, "target", &target, "verdict", &verdict));
  cr_expect(ratio > 0 && (!strcmp(verdict, "met") || !strcmp(verdict, "missed")), "%s: ratio %g, '%s'", what,
            ratio, verdict);
}

static void expect_samples(const json_t *document, size_t rounds) {
  size_t i, j;
  json_t *meter, *seconds;
  const json_t *meters = json_object_get(document, "meters");
  cr_expect(json_array_size(meters) > 0);
  json_array_foreach(meters, i, meter) {
    const json_t *samples = json_object_get(meter, "seconds");
    cr_expect(json_array_size(samples) == rounds, "%s", json_string_value(json_object_get(meter, "what")));
    json_array_foreach(samples, j, seconds) cr_expect(json_real_value(seconds) > 0);
  }
}

/* Of groups whose sizes are those that are asked for, as much at either length. */
static void expect_sizes(const json_t *list) {
  size_t i, counts[2] = {0};
  json_t *one;
  json_array_foreach(list, i, one) {
    const char *group = json_string_value(json_object_get(one, "group"));
    const json_int_t n = json_integer_value(json_object_get(one, "n"));
    if (!strstr("decode cache backward score select", group)) continue;
    cr_expect((n == 64 || n == 512) && json_integer_value(json_object_get(one, "d")) == 8, "%s", group);
    cr_expect(!(json_real_value(json_object_get(one, "memory")) > 64 << 20), "%s: much for small tensors",
              group);
    counts[n == 512]++;
  }
  cr_expect(counts[0] > 30 && counts[0] == counts[1], "%zu, %zu", counts[0], counts[1]);
}

/* The rows of the README, in groups without instruction sets in them. */
static void expect_published(const json_t *document) {
  char line[300], group[12], what[120];
  FILE *page = fopen(TEST_SOURCE_DIR "/experiments/bench/README.md", "r");
  int count = 0;
  cr_assert_not_null(page);
  while (fgets(line, sizeof line, page)) {
    const bool row = sscanf(line, "| %11s | %119[^|]", group, what) == 2;
    if (!row || !strstr("decode cache recurrent backward score select", group)) continue;
    for (char *end = what + strlen(what); end > what && end[-1] == ' ';) *--end = '\0';
    row_of(document, group, what);
    if (strstr(line, "met |") || strstr(line, "missed |")) expect_ratio(document, group, what);
    count++;
  }
  cr_expect(!fclose(page) && count > 80, "%d", count);
}

#define TINY " --quick --rounds 2 --budget 0 --threads 2 --json bench.json"

Test(bench, every_group) {
  json_t *document = run("bench --n 64,512 --d 8" TINY);
  expect_samples(document, 2);
  expect_sizes(json_object_get(document, "rows"));
  expect_sizes(json_object_get(document, "meters"));
  row_of(document, "peaks", "reads from memory, 2 threads");
  expect_ratio(document, "exact", "over the peak");
  expect_ratio(document, "exact", "causal over not");
  expect_ratio(document, "exact", "memory");
  expect_ratio(document, "variants", "longformer:window=256: over tiled's rate");
  expect_ratio(document, "variants", "time on 1 thread over 2");
  expect_ratio(document, "variants", "time a token");
  expect_published(document);
  row_of(document, "crossover", "performer:features=256, causal");
  cr_expect(
      strcmp(json_string_value(json_object_get(row_of(document, "variants", "linformer"), "verdict")), "met"),
      "more slots than keys");
  row_of(document, "run", "processor time over elapsed time");
  const json_t *provenance = json_object_get(document, "provenance");
  cr_expect(json_is_string(json_object_get(provenance, "cpu_model")));
  cr_expect(json_is_string(json_object_get(provenance, "git_commit")));
  cr_expect(json_integer_value(json_object_get(document, "threads")) == 2);
}

Test(bench, transforms) {
  json_t *document = run("bench variants --n 512" TINY);
  expect_ratio(document, "variants", "srht: time over its transform's");
  expect_ratio(document, "variants", "dct: time over its transform's");
  expect_ratio(document, "variants", "linformer:k=256: over the peak");
}

Test(bench, many_tokens) {
  json_t *document = run("bench long --n 512,1Ki" TINY);
  expect_ratio(document, "long", "tiled: peak GiB");
  expect_ratio(document, "long", "performer:features=256, causal: peak GiB");
  cr_expect(isfinite(json_real_value(json_object_get(row_of(document, "long", "tiled: exponent"), "ratio"))));
  row_of(document, "long", "linear: overtakes tiled");
}

Test(bench, a_model) {
  json_t *document =
      run("bench model --model " TEST_SOURCE_DIR "/data/bytelm --n 16 --quick --rounds 2 --json bench.json");
  expect_samples(document, 2);
  expect_ratio(document, "model", "a token: weights read over bandwidth");
  expect_ratio(document, "model", "a window: over the peak");
}

Test(bench, compares_variants) {
  json_t *document = run("bench tiled full longformer:window=4 --n 64,100 --d 8" TINY);
  expect_samples(document, 2);
  cr_expect(json_array_size(json_object_get(document, "rows")) == 2 * 5 + 1);
  row_of(document, "compare", "full: time over tiled's");
}

#define PROGRAM TEST_BINARY_DIR "/experiments/attnlab"

Test(bench, compares_two_builds) {
  json_t *document = run("bench tiled performer --against " PROGRAM " --n 64,100 --d 8" TINY);
  expect_samples(document, 2);
  cr_expect(json_array_size(json_object_get(document, "rows")) == 2 * 4 + 1);
  row_of(document, "compare", "tiled: time over the other build's");
  row_of(document, "compare", "performer: time over the other build's");
}

/* Variants are compared on the score and mask that options give, in the other build, too. */
Test(bench, compares_on_scores_and_masks) {
  json_t *document = run("bench tiled full --softcap 50 --mask documents:16 --n 64 --d 8" TINY);
  row_of(document, "compare", "full on softcap=50, documents:16: time over tiled's");
  command_write_text("other", "#!/bin/sh\necho \"$@\" > told\nexec " PROGRAM " \"$@\"\n");
  chmod("other", 0700);
  document =
      run("bench tiled --against ./other --causal --sink 0 --alibi --mask documents:9 --n 64 --d 8" TINY);
  row_of(document, "compare", "tiled, causal on alibi,sink=0, documents:9: time over the other build's");
  const char *told = fixture_text("told");
  cr_expect(strstr(told, "--causal --alibi --sink=0 --mask=documents:9"), "%s", told);
}

Test(bench, one_instruction_set) {
  json_t *document = run("bench exact --isa scalar --n 64 --d 8" TINY);
  row_of(document, "exact", "tiled, scalar: over the peak");
  cr_expect(json_array_size(json_object_get(document, "rows")) == 3 + 1);
}

/* One length is no crossing. */
Test(bench, table) {
  command_run_good("bench crossover --n 64 --quick --rounds 2 --budget 0 --markdown");
  expect_says(result.out, "| crossover ");
  size_t rows = 0, told = 0;
  for (const char *at = result.out; (at = strstr(at, "| crossover ")); at++) rows++;
  for (const char *at = result.out; (at = strstr(at, " fewer than two lengths |\n")); at++) told++;
  cr_expect(rows == 10 && told == rows, "%s", result.out);
}
