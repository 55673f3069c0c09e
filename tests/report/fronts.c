/* fronts.c - which settings are offered to the reader, and on a front of error against time, memory or
 * keys. */

#include "experiments/analysis/doubts.h"
#include "tests/support/results_fixture.h"

/* Of 512 queries, in one group with others; kept. */
static result_row row_of(int64_t variant) {
  result_row row = fixture_row(variant);
  row.causal = 1;
  row.block_k = 96;
  row.verdict = VERDICT_PASS;
  return kept_row(row);
}

/* An error of 1 is that of zeros: what has it, or more, is on no front, however fast and small; what is a
 * little better may be. */
Test(report_fronts, what_errs_as_zeros_do_is_on_no_front) {
  result_row rows[3] = {row_of(2), row_of(3), row_of(5)};
  const result_set set = {.rows = rows, .count = 3};
  const double errors[][3] = {{1.5, 0.9, 0.2}, {1, 0.999, 0.2}, {(double)INFINITY, 0.5, 0.2}};
  for (int i = 0; i < 3; i++) {
    rows[i].time_median = rows[i].peak_alloc = i + 1; /* the worse, the faster and the smaller */
  }
  for (size_t e = 0; e < sizeof errors / sizeof *errors; e++) {
    for (int i = 0; i < 3; i++) rows[i].err_rel_fro = errors[e][i];
    const results_model model = model_of(&set);
    cr_assert(model.groups_count == 1 && model.groups[0].count == 3);
    for (size_t l = 0; l < 3; l++) {
      const model_cell *cell = &model.groups[0].lines[l].cells[0];
      const bool worthless = cell->error.mid >= 1;
      cr_expect(worthless ? cell->no_better && strcmp(cell->no_better, "zeros") == 0 : !cell->no_better,
                "error %g", cell->error.mid);
      cr_expect(cell->front_time == !worthless && cell->front_memory == !worthless, "error %g",
                cell->error.mid);
    }
  }
}

/* So is what errs as much as the mean of V, where that was run; random keys are no such yardstick, and what
 * is exact by its statement errs by rounding alone. */
Test(report_fronts, what_errs_as_the_mean_of_v_does_is_on_no_front) {
  static const char *const nulls[] = {"null_mean_v", "null_random_keys"};
  result_row rows[4] = {row_of(2), row_of(3), row_of(1), row_of(5)};
  const result_set set = {.rows = rows, .count = 4};
  static const double errors[] = {0.31, 0.29, 0.4, 0.3};
  for (int i = 0; i < 4; i++) {
    rows[i].err_rel_fro = errors[i];
    rows[i].time_median = i + 1;
  }
  rows[3].verdict = VERDICT_NOT_APPLICABLE;
  for (int n = 0; n < 2; n++) {
    rows[3].variant = nulls[n];
    const results_model model = model_of(&set);
    cr_assert(model.groups_count == 1 && model.groups[0].count == 4);
    for (size_t l = 0; l < 4; l++) {
      const model_line *line = &model.groups[0].lines[l];
      const model_cell *cell = &line->cells[0];
      const bool beaten = n == 0 && strcmp(model.settings[line->setting].row->variant, "longformer") == 0;
      cr_expect(beaten ? cell->no_better && strcmp(cell->no_better, "the mean of V") == 0 : !cell->no_better,
                "%s: %s", nulls[n], model.labels[line->setting]);
      cr_expect_eq(cell->offered, !beaten && cell->judged, "%s: %s", nulls[n], model.labels[line->setting]);
      cr_expect(!beaten || (!cell->front_time && !cell->front_memory && !cell->front_keys));
    }
  }
}

/* Of three settings the first is as small as the second and less accurate, and the third has a seed without a
 * result, or with a wrong one. */
Test(report_fronts, what_is_offered_is_whole_and_on_a_front_if_nothing_beats_it) {
  result_row rows[4] = {row_of(2), row_of(3), row_of(5), row_of(5)};
  const result_set set = {.rows = rows, .count = 4};
  static const double errors[] = {0.4, 0.3, 0.1, 0.1}, keys[] = {10, 20, 5, 5},
                      ceilings[] = {0.5, (double)NAN, 0.3, 0.2};
  for (int i = 0; i < 4; i++) {
    rows[i].peak_alloc = 1024;
    rows[i].time_median = i + 1;
    rows[i].err_rel_fro = errors[i];
    rows[i].keys_mean = keys[i];
    rows[i].err_rel_fro_cert_hi = ceilings[i];
    rows[i].seed = i == 3;
  }
  for (int bad = 0; bad < 3; bad++) {
    const bool broken = bad;
    rows[2].status = bad == 1 ? RUN_CRASHED : RUN_OK;
    if (bad == 2) rows[2].verdict = VERDICT_VIOLATED;
    const results_model model = model_of(&set);
    cr_assert(model.groups_count == 1 && model.groups[0].count == 3);
    const model_line *lines = model.groups[0].lines;
    for (int l = 0; l < 3; l++)
      cr_expect(lines[l].cells[0].offered == (!broken || l < 2) && lines[l].cells[0].status == RUN_OK);
    cr_expect(!lines[0].cells[0].front_memory && lines[0].cells[0].front_time);
    cr_expect_eq(lines[1].cells[0].front_memory, broken);
    cr_expect(lines[0].cells[0].front_keys == broken && lines[1].cells[0].front_keys == broken);
    cr_expect_eq(lines[2].cells[0].front_keys, !broken);
    cr_expect(same_number(lines[0].cells[0].ceiling, 0.5) && isnan(lines[1].cells[0].ceiling));
    cr_expect(same_number(lines[2].cells[0].ceiling, bad == 1 ? 0.2 : 0.3));
    cr_expect(!setting_exact(&(result_row){.variant = "tiled", .label = "tiled:skip=0.9"}));
    cr_expect(!model.settings[lines[0].setting].drawn && model.settings[lines[2].setting].drawn);
  }
}

/* Runs of two seeds are slower than exact attention with the same seed, in each round by another factor: each
 * round counts once, by its geometric mean, if both have samples of it. Of another seed, the measure is the
 * first exact run that was timed: exact attention draws nothing, and runs once. Rounds of another draw of the
 * data are others, and of another session. */
Test(report_fronts, speed_ups_are_of_the_same_seed_and_round) {
  enum { COUNT = 6 };
  static const int ends[3][4] = {{4, 6, 12, 14}, {12, 14, 18, 18}, {1, 1, 5, 5}}; /* of the rounds */
  static const double times[][4] = {
      {0}, {0.1, 0.1, 0.1, 0.1}, {9, 9, 9, 9}, {0.2, 0.3, 0.4, 1}, {180, 270, 360, 1}, {0.5, 0.6, 0.7, 1}};
  result_row rows[COUNT] = {row_of(1), row_of(1), row_of(1), row_of(2), row_of(2), row_of(3)};
  const result_set set = {.rows = rows, .count = COUNT};
  rows[0].status = RUN_CRASHED;
  for (int i = 0; i < COUNT; i++) {
    rows[i].seed = i == 5 ? 9 : i % 3 + i / 3;
    rows[i].n_samples = ends[(i - 1) / 2][3];
    for (int s = 0, r = 0; s < ends[(i - 1) / 2][3]; s++) {
      while (s >= ends[(i - 1) / 2][r]) r++;
      rows[i].rounds[s] = r;
      rows[i].samples[s] = (1 + r) * times[i][r] * exp(i % 5 < 3 ? 0 : s % 2 ? 0.1 : -0.1);
    }
  }
  const results_model model = model_of(&set);
  cr_assert(model.groups_count == 1 && model.groups[0].count == 3);
  const fit_interval *two = &model.groups[0].lines[1].cells[0].speedup,
                     *one = &model.groups[0].lines[2].cells[0].speedup;
  cr_expect_float_eq(two->mid, 1 / sqrt(4 * 20), 1e-12);
  cr_expect(two->lo < two->mid && two->mid < two->hi);
  cr_expect(fabs(one->lo - 1 / 7.0) + fabs(one->mid - 1 / sqrt(5 * 7)) + fabs(one->hi - 1 / 5.0) < 1e-12);
  rows[5].data_seed = rows[2].data_seed = 1;
  cr_expect_float_eq(model_of(&set).groups[0].lines[2].cells[0].speedup.mid, 9 / sqrt(0.5 * 0.7), 1e-12);
  rows[5].session = 1;
  cr_expect(isnan(model_of(&set).groups[0].lines[2].cells[0].speedup.lo));
}

/* Of three files. The first has three exact lines: the measure is the one with the most lengths, of two such
 * the faster in the geometric mean, where it was run. Other files' are none, nor is what has no time. A front
 * is of one length. */
Test(report_fronts, lines_compare_with_the_exact_one_of_their_file) {
  static const struct {
    int64_t variant, block, n;
    double time, speedup;
    const char *file;
  } runs[] = {{1, 1, 512, 4, 0, "a"},    {1, 2, 1024, 2, 0, "a"},          {1, 2, 2048, 12, 0, "a"},
              {1, 3, 1024, 3, 0, "a"},   {1, 3, 2048, 4, 0, "a"},          {2, 0, 512, 5, (double)NAN, "a"},
              {2, 0, 1024, 6, 0.5, "a"}, {2, 0, 2048, 2, 2, "a"},          {2, 0, 256, 36, 0.25, "b"},
              {1, 4, 256, 9, 0, "b"},    {1, 5, 256, (double)NAN, 0, "c"}, {2, 0, 256, 8, (double)NAN, "c"}};
  enum { COUNT = sizeof runs / sizeof *runs };
  result_row rows[COUNT];
  const result_set set = {.rows = rows, .count = COUNT};
  for (int i = 0; i < COUNT; i++) {
    rows[i] = row_of(runs[i].variant);
    rows[i].params = names_keep(text_of("{\"block_q\":%d}", (int)runs[i].block));
    rows[i].n = rows[i].n_kv = runs[i].n;
    rows[i].time_median = runs[i].time;
    rows[i].source = runs[i].file;
    rows[i].threads = *runs[i].file; /* the same in a file */
    if (runs[i].variant != 1) rows[i].samples = NULL;
  }
  const results_model model = model_of(&set);
  const model_group *g = model.groups;
  cr_assert_eq(model.groups_count, 1);
  cr_expect_eq(g->lengths_count, 4);
  for (size_t i = 0; i < g->lengths_count; i++) cr_expect_eq(g->lengths[i].n, 256 << i);
  for (const model_line *l = g->lines; l < g->lines + g->count; l++) {
    const char file = *model.settings[l->setting].row->source;
    cr_expect(file != 'c' || l->exact == g->count);
    for (size_t c = 0; c < l->count && !model.settings[l->setting].exact; c++) {
      const int64_t i = model.rows[l->cells[c].first] - rows;
      cr_expect(same_number(runs[i].speedup, l->cells[c].speedup.mid), "%g", l->cells[c].speedup.mid);
      cr_expect_eq(l->cells[c].front_time, file == 'c' || runs[i].n == 2048, "%d", (int)i);
    }
  }
}

/* Medians over seeds, from the least end of a run's interval to the largest; the exponent over two lengths is
 * as sure as their two intervals, each of 2 1.96 deviations. */
Test(report_fronts, a_cell_reaches_over_its_runs) {
  result_row rows[4] = {row_of(2), row_of(2), row_of(2), row_of(2)};
  const result_set set = {.rows = rows, .count = 4};
  for (int i = 0; i < 4; i++) {
    const double size = i < 2 ? 1 : 4, seed = i % 2 ? 3 : 1;
    rows[i].n = rows[i].n_kv = 512 * (int64_t)size;
    rows[i].seed = i % 2;
    rows[i].time_median = seed * pow(size, 1.5);
    rows[i].time_ci_lo = rows[i].time_median / 1.1;
    rows[i].time_ci_hi = rows[i].time_median * 1.1;
    rows[i].peak_alloc = seed * size;
    rows[i].err_rel_fro = seed;
    rows[i].err_rel_fro_lo = seed - 0.5;
    rows[i].err_rel_fro_hi = seed + 0.5;
    rows[i].peak_rss = 10 * size - seed;
    rows[i].kept_mass_mean = 1 - seed / 8;
    rows[i].regret_mean = seed / 16;
  }
  rows[0].verdict = VERDICT_UNCHECKED;
  const results_model model = model_of(&set);
  cr_assert(model.groups_count == 1 && model.groups[0].count == 1 && model.groups[0].lines[0].count == 2);
  const model_line *line = model.groups[0].lines;
  const fit_interval found[] = {line->cells[0].time, line->cells[0].memory, line->cells[0].error,
                                line->time.exponent, line->memory.exponent},
                     wanted[] = {{2, 1 / 1.1, 3.3}, {2, 1, 3}, {2, 0.5, 3.5}, {1.5, 0, 0}, {1, 0, 0}};
  for (int i = 0; i < 5; i++) {
    const double reach = i > 2 ? log(wanted[i - 3].hi / wanted[i - 3].lo) / (sqrt(2) * log(4)) : 0,
                 lo = i > 2 ? wanted[i].mid - reach : wanted[i].lo,
                 hi = i > 2 ? wanted[i].mid + reach : wanted[i].hi;
    cr_expect(fabs(found[i].mid - wanted[i].mid) + fabs(found[i].lo - lo) + fabs(found[i].hi - hi) < 1e-12,
              "%d: %g, %g, %g", i, found[i].lo, found[i].mid, found[i].hi);
  }
  for (int l = 0; l < 2; l++) {
    const model_cell *cell = &line->cells[l];
    cr_expect(cell->left_out == 0.25 && cell->regret == 0.125 && cell->unchecked == !l && cell->judged == l);
    cr_expect(model.groups[0].lengths[l].process == (l ? 39 : 9), "the most of all seeds");
    cr_expect(cell->doubts == (doubts_of(&rows[2 * l]) | doubts_of(&rows[2 * l + 1])));
  }
  cr_expect_float_eq(model.groups[0].process.exponent.mid, log(39 / 9.0) / log(4), 1e-12);
}
