/* rounds.c - the rounds of a benchmark and the ratios of its rows. See benchmark.h. */
#include "experiments/bench/benchmark.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "attn_variant.h"
#include "experiments/instruments/timing.h"
#include "experiments/mathematics/statistics.h"
#include "experiments/support/table.h"

enum { PURPOSE_INPUTS = 0x62656e63, PERIOD = 1048573, MORE_ROUNDS = 5, ALIGNMENT = 64 };

/* A prime period: no two rows of a tensor begin alike. */
static void fill_normal(void *x, int64_t count, attn_dtype t) {
  attn_rng rng;
  attn_rng_init(&rng, 0, PURPOSE_INPUTS, 0);
  for (int64_t i = 0; i < count && i < PERIOD; i++) attn_set(x, i, t, attn_rng_normal(&rng));
  for (int64_t i = PERIOD; i < count; i++) attn_set(x, i, t, attn_get(x, i - PERIOD, t));
}

attn_status bench_room(bench *b) {
  const size_t element = attn_dtype_size(b->options.dtype);
  const size_t sizes[] = {b->inputs * element, b->outputs * element, b->work};
  void *at[3] = {NULL};
  for (int i = 0; i < 3; i++)
    if (posix_memalign(&at[i], ALIGNMENT, sizes[i] ? sizes[i] : 1) != 0) {
      for (int j = 0; j < i; j++) free(at[j]);
      return attn_fail(ATTN_ENOMEM, "no memory for %.1f GiB of tensors and work",
                       (double)(sizes[0] + sizes[1] + sizes[2]) / 0x1p30);
    }
  b->in = at[0];
  b->out = at[1];
  b->scratch = at[2];
  fill_normal(b->in, (int64_t)b->inputs, b->options.dtype);
  return ATTN_OK;
}

attn_status bench_repeat(bench_meter *meter, attn_status (*execute)(bench_meter *), double span,
                         double *seconds) {
  double elapsed = 0;
  int64_t count = 0;
  attn_status status = ATTN_OK;
  for (int pass = 0; !status && pass < 2 && elapsed < span; pass++) {
    const double start = timing_now();
    for (count = 0, elapsed = 0; !status && (count == 0 || (pass > 0 && elapsed < span)); count++) {
      status = execute(meter);
      elapsed = timing_now() - start;
    }
  }
  if (!status) *seconds = elapsed / (double)count;
  return status;
}

static attn_status append(bench_meter *meter, double seconds, double limit) {
  const size_t size = (size_t)(meter->count + 1) * sizeof(double);
  double *more = realloc(meter->seconds, size);
  if (more) meter->seconds = more;
  double *limits = realloc(meter->limit, size);
  if (limits) meter->limit = limits;
  if (!more || !limits) return attn_fail(ATTN_ENOMEM, "no memory for the samples of %s", meter->name);
  more[meter->count] = seconds;
  limits[meter->count++] = limit;
  return ATTN_OK;
}

/* One turn of a set measures its meters, in alternating order, and the limit between them. */
typedef struct turn {
  bench *owner;
  bench_set *set;
  double span;
  int64_t turns;
} turn;

/* Measures the limit. Its threads never wait, so processor time below the elapsed time was taken by other
 * processes. */
static attn_status probe_limit(bench *b, const bench_set *set, double span, double *seconds) {
  struct timespec before, after;
  if (!set->limit) return ATTN_OK;
  const double start = timing_now();
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  const attn_status status = set->limit->measure(set->limit, span, seconds);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  b->elapsed += set->limit->threads * (timing_now() - start);
  b->processor += (double)(after.tv_sec - before.tv_sec) + 1e-9 * (double)(after.tv_nsec - before.tv_nsec);
  return status;
}

static attn_status take_turn(void *context) {
  turn *t = context;
  const bench_set *set = t->set;
  const double probe = t->span / 2;
  double before = 0, after = 0, seconds = 0;
  attn_status status = ATTN_OK;
  if (!status) status = probe_limit(t->owner, set, probe, &before);
  for (int64_t i = 0; !status && i < set->count; i++) {
    bench_meter *meter = set->meters[t->turns % 2 ? set->count - 1 - i : i];
    if (t->turns == 0 && meter->clear) meter->clear(meter);
    status = meter->measure(meter, t->span, &seconds);
    if (!status) status = probe_limit(t->owner, set, probe, &after);
    const double limit = set->limit ? (1 / before + 1 / after) / 2 : 0;
    if (!status) status = append(meter, seconds, limit);
    if (!status && t->turns == 0 && meter->verify) {
      status = meter->verify(meter);
      /* The limit is measured again, because the verification took time. */
      if (!status) status = probe_limit(t->owner, set, probe, &after);
    }
    before = after;
  }
  t->turns++;
  return status;
}

static double by_limit(const bench_meter *m, int64_t round) {
  return m->seconds[round] * (m->limit[round] > 0 ? m->limit[round] : 1);
}

/* The work that a rate counts: flops, or bytes if the limit is a bandwidth. */
static double work_of(const bench_meter *m, const bench_set *set) {
  return m->flops > 0 && !(set && set->limit && set->limit->bytes > 0) ? m->flops : m->bytes;
}

static double ratio_at(const bench_row *row, const bench_set *set, int64_t round) {
  const bench_meter *a = row->a, *b = row->b;
  const double time = by_limit(a, round);
  switch (row->kind) {
  case ROW_OVER_LIMIT:
    return work_of(a, set) / time;
  case ROW_FLOPS_RATIO:
    return a->flops / time / (b->flops / by_limit(b, round));
  case ROW_TIME_RATIO:
    return time / (by_limit(b, round) + (row->c ? by_limit(row->c, round) : 0));
  case ROW_TOKEN_RATIO:
    return time / a->tokens / (by_limit(b, round) / b->tokens);
  default:
    return (double)NAN;
  }
}

static attn_status summarise(bench *b, const double *values, int64_t count, bench_row *row) {
  timing_summary summary;
  const attn_status status = timing_summarise(values, count, b->options.seed, &summary);
  if (status) return status;
  row->ratio = summary.median;
  row->low = summary.ci_lo;
  row->high = summary.ci_hi;
  return ATTN_OK;
}

static const bench_set *set_of(const bench *b, const bench_meter *meter) {
  for (size_t s = 0; s < b->set_count; s++)
    for (int64_t i = 0; i < b->sets[s]->count; i++)
      if (b->sets[s]->meters[i] == meter) return b->sets[s];
  return NULL;
}

static void show_figure(bench_row *row, const bench_set *set, double seconds) {
  char text[SHORT_TEXT];
  const double rate = work_of(row->a, set) / seconds;
  const bool flops = work_of(row->a, set) == row->a->flops;
  if (row->kind == ROW_TIME_RATIO || row->kind == ROW_TOKEN_RATIO)
    snprintf(row->figure, sizeof row->figure, "%s", short_time(seconds, text));
  else
    snprintf(row->figure, sizeof row->figure, "%.*f %s", rate < 1e11 ? 1 : 0, rate / 1e9,
             flops ? "GF/s" : "GB/s");
}

static attn_status settle_row(bench *b, bench_row *row) {
  if (row->crossing) return crossover_settle(row);
  if (row->kind == ROW_VALUE || row->note[0]) return ATTN_OK;
  const bench_set *set = set_of(b, row->a);
  const int64_t count = row->a->count;
  double *values = calloc((size_t)count + 1, sizeof *values);
  if (!values) return attn_fail(ATTN_ENOMEM, "no memory for the ratios of a row");
  memcpy(values, row->a->seconds, (size_t)count * sizeof *values);
  show_figure(row, set, median_of(values, (size_t)count));
  for (int64_t i = 0; i < count; i++) values[i] = ratio_at(row, set, i);
  const attn_status status = row->kind == ROW_RATE ? ATTN_OK : summarise(b, values, count, row);
  free(values);
  return status;
}

attn_status bench_measure(bench *b) {
  if (b->status) return b->status;
  attn_status status = bench_room(b);
  timing_subject *subjects = calloc(b->set_count + 1, sizeof *subjects);
  turn *turns = calloc(b->set_count + 1, sizeof *turns);
  if (!status && (!subjects || !turns))
    status = attn_fail(ATTN_ENOMEM, "no memory for %zu sets of measurements", b->set_count);
  if (status) goto out;
  for (size_t i = 0; i < b->set_count; i++) {
    turns[i] = (turn){.owner = b, .set = b->sets[i], .span = b->options.quick ? 0.01 : 0.02};
    subjects[i] = (timing_subject){.execute = take_turn, .context = &turns[i]};
  }
  /* One execution a round, without warm-up: a turn warms up by itself. */
  const timing_options options = {.max_time = b->set_count ? b->options.budget / (double)b->set_count : 0,
                                  .samples = MORE_ROUNDS * b->options.rounds,
                                  .rounds = b->options.rounds};
  status = timing_rounds(subjects, (int64_t)b->set_count, &options, b->options.seed);
  for (size_t i = 0; !status && i < b->set_count; i++) status = subjects[i].status;
  for (size_t i = 0; !status && i < b->row_count; i++) status = settle_row(b, &b->rows[i]);
  if (!status && b->elapsed > 0) {
    b->group = "run";
    bench_row *row =
        bench_row_add(b, ROW_VALUE, NULL, NULL, TARGET_ALONE, "processor time over elapsed time");
    if (row) bench_row_value(row, b->processor / b->elapsed);
    status = b->status;
  }
out:
  for (size_t i = 0; subjects && i < b->set_count; i++) timing_subject_free(&subjects[i]);
  free(subjects);
  free(turns);
  return status;
}
