/* evaluate.c - evaluations of the bundled model against its logits, and the file that keeps them. */
#include "experiments/quality/evaluation_file.h"
#include "experiments/results/row.h"
#include "tests/support/data_fixture.h"
#include "tests/support/quality_sets.h"
#include "tests/support/spec.h"

enum { N = 96, W = 8, FIRST = 40, V = 256 };

#define BUNDLED TEST_SOURCE_DIR "/data/bytelm"
#define HELD TEST_SOURCE_DIR "/tests/fixtures/held.txt"

static data_llama *llama;
static quality_windows windows;

static void begin(void) {
  size_t size;
  fixture_begin();
  unsigned char *text = fixture_bytes(HELD, &size);
  assert_ok(data_llama_open(BUNDLED, &llama));
  assert_ok(quality_windows_make(W, N, &windows));
  for (int64_t i = 0; i < W * N; i++) windows.tokens[i] = text[i];
  for (int64_t w = 0; w < W; w++)
    windows.first[w] = FIRST + w; /* windows of different numbers of scored positions */
  free(text);
}
static void end(void) {
  data_llama_close(llama);
  quality_windows_free(&windows);
  fixture_end();
}
TestSuite(quality_evaluate, .init = begin, .fini = end);

static quality_data evaluate(const data_llama_swap *swaps, int64_t count) {
  quality_data d;
  assert_ok(quality_evaluate(llama, &windows, swaps, count, false, &d));
  return d;
}

Test(quality_evaluate, the_exact_model_is_its_logits) {
  quality_data d = evaluate(NULL, 0);
  float *logits = malloc(sizeof *logits * N * V);
  quality_exact e;
  double mean = 0;
  int64_t whole = 0;
  for (int64_t w = 0; w < W; w++) {
    double sum = 0;
    bool all = true;
    cr_expect_eq(d.scored[w], N - 1 - windows.first[w]);
    assert_ok(data_llama_logits(llama, windows.tokens + w * N, N, logits));
    for (int64_t i = windows.first[w]; i < N - 1; i++) {
      const float *z = logits + i * V;
      const int64_t y = windows.tokens[w * N + i + 1];
      double total = 0;
      int64_t top = 0;
      for (int t = 0; t < V; t++) {
        total += exp((double)z[t]);
        top = z[t] > z[top] ? t : top;
      }
      const double nll = log(total) - (double)z[y];
      cr_expect_float_eq(d.nll[w * d.positions + i - windows.first[w]], nll, 1e-9);
      cr_expect_eq(d.right[w * d.positions + i - windows.first[w]], top == y);
      all = all && top == y;
      sum += nll;
    }
    mean += sum / (double)d.scored[w] / W;
    whole += all;
  }
  assert_ok(quality_summarise_exact(&d, &e));
  cr_expect_float_eq(e.nll.at, mean, 1e-9);
  cr_expect_float_eq(e.whole.at, (double)whole / W, 1e-12);
  cr_expect(e.nll.lo < e.nll.at && e.nll.hi > e.nll.at);
  free(logits);
  quality_data_free(&d);
}

Test(quality_evaluate, theorems_hold_at_every_position) {
  const data_llama_swap swaps[] = {{.spec = spec_of("streaming:sink=0,window=4"), .mix = 1},
                                   {.spec = spec_of("performer:features=8"), .mix = 1},
                                   {.spec = spec_of("full"), .mix = 1}};
  quality_data d = evaluate(swaps, 3);
  int changed = 0;
  for (int64_t s = 0; s < 3; s++)
    for (int64_t w = 0; w < W; w++)
      for (int64_t i = 0; i < d.scored[w]; i++) {
        const quality_point *p = &d.points[(s * W + w) * d.positions + i];
        const double range = (double)p->range * (1 + 1e-6), kl = (double)p->kl;
        cr_expect(kl >= 0 && kl <= divergence_limit(range) && kl <= (double)p->bennett * (1 + 1e-5) + 1e-12);
        cr_expect(fabs((double)p->dnll) <= range);
        cr_expect(!p->certified || p->same_top);
        changed += !p->same_top;
      }
  quality_row row;
  cr_expect(changed > 20);
  assert_ok(quality_summarise(&d, 2, &row));
  cr_expect(row.kl.at < 1e-8 && quality_word_of(row.dnll, 0.01) == QUALITY_NO_WORSE &&
            row.top1_certified > 0.9);
  assert_ok(quality_summarise(&d, 1, &row));
  cr_expect(quality_word_of(row.dnll, 0.01) == QUALITY_WORSE && isnan(row.density) && row.top1.at < 0.9);
  assert_ok(quality_summarise(&d, 0, &row));
  cr_expect_eq(quality_word_of(row.dnll, 1e9), QUALITY_NO_WORSE);
  quality_data_free(&d);
}

/* Threads give positions in any order: what is kept must be the same. */
Test(quality_evaluate, an_extreme_does_not_depend_on_the_order) {
  static const double of[][2] = {{0, 1}, {0, 3}, {0, 2}, {1, 8}, {2, 16}, {0.5, 4}};
  enum { COUNT = sizeof of / sizeof *of };
  for (int zeros = 0; zeros < 2; zeros++)
    for (int first = 0; first < COUNT; first++)
      for (int step = 1; step < COUNT; step += 4) {
        const int count = zeros ? 3 : COUNT;
        quality_extreme e = {0, 0};
        for (int i = 0; i < count; i++) {
          const double *x = of[(first + i * step) % count];
          quality_extreme_keep(&e, x[0], x[1]);
        }
        cr_expect(zeros ? e.measured == 0 && e.limit == 3 : e.measured == 2 && e.limit == 16, "%g of %g",
                  e.measured, e.limit);
      }
}

Test(quality_evaluate, density_is_the_share_of_pairs) {
  const data_llama_swap swaps[] = {
      {.spec = spec_of("streaming:sink=0,window=1"), .mix = 1},
      {.spec = spec_of("topk:k=1"), .mix = 1},
      {.spec = spec_of("tiled"), .mix = 1},
      {.spec = spec_of("streaming:sink=0,window=1"), .phase = DATA_LLAMA_DECODE, .decode = 2, .mix = 1}};
  quality_data d = evaluate(swaps, 4);
  quality_row row[4];
  for (int s = 0; s < 4; s++) assert_ok(quality_summarise(&d, s, &row[s]));
  /* One key each of 16 queries that stand in the middle of 16 equal parts: n / 2 keys on average. */
  cr_expect_float_eq(row[0].density, 2.0 / (N + 2), 1e-3, "%g", row[0].density);
  cr_expect_float_eq(row[1].density, row[0].density, 1e-12);
  cr_expect_float_eq(row[2].density, 1, 1e-12);
  cr_expect_float_eq(row[3].density, 2.0 / (N - 1 + N), 1e-12);
  cr_expect(row[2].error == 0 && row[0].error > 0.1 && row[2].mass_left == 0);
  quality_data_free(&d);
}

/* What log-sum-exps of a windowed and of exact attention leave: 1 - e^(lse_S - lse), of 16 queries of each
 * head at scored positions of each window; sums over a layer, of 512 terms whose scores are in fp32. */
static attn_status add_left(void *to, const data_llama_attention *a) {
  const attn_problem *p = attn_plan_problem(a->plan);
  double lse[2][4 * N], *left = (double *)to + a->layer;
  attn_plan *exact = NULL;
  assert_ok(attn_plan_create(&exact, p, "tiled", NULL));
  const attn_plan *const plans[] = {a->plan, exact};
  for (int s = 0; s < 2; s++) {
    float *o = malloc((size_t)(p->n_q * p->heads * p->d_v) * sizeof *o);
    void *work = malloc(attn_plan_work_size(plans[s]) + 1);
    assert_ok(attn_plan_execute_lse(plans[s], a->q + a->first * p->heads * p->d_qk, a->k, a->v, NULL, o,
                                    lse[s], work));
    free(o);
    free(work);
  }
  attn_plan_destroy(exact);
  const int64_t first = windows.first[a->window] > a->first ? windows.first[a->window] : a->first,
                scored = N - 1 - first, most = scored < 16 ? scored : 16;
  for (int64_t h = 0; h < p->heads; h++)
    for (int64_t r = 0; r < most; r++) {
      const int64_t at = h * p->n_q + first - a->first + (2 * r + 1) * scored / (2 * most);
      *left += 1 - exp(lse[0][at] - lse[1][at]);
    }
  return ATTN_OK;
}

static attn_status no_logits(void *to, const data_llama_rows *r) {
  (void)to, (void)r;
  return ATTN_OK;
}

Test(quality_evaluate, what_is_left_out_is_what_log_sum_exps_say) {
  const data_llama_swap swaps[] = {
      {.spec = spec_of("streaming:sink=1,window=5"), .mix = 1},
      {.spec = spec_of("evict:score=snapkv,budget=6,recent=2,prompt=50"), .mix = 1},
      {.spec = spec_of("topk:k=3"), .phase = DATA_LLAMA_DECODE, .decode = 12, .mix = 1}};
  for (int s = 0; s < 3; s++) {
    double left[8] = {0}, all = 0, judged = 0;
    quality_row row;
    quality_data d = evaluate(&swaps[s], 1);
    assert_ok(data_llama_run(llama, &(data_llama_pass){.tokens = windows.tokens,
                                                       .windows = W,
                                                       .n = N,
                                                       .scored = FIRST,
                                                       .swaps = &swaps[s],
                                                       .count = 1,
                                                       .to = left,
                                                       .attention = add_left,
                                                       .logits = no_logits}));
    for (int64_t l = 0; l < d.layers; l++) {
      cr_expect_float_eq(d.layer[l].left, left[l], 1e-4, "%d, layer %d: %g, not %g", s, (int)l,
                         d.layer[l].left, left[l]);
      all += left[l];
      judged += d.layer[l].judged;
    }
    assert_ok(quality_summarise(&d, 0, &row));
    cr_expect_float_eq(row.mass_left, all / judged, 1e-6, "%g", row.mass_left);
    cr_expect(row.mass_left > 0.01 && row.mass_left < 1);
    cr_expect_eq(judged, (double)(W * d.layers * 4 * (s == 2 ? 11 : 16)));
    quality_data_free(&d);
  }
}

/* Of N positions a policy holds its budget, and a store in fewer bits: an element has 32 bits, or 8.5,
 * and of a policy 8 of N keys are left, 2 where it admits none. What reads a store reads as many keys as
 * without it. */
Test(quality_evaluate, bits_are_those_of_the_keys_that_are_held) {
  const data_llama_swap swaps[] = {
      {.spec = spec_of("tiled"), .mix = 1},
      {.spec = spec_of("topk:k=1"), .mix = 1},
      {.spec = spec_of("store:k=q8_0,v=q8_0"), .mix = 1},
      {.spec = spec_of("evict:budget=8,recent=2"), .mix = 1},
      {.spec = spec_of("evict:budget=8,recent=2 | store:k=q8_0,v=q8_0"), .mix = 1},
      {.spec = spec_of("streaming:sink=2,window=6"), .mix = 1},
      {.spec = spec_of("latent:rank=64"), .mix = 1}, /* of 4 heads of 64 keys and 64 values */
      {.spec = spec_of("evict:score=random,budget=8,recent=2,admit=2"), .mix = 1}};
  const double want[] = {32, 32, 8.5, 32. * 8 / N, 8.5 * 8 / N, 32. * 8 / N, 32. * 64 / 512, 32. * 2 / N};
  quality_data d = evaluate(swaps, 8);
  quality_row row[8];
  for (int s = 0; s < 8; s++) {
    assert_ok(quality_summarise(&d, s, &row[s]));
    cr_expect_float_eq(row[s].kv_bits, want[s], 1e-12, "%d: %g bits, not %g", s, row[s].kv_bits, want[s]);
  }
  cr_expect_float_eq(row[4].density, row[3].density, 1e-12);
  cr_expect_float_eq(row[2].density, 1, 1e-12);
  cr_expect_float_eq(row[6].density, 1, 1e-12);
  quality_data_free(&d);
}

/* Of codes of rows: of d = 64 elements a norm takes 16 bits, and that of what is left 16 more. Rows that wait
 * for their codes are counted as they are given. */
Test(quality_evaluate, bits_are_those_of_codes) {
  const data_llama_swap swaps[] = {{.spec = spec_of("turbo:bits=3"), .mix = 1},
                                   {.spec = spec_of("turbo:bits=3,prod=yes,of=k"), .mix = 1},
                                   {.spec = spec_of("qjl:bits=2"), .mix = 1},
                                   {.spec = spec_of("evict:budget=8,recent=2 | turbo:bits=2"), .mix = 1},
                                   {.spec = spec_of("kivi:bits=2,group=5,residual=10"), .mix = 1},
                                   {.spec = spec_of("sage:bits=4,group=7"), .mix = 1}};
  /* Of keys the last N mod 10 wait, of values the last 10; a group of 5 has 32 bits beside its codes. A scale
   * for each 7 keys begun, and a mean. */
  const double want[] = {3.25,
                         (3.5 + 32) / 2,
                         (2.25 + 32) / 2,
                         2.25 * 8 / N,
                         (N % 10 * 32 + N / 10 * 10 * 8.4 + 10 * 32 + (N - 10) * 3) / (2. * N),
                         (4 + 32. * ((N + 6) / 7 + 64) / (64 * N) + 16) / 2};
  quality_data d = evaluate(swaps, 6);
  quality_row row[6];
  for (int s = 0; s < 6; s++) {
    assert_ok(quality_summarise(&d, s, &row[s]));
    cr_expect_float_eq(row[s].kv_bits, want[s], 1e-12, "%d: %g bits, not %g", s, row[s].kv_bits, want[s]);
  }
  quality_data_free(&d);
}

/* -- a record -- */

enum { SWAPS = 2, LAYERS = 3, POSITIONS = N - 1 - FIRST, SCORED = W * POSITIONS - W * (W - 1) / 2 };

/* Numbers made up. Divergences and ranges of what is scored are 0 ... SCORED - 1 in some order; the last of
 * the layers is not replaced. */
static void make_up(quality_data *d) {
  attn_rng rng;
  attn_rng_init(&rng, 20261128, 0, 0);
  for (int64_t w = 0; w < W; w++) d->scored[w] = N - 1 - windows.first[w];
  for (int64_t at = 0, rank = 0; at < SWAPS * W * POSITIONS; at++) {
    const int64_t w = at / POSITIONS % W, i = at % POSITIONS;
    const bool scored = i < d->scored[w];
    d->points[at] = (quality_point){.dnll = scored ? (float)attn_rng_normal(&rng) : NAN,
                                    .kl = (float)(scored ? 37 * rank % SCORED : -1),
                                    .range = (float)(scored ? 41 * rank % SCORED : -1),
                                    .dp = (float)attn_rng_uniform(&rng),
                                    .same_top = attn_rng_uniform(&rng) < 0.7,
                                    .certified = attn_rng_uniform(&rng) < 0.4,
                                    .right = w % 2 || i % 3};
    d->nll[at % (W * POSITIONS)] = scored ? attn_rng_normal(&rng) : (double)NAN;
    d->right[at % (W * POSITIONS)] = w < 2 || i % 4;
    rank = (rank + scored) % SCORED;
  }
  for (int l = 0; l < SWAPS * LAYERS; l++)
    d->layer[l] = l % LAYERS == LAYERS - 1 ? (quality_layer){.size = 0}
                                           : (quality_layer){1 + l, 9, 0, l, 8, 0.1 * l, 2, 3 + l, NULL};
}

/* Each number of a record and of its series is what its name says, of the second swap. */
Test(quality_evaluate, a_record_is_what_the_points_say) {
  enum { DNLL, KL, TOP, NLL, CERTIFIED, SQUARE, RIGHT, RIGHT_EXACT, MEANS };
  static const char *const series[] = {"dnll", "kl", "top1", "nll"};
  static quality_point points[SWAPS * W * POSITIONS];
  static double nll[W * POSITIONS], of_window[MEANS][W], of_bin[MEANS][QUALITY_BINS], mean[MEANS];
  static bool right[W * POSITIONS];
  int64_t scored[W], hits = 0;
  quality_layer layer[SWAPS * LAYERS];
  quality_data d = {W, POSITIONS, SWAPS, LAYERS, scored, nll, right, points, layer, NULL, NULL};
  double in_bin[QUALITY_BINS] = {0}, whole[2][W], times[V] = {0}, unigram = 0, got;
  quality_record r;
  make_up(&d);
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
  }
  const interval dnll = interval_of_mean(of_window[DNLL], W);
  const double last = SCORED - 1;
  assert_ok(quality_record_init(&r));
  r.windows = W;
  assert_ok(quality_record_fill(&r, &d, &windows, 1));
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
                           {r.density, r.mass_left, r.kv_bits}},
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
                            {(3. + 4) / 16, (0.3 + 0.4) / 4, (6. + 7) / 2}};
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
  for (int t = 0; t < V; t++) unigram -= times[t] ? times[t] / SCORED * log(times[t] / SCORED) : 0;
  assert_ok(quality_unigram(&windows, V, &got));
  cr_expect_float_eq(got, unigram, 1e-12);
  quality_record_free(&r);
}

/* -- the file -- */

static quality_record record(const quality_data *d, int64_t swap, const char *spec) {
  quality_record r;
  assert_ok(quality_record_init(&r));
  r.n = N;
  r.windows = W;
  r.margin = 0.01;
  free(r.spec);
  r.spec = strdup(spec);
  assert_ok(quality_record_name(&r));
  assert_ok(quality_record_fill(&r, d, &windows, swap));
  return r;
}

Test(quality_evaluate, a_file_gives_back_what_was_written) {
  const data_llama_swap swaps[] = {{.spec = spec_of("streaming:sink=1,window=8"), .mix = 1},
                                   {.spec = spec_of("performer:features=8"), .mix = 1}};
  quality_data d = evaluate(swaps, 2);
  quality_set set = {0}, again;
  for (int s = 0; s < 2; s++) {
    quality_record r = record(&d, s, s ? "b" : "a");
    assert_ok(quality_set_add(&set, &r));
  }
  quality_record twice = record(&d, 1, "a"); /* takes the place of the first */
  assert_ok(quality_set_add(&set, &twice));
  cr_assert_eq(set.count, 2);
  const char *path = fixture_path("x.h5");
  assert_ok(quality_write(path, &set));
  assert_ok(quality_read(path, &again));
  cr_assert_eq(again.count, 2);
  for (size_t i = 0; i < 2; i++) {
    const quality_record *a = &set.records[i], *b = &again.records[i];
    for (const result_column *c = quality_columns; c->name; c++) {
      if (c->type == COLUMN_TEXT)
        cr_expect_str_eq(result_column_text(a, c), result_column_text(b, c), "%s", c->name);
      else if (c->type == COLUMN_F64 && !isnan(result_column_f64(a, c)))
        cr_expect_eq(result_column_f64(a, c), result_column_f64(b, c), "%s", c->name);
      else if (c->type == COLUMN_F64)
        cr_expect(isnan(result_column_f64(b, c)), "%s", c->name);
      else
        cr_expect_eq(result_column_int(a, c), result_column_int(b, c), "%s", c->name);
    }
    cr_expect_arr_eq(a->window_kl, b->window_kl, W * sizeof(double));
    cr_expect_eq(b->layer_count, 4);
    cr_expect_arr_eq(a->layer_error, b->layer_error, 4 * sizeof(double));
    int filled = 0;
    for (int bin = 0; bin < QUALITY_BINS; bin++) {
      filled += !isnan(b->bin_kl[bin]);
      cr_expect(a->bin_kl[bin] == b->bin_kl[bin] || isnan(a->bin_kl[bin]));
    }
    cr_expect(filled > 1);
  }
  cr_expect_eq(again.records[0].kl, again.records[1].kl, "the second record replaced the first");
  result_set_free(&set);
  result_set_free(&again);
  quality_data_free(&d);
}

/* -1 of float64 */
#define BITS_OF_MINUS_1 (-INT64_C(0x4010000000000000))

Test(quality_evaluate, numbers_out_of_range_are_refused_by_name) {
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

Test(quality_evaluate, other_files_are_not_evaluations) {
  quality_set set;
  const char *path = fixture_path("x.h5");
  fixture_write(path, "hello", 5);
  assert_refused(quality_read(path, &set), ATTN_EINVAL, "x.h5");
  assert_refused(quality_write(path, &(quality_set){0}), ATTN_EINVAL, "x.h5");
  assert_refused(quality_read(fixture_path("none.h5"), &set), ATTN_EFOREIGN, "none.h5");
  unlink(path);
  assert_ok(quality_write(path, &(quality_set){0}));
  assert_ok(quality_read(path, &set));
  cr_expect_eq(set.count, 0);
  result_set_free(&set);
}
