/* group_recurrent.c - the group `recurrent`: variants that carry a state, on causal problems of 4 heads:
 * flops over the peak, and time on one thread over that on two; and a token of 128 sequences, which is the
 * reading and writing of their states. */
#include "experiments/bench/benchmark.h"

enum {
  LENGTH = 16384,
  QUICK_LENGTH = 2048,
  HEADS = 4,
  STEP_SEQUENCES = 128,
  STEP_HEADS = 32,
  STEP_WIDTH = 128
};

static const struct {
  const char *spec;
  bench_target target;
} rules[] = {{"recurrent:rule=retention", TARGET_RECURRENT}, {"recurrent:rule=ssd", TARGET_RECURRENT},
             {"recurrent:rule=gla", TARGET_RECURRENT},       {"recurrent:rule=delta", TARGET_DELTA},
             {"recurrent:rule=gated_delta", TARGET_DELTA},   {"recurrent:rule=kda", TARGET_DELTA},
             {"recurrent:rule=gated_delta2", TARGET_DELTA},  {"recurrent:rule=mamba3", TARGET_RECURRENT}};

static void add_rule(bench *b, bench_set *set, const attn_problem *p, size_t r) {
  const int all = b->options.threads;
  const char *spec = rules[r].spec;
  const bench_meter *m = bench_put(b, set, bench_plan(b, spec, p, NULL, 0));
  bench_row_add(b, ROW_OVER_LIMIT, m, NULL, rules[r].target, "%s: over the peak", spec);
  if (all > 1)
    bench_row_add(b, ROW_TIME_RATIO, bench_put(b, set, bench_plan(b, spec, p, NULL, 1)), m,
                  all == 2 ? TARGET_THREADS : TARGET_NONE, "%s: time on 1 thread over %d", spec, all);
}

static void add_steps(bench *b) {
  static const char *const specs[] = {"recurrent:rule=ssd", "recurrent:rule=gated_delta",
                                      "recurrent:rule=kda"};
  bench_set *set = bench_set_add(b, bench_bandwidth(b, 0));
  attn_problem p = attn_problem_make(STEP_SEQUENCES, STEP_HEADS, 1, STEP_WIDTH);
  p.causal = true;
  for (size_t r = 0; r < sizeof specs / sizeof *specs; r++)
    bench_row_add(b, ROW_OVER_LIMIT, bench_put(b, set, bench_step(b, specs[r], &p)), NULL, TARGET_STEP,
                  "%s: a token, states over bandwidth", specs[r]);
}

void bench_recurrent(bench *b) {
  static const int64_t length[] = {LENGTH}, brief[] = {QUICK_LENGTH}, width[] = {64, 128};
  size_t n_count, d_count;
  const int64_t *n = bench_list(&b->options.n, b->options.quick ? brief : length, 1, &n_count);
  const int64_t *d = bench_list(&b->options.d, width, b->options.quick ? 1 : 2, &d_count);
  for (size_t i = 0; i < n_count; i++)
    for (size_t j = 0; j < d_count; j++) {
      bench_set *set = bench_set_add(b, bench_peak(b, NULL, 0, ATTN_PEAK_F32));
      const attn_problem p = bench_problem(HEADS, n[i], d[j], true);
      for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) add_rule(b, set, &p, r);
    }
  add_steps(b);
}
