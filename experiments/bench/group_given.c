/* group_given.c - variants given by the user: each against the peak, and against the first of them, or
 * against itself in another build of the program. */
#include "experiments/bench/benchmark.h"

#include <stdlib.h>

#include "data/support/file.h"

/* ", causal on alibi, prefix:64", or nothing; to be freed. */
static char *name_target(const bench_options *o) {
  const bool both = *o->score && *o->mask;
  return text_format("%s%s%s%s%s", o->causal ? ", causal" : "", *o->score || *o->mask ? " on " : "", o->score,
                     both ? ", " : "", o->mask);
}

void bench_compare(bench *b) {
  static const int64_t length[] = {4096}, width[] = {64};
  size_t n_count, d_count;
  const int64_t *n = bench_list(&b->options.n, length, 1, &n_count);
  const int64_t *d = bench_list(&b->options.d, width, 1, &d_count);
  char *on = name_target(&b->options);
  if (!on && !b->status) b->status = attn_fail(ATTN_ENOMEM, "out of memory for the benchmark's titles");
  for (size_t i = 0; i < n_count; i++)
    for (size_t j = 0; j < d_count; j++) {
      bench_set *set = bench_set_add(b, bench_peak(b, NULL, 0, ATTN_PEAK_F32));
      const attn_problem p = bench_compare_problem(b, n[i], d[j]);
      const bench_meter *first = NULL;
      for (size_t s = 0; s < b->options.others.count; s++) {
        const char *spec = b->options.others.items[s];
        bench_meter *m = bench_put(b, set, bench_plan(b, spec, &p, NULL, 0));
        bench_row_add(b, ROW_OVER_LIMIT, m, NULL, TARGET_NONE, "%s%s: over the peak", spec, on);
        if (b->options.against)
          bench_row_add(b, ROW_TIME_RATIO, m, bench_put(b, set, bench_remote(b, b->options.against, spec, m)),
                        TARGET_NONE, "%s%s: time over the other build's", spec, on);
        else if (s == 0)
          first = m;
        else
          bench_row_add(b, ROW_TIME_RATIO, m, first, TARGET_NONE, "%s%s: time over %s's", spec, on,
                        b->options.others.items[0]);
      }
    }
  free(on);
}
