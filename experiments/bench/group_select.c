/* group_select.c - the group `select`: what it costs to choose keys at run time, on causal problems of 8
 * heads, or of one that is long. Rates are over the products that are really computed, those of the ranking
 * included. */
#include "experiments/bench/benchmark.h"

/* The rate if it has a target, and the time, whose target beyond n = 16384 is `later`. */
typedef struct contender {
  const char *spec;
  bench_target rate, time, later;
} contender;

static const contender contenders[] = {
    {"pages:budget=1024,share=tile", TARGET_TILE_SHARED, TARGET_NONE, TARGET_NONE},
    {"pages:budget=1024", TARGET_ROW_SHARED, TARGET_QUEST, TARGET_QUEST_LONG},
    {"pages:budget=1024,page=64", TARGET_NONE, TARGET_QUEST, TARGET_QUEST_WIDE},
    {"topk:k=64", TARGET_NONE, TARGET_TOPK, TARGET_NONE},
};

void bench_select(bench *b) {
  static const int64_t length[] = {16384, 65536}, width[] = {64};
  size_t n_count, d_count;
  const int64_t *n = bench_list(&b->options.n, length, b->options.quick ? 1 : 2, &n_count);
  const int64_t *d = bench_list(&b->options.d, width, 1, &d_count);
  for (size_t i = 0; i < n_count; i++)
    for (size_t j = 0; j < d_count; j++) {
      bench_set *set = bench_set_add(b, NULL);
      const attn_problem p = bench_problem(bench_heads(n[i]), n[i], d[j], true);
      const bench_meter *dense = bench_put(b, set, bench_plan(b, "tiled", &p, NULL, 0));
      for (size_t c = 0; c < sizeof contenders / sizeof *contenders; c++) {
        const contender *x = &contenders[c];
        const bench_target time = n[i] > length[0] ? x->later : x->time;
        if (x->rate == TARGET_NONE && time == TARGET_NONE) continue;
        const bench_meter *m = bench_put(b, set, bench_plan(b, x->spec, &p, NULL, 0));
        if (x->rate != TARGET_NONE)
          bench_row_add(b, ROW_FLOPS_RATIO, m, dense, x->rate, "%s: rate over dense tiled's", x->spec);
        if (time != TARGET_NONE)
          bench_row_add(b, ROW_TIME_RATIO, m, dense, time, "%s: time over dense tiled's", x->spec);
      }
    }
}
