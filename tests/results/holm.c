/* holm.c - the p-values of a set of runs: cells, seeds and groups worked out by hand and by simulation, and
 * what they do to verdicts. */

#include "attn_variant.h"
#include "experiments/results/bound.h"
#include "tests/support/results_fixture.h"

/* Rows with one PROB cell each, of variants of their own: as many groups. */
static void make_rows(result_row *rows, const double *p, const double *repeat, size_t count) {
  for (size_t i = 0; i < count; i++) {
    result_row_init(&rows[i]);
    rows[i].verdict = VERDICT_CONSISTENT;
    rows[i].variant = names_keep(text_of("variant%d", (int)i));
    result_bound *b = fixture_add_bound(&rows[i], "LIN-1", KIND_PROB, VERDICT_CONSISTENT, p[i]);
    if (repeat) b->p_repeat = repeat[i];
    fixture_add_bound(&rows[i], "FP-1", KIND_HARD, VERDICT_PASS, (double)NAN);
  }
}

static const check_verdict V = VERDICT_VIOLATED, C = VERDICT_CONSISTENT;

static void expect(const double *p, const double *repeat, size_t count, double alpha,
                   const check_verdict *verdicts) {
  result_row *rows = kept_memory(calloc(count, sizeof *rows));
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

/* t = 1e-3: p = 1e-9 and p' = 0.2 are 1e-3 F(2e-7) = 3.3e-9, and p' = 1e-5: 2.6e-13; 1e-4 and 0.9 are 3.1e-4,
 * a repetition that finds nothing. 1e-2 is not repeated. */
Test(results_holm, a_repetition_weighs_as_much_as_the_run) {
  const double p[] = {1e-9, 1e-9, 1e-4, 1e-2}, repeat[] = {0.2, 1e-5, 0.9, (double)NAN};
  expect(p, repeat, 4, 3 * 3.2e-9, (const check_verdict[]){C, V, C, C});
  expect(p, repeat, 4, 3 * 3.4e-9, (const check_verdict[]){V, V, C, C});
  expect(p, repeat, 4, 2 * 3.0e-4, (const check_verdict[]){V, V, C, C});
  expect(p, repeat, 4, 2 * 3.2e-4, (const check_verdict[]){V, V, V, C});
}

/* A sweep of a variant with one PROB cell a run: p(seed, cell), repeated below the limit. Returns how many
 * are violated at the sweep's level. */
static int sweep(int seeds, int cells, double (*draw)(attn_rng *, int seed), attn_rng *rng) {
  result_row *rows = calloc((size_t)(seeds * cells), sizeof *rows);
  int violated = 0;
  for (int i = 0; i < seeds * cells; i++) {
    result_row_init(&rows[i]);
    rows[i].variant = "performer";
    rows[i].params = "{}";
    rows[i].seed = i % seeds;
    double p = draw(rng, i % seeds);
    result_bound *b = fixture_add_bound(&rows[i], "FAV-3", KIND_PROB, VERDICT_CONSISTENT, p);
    if (p < RESULTS_REPEAT) b->p_repeat = draw(rng, i % seeds);
  }
  cr_assert_eq(results_holm(rows, (size_t)(seeds * cells), RESULTS_ALPHA), ATTN_OK);
  for (int i = 0; i < seeds * cells; i++) {
    violated += rows[i].bounds[0].verdict == VERDICT_VIOLATED;
    result_row_free(&rows[i]);
  }
  free(rows);
  return violated;
}

static double always(attn_rng *rng, int seed) {
  (void)rng;
  (void)seed;
  return 2.1e-4;
}

static double first_seed(attn_rng *rng, int seed) { return seed == 0 ? 1e-7 : attn_rng_uniform(rng); }

/* One seed at 2.1e-4 is p = 4.9e-7 with its repetition; in twenty cells of a sweep it is 1e-5. */
Test(results_holm, more_seeds_say_more) {
  attn_rng rng;
  attn_rng_init(&rng, 1, 2, 3);
  cr_expect(sweep(1, 1, always, &rng) == 1 && sweep(1, 100, always, &rng) == 0);
  for (int seeds = 3; seeds <= 30; seeds += 9) cr_expect_eq(sweep(seeds, 100, always, &rng), 100 * seeds);
  /* and the one that says all is not outvoted */
  for (int seeds = 1; seeds <= 30; seeds++) cr_expect_geq(sweep(seeds, 20, first_seed, &rng), 20);
}

static double honest(attn_rng *rng, int seed) {
  (void)seed;
  return attn_rng_uniform(rng);
}

/* Cells, repetitions and seeds at a level that can be counted: never more often than it says, and nearly as
 * often where cells are one for each seed. */
Test(results_holm, levels_by_simulation) {
  enum { RUNS = 40000 };
  static const int seeds[] = {1, 1, 3, 10}, cells[] = {1, 5, 1, 4};
  attn_rng rng;
  attn_rng_init(&rng, 3, 2, 1);
  for (int t = 0; t < 4; t++) {
    int rejected = 0;
    for (int run = 0; run < RUNS; run++) {
      result_row rows[40];
      int count = seeds[t] * cells[t], violated = 0;
      for (int i = 0; i < count; i++) {
        result_row_init(&rows[i]);
        rows[i].seed = i % seeds[t];
        double p = attn_rng_uniform(&rng);
        result_bound *b = fixture_add_bound(&rows[i], "FAV-3", KIND_PROB, VERDICT_CONSISTENT, p);
        if (p < RESULTS_REPEAT) b->p_repeat = attn_rng_uniform(&rng);
      }
      cr_assert_eq(results_holm(rows, (size_t)count, 5e-4), ATTN_OK);
      for (int i = 0; i < count; i++) {
        violated += rows[i].bounds[0].verdict == VERDICT_VIOLATED;
        result_row_free(&rows[i]);
      }
      rejected += violated > 0;
    }
    double expected = 5e-4 * RUNS;
    cr_expect(rejected < expected + 4 * sqrt(expected), "%d seeds, %d cells: %d rejected", seeds[t], cells[t],
              rejected);
    cr_expect(rejected > 0.2 * expected, "%d seeds, %d cells: %d rejected", seeds[t], cells[t], rejected);
  }
}

/* 200 sweeps of the size of the default one: 25 groups of 3 seeds and 20 cells. */
Test(results_holm, two_hundred_sweeps_are_silent) {
  attn_rng rng;
  attn_rng_init(&rng, 4, 4, 4);
  for (int run = 0; run < 200 * 25; run++) cr_assert_eq(sweep(3, 20, honest, &rng), 0);
}

/* In this order, whichever comes first; what does not apply says nothing. */
Test(results_holm, the_worse_of_two_verdicts_stands) {
  static const check_verdict order[] = {VERDICT_NOT_APPLICABLE, VERDICT_PASS,      VERDICT_CONSISTENT,
                                        VERDICT_UNCERTIFIABLE,  VERDICT_UNCHECKED, VERDICT_ERROR,
                                        VERDICT_VIOLATED};
  for (int a = 0; a < 7; a++)
    for (int b = 0; b < 7; b++) {
      const result_bound two[] = {fixture_bound("FP-1", KIND_HARD, order[a], 1),
                                  fixture_bound("FP-2", KIND_PROB, order[b], 1)};
      cr_expect_eq(bounds_worst(two, 2), a || b ? order[a > b ? a : b] : VERDICT_UNCHECKED, "%d, %d", a, b);
    }
}

Test(results_holm, only_consistent_prob_cells_take_part) {
  result_row row;
  make_rows(&row, (const double[]){1e-3}, NULL, 1);
  row.bounds[1].p_value = 0; /* HARD */
  fixture_add_bound(&row, "FAV-3", KIND_PROB, VERDICT_UNCERTIFIABLE, 1e-12);
  fixture_add_bound(&row, "FP-5", KIND_MODEL, VERDICT_CONSISTENT, 1e-12);
  cr_assert(results_holm(&row, 1, 1e-3) == ATTN_OK && row.bounds[0].verdict == VERDICT_VIOLATED);
  cr_assert(row.bounds[1].verdict == VERDICT_PASS && row.bounds[2].verdict == VERDICT_UNCERTIFIABLE);
  cr_assert_eq(row.bounds[3].verdict, VERDICT_CONSISTENT);
  result_row_free(&row);
}

Test(results_holm, a_p_value_that_is_no_number_is_an_error) {
  result_row rows[2];
  make_rows(rows, (const double[]){(double)NAN, 0.5}, NULL, 2);
  cr_assert(results_holm(rows, 2, 1e-3) == ATTN_OK && rows[0].bounds[0].verdict == VERDICT_ERROR);
  cr_assert(rows[0].verdict == VERDICT_ERROR && rows[1].verdict == VERDICT_CONSISTENT);
  for (size_t i = 0; i < 2; i++) result_row_free(&rows[i]);
}

Test(results_holm, loading_a_journal_corrects_over_all_its_rows) {
  const char *path = fixture_path("holm.jsonl");
  journal *j = NULL;
  cr_assert_eq(journal_open(path, &rows_of_sweep, "b", NULL, &j), ATTN_OK);
  for (int64_t i = 0; i < 3; i++) {
    result_row row = kept_row(fixture_row(4 + 6 * i)); /* linformer, with LIN-1 */
    row.bounds[1].p_value = i == 0 ? 6e-5 : i == 1 ? 4e-5 : 3e-6;
    cr_assert_eq(journal_append(j, &row), ATTN_OK);
  }
  journal_close(j);
  result_set set = load_results(path);
  /* Three cells of one seed: 3 * 3e-6 <= 1e-5. */
  for (size_t i = 0; i < 3; i++) cr_assert_eq(set.rows[i].verdict, VERDICT_VIOLATED);
}
