/* group_backward.c - the group `backward`: gradients of exact attention over the peak, against the forward
 * pass, causal and of one head, and of patterns against exact attention's. Five products a pair: 3 d_qk + 2
 * d_v multiply-adds. Those of features over the peak, and against their forward pass: ten products of rows
 * where that has four, maps and sums alike. Those of recurrences against their forward
 * pass, both with the same gates given. */
#include "experiments/bench/benchmark.h"

enum { HEADS = 8 };

static const char exact[] = "tiled:path=fma";

static void add_patterns(bench *b, bench_set *set, attn_problem p, const bench_meter *dense) {
  static const char *const specs[] = {"longformer:window=256", "bigbird"};
  p.causal = true;
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
    bench_row_add(b, ROW_FLOPS_RATIO, bench_put(b, set, bench_backward(b, specs[i], &p, 0)), dense,
                  TARGET_BACKWARD_PATTERN, "%s, causal: over tiled", specs[i]);
}

static void add_features(bench *b, bench_set *set, attn_problem p) {
  static const char spec[] = "performer:features=256", *const how[] = {"", ", causal"};
  for (int i = 0; i < 2; i++) {
    p.causal = i;
    const bench_meter *m = bench_put(b, set, bench_backward(b, spec, &p, 0)),
                      *forward = bench_put(b, set, bench_plan(b, spec, &p, NULL, 0));
    bench_row_add(b, ROW_OVER_LIMIT, m, NULL, TARGET_BACKWARD_FEATURES, "performer%s: over the peak", how[i]);
    bench_row_add(b, ROW_TIME_RATIO, m, forward, TARGET_BACKWARD_FEATURES_FORWARD,
                  "performer%s: time over the forward pass", how[i]);
  }
}

static void add_recurrences(bench *b, attn_problem p) {
  static const char *const rules[] = {"recurrent:rule=retention", "recurrent:rule=gla",
                                      "recurrent:rule=gated_delta", "recurrent:rule=kda"};
  bench_set *set = bench_set_add(b, bench_peak(b, NULL, 0, ATTN_PEAK_F32));
  p.causal = true;
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    bench_row_add(b, ROW_TIME_RATIO, bench_put(b, set, bench_backward(b, rules[i], &p, 0)),
                  bench_put(b, set, bench_plan(b, rules[i], &p, NULL, 0)), TARGET_NONE,
                  "%s: time over the forward pass", rules[i]);
}

static void add_size(bench *b, int64_t n, int64_t d) {
  bench_set *set = bench_set_add(b, bench_peak(b, NULL, 0, ATTN_PEAK_F32));
  attn_problem p = attn_problem_make(1, HEADS, n, d), one = attn_problem_make(1, 1, n, d);
  const int all = b->options.threads;
  const bench_meter *m = bench_put(b, set, bench_backward(b, exact, &p, 0)),
                    *forward = bench_put(b, set, bench_plan(b, exact, &p, NULL, 0));
  bench_row_add(b, ROW_OVER_LIMIT, m, NULL, TARGET_BACKWARD, "tiled: over the peak");
  bench_row_add(b, ROW_TIME_RATIO, m, forward, TARGET_BACKWARD_FORWARD, "tiled: time over the forward pass");
  const bench_meter *single = bench_put(b, set, bench_backward(b, exact, &one, 0));
  bench_row_add(b, ROW_FLOPS_RATIO, single, m, TARGET_BACKWARD_ONE, "tiled: one head over %d", HEADS);
  if (all > 1)
    bench_row_add(b, ROW_TIME_RATIO, bench_put(b, set, bench_backward(b, exact, &one, 1)), single,
                  all == 2 ? TARGET_THREADS : TARGET_NONE, "tiled, one head: time on 1 thread over %d", all);
  add_patterns(b, set, p, m);
  add_features(b, set, p);
  p.causal = true;
  bench_row_add(b, ROW_TIME_RATIO, bench_put(b, set, bench_backward(b, exact, &p, 0)), m,
                TARGET_BACKWARD_CAUSAL, "tiled: causal over not");
  add_recurrences(b, p);
}

void bench_gradients(bench *b) {
  static const int64_t length[] = {4096}, brief[] = {1024}, width[] = {64, 128};
  size_t n_count, d_count;
  const int64_t *n = bench_list(&b->options.n, b->options.quick ? brief : length, 1, &n_count);
  const int64_t *d = bench_list(&b->options.d, width, b->options.quick ? 1 : 2, &d_count);
  for (size_t i = 0; i < n_count; i++)
    for (size_t j = 0; j < d_count; j++) add_size(b, n[i], d[j]);
}
