/* nonfinite.c - sweeps over data that hold NaN and infinities: a run names them, is judged by where they may
 * reach, and does not pass without an error. */
#include "tests/support/sweep_fixture.h"

#include "attn_variant.h"
#include "data/data.h"
#include "experiments/evidence/rounding/nonfinite.h"
#include "tests/support/checks_case.h"

TestSuite(runner_nonfinite, .init = command_enter, .fini = command_leave);

enum { N = 96, D = 16, COUNT = 2 * N * D };

/* `value` stands in consecutive rows, from element `at` on. */
static void write_tensor(const char *path, uint64_t stream, int64_t at, int64_t rows, double value) {
  data_array x = {0};
  cr_assert_eq(data_array_make(ATTN_F32, 4, (int64_t[]){1, 2, N, D}, &x), ATTN_OK);
  attn_rng rng = rng_of(4, 0, stream);
  attn_rng_normals(&rng, COUNT, ATTN_F32, x.at, 0, 1);
  for (int64_t r = 0; r < rows; r++) attn_set(x.at, at + r * D, ATTN_F32, value);
  cr_assert_eq(data_npy_write(path, &x), ATTN_OK);
  data_array_free(&x);
}

#define CONFIGURATION                                                                          \
  "schema: 1\ngrid: {n: 96, heads: 2, d: 16, causal: [yes, no]}\n"                             \
  "variants: [full, tiled, 'topk:k=8', 'topk:k=8,by=sparq,r=4', 'pages:page=8,budget=16', "    \
  "'longformer:window=8', '2*bigbird:block=8 + 1*linear', 'svd:r=4', 'performer:features=8', " \
  "'sample:count=8']\n"                                                                        \
  "datasets: [{npy: {q: q.npy, k: k.npy, v: v.npy}}]\n" TIMING

static void expect_no_alarm(const char *place) {
  const result_set *set = sweep("", 0, CONFIGURATION);
  int named = 0;
  for (size_t i = 0; i < set->count; i++) {
    const result_row *row = &set->rows[i];
    if (strncmp(row->variant, "null_", 5) == 0) {
      cr_expect(strstr(row->message, place), "%s: '%s'", row->key, row->message);
      continue;
    }
    cr_expect(row->status == RUN_OK && row->verdict != VERDICT_VIOLATED, "%s: %d %s", row->key, row->status,
              row->message);
    cr_expect(!isnan(row->err_rel_fro) ||
                  (row->verdict != VERDICT_PASS && row->verdict != VERDICT_CONSISTENT),
              "%s: verdict %d of an error that is NaN", row->key, row->verdict);
    if (strstr(row->message, place)) named++;
    for (int b = 0; b < result_row_cells(row); b++) {
      const result_bound *cell = result_row_cell(row, b);
      cr_expect(cell->verdict != VERDICT_VIOLATED, "%s: %s %s", row->key, cell->name, cell->message);
    }
  }
  cr_expect_eq(named, 20, "%d rows name %s", named, place);
  remove("x.h5");
}

Test(runner_nonfinite, inputs_are_named, .timeout = 300) {
  write_tensor("q.npy", 0, 10 * D + 3, 1, (double)NAN);
  write_tensor("k.npy", 1, 0, 0, 0);
  write_tensor("v.npy", 2, 0, 0, 0);
  expect_no_alarm("the inputs are not finite: q[0,0,10,3] is nan");
  write_tensor("q.npy", 0, 0, 0, 0);
  write_tensor("k.npy", 1, (N + 40) * D + 2, 1, (double)NAN);
  write_tensor("v.npy", 2, (N + 20) * D + 6, 1, (double)INFINITY);
  expect_no_alarm("the inputs are not finite: k[0,1,40,2] is nan");
  write_tensor("q.npy", 0, 3, N, (double)NAN);
  write_tensor("k.npy", 1, 0, 0, 0);
  expect_no_alarm("the inputs are not finite: q[0,0,0,3] is nan");
}

/* NaN in a component that depends on finite numbers only, and a number where the definition has NaN. */
Test(runner_nonfinite, what_reaches_where) {
  char fault[NONFINITE_TEXT];
  run_case *c = case_make(case_problem(1, 2, 2, 64, 8, 8, true, ATTN_F32), 1, 100);
  case_run(c, "tiled", NULL);
  cr_assert_eq(nonfinite_judge(&c->e, fault), ATTN_OK);
  cr_expect_str_empty(fault);
  float *o = c->o;
  const float kept = o[5 * 8 + 3];
  o[5 * 8 + 3] = NAN;
  cr_assert_eq(nonfinite_judge(&c->e, fault), ATTN_OK);
  cr_expect_str_eq(fault, "output[0,0,5,3] is NaN, but all that it depends on is finite");
  o[5 * 8 + 3] = kept;
  c->exact->o[7 * 8 + 2] = (double)NAN;
  cr_assert_eq(nonfinite_judge(&c->e, fault), ATTN_OK);
  cr_expect_str_eq(fault, "output[0,0,7,2] is a number, but NaN by the definition of attention");
}
