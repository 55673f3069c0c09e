/* relate.c - runs of one question side by side: Holm's correction, doubts, errors that a budget allows. */
#include "data/support/file.h"
#include "experiments/quality/relate.h"
#include "experiments/results/bound.h"
#include "experiments/results/row.h"
#include "tests/support/data_fixture.h"
#include "tests/support/quality_sets.h"

enum { RUNS = 6, WINDOWS = 8, LAYERS = 4 };

/* dnll of alternating windows: mean and half their distance. */
static quality_record record(int number, double dnll, double apart, double kl) {
  static const double t7 = 2.3646242515927853;
  quality_record r;
  assert_ok(quality_record_init(&r));
  r.n = 64;
  r.windows = WINDOWS;
  r.margin = 0.01;
  r.mix = 1;
  r.kl_budget = 0.02;
  r.status = RUN_OK;
  r.layer_count = LAYERS;
  r.window_dnll = malloc(WINDOWS * sizeof(double));
  r.window_kl = calloc(WINDOWS, sizeof(double));
  r.window_top1 = calloc(WINDOWS, sizeof(double));
  r.layer_error = malloc(LAYERS * sizeof(double));
  for (int l = 0; l < LAYERS; l++) r.layer_error[l] = l == 2 ? 0.1 : (double)NAN;
  for (int w = 0; w < WINDOWS; w++) r.window_dnll[w] = dnll + (w % 2 ? apart : -apart);
  /* The deviation of eight values at +-a is a sqrt(8/7). */
  const double half = t7 * apart * sqrt(8.0 / 7) / sqrt(8.0);
  r.dnll = dnll;
  r.dnll_lo = dnll - half;
  r.dnll_hi = dnll + half;
  r.kl = kl;
  r.kl_lo = 0.9 * kl;
  r.kl_hi = 1.1 * kl;
  r.attention_error = 0.1;
  free(r.spec);
  r.spec = text_format("topk:k=%d", number);
  free(r.layers);
  r.layers = text_format("2");
  assert_ok(quality_record_name(&r));
  return r;
}

static quality_set make(const double (*of)[3], int count) {
  quality_set s = {0};
  for (int i = 0; i < count; i++) {
    quality_record r = record(i, of[i][0], of[i][1], of[i][2]);
    assert_ok(quality_set_add(&s, &r));
  }
  assert_ok(quality_relate(&s));
  keep_copy(&s, sizeof s, quality_set_release);
  return s;
}

/* Of checks of draws only p-values that chance does not explain over all runs are violations. */
Test(quality_relate, draws_are_judged_together) {
  quality_set s = {0};
  for (int i = 0; i < RUNS; i++) {
    quality_record r = record(i, 0, 0.1, 1);
    result_bound b;
    bound_begin(&b, "FAV-3", KIND_PROB);
    bound_prob(&b, 1, 2, i ? 5e-6 : 1e-7);
    assert_ok(quality_record_take_checks(&r, &b, 1));
    assert_ok(quality_set_add(&s, &r));
  }
  assert_ok(quality_relate(&s));
  for (int i = 0; i < RUNS; i++) {
    cr_assert_eq(s.records[i].check_count, QUALITY_CHECKS + 1);
    const check_verdict wanted = i ? VERDICT_CONSISTENT : VERDICT_VIOLATED;
    cr_expect_eq(s.records[i].checks[QUALITY_CHECKS].verdict, wanted);
    cr_expect_eq(s.records[i].verdict, (int)wanted);
  }
  result_set_free(&s);
}

/* An interval that just excludes the margin tells alone, and not as one of six; one of p = 0.01 does once two
 * of the six are settled: 0.05 / 6 < p <= 0.05 / 4. */
Test(quality_relate, words_pay_for_being_many) {
  static const double of[RUNS][3] = {{0.2782, 0.3, 1}, {-0.02, 0.05, 1}, {0.005, 1e-4, 1},
                                     {5, 0.1, 1},      {0.01, 0.1, 1},   {0.407, 0.3, 1}};
  static const quality_word wanted[RUNS] = {QUALITY_OPEN,  QUALITY_OPEN, QUALITY_NO_WORSE,
                                            QUALITY_WORSE, QUALITY_OPEN, QUALITY_WORSE},
                            alone_say[RUNS] = {QUALITY_WORSE, QUALITY_OPEN, QUALITY_NO_WORSE,
                                               QUALITY_WORSE, QUALITY_OPEN, QUALITY_WORSE};
  quality_set alone = make(of, 1), all = make(of, RUNS);
  cr_expect(alone.records[0].dnll_lo > 0.01 && alone.records[0].word_holm == QUALITY_WORSE, "%g",
            alone.records[0].word_p);
  cr_expect_float_eq(alone.records[0].word_p, 0.05, 2e-4);
  for (int i = 0; i < RUNS; i++)
    cr_expect(all.records[i].word == (int)alone_say[i] && all.records[i].word_holm == (int)wanted[i],
              "%d: %s, p %g", i, quality_words[all.records[i].word_holm], all.records[i].word_p);
  cr_expect_float_eq(all.records[4].word_p, 1, 1e-9);
  all.records[5].n = 65; /* another question */
  for (int i = 1; i < 5; i++) all.records[i].status = RUN_FAILED;
  for (int i = 1; i < 5; i++) all.records[i].word_p = (double)NAN;
  assert_ok(quality_relate(&all));
  cr_expect(all.records[0].word_holm == QUALITY_WORSE && all.records[3].word_holm == QUALITY_OPEN);
}

/* Of the p-values that are known: times how many are at least as large, in order, at most 1. */
Test(quality_relate, answers_pay_for_being_many) {
  static const double p[RUNS] = {0.02, 0.01, 0.04, (double)NAN, 0.03, 0.6},
                      wanted[RUNS] = {0.08, 0.05, 0.09, (double)NAN, 0.09, 0.6};
  static const double of[RUNS][3] = {{0}};
  quality_set s = make(of, RUNS);
  for (int i = 0; i < RUNS; i++) {
    cr_expect(isnan(s.records[i].score_p_holm));
    s.records[i].score_p = p[i];
  }
  assert_ok(quality_relate(&s));
  for (int i = 0; i < RUNS; i++)
    cr_expect(isnan(p[i]) ? isnan(s.records[i].score_p_holm)
                          : fabs(s.records[i].score_p_holm - wanted[i]) < 1e-15,
              "%d: %g", i, s.records[i].score_p_holm);
}

Test(quality_relate, doubts_and_allowed_errors) {
  static const double of[7][3] = {{-0.17, 0.01, 0.157},  {-0.17, 0.01, 0.001}, {0.17, 0.01, 0.157},
                                  {-0.17, 0.01, 0.0105}, {-0.01, 0.1, 0.157}, /* intervals, not means */
                                  {0.01, 0, 0.157},      {0, 0, 0.157}};      /* and those that exclude 0 */
  quality_set s = make(of, 7);
  for (int i = 0; i < 7; i++) cr_expect_eq(s.records[i].doubt, i == 0, "%d", i);
  cr_expect(fabs(s.records[0].sensitivity - 15.7) <= 1e-9 && s.records[5].word_p == 1);
  /* One of four layers. */
  cr_expect_float_eq(s.records[0].error_allowed, sqrt(0.02 / 4 / 15.7), 1e-12);
  cr_expect(isnan(s.records[0].additivity));
}

Test(quality_relate, layers_of_the_same_swap_are_added) {
  quality_set s = {0};
  for (int i = 0; i < LAYERS + 2; i++) {
    quality_record r = record(3, 0.1, 0.01, i < LAYERS ? 1 + i : 5);
    free(r.layers);
    r.layers = i < LAYERS ? text_format("%d", i) : text_format("all");
    if (i > LAYERS) r.mix = 0.5;
    assert_ok(quality_record_name(&r));
    assert_ok(quality_set_add(&s, &r));
  }
  assert_ok(quality_relate(&s));
  cr_expect_float_eq(s.records[LAYERS].additivity, 10.0 / 5, 1e-12);
  cr_expect(isnan(s.records[LAYERS + 1].additivity), "of another mix");
  quality_record *one = &s.records[1];
  char **const texts[] = {&one->model_sha256,  &one->data_sha256, &one->config_sha256,
                          &one->tokens_sha256, &one->task,        &one->heads,
                          &one->phase,         &one->spec,        &one->layers};
  int64_t *const numbers[] = {&one->n, &one->windows, &one->bos, &one->seed};
  for (size_t i = 0; i < 13; i++) { /* which differs in one: of another swap or question, or no layer */
    char *kept = *texts[i % 9], other[] = "99";
    if (i < 9) *texts[i] = other;
    if (i >= 9) --*numbers[i - 9];
    assert_ok(quality_relate(&s));
    cr_expect(isnan(s.records[LAYERS].additivity), "field %zu", i);
    *texts[i % 9] = kept;
    if (i >= 9) ++*numbers[i - 9];
  }
  s.records[1].status = RUN_CRASHED;
  assert_ok(quality_relate(&s));
  cr_expect(isnan(s.records[LAYERS].additivity), "a layer is missing");
  result_set_free(&s);
}
