/* group_decode.c - the group `decode`: few queries against a long cache of keys and values. The time should
 * be that of reading the cache once; of many queries, that of their multiply-adds. */
#include "experiments/bench/benchmark.h"

enum { LENGTH = 65536, QUICK_LENGTH = 16384, KV_HEADS = 8, MANY = 16 };

void bench_decode(bench *b) {
  static const struct {
    int64_t n_q, group;
    bench_target target;
  } cases[] = {{1, 1, TARGET_READ}, {4, 1, TARGET_DECODE}, {1, 8, TARGET_DECODE}};
  static const int64_t length[] = {LENGTH}, brief[] = {QUICK_LENGTH}, width[] = {64, 128};
  size_t n_count, d_count;
  const int64_t *n = bench_list(&b->options.n, b->options.quick ? brief : length, 1, &n_count);
  const int64_t *d = bench_list(&b->options.d, width, b->options.quick ? 1 : 2, &d_count);
  for (size_t i = 0; i < n_count; i++)
    for (size_t j = 0; j < d_count; j++) {
      bench_set *set = bench_set_add(b, bench_bandwidth(b, 0));
      for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        attn_problem p = attn_problem_make(1, KV_HEADS * cases[c].group, n[i], d[j]);
        p.kv_heads = KV_HEADS;
        p.n_q = cases[c].n_q;
        bench_row_add(b, ROW_OVER_LIMIT, bench_put(b, set, bench_plan(b, "tiled", &p, NULL, 0)), NULL,
                      cases[c].target, "tiled: %lld quer%s, %lld head%s a KV head: K, V read over bandwidth",
                      (long long)cases[c].n_q, cases[c].n_q > 1 ? "ies" : "y", (long long)cases[c].group,
                      cases[c].group > 1 ? "s" : "");
      }
      attn_problem p = attn_problem_make(1, KV_HEADS, n[i], d[j]);
      p.n_q = MANY;
      bench_set *full = bench_set_add(b, bench_peak(b, NULL, 0, ATTN_PEAK_F32));
      bench_row_add(b, ROW_OVER_LIMIT, bench_put(b, full, bench_plan(b, "tiled", &p, NULL, 0)), NULL,
                    TARGET_DECODE_MANY, "tiled: %d queries: over the peak", (int)MANY);
    }
}
