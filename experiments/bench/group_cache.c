/* group_cache.c - the group `cache`: one query against a long cache of keys and values in few bits, and what
 * it costs to append a token. Fewer bits are read in less time, until the time is that of the arithmetic. */
#include "experiments/bench/benchmark.h"

enum { LENGTH = 65536, QUICK_LENGTH = 16384, HEADS = 4, POSITIONS = 1 << 30, PART = 1024 };

static const struct {
  attn_dtype type;
  bench_target target;
} stores[] = {{ATTN_F16, TARGET_STORE_16}, {ATTN_BF16, TARGET_STORE_16}, {ATTN_FP8, TARGET_STORE_8},
              {ATTN_Q8_0, TARGET_STORE_8}, {ATTN_INT8, TARGET_STORE_8},  {ATTN_Q4_0, TARGET_STORE_4},
              {ATTN_INT4, TARGET_STORE_4}};

static void add_arrivals(bench *b, bench_set *set, attn_problem p, const bench_meter *attend) {
  char one[64], many[64];
  const int64_t held = p.n_kv, every = held < 2 * PART ? 1 : held / PART;
  snprintf(one, sizeof one, "evict:score=knorm,budget=%lld", (long long)held);
  snprintf(many, sizeof many, "evict:score=knorm,every=%lld,budget=%lld", (long long)every, (long long)held);
  const struct {
    const char *what, *spec;
    int64_t positions;
  } cases[] = {{"f32", "tiled", held + 1},
               {"q8_0", "store:k=q8_0,v=q8_0", held + 1},
               {"f32, for which one goes (knorm)", one, POSITIONS},
               {"f32, for which 1/1024 goes at a time", many, POSITIONS}};
  p.causal = true;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    p.n_kv = cases[c].positions;
    bench_row_add(b, ROW_TIME_RATIO, bench_put(b, set, bench_arrival(b, cases[c].spec, &p, held)), attend,
                  TARGET_APPEND, "%s: a token more, over attention", cases[c].what);
  }
}

void bench_cache(bench *b) {
  static const int64_t length[] = {LENGTH}, brief[] = {QUICK_LENGTH}, width[] = {64, 128};
  size_t n_count, d_count;
  const int64_t *n = bench_list(&b->options.n, b->options.quick ? brief : length, 1, &n_count);
  const int64_t *d = bench_list(&b->options.d, width, b->options.quick ? 1 : 2, &d_count);
  for (size_t i = 0; i < n_count; i++)
    for (size_t j = 0; j < d_count; j++) {
      bench_set *set = bench_set_add(b, bench_bandwidth(b, 0));
      attn_problem p = attn_problem_make(1, HEADS, n[i], d[j]);
      p.n_q = 1;
      const bench_meter *plain = bench_put(b, set, bench_plan(b, "tiled", &p, NULL, 0));
      bench_row_add(b, ROW_OVER_LIMIT, plain, NULL, TARGET_READ, "f32: K, V read over bandwidth");
      for (size_t s = 0; s < sizeof stores / sizeof *stores; s++) {
        attn_problem own = p;
        own.k.stored = own.v.stored = stores[s].type;
        bench_row_add(b, ROW_TIME_RATIO, bench_put(b, set, bench_plan(b, "tiled", &own, NULL, 0)), plain,
                      stores[s].target, "%s: time over f32's", attn_numbers[stores[s].type].name);
      }
      if (j == 0) add_arrivals(b, set, p, plain);
    }
}
