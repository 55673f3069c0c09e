/* merge.c - attnlab merge of journals that disagree; cases/merge.txt has those that are torn. */
#include "tests/support/command.h"
#include "tests/support/results_fixture.h"

TestSuite(cli_merge, .init = command_enter, .fini = command_leave, .timeout = 60);

/* A journal of one session with one row, changed. */
static void write_journal(const char *path, const char *build, void (*change)(result_row *)) {
  journal *j = NULL;
  json_t *provenance = fixture_provenance(1e9);
  result_row row = fixture_row(4);
  change(&row);
  unlink(path);
  cr_assert_eq(journal_open(path, &rows_of_sweep, build, provenance, &j), ATTN_OK, "%s", attn_last_error());
  cr_assert_eq(journal_append(j, &row), ATTN_OK, "%s", attn_last_error());
  journal_close(j);
  json_decref(provenance), result_row_free(&row);
}

static void nothing(result_row *row) { (void)row; }
/* Holm's correction, and a property that another run of the setting broke, enter the verdict. */
static void times(result_row *row) {
  for (const result_column *c = result_columns; c->name; c++)
    if (c->type == COLUMN_F64 && c->varies && c->measure) result_column_set_f64(row, c, 1.5);
  row->iters_per_sample++;
  row->verdict = VERDICT_VIOLATED;
  fixture_add_bound(row, "PROP-LSE", KIND_PROPERTY, VERDICT_VIOLATED, (double)NAN);
}
static void lost(result_row *row) {
  row->status = RUN_TIMEOUT;
  row->err_rel_fro = (double)NAN;
}
static void error(result_row *row) { row->err_rel_fro *= 1 + 1e-15; }
static void missing(result_row *row) { row->err_kl_mean = (double)NAN; }
static void rows(result_row *row) { row->rows_sampled++; }
static void verdict(result_row *row) { row->bounds[0].verdict = VERDICT_VIOLATED; }
static void measured(result_row *row) { row->bounds[1].measured *= 2; }

Test(cli_merge, what_depends_on_time_may_differ) {
  void (*const changes[])(result_row *) = {nothing, times, lost};
  write_journal("a.jsonl", "one", nothing);
  for (size_t i = 0; i < 3; i++) {
    write_journal("b.jsonl", "two", changes[i]);
    command_run_good("merge -o all.h5 a.jsonl b.jsonl");
    command_run_good("merge -o all.h5 b.jsonl a.jsonl");
  }
}

Test(cli_merge, journals_that_disagree_are_refused) {
  static const struct {
    void (*change)(result_row *);
    const char *says;
  } cases[] = {{error, "err_rel_fro is 0.001666666666666"},
               {missing, "err_kl_mean is "},
               {rows, "rows_sampled is "},
               {verdict, "FP-1's verdict is "},
               {measured, "LIN-1's measured is "}};
  write_journal("a.jsonl", "one", nothing);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    write_journal("b.jsonl", "two", cases[i].change);
    command_run("merge -o all.h5 a.jsonl b.jsonl", &result);
    cr_expect(result.exit_code == 2 && command_diagnostics(&result) == 1, "%zu: %s", i, result.err);
    cr_expect(strstr(result.err, "a.jsonl") && strstr(result.err, "b.jsonl") &&
                  strstr(result.err, "by another build of the program, in run 00000004"),
              "%zu: %s", i, result.err);
    cr_expect(strstr(result.err, cases[i].says), "%zu: %s", i, result.err);
    cr_expect(access("all.h5", F_OK) != 0);
  }
}

/* Within a journal a later row replaces an earlier one: the last ones count, and a lost one between hides
 * nothing. */
Test(cli_merge, the_last_rows_of_three_journals_agree_or_not) {
  journal *j = NULL;
  result_row row = fixture_row(4);
  write_journal("a.jsonl", "one", error);
  cr_assert_eq(journal_open("a.jsonl", &rows_of_sweep, "two", NULL, &j), ATTN_OK);
  cr_assert_eq(journal_append(j, &row), ATTN_OK);
  journal_close(j);
  result_row_free(&row);
  write_journal("b.jsonl", "two", lost);
  write_journal("c.jsonl", "two", nothing);
  command_run_good("merge -o all.h5 a.jsonl b.jsonl c.jsonl");
  write_journal("c.jsonl", "two", error);
  command_run("merge -o other.h5 a.jsonl b.jsonl c.jsonl", &result);
  cr_expect(result.exit_code == 2 && strstr(result.err, "a.jsonl") && strstr(result.err, "c.jsonl"), "%s",
            result.err);
}
