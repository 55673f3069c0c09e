/* record.c - a run of an evaluation as a record, of points made up, and the file that keeps records. */
#include "experiments/quality/evaluation_file.h"
#include "experiments/results/row.h"
#include "tests/support/data_fixture.h"
#include "experiments/quality/evaluation_tables.h"
#include "experiments/quality/verdicts.h"
#include "experiments/results/bound.h"
#include "tests/support/quality_sets.h"

enum { N = 96, W = 8, FIRST = 40, V = 256 };
enum { SWAPS = 2, LAYERS = 3, POSITIONS = N - 1 - FIRST, SCORED = W * POSITIONS - W * (W - 1) / 2 };

static quality_windows windows;
static quality_point points[SWAPS * W * POSITIONS];
static quality_layer layer[SWAPS * LAYERS];
static double nll[W * POSITIONS];
static bool right[W * POSITIONS];
static int64_t scored[W];
static const quality_data data = {.windows = W,
                                  .positions = POSITIONS,
                                  .swaps = SWAPS,
                                  .layers = LAYERS,
                                  .scored = scored,
                                  .nll = nll,
                                  .right = right,
                                  .points = points,
                                  .layer = layer};

/* Numbers made up. Divergences and ranges of what is scored are 0 ... SCORED - 1 in some order; the last of
 * the layers is not replaced. */
static void begin(void) {
  attn_rng rng = rng_of(20261128, 0, 0);
  fixture_begin();
  assert_ok(quality_windows_make(W, N, &windows));
  for (int64_t i = 0; i < W * N; i++) windows.tokens[i] = attn_rng_below(&rng, V);
  for (int64_t w = 0; w < W; w++) scored[w] = N - 1 - (windows.first[w] = FIRST + w);
  for (int64_t at = 0, rank = 0; at < SWAPS * W * POSITIONS; at++) {
    const int64_t w = at / POSITIONS % W, i = at % POSITIONS;
    const bool is_scored = i < scored[w];
    points[at] = (quality_point){.dnll = is_scored ? (float)attn_rng_normal(&rng) : NAN,
                                 .kl = (float)(is_scored ? 37 * rank % SCORED : -1),
                                 .range = (float)(is_scored ? 41 * rank % SCORED : -1),
                                 .dp = (float)attn_rng_uniform(&rng),
                                 .same_top = attn_rng_uniform(&rng) < 0.7,
                                 .certified = attn_rng_uniform(&rng) < 0.4,
                                 .right = w % 2 || i % 3};
    nll[at % (W * POSITIONS)] = is_scored ? attn_rng_normal(&rng) : (double)NAN;
    right[at % (W * POSITIONS)] = w < 2 || i % 4;
    rank = (rank + is_scored) % SCORED;
  }
  for (int l = 0; l < SWAPS * LAYERS; l++)
    layer[l] = l % LAYERS == LAYERS - 1 ? (quality_layer){.size = 0}
                                        : (quality_layer){1 + l, 9, 0, l, 8, 0.1 * l, 2, 3 + l, 1, NULL};
}
static void end(void) {
  quality_windows_free(&windows);
  fixture_end();
}
TestSuite(quality_record, .init = begin, .fini = end);

/* Each number of a record and of its series is what its name says, of the second swap. */
Test(quality_record, a_record_is_what_the_points_say) {
  enum { DNLL, KL, TOP, NLL, CERTIFIED, SQUARE, RIGHT, RIGHT_EXACT, MEANS };
  static const char *const series[] = {"dnll", "kl", "top1", "nll"};
  static double of_window[MEANS][W], of_bin[MEANS][QUALITY_BINS], mean[MEANS];
  int64_t hits = 0, lost = 0, won = 0;
  double in_bin[QUALITY_BINS] = {0}, whole[2][W], times[V] = {0}, unigram = 0, got;
  quality_record r;
  for (int64_t w = 0; w < W; w++) {
    whole[0][w] = whole[1][w] = 1;
    for (int64_t i = 0, bin = 0; i < scored[w]; i++) {
      const int64_t at = w * POSITIONS + i, position = windows.first[w] + i;
      const quality_point *p = &points[W * POSITIONS + at];
      const double x[MEANS] = {(double)p->dnll, (double)p->kl, p->same_top,
                               nll[at],         p->certified,  (double)p->dp * (double)p->dp,
                               p->right,        right[at]};
      while ((double)(position + 1) >= pow(N + 1, (double)(bin + 1) / QUALITY_BINS)) bin++;
      in_bin[bin]++;
      for (int k = 0; k < MEANS; k++) {
        of_window[k][w] += x[k] / (double)scored[w];
        of_bin[k][bin] += x[k];
        mean[k] += x[k] / (double)scored[w] / W;
      }
      whole[0][w] = fmin(whole[0][w], x[RIGHT]);
      whole[1][w] = fmin(whole[1][w], x[RIGHT_EXACT]);
      times[windows.tokens[w * N + position + 1]]++;
    }
    hits += whole[0][w] > 0;
    lost += whole[1][w] > whole[0][w];
    won += whole[0][w] > whole[1][w];
  }
  const interval dnll = interval_of_mean(of_window[DNLL], W);
  const double last = SCORED - 1;
  assert_ok(quality_record_init(&r));
  r.windows = W;
  assert_ok(quality_record_fill(&r, &data, &windows, 1));
  cr_expect(isnan(r.lost) && isnan(r.won) && isnan(r.score_p), "no answers are asked for");
  quality_record_free(&r);
  assert_ok(quality_record_init(&r));
  r.windows = W;
  windows.answers = true;
  assert_ok(quality_record_fill(&r, &data, &windows, 1));
  cr_assert(lost == 1 && won == 3); /* 2 P(at most 1 of 4 fair coins) */
  const interval told[] = {{r.dnll, r.dnll_lo, r.dnll_hi},
                           {r.kl, r.kl_lo, r.kl_hi},
                           {r.top1, r.top1_lo, r.top1_hi},
                           {r.score, r.score_lo, r.score_hi},
                           {r.score_exact, r.score_exact_lo, r.score_exact_hi},
                           {r.score_diff, r.score_diff_lo, r.score_diff_hi},
                           {r.nll_exact, r.nll, r.ppl_ratio},
                           {r.kl_median, r.kl_p99, r.kl_max},
                           {r.right, r.right_exact, r.top1_certified},
                           {r.dp_rms, r.range_median, r.attention_error},
                           {r.density, r.mass_left, r.kv_bits},
                           {r.lost, r.won, r.score_p}},
                 truth[] = {dnll,
                            interval_of_mean(of_window[KL], W),
                            interval_of_mean(of_window[TOP], W),
                            interval_of_share(hits, W),
                            interval_of_share(2, W),
                            interval_of_difference(whole[0], whole[1], W, 0),
                            {mean[NLL], mean[NLL] + dnll.at, exp(dnll.at)},
                            {last / 2, 0.99 * last, last},
                            {mean[RIGHT], mean[RIGHT_EXACT], mean[CERTIFIED]},
                            {sqrt(mean[SQUARE]), last / 2, sqrt((4. + 5) / 18)},
                            {(3. + 4) / 16, (0.3 + 0.4) / 4, (6. + 7) / 2},
                            {(double)lost, (double)won, 2 * (1. + 4) / 16}};
  _Static_assert(sizeof told == sizeof truth, "one of each");
  for (size_t i = 0; i < sizeof told / sizeof *told; i++)
    if (!(fabs(told[i].at - truth[i].at) + fabs(told[i].lo - truth[i].lo) + fabs(told[i].hi - truth[i].hi) <=
          1e-12 * (1 + fabs(truth[i].at) + fabs(truth[i].hi))))
      cr_expect(false, "%zu: %g, %g, %g, not %g, %g, %g", i, told[i].at, told[i].lo, told[i].hi, truth[i].at,
                truth[i].lo, truth[i].hi);
  for (const quality_series *s = quality_series_list; s < quality_series_list + QUALITY_SERIES; s++)
    for (int64_t i = 0; i < quality_series_length(&r, s); i++) {
      int k = 0;
      while (s->by != BY_LAYER && strcmp(series[k], s->name) != 0) k++;
      const double want = s->by == BY_LAYER ? sqrt(layer[LAYERS + i].error / layer[LAYERS + i].size)
                          : s->by == BY_BIN ? of_bin[k][i] / in_bin[i]
                                            : of_window[k][i];
      got = quality_series_values(&r, s)[i];
      cr_expect(isnan(want) ? isnan(got) : fabs(got - want) <= 1e-12 * (1 + fabs(want)),
                "%s/%s %d: %g, not %g", s->group, s->name, (int)i, got, want);
    }
  for (int t = 0; t < V; t++) unigram -= times[t] > 0 ? times[t] / SCORED * log(times[t] / SCORED) : 0;
  assert_ok(quality_unigram(&windows, V, &got));
  cr_expect_float_eq(got, unigram, 1e-12);
  quality_record_free(&r);
}

/* -- the file -- */

static quality_record record(int64_t swap, const char *spec) {
  quality_record r;
  assert_ok(quality_record_init(&r));
  r.n = N;
  r.windows = W;
  r.margin = 0.01;
  free(r.spec);
  r.spec = strdup(spec);
  assert_ok(quality_record_name(&r));
  assert_ok(quality_record_fill(&r, &data, &windows, swap));
  return r;
}

Test(quality_record, a_file_gives_back_what_was_written) {
  quality_set set = {0};
  for (int s = 0; s < 2; s++) {
    quality_record r = record(s, s ? "b" : "a");
    assert_ok(quality_set_add(&set, &r));
  }
  quality_record twice = record(1, "a"); /* takes the place of the first */
  assert_ok(quality_set_add(&set, &twice));
  cr_assert_eq(set.count, 2);
  const char *path = fixture_path("x.h5");
  assert_ok(quality_write(path, &set));
  const quality_set again = quality_set_of(path);
  cr_assert_eq(again.count, 2);
  for (size_t i = 0; i < 2; i++) {
    const quality_record *a = &set.records[i], *b = &again.records[i];
    for (const result_column *c = quality_columns; c->name; c++) {
      json_t *const of[] = {result_column_json(a, c), result_column_json(b, c)};
      cr_expect(json_equal(of[0], of[1]), "%s", c->name);
      for (int k = 0; k < 2; k++) json_decref(of[k]);
    }
    for (const quality_series *s = quality_series_list; s < quality_series_list + QUALITY_SERIES; s++) {
      const int64_t length = quality_series_length(a, s);
      cr_assert(length > 1 && quality_series_length(b, s) == length);
      cr_expect_arr_eq(quality_series_values(a, s), quality_series_values(b, s),
                       (size_t)length * sizeof(double));
    }
  }
  cr_expect_eq(again.records[0].kl, again.records[1].kl, "the second record replaced the first");
  result_set_free(&set);
}

/* Violated, in error, failed: three lines for one who only reads messages. Tables have the numbers of the run
 * that ended well, in this order, with two digits at least. */
Test(quality_record, what_a_run_did_is_told) {
  windows.answers = true;
  quality_record r[2] = {record(1, "a"), record(1, "b")}, *x = r;
  const quality_record *runs[] = {&r[0], &r[1]};
  result_bound cells[3];
  char *text = NULL, *tables = NULL;
  size_t size;
  quality_teller t = {"attnlab eval", open_memstream(&tables, &size), open_memstream(&text, &size),
                      .json = false};
  bound_begin(&cells[0], "EV-1", KIND_HARD);
  bound_hard(&cells[0], 0.5, 0.25);
  bound_begin(&cells[1], "EV-6", KIND_HARD);
  bound_excuse(&cells[1], VERDICT_ERROR, "why");
  bound_begin(&cells[2], "EV-7", KIND_HARD);
  bound_excuse(&cells[2], VERDICT_UNCHECKED, "nothing is stated");
  assert_ok(quality_record_take_checks(&r[0], cells, 3));
  r[1].status = RUN_FAILED;
  free(r[1].message);
  r[1].message = strdup("because");
  x->mix = 0.25, x->nll_unigram = 3, x->nll_uniform = 5, x->kl_budget = 0.5, x->score_p_holm = 0.875;
  x->sensitivity = 7, x->error_allowed = 0.125, x->additivity = 0.75, x->word_holm = QUALITY_WORSE;
  assert_ok(quality_tell(&t, NULL, runs, 2));
  assert_ok(quality_print(t.out, runs + 1, 1, TABLE_TEXT)); /* nothing, of what failed alone */
  cr_assert(!fclose(t.errors) && !fclose(t.out));
  const double truth[][7] = {
      {W, N, x->nll_exact, exp(x->nll_exact), 100 * x->right_exact, 100 * x->score_exact, 3},
      {5, 95, 95, 0.25, 100 * x->density, 100 * x->mass_left, x->kv_bits},
      {x->dnll, x->dnll_lo, x->dnll_hi, x->kl, x->kl_lo, x->kl_hi, 100 * x->top1},
      {100 * x->right, 100 * x->score, x->ppl_ratio, x->attention_error, x->lost, x->won, x->score_p},
      {0.875, 0.5, 0.25, x->kl, 16 * x->kl, x->attention_error, 7},
      {0.125, 0.75}};
  size_t count = 0;
  for (char *at = tables, *end; *at; at = end) {
    const double number = strtod(at, &end), wanted_here = truth[count / 7][count % 7];
    const bool alone = end > at && !strchr(" \n", *at) && strchr(" \n", at[-1]);
    if (!alone) end = at + 1;
    cr_expect(!alone || fabs(number - wanted_here) <= 0.05 * fabs(wanted_here), "%zu: %g", count, number);
    cr_assert((count += alone) <= 37, "%s", tables);
  }
  static const char *const says[] = {" worse ",
                                     "windows; token frequencies alone: ", "  right %  all %  PPL x  error  ",
                                     "KL/error^2  error allowed  additivity\n"};
  for (int k = 0; k < 4; k++) cr_expect(count == 37 && strstr(tables, says[k]), "%s: %s", says[k], tables);
  const quality_set both = {.records = r, .count = 2};
  json_t *json = quality_verdicts_json(&both);
  static const char *const lists[] = {"violations", "errors", "failures"};
  for (int l = 0; l < 3; l++) cr_expect_eq(json_array_size(json_object_get(json, lists[l])), 1);
  json_decref(json);
  cr_expect_str_eq(
      text, text_of("attnlab eval: a: EV-1 violated: 0.5, at most 0.25: %s\n"
                    "attnlab eval: a: EV-6 error: nan, at most nan: %s: why\nattnlab eval: b: because\n",
                    quality_check_find("EV-1")->statement, quality_check_find("EV-6")->statement));
  cr_expect(t.violated == 1 && t.failed == 2);
  x->verdict = VERDICT_VIOLATED;
  cr_expect(quality_violations(&both) == 1 && quality_failures(&both) == 1);
  x->verdict = VERDICT_ERROR;
  r[1].status = RUN_UNSUPPORTED;
  cr_expect(quality_violations(&both) == 0 && quality_failures(&both) == 1);
  free(text), free(tables);
  for (int i = 0; i < 2; i++) quality_record_free(&r[i]);
}

/* -1 of float64 */
#define BITS_OF_MINUS_1 (-INT64_C(0x4010000000000000))

Test(quality_record, numbers_out_of_range_are_refused_by_name) {
  static const struct {
    size_t offset;
    int64_t value;
    const char *says;
  } bad[] = {
      {offsetof(quality_record, n), -5, "/n: -5 in run 0; expected a number from 0 on"},
      {offsetof(quality_record, windows), -1, "/windows: -1 in run 0"},
      {offsetof(quality_record, bos), -2, "/bos: -2 in run 0; expected a number from -1 on"},
      {offsetof(quality_record, block_k), -1, "/block_k: -1 in run 0"},
      {offsetof(quality_record, top1), BITS_OF_MINUS_1, "/top1: -1 in run 0; expected a number from 0 on"},
      {offsetof(quality_record, attention_error), BITS_OF_MINUS_1,
       "/attention_error: -1 in run 0; expected a number from 0 on"}};
  const char *path = fixture_path("range.h5");
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    quality_set set = {0};
    quality_record r;
    assert_ok(quality_record_init(&r));
    memcpy((char *)&r + bad[i].offset, &bad[i].value, sizeof bad[i].value);
    assert_ok(quality_record_name(&r));
    assert_ok(quality_set_add(&set, &r));
    assert_ok(quality_write(path, &set));
    result_set_free(&set);
    assert_refused(quality_read(path, &set), ATTN_EINVAL, bad[i].says);
  }
}

Test(quality_record, other_files_are_not_evaluations) {
  quality_set set;
  const char *path = fixture_path("x.h5");
  fixture_write(path, "hello", 5);
  assert_refused(quality_read(path, &set), ATTN_EINVAL, "x.h5");
  assert_refused(quality_write(path, &(quality_set){0}), ATTN_EINVAL, "x.h5");
  assert_refused(quality_read(fixture_path("none.h5"), &set), ATTN_EFOREIGN, "none.h5");
  unlink(path);
  assert_ok(quality_write(path, &(quality_set){0}));
  cr_expect_eq(quality_set_of(path).count, 0);
}
