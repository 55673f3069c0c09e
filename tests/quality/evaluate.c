/* evaluate.c - evaluations of the bundled model against its logits. */
#include "experiments/quality/evaluation_summary.h"
#include "tests/support/data_fixture.h"
#include "tests/support/spec.h"

enum { N = 96, W = 8, FIRST = 40, V = 256 };

static data_llama *llama;
static quality_windows windows;

static void begin(void) {
  size_t size;
  fixture_begin();
  unsigned char *text = fixture_bytes(TEST_SOURCE_DIR "/tests/fixtures/held.txt", &size);
  assert_ok(data_llama_open(TEST_SOURCE_DIR "/data/bytelm", &llama));
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
  free(logits), quality_data_free(&d);
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
  /* Of tokens that stay for certain none has moved; where nothing changes all do, unless logits are equal. */
  for (int64_t at = 0; at < W * d.positions; at++)
    cr_expect(!d.points[at].certified || d.points[at].same_top);
  cr_expect(row[0].top1.at < 0.9 && row[2].top1_certified > 0.99);
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
    free(o), free(work);
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

Test(quality_evaluate, what_is_left_out_is_what_log_sum_exps_say) {
  const data_llama_swap swaps[] = {
      {.spec = spec_of("streaming:sink=1,window=5"), .mix = 1},
      {.spec = spec_of("evict:score=snapkv,budget=6,recent=2,prompt=50"), .mix = 1},
      {.spec = spec_of("topk:k=3"), .phase = DATA_LLAMA_DECODE, .decode = 12, .mix = 1}};
  for (int s = 0; s < 3; s++) {
    double left[8] = {0}, all = 0, judged = 0;
    quality_row row;
    quality_data d = evaluate(&swaps[s], 1);
    const data_llama_pass whole = {windows.tokens, W, N, N, &swaps[s], 1, left, add_left, NULL};
    assert_ok(data_llama_run(llama, &whole));
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
 * without it. Of codes of rows of d = 64 elements a norm takes 16 bits, and that of what is left 16 more.
 * Rows that wait for their codes are counted as they are given: of keys the last N mod 10, of values the last
 * 10; a group of 5 has 32 bits beside its codes. A scale for each 7 keys begun, and a mean. */
Test(quality_evaluate, bits_are_those_of_the_keys_that_are_held) {
  static const struct {
    const char *spec;
    double bits;
  } of[] = {{"tiled", 32},
            {"topk:k=1", 32},
            {"store:k=q8_0,v=q8_0", 8.5},
            {"evict:budget=8,recent=2", 32. * 8 / N},
            {"evict:budget=8,recent=2 | store:k=q8_0,v=q8_0", 8.5 * 8 / N},
            {"streaming:sink=2,window=6", 32. * 8 / N},
            {"latent:rank=64", 32. * 64 / 512}, /* of 4 heads of 64 keys and 64 values */
            {"evict:score=random,budget=8,recent=2,admit=2", 32. * 2 / N},
            {"turbo:bits=3", 3.25},
            {"turbo:bits=3,prod=yes,of=k", (3.5 + 32) / 2},
            {"qjl:bits=2", (2.25 + 32) / 2},
            {"evict:budget=8,recent=2 | turbo:bits=2", 2.25 * 8 / N},
            {"kivi:bits=2,group=5,residual=10",
             (N % 10 * 32 + N / 10 * 10 * 8.4 + 10 * 32 + (N - 10) * 3) / (2. * N)},
            {"sage:bits=4,group=7", (4 + 32. * ((N + 6) / 7 + 64) / (64 * N) + 16) / 2}};
  enum { COUNT = sizeof of / sizeof *of };
  data_llama_swap swaps[COUNT];
  quality_row row[COUNT];
  for (int s = 0; s < COUNT; s++) swaps[s] = (data_llama_swap){.spec = spec_of(of[s].spec), .mix = 1};
  quality_data d = evaluate(swaps, COUNT);
  for (int s = 0; s < COUNT; s++) {
    assert_ok(quality_summarise(&d, s, &row[s]));
    cr_expect_float_eq(row[s].kv_bits, of[s].bits, 1e-12, "%s: %g bits", of[s].spec, row[s].kv_bits);
  }
  cr_expect_float_eq(row[4].density, row[3].density, 1e-12);
  cr_expect_float_eq(row[2].density, 1, 1e-12);
  cr_expect_float_eq(row[6].density, 1, 1e-12);
  quality_data_free(&d);
}
