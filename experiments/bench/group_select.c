/* group_select.c - the group `select`: what it costs to choose keys at run time, on causal problems of 8
 * heads. Rates are over the products that are really computed, those of the ranking included. */
#include "experiments/bench/benchmark.h"

enum { HEADS = 8 };

/* Where a time is compared, the target is of n = 16384, or beyond that of `later`. */
typedef struct contender {
  const char *spec;
  bench_kind kind;
  bench_target target, later;
} contender;

static const contender contenders[] = {
    {"pages:budget=1024,share=tile", ROW_FLOPS_RATIO, TARGET_TILE_SHARED, TARGET_TILE_SHARED},
    {"pages:budget=1024", ROW_FLOPS_RATIO, TARGET_ROW_SHARED, TARGET_ROW_SHARED},
    {"pages:budget=1024", ROW_TIME_RATIO, TARGET_QUEST, TARGET_QUEST_LONG},
    {"pages:budget=1024,page=64", ROW_TIME_RATIO, TARGET_QUEST, TARGET_QUEST_WIDE},
    {"topk:k=64", ROW_TIME_RATIO, TARGET_TOPK, TARGET_NONE},
};

void bench_select(bench *b) {
  static const int64_t length[] = {16384, 65536}, width[] = {64};
  size_t n_count, d_count;
  const int64_t *n = bench_list(&b->options.n, length, b->options.quick ? 1 : 2, &n_count);
  const int64_t *d = bench_list(&b->options.d, width, 1, &d_count);
  for (size_t i = 0; i < n_count; i++)
    for (size_t j = 0; j < d_count; j++) {
      bench_set *set = bench_set_add(b, NULL);
      const attn_problem p = bench_problem(HEADS, n[i], d[j], true);
      const bench_meter *dense = bench_put(b, set, bench_plan(b, "tiled", &p, NULL, 0));
      for (size_t c = 0; c < sizeof contenders / sizeof *contenders; c++) {
        const contender *x = &contenders[c];
        bench_row_add(b, x->kind, bench_put(b, set, bench_plan(b, x->spec, &p, NULL, 0)), dense,
                      n[i] > length[0] ? x->later : x->target, "%s: %s dense tiled's", x->spec,
                      x->kind == ROW_TIME_RATIO ? "time over" : "rate over");
      }
    }
}
