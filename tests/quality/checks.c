/* checks.c - the checks of an evaluation on the bundled model: they hold, and have something to hold. */
#include "experiments/evidence/rounding/declared.h"
#include "experiments/mathematics/spectrum.h"
#include "experiments/quality/evaluation_checks.h"
#include "experiments/quality/tasks/tasks.h"
#include "experiments/results/set.h"
#include "tests/support/data_fixture.h"
#include "tests/support/spec.h"

enum { N = 80, W = 8 };

static data_llama *llama;
static quality_windows windows;

/* Of the bundled model's text. */
static void make_windows(int64_t count, int64_t n, const char *asked_for, quality_windows *out) {
  const data_ids_request request = {.model = TEST_SOURCE_DIR "/data/bytelm",
                                    .text = TEST_SOURCE_DIR "/tests/fixtures/held.txt"};
  data_ids ids;
  char *asked = NULL;
  assert_ok(data_ids_read(&request, data_llama_get_config(llama), &ids));
  assert_ok(quality_windows_make(count, n, out));
  assert_ok(task_fill(
      asked_for,
      &(task_input){.text = ids.id, .length = ids.count, .vocab = 256, .bos = -1, .seed = 1, .model = llama},
      out, &asked));
  free(asked), free(ids.id);
}

static void begin(void) {
  fixture_begin();
  assert_ok(data_llama_open(TEST_SOURCE_DIR "/data/bytelm", &llama));
  make_windows(W, N, "text:skip=20", &windows);
}
static void end(void) {
  data_llama_close(llama);
  quality_windows_free(&windows);
  fixture_end();
}
TestSuite(quality_checks, .init = begin, .fini = end);

static void check_all(const data_llama_swap *swaps, int64_t count, result_bound (*cells)[QUALITY_CHECKS]) {
  quality_data d;
  assert_ok(quality_evaluate(llama, &windows, swaps, count, true, &d));
  assert_ok(quality_check(&(quality_checked){llama, &windows, swaps, count, &d}, true, cells));
  for (int64_t s = 0; s < count; s++)
    for (int c = 0; c < QUALITY_CHECKS; c++) {
      const result_bound *b = &cells[s][c];
      cr_expect(b->verdict == (c == EV_5 ? VERDICT_CONSISTENT : VERDICT_PASS) ||
                    b->verdict == VERDICT_NOT_APPLICABLE,
                "%s %s: %s, %g > %g", swaps[s].spec->text, b->name, check_verdict_names[b->verdict],
                b->measured, b->value);
    }
  quality_data_free(&d);
}

static void expect_verdict(const result_bound *b, check_verdict wanted) {
  cr_expect_eq(b->verdict, wanted, "%s: %s", b->name, check_verdict_names[b->verdict]);
}

Test(quality_checks, hold_and_are_near) {
  const data_llama_swap swaps[] = {
      {.spec = spec_of("streaming:sink=0,window=8"), .mix = 1},
      {.spec = spec_of("full"), .mix = 1},
      {.spec = spec_of("performer:features=16"), .mix = 0.5},
      {.spec = spec_of("topk:k=4"), .phase = DATA_LLAMA_DECODE, .decode = 30, .mix = 1}};
  result_bound cells[4][QUALITY_CHECKS];
  check_all(swaps, 4, cells);
  static const int near[] = {EV_1, EV_2, EV_3, EV_4, EV_6};
  for (size_t i = 0; i < sizeof near / sizeof *near; i++)
    cr_expect(cells[0][near[i]].margin > 0.01, "%s: %g", cells[0][near[i]].name, cells[0][near[i]].margin);
  for (int s = 0; s < 4; s++) {
    expect_verdict(&cells[s][EV_4], s ? VERDICT_NOT_APPLICABLE : VERDICT_PASS);
    expect_verdict(&cells[s][EV_10], s ? VERDICT_NOT_APPLICABLE : VERDICT_PASS);
    if (s > 0) cr_expect_str_eq(cells[s][EV_4].message, "asked of the first run");
    expect_verdict(&cells[s][EV_7], VERDICT_PASS);
    expect_verdict(&cells[s][EV_8], VERDICT_PASS);
    expect_verdict(&cells[s][EV_9], VERDICT_NOT_APPLICABLE);
  }
}

static const unsigned char one[4 * 4] = {[5] = 1}; /* head 1 of layer 1 */

/* Exact attention in other orders changes the model by less than the square of a thousandth. */
Test(quality_checks, rounding_has_a_floor) {
  const data_llama_swap swaps[] = {
      {.spec = spec_of("full"), .mix = 1},
      {.spec = spec_of("tiled:block_q=8,block_k=8"), .mix = 1},
      {.spec = spec_of("full"), .where = one, .phase = DATA_LLAMA_DECODE, .decode = 60, .mix = 0.5},
      {.spec = spec_of("topk:k=40"), .mix = 1}};
  result_bound cells[4][QUALITY_CHECKS];
  check_all(swaps, 4, cells);
  for (int s = 0; s < 3; s++) {
    const result_bound *b = &cells[s][EV_5];
    expect_verdict(b, VERDICT_CONSISTENT);
    cr_expect(b->measured > 0 && b->measured < b->value && b->value < 1e-6, "%g, %g", b->measured, b->value);
    cr_expect_lt(cells[s][EV_6].value, cells[3][EV_6].value / 16, "what rounding changes, not what keys do");
  }
  expect_verdict(&cells[3][EV_5], VERDICT_NOT_APPLICABLE);
}

/* Squares of FP-1 to first order, the plan's rounding and the textbook's together, of head 1. */
static attn_status add_roundings(void *to, const data_llama_attention *a) {
  enum { D = 64, ROW = 4 * D };
  attn_view view;
  assert_ok(attn_plan_inspect(a->plan, &view));
  const attn_rounding own = view.rounding, text = rounding_textbook(attn_plan_problem(a->plan));
  const double once = own.exp_error + text.exp_error,
               score = text.unit * (double)(own.score + text.score + 6),
               chain = text.unit * (double)(own.value + own.sum + text.value + text.sum + 5);
  for (int64_t i = 0; i < a->count; i++) {
    const float *q = a->q + i * ROW + D, *o = a->exact + i * ROW + D;
    double weight[N], slack[N], all = 0;
    for (int64_t j = 0; j <= i; j++) {
      const float *k = a->k + j * ROW + D;
      slack[j] = once;
      for (int x = 0; x < D; x++) slack[j] += score * fabs((double)q[x] * (double)k[x]) / 8;
      all += weight[j] = exp(source_dot(q, k, D) / 8);
    }
    for (int l = 0; l < D; l++) {
      double bound = 0;
      for (int64_t j = 0; j <= i; j++) {
        const double v = (double)a->v[j * ROW + D + l];
        bound += weight[j] / all * (slack[j] * fabs(v - (double)o[l]) + chain * fabs(v));
      }
      *(double *)to += bound * bound;
    }
  }
  return ATTN_OK;
}

static result_bound floor_of(data_llama_swap swap) {
  result_bound cell = {.verdict = VERDICT_ERROR};
  assert_ok(quality_floor(&(quality_checked){.model = llama, .windows = &windows}, &swap, &cell));
  return cell;
}

/* Of one variant: KL / error^2 of the dial times these squares. At most half of a window is decoded. */
Test(quality_checks, the_floor_is_what_both_roundings_allow) {
  data_llama_swap swap = {
      .spec = spec_of("full"), .where = one, .phase = DATA_LLAMA_PREFILL, .decode = N - 49, .mix = 0.5};
  data_llama_swap dial = swap;
  double kl = 0, squares = 0;
  quality_data d;
  dial.mix = 0x1p-6;
  dial.scale = 0x1p-100;
  windows.count = 1;
  windows.first[0] = 0;
  assert_ok(quality_evaluate(llama, &windows, &dial, 1, false, &d));
  for (int i = 0; i < N - 1; i++) kl += (double)d.points[i].kl;
  const data_llama_pass pass = {windows.tokens, 1, N, N, &swap, 1, &squares, add_roundings, NULL};
  assert_ok(data_llama_run(llama, &pass));
  windows.n--;
  swap.decode--;
  const double value = kl / d.layer[1].error * 0.25 * squares / (N - 1);
  cr_expect_float_eq(floor_of(swap).value, value, 0.05 * value, "not %g", value);
  quality_data_free(&d);
  swap.mix = 0;
  cr_expect_eq(floor_of(swap).verdict, VERDICT_CONSISTENT, "nothing changes, which is no doubt");
  swap.mix = 0.5;
  swap.phase = DATA_LLAMA_DECODE;
  swap.decode = (N - 1) / 2;
  const double half = floor_of(swap).value;
  swap.decode = N - 20;
  cr_expect_float_eq(floor_of(swap).value, half, 1e-9 * half);
  swap.next = &dial;
  cr_expect_eq(floor_of(swap).verdict, VERDICT_NOT_APPLICABLE);
  cr_expect_eq(floor_of(dial).verdict, VERDICT_NOT_APPLICABLE, "the scores have another scale");
}

/* Of text that the model has drawn, and of text that it has drawn at another temperature: what is violated is
 * by no more than twice, and at a level that many runs stand. */
Test(quality_checks, drawn_text_is_known_from_other_text) {
  static const char *const asked[] = {"sample:skip=0", "sample:temperature=1.5,skip=0"};
  const data_llama_swap swap = {.spec = spec_of("streaming:sink=0,window=1"), .mix = 1};
  quality_windows own[2];
  for (int i = 0; i < 2; i++) make_windows(W, N, asked[i], &own[i]);
  for (int i = 0; i < 2; i++) {
    result_bound cells[1][QUALITY_CHECKS];
    const result_bound *b = &cells[0][EV_9];
    quality_data d;
    own[i].drawn = true;
    assert_ok(quality_evaluate(llama, &own[i], &swap, 1, false, &d));
    assert_ok(quality_check(&(quality_checked){llama, &own[i], &swap, 1, &d}, false, cells));
    expect_verdict(b, i ? VERDICT_VIOLATED : VERDICT_CONSISTENT);
    cr_expect(i ? b->p_value < RESULTS_ALPHA && b->margin < 2 : b->p_value > 0.01, "%g of %g, p %g",
              b->measured, b->value, b->p_value);
    double sum = 0, variance = 0, most = 0;
    for (int64_t w = 0; w < d.windows; w++)
      for (const quality_point *p = d.points + w * d.positions, *last = p + d.scored[w]; p < last; p++) {
        sum += (double)p->dnll - (double)p->kl;
        variance += (double)p->variance;
        most = fmax(most, (double)p->range);
      }
    cr_expect_float_eq(b->measured, fabs(sum), 1e-9);
    cr_expect_float_eq(b->value, 8 * most / 3 + sqrt(64 * most * most / 9 + 16 * variance), 1e-9);
    cr_expect_float_eq(b->p_value, fmin(1, 2 * exp(-sum * sum / (2 * variance + 2 * most * fabs(sum) / 3))),
                       1e-9 * b->p_value);
    d.points[d.positions + 3].kl = NAN; /* nothing is decided by the others */
    assert_ok(quality_check(&(quality_checked){llama, &own[i], &swap, 1, &d}, false, cells));
    static const int of_all[] = {EV_1, EV_2, EV_3, EV_9};
    for (int k = 0; k < 4; k++) expect_verdict(&cells[0][of_all[k]], VERDICT_UNCERTIFIABLE);
    quality_data_free(&d), quality_windows_free(&own[i]);
  }
}

/* What a variant is exempt from follows from its parts and its inner variants, too; one that is exempt but
 * causal is held to it. */
Test(quality_checks, where_later_keys_enter) {
  static const check_verdict wanted[] = {VERDICT_NOT_APPLICABLE, VERDICT_NOT_APPLICABLE, VERDICT_PASS};
  const data_llama_swap swaps[] = {{.spec = spec_of("latent:rank=4 | store"), .mix = 1},
                                   {.spec = spec_of("evict:score=exact,budget=8,recent=2"), .mix = 1},
                                   {.spec = spec_of("evict:score=h2o,budget=8,recent=2"), .mix = 1}};
  result_bound cells[3][QUALITY_CHECKS];
  check_all(swaps, 3, cells);
  for (int s = 0; s < 3; s++) expect_verdict(&cells[s][EV_7], wanted[s]);
}

Test(quality_checks, where_nothing_is_replaced) {
  static const unsigned char none[4 * 4];
  const data_llama_swap swaps[] = {{.spec = spec_of("streaming:sink=0,window=8"), .where = none, .mix = 1}};
  result_bound cells[1][QUALITY_CHECKS];
  const data_llama_config *c = data_llama_get_config(llama);
  cr_assert(c->layers * c->heads <= 16);
  check_all(swaps, 1, cells);
  expect_verdict(&cells[0][EV_6], VERDICT_NOT_APPLICABLE);
  cr_expect_eq(cells[0][EV_1].measured, 0);
}

static const result_bound *find_cell(const judged_cells *of, const char *name) {
  const result_bound *found = NULL;
  for (int i = 0; i < of->count; i++)
    if (strcmp(of->at[i].name, name) == 0) {
      cr_expect_null(found, "%s has two cells", name);
      found = &of->at[i];
    }
  return found;
}

/* What a variant declares chooses the checks of its layers; of two variants both are judged. */
Test(quality_checks, layers_are_judged_as_runs_are) {
  static unsigned char first[4 * 4] = {1, 1, 1, 1};
  const data_llama_swap policy = {.spec = spec_of("evict:score=h2o,budget=24,recent=4"), .mix = 1},
                        swaps[] = {policy,
                                   {.spec = spec_of("store:k=q4_0,v=q8_0"), .mix = 1},
                                   {.spec = spec_of("latent:rank=6"), .mix = 0.5},
                                   {.spec = spec_of("topk:k=4"), .where = first, .mix = 1, .next = &policy}};
  static const char *const wanted[4][7] = {{"FP-2", "EVICT-1", "EVICT-2", "CACHE-1", "CACHE-2", "CACHE-5"},
                                           {"QNT-0", "QNT-1", "QNT-2", "CACHE-1", "CACHE-2", "CACHE-5"},
                                           {"MLA-1", "MLA-2", "MLA-3"},
                                           {"SEL-0", "SEL-1", "FP-2", "EVICT-1", "EVICT-2", "CACHE-1"}};
  quality_data d;
  assert_ok(quality_evaluate(llama, &windows, swaps, 4, true, &d));
  for (int s = 0; s < 4; s++) {
    for (const char *const *name = wanted[s]; *name; name++) {
      const result_bound *b = find_cell(&d.judged[s], *name);
      cr_assert(b, "%s: no cell of %s", swaps[s].spec->text, *name);
      expect_verdict(b, VERDICT_PASS);
    }
    for (int i = 0; i < d.judged[s].count; i++)
      cr_expect(d.judged[s].at[i].verdict != VERDICT_VIOLATED && d.judged[s].at[i].verdict != VERDICT_ERROR,
                "%s %s: %s", swaps[s].spec->text, d.judged[s].at[i].name, d.judged[s].at[i].message);
  }
  cr_expect_null(find_cell(&d.judged[0], "QNT-1"));
  cr_expect_null(find_cell(&d.judged[1], "EVICT-1"));
  quality_data_free(&d);
}

/* A prompt of an evaluation is 256 tokens, before which no key goes. */
Test(quality_checks, caches_are_decoded_beyond_the_prompt) {
  const data_llama_swap swap = {.spec = spec_of("evict:budget=32,recent=4,prompt=256"), .mix = 1};
  quality_windows longer;
  quality_data d;
  make_windows(1, 320, "text:skip=256", &longer);
  assert_ok(quality_evaluate(llama, &longer, &swap, 1, true, &d));
  const result_bound *b = find_cell(&d.judged[0], "CACHE-3");
  cr_assert_not_null(b);
  expect_verdict(b, VERDICT_PASS);
  quality_data_free(&d), quality_windows_free(&longer);
}

/* Against the eigenvalues of W^T W. */
Test(quality_checks, norms_are_above_the_largest_singular_value) {
  enum { ROWS = 30, COLUMNS = 24 };
  attn_rng rng = rng_of(7, 0, 0);
  double norm, frobenius;
  for (int c = 0; c < 20; c++) {
    float w[ROWS * COLUMNS];
    double columns[COLUMNS][ROWS], squares[COLUMNS], sum = 0;
    const double *rows[COLUMNS];
    for (int i = 0; i < ROWS; i++)
      for (int j = 0; j < COLUMNS; j++) {
        w[i * COLUMNS + j] = (float)(attn_rng_normal(&rng) * (j == 0 ? c : 1));
        columns[j][i] = (double)w[i * COLUMNS + j];
        sum += columns[j][i] * columns[j][i];
      }
    for (int j = 0; j < COLUMNS; j++) rows[j] = columns[j];
    assert_ok(spectrum_squares(rows, COLUMNS, ROWS, squares));
    assert_ok(spectrum_norm(w, ROWS, COLUMNS, &norm, &frobenius));
    cr_expect_float_eq(frobenius, sqrt(sum), 1e-9 * frobenius);
    cr_expect(norm >= sqrt(squares[0]) && norm <= sqrt(squares[0]) * pow(COLUMNS, 1.0 / 64) * (1 + 1e-8),
              "%g, %g", norm, sqrt(squares[0]));
  }
  const float zeros[4] = {0};
  assert_ok(spectrum_norm(zeros, 2, 2, &norm, &frobenius));
  cr_expect(norm == 0 && frobenius == 0);
  assert_refused(spectrum_norm((const float[]){(float)INFINITY, 0, 0, 1}, 2, 2, &norm, &frobenius),
                 ATTN_ENUMERIC, "not finite");
}
