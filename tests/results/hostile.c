/* hostile.c - results files whose texts drive a terminal, a shell, a page or a spreadsheet. */
#include "experiments/results/bound.h"
#include "experiments/report/explain_violations.h"
#include "experiments/report/page.h"
#include "experiments/report/repeat_command.h"
#include "experiments/report/summary.h"
#include "experiments/support/escape.h"
#include "experiments/support/json_reader.h"
#include "tests/support/results_fixture.h"

/* ---- texts --------------------------------------------------------------------------------------------- */

#define EVIL "\x1b]0;title\x07\x1b[2J\r\n|fake line \xe2\x80\xae\xc2\x9b\xff</script>"

static void expect_escaped(const char *text, const char *made) {
  char *got = escape_text(text);
  cr_assert_str_eq(got, made);
  free(got);
}

static void expect_word(const char *text, const char *word) {
  char *got = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&got, &size);
  cr_assert_not_null(out);
  escape_put_word(out, text);
  fclose(out);
  cr_expect_str_eq(got, word);
  free(got);
}

/* What a user copies into a shell. */
Test(results_hostile, words_of_the_shell) {
  expect_word("longformer:window=256,global_at=3+17", "longformer:window=256,global_at=3+17");
  expect_word("streaming:window=8 + sample:count=4", "'streaming:window=8 + sample:count=4'");
  expect_word("dyadic(topk:k=4,base=16)", "'dyadic(topk:k=4,base=16)'");
  expect_word("graph:kind=file,file=it's; rm -r x", "'graph:kind=file,file=it'\\''s; rm -r x'");
  expect_word("", "''");
}

Test(results_hostile, escapes) {
  expect_escaped("plain, \xc3\xa9\t\xe2\x80\xae", "plain, \xc3\xa9\\x09\\u202e");
  expect_escaped("\xff\xc3\x28\xe2\x89", "\\xff\\xc3(\\xe2\\x89"); /* torn */
}

static bool reads(const char *text, const char *as) {
  json_reader r = json_reader_of(text, strlen(text));
  const bool good = json_reader_text(&r) && json_reader_end(&r);
  if (good) cr_assert_str_eq(r.text, as);
  json_reader_free(&r);
  return good;
}

/* Every code point in the bytes that RFC 3629 gives it, and in one more, which is no UTF-8. What moves the
 * cursor, reorders, ends a line or cannot be seen does not stay as it is; JSON has the rest, and \u. */
Test(results_hostile, every_character) {
  static const uint32_t odd[][2] = {{1, 0x1f},        {0x7f, 0x9f},     {0x61c, 0x61c},  {0x200e, 0x200f},
                                    {0x2028, 0x202e}, {0x2066, 0x2069}, {0xfeff, 0xfeff}};
  static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
  for (uint32_t c = 1; c < 0x200000; c += c < 0x10000 || c == 0x10ffff ? 1 : 0x3ff) {
    const int least = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    const bool real = c <= 0x10ffff && (c < 0xd800 || c > 0xdfff);
    bool kept = real;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) kept = kept && (c < odd[i][0] || c > odd[i][1]);
    char text[5], wanted[32] = "", json[16];
    for (int length = least < 4 ? least + 1 : 4; length >= least; length--) {
      memset(text, 0, sizeof text);
      for (int i = length, rest = (int)c; i--; rest >>= 6)
        text[i] = (char)(i ? 0x80 | (rest & 0x3f) : lead[length] | rest);
      const bool good = real && length == least;
      for (int i = 0; i < length; i++) sprintf(wanted + 4 * i, "\\x%02x", (unsigned char)text[i]);
      if (good && length > 1) sprintf(wanted, "\\u%04x", c & 0xffff);
      expect_escaped(text, good && kept ? text : wanted);
      cr_assert_eq(escape_is_utf8(text), good, "%x", c);
      snprintf(json, sizeof json, "\"%s\"", text);
      cr_assert_eq(reads(json, text), good && c >= 0x20 && c != '"' && c != '\\', "%x", c);
    }
    const unsigned high = 0xd800 + (c - 0x10000) / 0x400, low = 0xdc00 + c % 0x400;
    snprintf(json, sizeof json, c < 0x10000 ? "\"\\u%04x\"" : "\"\\u%04x\\u%04X\"", c < 0x10000 ? c : high,
             low);
    cr_assert_eq(reads(json, text), real, "%x", c);
  }
}

/* Rows every text of which is evil. */
static result_set evil_set(const char *evil) {
  result_set set = kept_set(fixture_set(8));
  for (size_t i = 0; i < set.count; i++) {
    result_row *row = &set.rows[i];
    for (const result_column *c = result_columns; c->name; c++) {
      if (c->type != COLUMN_TEXT || !strcmp(c->name, "params")) continue;
      result_column_set_text(row, c, evil); /* what is one of a list of names stays */
    }
    fixture_add_bound(row, evil, KIND_HARD, VERDICT_VIOLATED, (double)NAN);
    result_bound *b = &row->bounds[row->bounds_count - 1];
    bound_say(b, "%s", evil);
  }
  return set;
}

/* Nothing but printable ASCII, line ends and whole characters that are harmless. */
static void expect_harmless(const char *text, const char *what) {
  for (const char *c = text; *c; c++)
    cr_assert(*c == '\n' || ((unsigned char)*c >= ' ' && *c != 127), "%s: byte %02x in\n%.60s", what,
              (unsigned char)*c, c > text + 30 ? c - 30 : text);
  cr_assert_null(strstr(text, "\xe2\x80\xae"), "%s reorders", what);
  cr_assert_null(strstr(text, "\xc2\x9b"), "%s has a C1 control", what);
  cr_assert_null(strstr(text, "\n|fake"), "%s has lines of a file's making", what);
}

static attn_status as_text(FILE *file, const result_set *set) {
  return summary_print(file, set, SUMMARY_RUNS | SUMMARY_BOUNDS, TABLE_TEXT);
}
static attn_status as_markdown(FILE *file, const result_set *set) {
  return summary_print(file, set, SUMMARY_RUNS | SUMMARY_BOUNDS, TABLE_MARKDOWN);
}

Test(results_hostile, texts_reach_no_terminal_raw) {
  result_set set = evil_set(EVIL);
  char *text = fixture_printed(as_text, &set), *markdown = fixture_printed(as_markdown, &set),
       *csv = fixture_printed(results_export_csv, &set);
  expect_harmless(text, "the summary");
  expect_harmless(markdown, "the summary in Markdown");
  expect_harmless(csv, "CSV");
}

Test(results_hostile, cells_are_no_formulas) {
  static const char *const starts[] = {"=1+1", "+1", "-1", "@SUM(A1)", "=HYPERLINK(\"x\",\"y\")"};
  for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
    result_set set = evil_set(starts[i]);
    char *csv = fixture_printed(results_export_csv, &set);
    const char *row = strchr(csv, '\n') + 1;
    cr_expect(strncmp(row, "'", 1) == 0 || strncmp(row, "\"'", 2) == 0, "%.40s", row);
  }
}

Test(results_hostile, an_instruction_set_is_no_command) {
  result_set set = evil_set("x; touch '/tmp/y'");
  char *rerun = repeat_run(&set.rows[0]);
  cr_expect(strstr(rerun, "ATTN_ISA='x; touch '\\''/tmp/y'\\''' attnlab"), "%s", rerun);
  free(rerun);
}

Test(results_hostile, pages_hold_texts_as_texts) {
  result_set set = evil_set(EVIL);
  const char *path = fixture_path("page.html");
  cr_assert_eq(report_write(path, &set, "</title><script>alert(1)</script>", NULL), ATTN_OK, "%s",
               attn_last_error());
  const char *page = fixture_text(path);
  cr_expect(!strstr(page, "fake line \xe2\x80\xae\xc2\x9b\xff</script>") && !strstr(page, "<script>alert"));
  cr_expect_null(strstr(page, "</title><"));
}
