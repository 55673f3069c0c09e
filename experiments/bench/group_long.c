/* group_long.c - the group `long`: time and memory of one execution with a million tokens and one head. Exact
 * attention takes minutes, so the group runs only if it is named. */
#include "experiments/bench/benchmark.h"

#include <stdio.h>

#include "experiments/instruments/memory.h"
#include "experiments/support/table.h"

enum { LENGTH = 1 << 20, WIDTH = 64 };

static attn_status execute(bench *b, const char *spec, const attn_problem *p, bench_target target) {
  /* Each variant has a separate bench, so that the memory peak is that variant's. */
  bench own = {.options = b->options, .group = b->group};
  double seconds = 0;
  memory_reset_peak();
  bench_meter *m = bench_plan(&own, spec, p, NULL, 0);
  attn_status status = m ? bench_room(&own) : own.status;
  if (!status && m) status = m->measure(m, 0, &seconds);
  const double peak = memory_peak();
  bench_row *row = status ? NULL
                          : bench_row_add(b, m ? ROW_VALUE : ROW_RATE, NULL, NULL, target, "%s%s: peak GiB",
                                          spec, p->causal ? ", causal" : "");
  if (row && m) {
    char text[SHORT_TEXT];
    row->n = p->n_q;
    row->d = p->d_qk;
    bench_row_value(row, peak / 0x1p30);
    snprintf(row->figure, sizeof row->figure, "%s", short_time(seconds, text));
  }
  bench_free(&own);
  return status;
}

void bench_long(bench *b) {
  static const int64_t length[] = {LENGTH};
  size_t count;
  const int64_t *n = bench_list(&b->options.n, length, 1, &count);
  attn_problem p = attn_problem_make(1, 1, *n, WIDTH);
  if (!b->status) b->status = execute(b, "tiled", &p, TARGET_LONG);
  for (const bench_contender *c = bench_contenders; !b->status && c->spec; c++) {
    p.causal = c->causal;
    b->status = execute(b, c->spec, &p, TARGET_LONG);
  }
}
