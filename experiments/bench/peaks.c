/* peaks.c - the group `peaks`: the limits of the machine, on one thread and on several. */
#include "experiments/bench/benchmark.h"

void bench_peaks(bench *b) {
  const int threads = b->options.threads;
  for (const char *const *isa = bench_isas(b); *isa; isa++)
    for (attn_peak_kind t = ATTN_PEAK_F32; t <= ATTN_PEAK_BF16; t++) {
      bench_set *set = bench_set_add(b, NULL);
      bench_meter *one = bench_put(b, set, bench_peak(b, *isa, 1, t));
      bench_meter *all = bench_put(b, set, bench_peak(b, *isa, threads, t));
      if (!one || !all) continue;
      bench_row_add(b, ROW_RATE, one, NULL, TARGET_NONE, "%s, %s, 1 thread", one->name, *isa);
      bench_row_add(b, ROW_RATE, all, NULL, TARGET_NONE, "%s, %s, %d threads", all->name, *isa, threads);
      bench_row_add(b, ROW_FLOPS_RATIO, all, one, TARGET_NONE, "%s, %s, %d threads over 1", all->name, *isa,
                    threads);
    }
  bench_set *set = bench_set_add(b, NULL);
  bench_meter *one = bench_put(b, set, bench_bandwidth(b, 1));
  bench_meter *all = bench_put(b, set, bench_bandwidth(b, threads));
  bench_row_add(b, ROW_RATE, one, NULL, TARGET_NONE, "reads from memory, 1 thread");
  bench_row_add(b, ROW_RATE, all, NULL, TARGET_NONE, "reads from memory, %d threads", threads);
}
