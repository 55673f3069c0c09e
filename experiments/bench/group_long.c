/* group_long.c - the group `long`: time and peak memory of a variant of each engine, one head, from a
 * thousand tokens to four million; the exponents of the times from 16 Ki tokens on, and from which length on
 * each is faster than `tiled`. A variant goes no further where it would take half of the machine's memory, or
 * where four times its last time is more than a minute: ten minutes in all, so that the group runs only if it
 * is named. */
#include "experiments/bench/benchmark.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/analysis/fit.h"
#include "experiments/instruments/machine.h"
#include "experiments/instruments/memory.h"
#include "experiments/support/table.h"

enum { MILLION = 1 << 20, WIDTH = 64, FITTED_FROM = 16384, LENGTHS = 16 };

static const double most_seconds = 60, span = 0.05;

/* The first two are what the others are compared with. */
static const struct {
  const char *spec;
  bool causal;
} subjects[] = {{"tiled", false},
                {"tiled", true},
                {"full", false},
                {"normaliser", false},
                {"store:k=q8_0,v=q8_0", true},
                {"longformer:window=256", false},
                {"bigbird", false},
                {"pages:budget=1024,page=64", true},
                {"sample:count=64", true},
                {"lsh_tail", false},
                {"pooled", true},
                {"performer:features=256", false},
                {"performer:features=256", true},
                {"linear", false},
                {"nystrom", false},
                {"linformer:k=256", false},
                {"linformer:k=256,projection=srht", false},
                {"toeplitz", true},
                {"recurrent", true},
                {"recurrent:rule=gated_delta", true}};

enum { SUBJECTS = sizeof subjects / sizeof *subjects };

typedef struct series {
  double n[LENGTHS], seconds[LENGTHS];
  size_t count;
} series;

static const char *mark(size_t i) { return subjects[i].causal ? ", causal" : ""; }

/* One execution; false where it would take too long, or there is none. */
static bool execute(bench *b, size_t i, int64_t n, series *x) {
  /* Each execution has a separate bench, so that the memory peak is its own. */
  bench own = {.options = b->options, .group = b->group};
  const attn_problem p = bench_problem(1, n, WIDTH, subjects[i].causal);
  const double grown = x->count ? (double)n / x->n[x->count - 1] : 1;
  double seconds = 0, peak = 0;
  if (x->count && x->seconds[x->count - 1] * grown > most_seconds) return false;
  memory_reset_peak();
  bench_meter *m = bench_plan(&own, subjects[i].spec, &p, NULL, 0);
  const double room = (double)(own.inputs + own.outputs) * (double)attn_dtype_size(b->options.dtype);
  const bool fits = m && !(room + (double)own.work > machine_memory() / 2);
  if (fits) b->status = bench_room(&own);
  if (fits && !b->status) b->status = m->measure(m, span, &seconds);
  if (own.status) b->status = own.status;
  peak = memory_peak();
  if (!b->status && (fits || !m)) {
    bench_row *row =
        bench_row_add(b, m ? ROW_VALUE : ROW_RATE, NULL, NULL, n <= MILLION ? TARGET_LONG : TARGET_NONE,
                      "%s%s: peak GiB", subjects[i].spec, mark(i));
    if (row && m) {
      char text[SHORT_TEXT];
      row->n = n;
      row->d = WIDTH;
      bench_row_value(row, peak / 0x1p30);
      snprintf(row->figure, sizeof row->figure, "%s", short_time(seconds, text));
      x->n[x->count] = (double)n;
      x->seconds[x->count++] = seconds;
    }
  }
  bench_free(&own);
  return fits;
}

static void add_exponent(bench *b, size_t i, const series *x) {
  double unknown[LENGTHS];
  size_t first = 0;
  fit_power fit;
  while (first + 2 < x->count && x->n[first] < FITTED_FROM) first++;
  for (size_t at = 0; at < x->count; at++) unknown[at] = (double)NAN;
  if (x->count < 2 || b->status) return;
  b->status = fit_exponent(x->n + first, x->seconds + first, unknown, x->count - first, &fit);
  bench_row *row =
      bench_row_add(b, ROW_VALUE, NULL, NULL, TARGET_NONE, "%s%s: exponent", subjects[i].spec, mark(i));
  if (!row) return;
  row->d = WIDTH;
  row->ratio = fit.exponent.mid;
  row->low = fit.exponent.lo;
  row->high = fit.exponent.hi;
}

static void add_crossing(bench *b, size_t i, const series *x, const series *exact) {
  double ratios[LENGTHS];
  fit_ratios given[LENGTHS];
  fit_interval speedups[LENGTHS];
  fit_crossing found;
  size_t count = 0;
  for (; count < x->count && count < exact->count; count++) {
    ratios[count] = log(x->seconds[count] / exact->seconds[count]);
    given[count] = (fit_ratios){x->n[count], &ratios[count], 1};
  }
  if (!b->status) b->status = fit_cross(given, count, &found, speedups);
  if (b->status || found.kind == CROSSING_UNKNOWN) return;
  bench_row *row = bench_row_add(b, ROW_VALUE, NULL, NULL, TARGET_NONE, "%s%s: overtakes tiled",
                                 subjects[i].spec, mark(i));
  if (!row) return;
  row->d = WIDTH;
  if (found.kind == CROSSING_TO_FASTER)
    snprintf(row->figure, sizeof row->figure, "n = %.0f", found.n.mid);
  else
    snprintf(row->figure, sizeof row->figure, "%s", found.kind == CROSSING_FASTER ? "at every n" : "at no n");
}

void bench_long(bench *b) {
  static const int64_t lengths[] = {1024, 4096, 16384, 65536, 262144, 1048576, 4194304};
  static const size_t own = sizeof lengths / sizeof *lengths;
  size_t count;
  const int64_t *n = bench_list(&b->options.n, lengths, own, &count);
  series measured[SUBJECTS] = {{.count = 0}};
  for (size_t i = 0; i < SUBJECTS; i++)
    for (size_t j = 0; !b->status && j < count && j < LENGTHS; j++)
      if (!execute(b, i, n[j], &measured[i])) break;
  for (size_t i = 0; !b->status && i < SUBJECTS; i++) add_exponent(b, i, &measured[i]);
  for (size_t i = 2; !b->status && i < SUBJECTS; i++)
    add_crossing(b, i, &measured[i], &measured[subjects[i].causal]);
}
