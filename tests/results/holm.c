/* holm.c - Holm's correction on p-values worked out by hand, and what it does to verdicts. */

#include "tests/support/results_fixture.h"

/* Rows with one PROB cell each. */
static void make_rows(result_row *rows, const double *p, const double *repeat, size_t count) {
  for (size_t i = 0; i < count; i++) {
    result_row_init(&rows[i]);
    rows[i].verdict = VERDICT_CONSISTENT;
    result_bound *b = fixture_add_bound(&rows[i], "LIN-1", KIND_PROB, VERDICT_CONSISTENT, p[i]);
    if (repeat) b->p_repeat = repeat[i];
    fixture_add_bound(&rows[i], "FP-1", KIND_HARD, VERDICT_PASS, (double)NAN);
  }
}

static const check_verdict V = VERDICT_VIOLATED, C = VERDICT_CONSISTENT;

static void expect(const double *p, const double *repeat, size_t count, double alpha,
                   const check_verdict *verdicts) {
  result_row *rows = calloc(count, sizeof *rows);
  make_rows(rows, p, repeat, count);
  cr_assert_eq(results_holm(rows, count, alpha), ATTN_OK);
  for (size_t i = 0; i < count; i++) {
    cr_assert_eq(rows[i].bounds[0].verdict, verdicts[i], "cell %zu", i);
    cr_assert_eq(rows[i].verdict, verdicts[i], "row %zu", i);
    cr_assert_eq(rows[i].bounds[1].verdict, VERDICT_PASS);
  }
  /* Doing it again changes nothing: the file's verdicts are those of the journal's p-values. */
  cr_assert_eq(results_holm(rows, count, alpha), ATTN_OK);
  for (size_t i = 0; i < count; i++)
    cr_assert_eq(rows[i].bounds[0].verdict, verdicts[i], "again, cell %zu", i);
  for (size_t i = 0; i < count; i++) result_row_free(&rows[i]);
  free(rows);
}

Test(results_holm, steps_down_as_by_hand) {
  /* alpha 0.05, m = 4: 0.005 <= 0.05/4, 0.01 <= 0.05/3, 0.03 > 0.05/2, so it stops and 0.04 stays, though
   * 0.04 <= 0.05. */
  expect((const double[]){0.01, 0.04, 0.03, 0.005}, NULL, 4, 0.05, (const check_verdict[]){V, C, C, V});
}

Test(results_holm, the_least_decides_whether_it_starts) {
  /* Bonferroni's level for the least of three is 1e-3/3. */
  expect((const double[]){4e-4, 4e-4, 4e-4}, NULL, 3, 1e-3, (const check_verdict[]){C, C, C});
  expect((const double[]){3e-4, 5e-4, 9e-4}, NULL, 3, 1e-3, (const check_verdict[]){V, V, V});
  expect((const double[]){1e-3}, NULL, 1, 1e-3, (const check_verdict[]){V});
  expect((const double[]){1.001e-3}, NULL, 1, 1e-3, (const check_verdict[]){C});
  expect((const double[]){0, 1}, NULL, 2, 1e-3, (const check_verdict[]){V, C});
}

Test(results_holm, a_repetition_that_does_not_reject_acquits) {
  expect((const double[]){1e-9, 1e-9, 0.5}, (const double[]){0.2, 1e-5, (double)NAN}, 3, 1e-3,
         (const check_verdict[]){C, V, C});
}

Test(results_holm, only_consistent_prob_cells_take_part) {
  result_row row;
  make_rows(&row, (const double[]){1e-3}, NULL, 1);
  row.bounds[1].p_value = 0; /* HARD */
  fixture_add_bound(&row, "FAV-3", KIND_PROB, VERDICT_UNCERTIFIABLE, 1e-12);
  fixture_add_bound(&row, "FP-5", KIND_MODEL, VERDICT_CONSISTENT, 1e-12);
  cr_assert_eq(results_holm(&row, 1, 1e-3), ATTN_OK);
  cr_assert_eq(row.bounds[0].verdict, VERDICT_VIOLATED);
  cr_assert_eq(row.bounds[1].verdict, VERDICT_PASS);
  cr_assert_eq(row.bounds[2].verdict, VERDICT_UNCERTIFIABLE);
  cr_assert_eq(row.bounds[3].verdict, VERDICT_CONSISTENT);
  result_row_free(&row);
}

Test(results_holm, a_p_value_that_is_no_number_is_an_error) {
  result_row rows[2];
  make_rows(rows, (const double[]){(double)NAN, 0.5}, NULL, 2);
  cr_assert_eq(results_holm(rows, 2, 1e-3), ATTN_OK);
  cr_assert_eq(rows[0].bounds[0].verdict, VERDICT_ERROR);
  cr_assert_eq(rows[0].verdict, VERDICT_ERROR);
  cr_assert_eq(rows[1].verdict, VERDICT_CONSISTENT);
  for (size_t i = 0; i < 2; i++) result_row_free(&rows[i]);
}

Test(results_holm, loading_a_journal_corrects_over_all_its_rows) {
  const char *path = fixture_path("holm.jsonl");
  journal *j = NULL;
  cr_assert_eq(journal_open(path, "b", NULL, &j), ATTN_OK);
  for (int64_t i = 0; i < 3; i++) {
    result_row row = fixture_row(4 + 6 * i); /* linformer, with LIN-1 */
    row.bounds[1].p_value = i == 0 ? 6e-4 : i == 1 ? 4e-4 : 1e-4;
    cr_assert_eq(journal_append(j, &row), ATTN_OK);
    result_row_free(&row);
  }
  journal_close(j);
  result_set set;
  cr_assert_eq(results_load(&path, 1, &set), ATTN_OK);
  /* 1e-4 <= 1e-3/3, 4e-4 <= 1e-3/2, 6e-4 <= 1e-3. */
  for (size_t i = 0; i < 3; i++) cr_assert_eq(set.rows[i].verdict, VERDICT_VIOLATED);
  result_set_free(&set);
}
