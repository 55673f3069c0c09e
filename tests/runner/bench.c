/* bench.c - ratios of a benchmark, on a machine whose rate wanders: of meters that are made up. */
#include <criterion/criterion.h>
#include <math.h>

#include "experiments/bench/benchmark.h"

/* The rate of the machine when the limit is measured for the k-th time; between two times their mean. */
static int64_t probes;
static double rate(int64_t k) { return 1 + (double)(7 * k % 5) / 5; }

static attn_status measure_limit(bench_meter *meter, double span, double *seconds) {
  (void)meter, (void)span;
  *seconds = 1 / rate(probes++);
  return ATTN_OK;
}

static attn_status measure_work(bench_meter *meter, double span, double *seconds) {
  (void)span;
  *seconds = *(const double *)meter->state / ((rate(probes - 1) + rate(probes)) / 2);
  return ATTN_OK;
}

static bench_meter *meter_of(bench *b, bench_set *set, double work, double flops, double bytes,
                             double tokens) {
  static double works[16];
  bench_meter *meter = bench_meter_add(b, "meter");
  works[b->meter_count] = work;
  meter->measure = measure_work;
  meter->state = &works[b->meter_count];
  meter->flops = flops;
  meter->bytes = bytes;
  meter->tokens = tokens;
  return bench_put(b, set, meter);
}

/* Whatever the rate, a time is counted in the limit's, and every round has the same ratio. */
Test(runner_bench, ratios_do_not_follow_the_clock) {
  for (int by_bytes = 0; by_bytes < 2; by_bytes++) {
    bench b = {.options = {.threads = 1, .rounds = 4, .quick = true}};
    bench_meter *limit = bench_meter_add(&b, "limit");
    limit->measure = measure_limit;
    limit->threads = 1;
    limit->bytes = by_bytes;
    bench_set *set = bench_set_add(&b, limit);
    bench_meter *x = meter_of(&b, set, 2, 6, 10, 4), *y = meter_of(&b, set, 16, 8, 0, 2),
                *z = meter_of(&b, set, 4, 0, 3, 0);
    bench_row_add(&b, ROW_OVER_LIMIT, x, NULL, TARGET_NONE, "over the limit");
    bench_row_add(&b, ROW_FLOPS_RATIO, x, y, TARGET_NONE, "flops");
    bench_row_add(&b, ROW_TIME_RATIO, x, y, TARGET_NONE, "time");
    bench_row_add(&b, ROW_TIME_RATIO, x, y, TARGET_NONE, "time of both")->c = z;
    bench_row_add(&b, ROW_TOKEN_RATIO, x, y, TARGET_NONE, "time a token");
    const double wanted[] = {by_bytes ? 5 : 3, 6, 2. / 16, 2. / (16 + 4), (2. / 4) / (16. / 2)};
    cr_assert_eq(bench_measure(&b), ATTN_OK, "%s", attn_last_error());
    for (int r = 0; r < 5; r++)
      cr_expect(fabs(b.rows[r].ratio - wanted[r]) + fabs(b.rows[r].low - wanted[r]) +
                        fabs(b.rows[r].high - wanted[r]) <=
                    1e-12,
                "%s: %g in %g ... %g, not %g", b.rows[r].what, b.rows[r].ratio, b.rows[r].low, b.rows[r].high,
                wanted[r]);
    bench_free(&b);
  }
}
