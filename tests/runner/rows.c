/* rows.c - which rows the errors of a sweep are of: all where that is affordable or asked for, else some. */
#include "tests/support/sweep_fixture.h"

#include "experiments/grid/config.h"

TestSuite(rows, .init = command_enter, .fini = command_leave, .timeout = 120);

static void expect_rows(const result_row *row, int64_t rows) {
  const bool whole = rows == 4 * 1200;
  const double width = row->err_rel_fro_hi - row->err_rel_fro_lo,
               cert = row->err_rel_fro_cert_hi - row->err_rel_fro_cert_lo,
               mean = row->err_rel_l2_mean_hi - row->err_rel_l2_mean_lo;
  expect_status(row, RUN_OK);
  cr_expect_eq(row->rows_sampled, rows, "%s: %lld", row->key, (long long)row->rows_sampled);
  cr_expect(whole ? width == 0 && cert == 0 && mean == 0 : width > 0 && mean > 0, "%s: %g, %g, %g", row->key,
            width, cert, mean);
  cr_expect_eq(row->err_max_tail == 0, whole);
}

Test(rows, errors_are_of_all_rows_where_that_is_affordable) {
  const result_set *set = sweep("-q --threads=1", 0,
                                "schema: 1\ngrid: {n: 1200, heads: 4, d: 16, causal: yes}\n"
                                "variants: [\"longformer:window=32\"]\ndatasets: [gaussian: {std_q: 2}]\n"
                                "rows: [auto, all, 8]\n" TIMING);
  cr_assert_eq(set->count, 3 * 4);
  for (size_t i = 0; i < set->count; i++) {
    const result_row *row = &set->rows[i];
    cr_expect_eq(row->rows == ROWS_ALL, strstr(row->key, " rows=all ") != NULL);
    cr_expect_eq(row->rows == 8, strstr(row->key, " rows=8 ") != NULL);
    if (strcmp(row->variant, "null_zeros") != 0) expect_rows(row, row->rows == 8 ? 4 * 8 : 4 * 1200);
    for (size_t j = 0; j < i; j++)
      if (strcmp(set->rows[j].variant, row->variant) == 0 && set->rows[j].rows != 8 && row->rows != 8)
        cr_expect(row->err_rel_fro == set->rows[j].err_rel_fro &&
                  row->err_max_abs == set->rows[j].err_max_abs);
  }
  command_write_text("x.yaml", "schema: 1\ngrid: {n: 1200, heads: 4, d: 16}\nvariants: tiled\n"
                               "datasets: gaussian\nnulls: no\nbudget: {memory: 4Mi}\n" TIMING);
  cr_expect_neq(run("run x.yaml -o y.h5 -q --threads=1"), 2, "%s", result.err); /* too little for a process */
  result_set small = read_results("y.h5");
  cr_expect(small.count == 1 && small.rows[0].rows_sampled < 4 * 1200);
}

Test(rows, values_that_are_none) {
  static const char *const wrong[] = {"1", "some", "-4", "2Gi", "[all, 0]"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    config *c;
    const char *text =
        text_of("schema: 1\ngrid: {n: 64}\nvariants: full\ndatasets: gaussian\nrows: %s\n", wrong[i]);
    cr_expect_eq(config_parse("x.yaml", text, strlen(text), NULL, 0, &c), ATTN_EINVAL, "%s", wrong[i]);
    expect_says(attn_last_error(), "expected auto, all, or an integer from 2 to");
  }
}
