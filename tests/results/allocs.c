/* allocs.c - every allocation of a table, a page, JSON or CSV refused in turn: the output is whole and the
 * same, or there is an error. malloc is stood in for, so that what libraries allocate is refused, too;
 * sanitizers do so themselves, and this test is not built with them. */
#include <gsl/gsl_errno.h>

#include "data/support/json_text.h"
#include "experiments/report/changes.h"
#include "experiments/report/explain_violations.h"
#include "experiments/report/page.h"
#include "experiments/report/summary.h"
#include "tests/support/refuse.h"
#include "tests/support/results_fixture.h"

/* Nothing here is to outlive a crash of the machine. */
int fsync(int fd) { return fd < 0 ? -1 : 0; }
int fdatasync(int fd) { return fd < 0 ? -1 : 0; }

/* ---- what is printed ----------------------------------------------------------------------------------- */

/* With a buffer that is not allocated. */
static FILE *open_file(const char *path) {
  static char buffer[1 << 18];
  const bool paused = refuse_paused;
  refuse_paused = true;
  FILE *file = fopen(path, "wb");
  setvbuf(file, buffer, _IOFBF, sizeof buffer);
  refuse_paused = paused;
  return file;
}

static attn_status to_file(const char *path, attn_status (*print)(FILE *, const result_set *),
                           const result_set *set) {
  FILE *file = open_file(path);
  attn_status status = print(file, set);
  refuse_paused = true;
  fclose(file);
  return status;
}

static attn_status table(FILE *file, const result_set *set) {
  return summary_print(file, set, SUMMARY_RUNS | SUMMARY_BOUNDS, TABLE_TEXT);
}
static attn_status summary(const char *path, const result_set *set) { return to_file(path, table, set); }
static attn_status verdicts(FILE *file, const result_set *set) {
  json_t *json = explain_json(set);
  const attn_status status = json_write(file, json, 0);
  json_decref(json);
  return status;
}
static attn_status json(const char *path, const result_set *set) { return to_file(path, verdicts, set); }
static attn_status csv(const char *path, const result_set *set) {
  return to_file(path, results_export_csv, set);
}
static attn_status page(const char *path, const result_set *set) {
  return report_write(path, set, "title", NULL);
}

/* The set against itself, as text and as JSON. */
static attn_status comparison(const char *path, const result_set *set, bool json) {
  result_pairs pairs = {0};
  results_change change = {0};
  attn_status status = pairs_make(set, set, &pairs);
  if (!status) status = change_make(&pairs, 1.05, &change);
  const changes all = {{"a", set}, {"b", set}, 1.05, &pairs, &change};
  FILE *file = open_file(path);
  if (!status) status = json ? changes_print_json(file, &all) : changes_print(file, &all, true);
  refuse_paused = true;
  fclose(file);
  change_free(&change), pairs_free(&pairs);
  return status;
}
static attn_status compared(const char *path, const result_set *set) { return comparison(path, set, false); }
static attn_status compared_json(const char *path, const result_set *set) {
  return comparison(path, set, true);
}

/* The set is read again from its journal, and printed. */
static attn_status loaded(const char *path, const result_set *set) {
  const char *source = fixture_path("alloc.jsonl");
  result_set read;
  (void)set;
  const attn_status status = results_load(&source, 1, &read);
  if (status) return status;
  refuse_paused = true;
  to_file(path, results_export_csv, &read);
  result_set_free(&read);
  return ATTN_OK;
}

/* ---- the sweep ----------------------------------------------------------------------------------------- */

static result_set some_rows(void) {
  result_set set = fixture_set(8);
  free(set.rows[3].message);
  set.rows[3].message = strdup("\xce\xb2 is no ASCII");
  set.rows[3].status = RUN_FAILED;
  fixture_add_bound(&set.rows[2], "FP-1", KIND_HARD, VERDICT_VIOLATED, (double)NAN);
  fixture_add_bound(&set.rows[4], "LIN-1", KIND_PROB, VERDICT_VIOLATED, 1e-9);
  set.rows[2].verdict = set.rows[4].verdict = VERDICT_VIOLATED;
  return set;
}

static void sweep(const char *what, attn_status (*print)(const char *, const result_set *), long step) {
  char good[64], bad[64];
  gsl_set_error_handler_off(); /* as the program does */
  result_set set = some_rows();
  snprintf(good, sizeof good, "%s", fixture_path("good"));
  snprintf(bad, sizeof bad, "%s", fixture_path("bad"));
  cr_assert_eq(print(good, &set), ATTN_OK, "%s", attn_last_error());
  char *wanted;
  const size_t size = fixture_read(good, &wanted);
  long silent = 0, total = 0;
  for (int all = 0; all < 2; all++)
    for (long k = 0, hit = 1; hit; k += all ? 17 * step : step) {
      unlink(bad);
      attn_fail(ATTN_OK, "nothing recorded");
      refuse_from(k, all);
      refuse_paused = false;
      const attn_status status = print(bad, &set);
      refuse_paused = true;
      hit = refuse_calls() > k;
      total += hit;
      if (status) {
        cr_assert(status == ATTN_ENOMEM || status == ATTN_EFOREIGN, "%s, %ld: %s", what, k,
                  attn_last_error());
        cr_assert_str_neq(attn_last_error(), "nothing recorded", "%s, allocation %ld", what, k);
        cr_assert(strcmp(what, "page") || access(bad, F_OK), "%s, %ld: a page stands there", what, k);
        continue;
      }
      silent += hit;
      char *got;
      const size_t length = fixture_read(bad, &got);
      cr_assert(length == size && memcmp(got, wanted, size) == 0,
                "%s: allocation %ld refused%s: another output without an error", what, k,
                all ? ", all after" : "");
      free(got);
    }
  cr_log_info("%s: %ld refused, %ld without consequence\n", what, total, silent);
  free(wanted), result_set_free(&set);
}

TestSuite(results_allocs, .timeout = 300);
Test(results_allocs, summary) { sweep("summary", summary, 1); }
Test(results_allocs, json) { sweep("json", json, 1); }
Test(results_allocs, comparison) { sweep("comparison", compared, 1); }
Test(results_allocs, comparison_json) { sweep("comparison as JSON", compared_json, 1); }
Test(results_allocs, csv) { sweep("csv", csv, 1); }
Test(results_allocs, page) { sweep("page", page, 11); }
Test(results_allocs, journal) {
  cr_assert_eq(fixture_journal(fixture_path("alloc.jsonl"), 0, 1, 12, 1e9), ATTN_OK);
  sweep("journal", loaded, 1);
}
