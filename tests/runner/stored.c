/* stored.c - a sweep over types that tensors are stored in: what is judged is the run in fp32 on the same
 * numbers, errors are of outputs as they are stored. */
#include "tests/support/sweep_fixture.h"

TestSuite(runner_stored, .init = command_enter, .fini = command_leave, .timeout = 120);

Test(runner_stored, errors_are_those_of_what_is_stored) {
  const result_set *set =
      sweep("-q", 0,
            "schema: 1\ngrid: {n: 70, heads: 2, kv_heads: 1, d: 8, dtype: [f32, f16, bf16]}\n"
            "variants: [tiled, topk: {k: 8}, performer: {features: 16}]\n"
            "datasets: gaussian\nthreads: 1\n" TIMING);
  int exact = 0;
  for (size_t i = 0; i < set->count; i++) {
    const result_row *row = &set->rows[i];
    const attn_number *stored = &attn_numbers[row->dtype];
    expect_status(row, RUN_OK);
    cr_expect_neq(row->verdict, VERDICT_VIOLATED, "%s", row->key);
    cr_expect(strstr(row->key, stored->name), "%s is of %s", row->key, stored->name);
    if (strcmp(row->variant, "tiled") != 0) continue;
    exact++;
    /* Roundings of an output, at random places between its neighbours. */
    cr_expect(row->err_rel_fro < 2 * stored->unit + 64 * attn_numbers[ATTN_F32].unit, "%s: %g", row->key,
              row->err_rel_fro);
    cr_expect(attn_numbers[row->dtype].arithmetic == (attn_dtype)row->dtype ||
                  row->err_rel_fro > stored->unit / 8,
              "%s: %g", row->key, row->err_rel_fro);
  }
  cr_expect_eq(exact, 3);
}
