/* log_sum.c - the log-sum-exp of a variant that declares it is judged in a sweep: on small problems as a
 * property, and on the run's own rows (plugins/planted.c: off by log 2 everywhere, or from row 512 on). */
#include "tests/support/sweep_fixture.h"

TestSuite(runner_log_sum, .init = command_enter, .fini = command_leave, .timeout = 120);

Test(runner_log_sum, is_judged_in_a_sweep) {
  const result_set *set = sweep("-q --plugin " TEST_BINARY_DIR "/tests/plugins/planted.so", 1,
                                "schema: 1\ngrid: {n: 600, heads: 2, d: 8}\n"
                                "variants: [tiled, planted: {fault: [none, lse_off, lse_late]}]\n"
                                "datasets: gaussian\nthreads: 1\nnulls: no\n" TIMING);
  cr_expect_eq(set->count, 4);
  for (size_t i = 0; i < set->count; i++) {
    const result_row *row = &set->rows[i];
    const result_bound *cell = bound_named(row, "PROP-LSE");
    const bool off = strstr(row->key, "lse_off"), late = strstr(row->key, "lse_late");
    cr_assert(cell, "%s: no cell", row->key);
    cr_expect_eq(cell->verdict, off ? VERDICT_VIOLATED : VERDICT_PASS, "%s: %s", row->key, cell->message);
    expect_status(row, late ? RUN_FAILED : RUN_OK);
    cr_expect(!late || (row->message && strstr(row->message, "lse is")), "%s: %s", row->key, row->message);
  }
}
