/* statistics.c - exponents, crossovers, fronts and doubts of the report, on rows whose answer is known. */

#include "experiments/analysis/estimates.h"
#include "experiments/analysis/doubts.h"
#include "tests/support/results_fixture.h"

static const double lengths[] = {512, 1024, 2048, 4096, 8192};

static fit_power exponent(const double *n, const double *y, const double *sigma, size_t count) {
  fit_power out;
  cr_assert_eq(fit_exponent(n, y, sigma, count, &out), ATTN_OK);
  return out;
}

Test(report_statistics, a_power_law_is_found_with_its_interval) {
  double y[5], sigma[5] = {0}, unknown[5] = {(double)NAN};
  for (int i = 0; i < 5; i++) y[i] = 3e-9 * pow(lengths[i], 1.75);
  const fit_power exact = exponent(lengths, y, sigma, 5);
  cr_expect(exact.points == 5 && fabs(exact.exponent.mid - 1.75) < 1e-12);
  /* Of a hundredth at each, by Student with three degrees of freedom. */
  cr_expect_float_eq(exact.exponent.hi - exact.exponent.lo, 2 * 3.182446 * 0.01 / (log(2) * sqrt(10)), 1e-7);

  y[4] *= 2; /* scatter beyond the stated errors widens the interval */
  const fit_power bent = exponent(lengths, y, unknown, 5);
  cr_expect(bent.exponent.mid > 1.8 && bent.exponent.lo < 1.75);

  y[1] = y[2] = (double)NAN, y[3] = (double)INFINITY;
  const fit_power two = exponent(lengths, y, sigma, 5);
  cr_expect_eq(two.points, 2);
  const fit_power unsure = exponent(lengths, y, unknown, 5);
  cr_expect(unsure.exponent.mid == two.exponent.mid && isnan(unsure.exponent.lo) && !isnan(two.exponent.lo));
  cr_expect_float_eq(two.exponent.mid, 2, 1e-12); /* 1.75 and a doubling over 16 times the length */
  cr_expect_float_eq(two.exponent.hi, 2 + 1.96 * 0.01 * sqrt(2) / log(16), 1e-12);
  y[4] = 0;
  const fit_power one = exponent(lengths, y, sigma, 5);
  cr_expect(one.points == 1 && isnan(one.exponent.mid) && isnan(one.exponent.lo));
}

/* Ratios (n / at)^-slope, each with a spread of some percent; where they cross. */
static fit_crossing fill(fit_ratios *ratios, double values[][9], fit_interval *speedups, double at,
                         double slope, double spread) {
  fit_crossing crossing;
  for (int i = 0; i < 5; i++) {
    for (int k = 0; k < 9; k++) values[i][k] = -slope * log(lengths[i] / at) + spread * (2 * k % 9 - 4);
    ratios[i] = (fit_ratios){lengths[i], values[i], 9};
  }
  cr_assert_eq(fit_cross(ratios, 5, &crossing, speedups), ATTN_OK);
  return crossing;
}

Test(report_statistics, a_crossover_is_interpolated_or_out_of_range) {
  fit_ratios ratios[5];
  fit_interval speedups[5];
  double values[5][9];

  fit_crossing crossing = fill(ratios, values, speedups, 3000, 0.8, 0.01);
  cr_expect_eq(crossing.kind, CROSSING_TO_FASTER);
  cr_expect_float_eq(crossing.n.mid, 3000, 1e-6);
  cr_expect(crossing.n.lo < 3000 && crossing.n.lo > 2700 && crossing.n.hi > 3000 && crossing.n.hi < 3300);
  cr_expect_float_eq(speedups[4].mid, pow(8192 / 3000., 0.8), 1e-9);
  cr_expect(speedups[4].lo < speedups[4].mid && speedups[4].mid < speedups[4].hi);

  crossing = fill(ratios, values, speedups, 3000, -0.8, 0.01);
  cr_expect_eq(crossing.kind, CROSSING_TO_SLOWER);

  crossing = fill(ratios, values, speedups, 512, 1, 0); /* as fast at the first length */
  cr_expect(crossing.kind == CROSSING_FASTER && isnan(crossing.n.mid));
  crossing = fill(ratios, values, speedups, 9000, 1, 0.001);
  cr_expect(crossing.kind == CROSSING_SLOWER && isnan(crossing.n.mid));

  crossing = fill(ratios, values, speedups, 8000, 0.1, 0.1); /* many resamples never cross */
  cr_expect(crossing.kind == CROSSING_TO_FASTER && isinf(crossing.n.hi));
  crossing = fill(ratios, values, speedups, 530, 0.1, 0.1); /* many cross below the first length */
  cr_expect_eq(crossing.n.lo, -(double)INFINITY);

  crossing = fill(ratios, values, speedups, 3000, 0.8, 0.01); /* at the first length by a hair faster */
  for (int k = 0; k < 9; k++) values[0][k] = -0.001;
  cr_assert_eq(fit_cross(ratios, 5, &crossing, speedups), ATTN_OK);
  cr_expect(crossing.kind == CROSSING_TO_FASTER && fabs(crossing.n.mid - 3000) < 1e-6 &&
            crossing.n.hi < 3300);

  crossing = fill(ratios, values, speedups, 3000, 1, 0);
  ratios[1].count = 2;
  ratios[2].count = 1;
  cr_assert_eq(fit_cross(ratios, 5, &crossing, speedups), ATTN_OK);
  cr_expect(crossing.kind == CROSSING_TO_FASTER && fabs(crossing.n.mid - 3000) < 1e-6);
  cr_expect(isnan(crossing.n.lo) && isnan(speedups[2].lo) && speedups[1].lo <= speedups[1].hi);

  cr_assert_eq(fit_cross(ratios, 1, &crossing, speedups), ATTN_OK);
  cr_expect_eq(crossing.kind, CROSSING_UNKNOWN);
}

static bool doubted_for(const result_row *row, const char *name) {
  int bit = 0;
  while (strcmp(doubt_list[bit].name, name) != 0) bit++;
  return doubts_of(row) == 1u << bit;
}

/* Whether a row that differs from `kept` in one member has this doubt and no other. */
#define DOUBT(member, value, name) \
  (row = kept, row.bounds->verdict = VERDICT_PASS, row.member = (value), doubted_for(&row, name))

Test(report_statistics, doubts_name_their_reason) {
  result_row row = kept_row(fixture_row(0));
  row.time_median = 1;
  row.time_ci_lo = 0.99, row.time_ci_hi = 1.08;
  row.drift_ratio = 1.04;
  row.n_samples = 5;
  row.err_rel_fro_lo = row.err_rel_fro, row.err_rel_fro_hi = 1.19 * row.err_rel_fro;
  const result_row kept = row;
  cr_expect_eq(doubts_of(&row), 0, "each as far as it may be");
  cr_expect(DOUBT(drift_ratio, 1.06, "drift") && DOUBT(drift_ratio, 0.94, "drift") &&
            DOUBT(n_samples, 4, "few"));
  cr_expect(DOUBT(time_ci_hi, 1.1, "wide") && DOUBT(time_ci_hi, 0.99005, "steps") &&
            DOUBT(n_outliers, 1, "outliers"));
  cr_expect(DOUBT(err_rel_fro_hi, 1.21 * kept.err_rel_fro, "sampled") &&
            DOUBT(verdict, VERDICT_UNCHECKED, "unchecked"));
  cr_expect(DOUBT(bounds->verdict, VERDICT_UNCERTIFIABLE, "uncertifiable") &&
            DOUBT(bounds->verdict, VERDICT_ERROR, "check") &&
            DOUBT(bounds->verdict, VERDICT_VIOLATED, "violated"));
  row.bounds->verdict = VERDICT_PASS;
  /* Slices of 8 ms, as a busy scheduler hands them out; times that are anywhere, too short, the same. */
  static double times[][5] = {{0.016, 0.02403, 0.024, 0.03201, 0.016},
                              {0.03201, 0.02403, 0.024, 0.016, 0.016},
                              {0.0163, 0.0241, 0.0252, 0.0319, 0.0164},
                              {5e-6, 0.001, 0.002, 0.003, 0.001},
                              {0.016, 0.016, 0.016, 0.016, 0.016}};
  for (int64_t i = 0; i < 10; i++) {
    row.samples = times[i % 5];
    row.iters_per_sample = 1 + i / 5;
    cr_expect_eq(doubts_of(&row) != 0, i < 2, "%d", (int)i);
  }
  row = kept;
  row.n_samples = 2, row.samples = times[0], row.iters_per_sample = 1;
  cr_expect(doubted_for(&row, "few"), "two samples are in steps of whatever lies between them");
  row = kept;
  row.time_ci_hi = 0.9902;
  cr_expect_eq(doubts_of(&row), 0, "two executions have this much in common");
  row.n_samples = 1, row.time_ci_hi = 0.99;
  cr_expect(doubted_for(&row, "few"), "one sample has no interval");
  row = kept;
  row.n_samples = 20, row.n_outliers = 2;
  cr_expect_eq(doubts_of(&row), 0, "a tenth");
  row.n_samples = row.n_outliers = 0, row.time_median = (double)NAN;
  cr_expect_eq(doubts_of(&row), 0, "not timed");
}

static double log_times(const model_line *line) {
  double sum = 0;
  for (size_t c = 0; c < line->count; c++) sum += log(line->cells[c].time.mid);
  return sum;
}

Test(report_statistics, runs_fall_into_groups_lines_and_cells) {
  enum { COUNT = 120 };
  result_set set = kept_set(fixture_set(COUNT));
  for (int i = 0; i < COUNT; i++) set.rows[i].causal = 0, set.rows[i].seed = 1 - i / 60;
  const results_model model = model_of(&set);
  cr_expect(model.groups_count == 2 && model.settings_count == 6, "two datasets");
  for (size_t s = 0; s < model.settings_count; s++)
    cr_expect_eq(model.settings[s].oracle, strcmp(model.settings[s].row->variant, "tiled") == 0);
  size_t runs = 0, good = 0;
  for (size_t g = 0; g < model.groups_count; g++) {
    const model_group *group = &model.groups[g];
    cr_expect_eq(group->count, 6);
    for (size_t l = 0; l < group->count; l++) {
      cr_assert_lt(group->lines[l].exact, group->count);
      const model_line *exact = &group->lines[group->lines[l].exact], *other = &group->lines[l];
      cr_expect(model.settings[exact->setting].exact);
      cr_expect(!model.settings[other->setting].exact || log_times(exact) <= log_times(other));
      cr_expect_eq(group->lines[l].count, 5);
      for (size_t c = 0; c < group->lines[l].count; c++) {
        const model_cell *cell = &group->lines[l].cells[c];
        runs += cell->count;
        good += cell->ok;
        cr_expect_eq(cell->count, 2);
        for (size_t i = 0; i < cell->count; i++)
          cr_expect(model.rows[cell->first + i]->n == cell->n &&
                    model.rows[cell->first + i]->seed == (int64_t)i);
        cr_expect(cell->ok == 0 || (cell->time.lo <= cell->time.mid && cell->time.mid <= cell->time.hi));
        /* The least time of a length is on the front, whichever line has it. */
        bool fastest = cell->offered;
        for (size_t o = 0; o < group->count; o++)
          if (group->lines[o].cells[c].offered && group->lines[o].cells[c].time.mid < cell->time.mid)
            fastest = false;
        if (fastest) cr_expect(cell->front_time);
      }
    }
  }
  cr_expect_eq(runs, COUNT);
  cr_expect_eq(good, COUNT - COUNT / 7, "every seventh was not run");
}

/* Kept. */
static result_row setting_row(const char *variant, const char *params) {
  result_row row = fixture_row(2);
  row.variant = variant;
  row.params = params;
  return kept_row(row);
}

/* A method is what remains of a label without the parameter that buys accuracy, as registered; of
 * expressions, without the one in which most of them differ. */
Test(report_statistics, settings_of_one_method_share_its_name) {
  static const char *const cases[][3] = {
      {"longformer", "longformer:window=64,global=4", "longformer:global=4"},
      {"longformer", "longformer:window=128", "longformer"},
      {"bigbird", "bigbird:block=16,window=3", "bigbird:block=16"},
      {"bigbird", "bigbird", "bigbird"},
      {"stranger", "stranger:window=64", "stranger:window=64"},
      {"longformer", "", "longformer"},
      {"", "streaming:window=64 + sample:count=16", "streaming:window=64 + sample"}, /* of two files */
      {"", "streaming:window=64 + sample:count=16", "streaming:window=64 + sample"},
      {"", "streaming:window=64 + sample:count=128", "streaming:window=64 + sample"},
      {"", "streaming:window=64 + sample:count=32", "streaming:window=64 + sample"},
      {"", "streaming:window=8 + sample:count=16", "streaming + sample:count=16"},
      {"", "0.5*full + 0.5*topk:k=8,p=0.5", "0.5*full + 0.5*topk:k=8"},
      {"", "streaming:window=4 + sample:count=4,replacement=yes",
       "streaming:window=4 + sample:count=4,replacement=yes"},
      {"", "0.5*full + 0.5*topk:k=8", "0.5*full + 0.5*topk:k=8"},
      {"", "dyadic(topk:k=32,base=128)", "dyadic(topk:k=32,base=128)"}};
  enum { COUNT = sizeof cases / sizeof *cases };
  result_row rows[COUNT];
  setting all[COUNT];
  for (int i = 0; i < COUNT; i++) {
    rows[i] = setting_row(*cases[i][0] ? cases[i][0] : cases[i][1], "{}");
    rows[i].label = cases[i][1];
    cr_assert_eq(setting_make(&rows[i], &all[i]), ATTN_OK);
  }
  char *methods[COUNT] = {NULL};
  cr_assert_eq(setting_methods(all, COUNT, methods), ATTN_OK);
  for (int i = 0; i < COUNT; i++) {
    cr_expect_str_eq(methods[i], cases[i][2]);
    free(methods[i]), setting_free(&all[i]);
  }
}

/* Variants as registered, then others; then by the first parameter that differs, numbers as numbers. */
Test(report_statistics, settings_have_an_order) {
  static const char *const sorted[][2] = {{"full", "{}"},
                                          {"longformer", "{}"},
                                          {"longformer", "{\"window\": 8, \"global\": 2}"},
                                          {"longformer", "{\"window\": 8, \"global\": 2.5}"},
                                          {"longformer", "{\"window\": 1048576, \"global\": 1}"},
                                          {"longformer", "{\"window\": 1048577, \"global\": 1}"},
                                          {"performer", "{\"kernel\": \"relu\", \"features\": 32}"},
                                          {"performer", "{\"kernel\": \"trig\", \"features\": 16}"},
                                          {"another_9", "{\"window\": 4}"},
                                          {"stranger", "{\"window\": 2}"},
                                          {"stranger4x2", "{}"},
                                          {"stranger4x16", "{}"},
                                          {"stranger4xb", "{}"}};
  enum { COUNT = sizeof sorted / sizeof *sorted };
  result_row rows[COUNT];
  setting all[COUNT];
  for (int i = 0; i < COUNT; i++) {
    rows[i] = setting_row(sorted[i][0], sorted[i][1]);
    cr_assert_eq(setting_make(&rows[i], &all[i]), ATTN_OK);
  }
  for (int i = 0; i < COUNT; i++)
    for (int j = 0; j < COUNT; j++) {
      const int order = setting_compare(&all[i], &all[j]);
      cr_expect((order > 0) - (order < 0) == (i > j) - (i < j), "%s and %s: %d", sorted[i][1], sorted[j][1],
                order);
    }
  for (int i = 0; i < COUNT; i++) setting_free(&all[i]);
}

/* Of a group the causal runs come first. */
Test(report_statistics, causal_groups_come_first) {
  const result_set set = kept_set(fixture_set(60));
  const results_model model = model_of(&set);
  for (size_t g = 0; g < model.groups_count; g++)
    cr_expect_eq(model.rows[model.groups[g].lines[0].cells[0].first]->causal, g % 2 == 0);
}

static bool warned(const result_set *set, const char *part) {
  json_t *list = doubts_of_sessions(set), *text;
  size_t i;
  bool found = false;
  cr_assert_not_null(list);
  json_array_foreach(list, i, text) found = found || strstr(json_string_value(text), part);
  json_decref(list);
  return found;
}

Test(report_statistics, what_sessions_are_doubted_for) {
  static const char *const sessions[] = {
      "[{\"governor\":\"performance\",\"boost\":\"0\",\"smt\":\"off\",\"cflags\":\"-O2\",\"load_start\":9}]",
      ("[{\"governor\":\"unknown\",\"cflags\":\"-O3\",\"cpu_model\":\"x\"},"
       "{\"cflags\":\"-O2\",\"build\":\"another\"}]"),
      "[{\"governor\":\"x\",\"boost\":\"1\",\"smt\":\"on\",\"cflags\":\"-O1\",\"git_dirty\":true}]"};
  static const char *const warnings[][6] = {
      {NULL},
      {"0: the frequency governor is not", "1: the frequency governor is not", "2 different b",
       "2 different p"},
      {"governor is 'x'", "boost is on", "multithreading is on", "uncommitted", "optimisation (-O1)"}};
  for (int i = 0; i < 3; i++) {
    const result_set set = {.sessions = json_loads(sessions[i], 0, NULL)};
    json_t *list = doubts_of_sessions(&set);
    size_t w = 0;
    for (; warnings[i][w]; w++) cr_expect(warned(&set, warnings[i][w]), "%s", warnings[i][w]);
    cr_expect_eq(json_array_size(list), w, "%d", i);
    json_decref(list), json_decref(set.sessions);
  }
}

/* Two processors, of which the first run takes some. */
Test(report_statistics, load_that_the_sweep_does_not_explain_is_warned_of) {
  static const struct {
    double start, rows;
    int64_t threads;
    const char *at_start, *meanwhile; /* NULL: nothing is said */
  } cases[] = {
      {0.1, 2.1, 1, NULL, NULL},
      {1.6, 2.1, 1, "was 1.6 at its start: with the 1 threads of the session that is more than 2 ", NULL},
      {0.1, 3.5, 1, NULL, "rose to 3.5, which its own threads (at most 2)"},
      {0.1, 4.4, 4, "was 0.1 at its start: with the 4 threads of the session that is more than 2 ", NULL},
      {(double)NAN, (double)NAN, 1, NULL, NULL}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *start = cases[i].at_start, *meanwhile = cases[i].meanwhile;
    result_set set = kept_set(fixture_set(6));
    json_object_set_new(json_array_get(set.sessions, 0), "load_start", result_json_number(cases[i].start));
    for (size_t r = 0; r < set.count; r++)
      set.rows[r].load = r == 3 ? cases[i].rows : 0.5, set.rows[r].threads = r ? 0 : cases[i].threads;
    cr_expect_eq(warned(&set, start ? start : "at its start"), start != NULL, "%zu", i);
    cr_expect_eq(warned(&set, meanwhile ? meanwhile : "rose to"), meanwhile != NULL, "%zu", i);
  }
}

Test(report_statistics, estimates_meet_what_the_runs_took) {
  static const double ratios[] = {1.1, 0.9, 1.2, 0.25, 2};
  result_set set = kept_set(fixture_set(30));
  for (size_t i = 0; i < set.count; i++) {
    result_row *row = &set.rows[i];
    const double ratio = ratios[i / 6];
    row->est_time = i % 6 == 5 ? (double)NAN : row->time_median / ratio;
    row->est_run = i % 6 == 3 ? 0 : row->run_time / 2;
    row->est_memory = i % 6 == 3 ? 0 : 5e6; /* of which the work memory turns out to be 5e6 larger */
    row->peak_alloc = 5e6 + (row->work_bytes = 1e6);
    if (i % 6 == 3) row->time_median = 0; /* of one setting there is nothing to compare */
  }
  const results_model model = model_of(&set);
  json_t *list = estimates_json(&model), *one;
  cr_assert(list && json_array_size(list) == 5);
  size_t s;
  json_array_foreach(list, s, one) {
    const char *name = model.settings[json_integer_value(json_object_get(one, "line"))].row->variant;
    double median, worst, memory;
    int time_runs, time_n, run_runs, memory_runs;
    cr_assert_eq(json_unpack(one, "{s:[i,o,o,i], s:[i,F,F,*], s:[i,F,*]}", "time", &time_runs, &(json_t *){0},
                             &(json_t *){0}, &time_n, "run", &run_runs, &median, &worst, "memory",
                             &memory_runs, &memory),
                 0);
    cr_expect(fabs(median - 2) < 1e-12 && fabs(worst - 2) < 1e-12 && fabs(memory - 2) < 1e-12,
              "%s: %g, %g, %g", name, median, worst, memory);
    cr_expect(memory_runs == run_runs && (strcmp(name, "performer") != 0 || time_runs == 0), "%s", name);
    if (strcmp(name, "tiled") != 0) continue;
    const json_t *time = json_object_get(one, "time");
    /* Runs 1, 7, 13, 19, 25; the run at 4096 took a quarter, and 13 was unsupported. */
    cr_expect_float_eq(json_number_value(json_array_get(time, 2)), 0.25, 1e-12);
    cr_expect(time_runs == run_runs && time_n == 4096, "%d, %d at %d", time_runs, run_runs, time_n);
  }
  json_decref(list);
}

/* Runs that differ in what makes a group are estimated apart: warm and cold ones, and those of one file with
 * another instruction set or number of threads. */
Test(report_statistics, cold_runs_do_not_touch_what_is_said_of_warm_ones) {
  for (int i = 0; i < 4; i++) {
    result_row rows[2] = {setting_row("tiled", "{}"), setting_row("tiled", "{}")};
    const result_set set = {.rows = rows, .count = 2};
    rows[1].cache = i == 0;
    rows[1].threads += i % 2;
    if (i > 1) rows[1].isa = "another";
    rows[1].source = i == 3 ? "another" : NULL;
    const results_model model = model_of(&set);
    cr_expect(model.groups_count == (i < 3 ? 2 : 1) && model.settings_count == (i < 3 ? 1 : 2), "%d", i);
  }
}
