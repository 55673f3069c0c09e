/* group_variants.c - the group `variants`: flops of each approximate variant over the peak, of sparse ones
 * over dense tiled, time of fast projections and of convolutions over their transforms, gemm of full
 * attention over OpenBLAS, speed on two threads, and growth of the time of a token. */
#include "experiments/bench/benchmark.h"

#include <string.h>

enum { HEADS = 4, WIDTH = 64, SLOTS = 256, GROWTH = 16, QUICK_GROWTH = 4 };

const bench_contender bench_contenders[] = {
    {"longformer:window=256", false, true, TARGET_SPARSE},
    {"bigbird", false, true, TARGET_SPARSE},
    {"performer:features=256", false, true, TARGET_PERFORMER},
    {"performer:features=256", true, true, TARGET_PERFORMER_CAUSAL},
    {"linear", false, true, TARGET_LINEAR},
    {"linear:feature=taylor", false, false, TARGET_LINEAR},
    {"nystrom", false, true, TARGET_NYSTROM},
    {"linformer:k=256", false, true, TARGET_LINFORMER},
    {"linformer:k=256,projection=srht", false, false, TARGET_TRANSFORM},
    {"linformer:k=256,projection=dct", false, false, TARGET_TRANSFORM},
    {.spec = NULL},
};

static bench_meter *plan_of(bench *b, const bench_contender *c, int64_t n, int threads) {
  const attn_problem p = bench_problem(HEADS, n, WIDTH, c->causal);
  return bench_plan(b, c->spec, &p, NULL, threads);
}

static const char *mark(const bench_contender *c) { return c->causal ? ", causal" : ""; }

static void throughput(bench *b, int64_t n) {
  bench_set *set = bench_set_add(b, bench_peak(b, NULL, 0, ATTN_PEAK_F32));
  const attn_problem p = bench_problem(HEADS, n, WIDTH, false);
  bench_meter *dense = bench_put(b, set, bench_plan(b, "tiled", &p, NULL, 0));
  bench_row_add(b, ROW_OVER_LIMIT, dense, NULL, TARGET_NONE, "tiled: over the peak");
  for (const bench_contender *c = bench_contenders; c->spec; c++) {
    if (c->target == TARGET_TRANSFORM) continue;
    bench_meter *m = bench_put(b, set, plan_of(b, c, n, 0));
    if (c->target == TARGET_SPARSE)
      bench_row_add(b, ROW_FLOPS_RATIO, m, dense, c->target, "%s: over tiled's rate", c->spec);
    else
      bench_row_add(b, ROW_OVER_LIMIT, m, NULL, c->target, "%s%s: over the peak", c->spec, mark(c));
  }
}

/* K and V of each head are transformed, then the queries attend to the slots. */
static void transforms(bench *b, int64_t n) {
  for (const bench_contender *c = bench_contenders; c->spec; c++) {
    if (c->target != TARGET_TRANSFORM) continue;
    int64_t power = 1;
    while (power < n) power *= 2;
    const bool hadamard = strstr(c->spec, "srht") != NULL;
    attn_problem p = bench_problem(HEADS, n, WIDTH, false);
    p.n_kv = SLOTS;
    bench_set *set = bench_set_add(b, NULL);
    bench_meter *m = bench_put(b, set, plan_of(b, c, n, 0));
    bench_meter *transform = bench_put(
        b, set, hadamard ? bench_wht(b, power, WIDTH, 2 * HEADS) : bench_dct(b, n, WIDTH, 2 * HEADS));
    bench_meter *attention = bench_put(b, set, bench_plan(b, "tiled", &p, NULL, 0));
    bench_row *row = bench_row_add(b, ROW_TIME_RATIO, m, transform, c->target,
                                   "%s: time over its transform's and the attention's", c->spec);
    if (row) row->c = attention;
    bench_row_add(b, ROW_TIME_RATIO, transform, m, TARGET_NONE, "%s: its transform's share of the time",
                  c->spec);
  }
}

/* One transform for each head, feature and column of V, and for the denominator. */
static void convolutions(bench *b, int64_t n) {
  const attn_problem p = bench_problem(HEADS, n, WIDTH, false);
  bench_set *set = bench_set_add(b, NULL);
  const bench_meter *m = bench_put(b, set, bench_plan(b, "toeplitz", &p, NULL, 0)),
                    *alone = bench_put(b, set, bench_convolutions(b, 2 * n, HEADS * WIDTH * (WIDTH + 1)));
  bench_row_add(b, ROW_TIME_RATIO, m, alone, TARGET_CONVOLUTION, "toeplitz: time over its transforms'");
}

static void products(bench *b, int64_t n) {
  bench_set *set = bench_set_add(b, bench_peak(b, NULL, 0, ATTN_PEAK_F32));
  bench_meter *own = bench_put(b, set, bench_gemm(b, n, WIDTH));
  bench_meter *blas = bench_put(b, set, bench_openblas(b, n, WIDTH));
  bench_row_add(b, ROW_FLOPS_RATIO, own, blas, TARGET_GEMM, "full: its products over OpenBLAS's");
  bench_row_add(b, ROW_OVER_LIMIT, own, NULL, TARGET_NONE, "full: its products over the peak");
  if (blas) bench_row_add(b, ROW_OVER_LIMIT, blas, NULL, TARGET_NONE, "OpenBLAS: the same over the peak");
}

static void thread_row(bench *b, const bench_contender *c, int64_t n) {
  const int all = b->options.threads;
  bench_set *set = bench_set_add(b, NULL);
  bench_meter *one = bench_put(b, set, plan_of(b, c, n, 1)), *two = bench_put(b, set, plan_of(b, c, n, all));
  bench_row_add(b, ROW_TIME_RATIO, one, two, all == 2 ? TARGET_THREADS : TARGET_NONE,
                "%s%s: time on 1 thread over %d", c->spec, mark(c), all);
}

static void threads(bench *b, int64_t n) {
  thread_row(b, &(bench_contender){.spec = "full"}, n);
  thread_row(b, &(bench_contender){.spec = "tiled"}, n);
  for (const bench_contender *c = bench_contenders; c->spec; c++) thread_row(b, c, n);
}

static void growth(bench *b, int64_t n) {
  const int64_t last = n * (b->options.quick ? QUICK_GROWTH : GROWTH);
  for (const bench_contender *c = bench_contenders; c->spec; c++) {
    if (!c->linear) continue;
    bench_set *set = bench_set_add(b, bench_peak(b, NULL, 0, ATTN_PEAK_F32));
    bench_meter *near = bench_put(b, set, plan_of(b, c, n, 0)),
                *far = bench_put(b, set, plan_of(b, c, last, 0));
    bench_row_add(b, ROW_TOKEN_RATIO, far, near, TARGET_FLAT, "%s%s: time a token over n = %lld's", c->spec,
                  mark(c), (long long)n);
  }
}

void bench_variants(bench *b) {
  static const int64_t length[] = {16384}, small[] = {4096}, brief[] = {2048};
  size_t count;
  const int64_t n = *bench_list(&b->options.n, b->options.quick ? small : length, 1, &count);
  const int64_t n_threads = *bench_list(&b->options.n, b->options.quick ? brief : small, 1, &count);
  throughput(b, n);
  transforms(b, n);
  convolutions(b, n_threads / 2);
  products(b, n_threads);
  if (b->options.threads > 1) threads(b, n_threads);
  growth(b, n);
}
