/* benchmark.c - building a benchmark: meters, sets, rows. See benchmark.h. */
#include "experiments/bench/benchmark.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMPARED_HEADS = 4 };

attn_status bench_machine(bench_options *o) {
  attn_options machine = {.isa = o->isa, .threads = o->threads};
  const attn_status status = attn_options_fill(&machine, ATTN_F32, 1, 1, &machine);
  if (status) return status;
  o->isa = machine.isa;
  o->threads = machine.threads;
  return ATTN_OK;
}

/* Makes room for one more pointer or row. False after a failure, which is kept in bench.status. */
static bool grow(bench *b, void **items, size_t count, size_t size) {
  if (b->status) return false;
  void *more = realloc(*items, (count + 1) * size);
  if (more)
    *items = more;
  else
    b->status = attn_fail(ATTN_ENOMEM, "out of memory for the benchmark's list");
  return more != NULL;
}

bench_meter *bench_meter_add(bench *b, const char *name) {
  if (!grow(b, (void **)&b->meters, b->meter_count, sizeof *b->meters)) return NULL;
  bench_meter *meter = calloc(1, sizeof *meter);
  if (!meter) {
    b->status = attn_fail(ATTN_ENOMEM, "out of memory to measure %s", name);
    return NULL;
  }
  *meter = (bench_meter){.isa = b->options.isa, .threads = b->options.threads, .owner = b};
  snprintf(meter->name, sizeof meter->name, "%s", name);
  return b->meters[b->meter_count++] = meter;
}

attn_problem bench_compare_problem(bench *b, int64_t n, int64_t d) {
  attn_problem p = bench_problem(COMPARED_HEADS, n, d, b->options.causal);
  if (!grow(b, (void **)&b->targets, b->target_count, sizeof *b->targets)) return p;
  b->status = data_target_make(b->options.score, b->options.mask, &p, &b->targets[b->target_count]);
  b->target_count += !b->status;
  return p;
}

bench_set *bench_set_add(bench *b, bench_meter *limit) {
  if (!grow(b, (void **)&b->sets, b->set_count, sizeof *b->sets)) return NULL;
  bench_set *set = calloc(1, sizeof *set);
  if (!set) {
    b->status = attn_fail(ATTN_ENOMEM, "out of memory for a set of measurements");
    return NULL;
  }
  *set = (bench_set){.group = b->group, .limit = limit};
  return b->sets[b->set_count++] = set;
}

bench_meter *bench_put(bench *b, bench_set *set, bench_meter *meter) {
  if (b->status || !meter) return meter;
  if (set->count == BENCH_SET_MAX)
    b->status = attn_fail(ATTN_EINVAL, "more than %d measurements side by side", BENCH_SET_MAX);
  else
    set->meters[set->count++] = meter;
  return meter;
}

void bench_need(bench *b, size_t inputs, size_t outputs, size_t work) {
  b->inputs = inputs > b->inputs ? inputs : b->inputs;
  b->outputs = outputs > b->outputs ? outputs : b->outputs;
  b->work = work > b->work ? work : b->work;
}

bench_row *bench_row_add(bench *b, bench_kind kind, const bench_meter *a, const bench_meter *other,
                         bench_target target, const char *what, ...) {
  if (!grow(b, (void **)&b->rows, b->row_count, sizeof *b->rows)) return NULL;
  bench_row *row = &b->rows[b->row_count++];
  *row = (bench_row){.group = b->group,
                     .kind = kind,
                     .a = a,
                     .b = other,
                     .n = a ? a->n : 0,
                     .d = a ? a->d : 0,
                     .target = target,
                     .ratio = (double)NAN,
                     .low = (double)NAN,
                     .high = (double)NAN};
  va_list list;
  va_start(list, what);
  vsnprintf(row->what, sizeof row->what, what, list);
  va_end(list);
  const bool pair = kind == ROW_FLOPS_RATIO || kind == ROW_TIME_RATIO || kind == ROW_TOKEN_RATIO;
  if (kind != ROW_VALUE && (!a || (pair && !other)))
    snprintf(row->note, sizeof row->note, "unavailable: %s", attn_last_error());
  return row;
}

void bench_row_value(bench_row *row, double value) { row->ratio = row->low = row->high = value; }

const int64_t *bench_list(const value_ints *given, const int64_t *own, size_t own_count, size_t *count) {
  *count = given->count ? given->count : own_count;
  return given->count ? given->items : own;
}

const char *const *bench_isas(const bench *b) {
  static _Thread_local const char *names[8];
  size_t count = 0;
  if (!b->options.one_isa)
    for (const char *const *isa = attn_isa_list(); *isa && count < 7; isa++)
      if (strcmp(*isa, "scalar") != 0) names[count++] = *isa;
  if (count == 0) names[count++] = b->options.isa;
  names[count] = NULL;
  return names;
}

void bench_free(bench *b) {
  for (size_t i = 0; i < b->meter_count; i++) {
    bench_meter *meter = b->meters[i];
    if (meter->release) meter->release(meter->state);
    free(meter->seconds);
    free(meter->limit);
    free(meter);
  }
  for (size_t i = 0; i < b->set_count; i++) free(b->sets[i]);
  for (size_t i = 0; i < b->row_count; i++) free(b->rows[i].crossing);
  for (size_t i = 0; i < b->target_count; i++) data_target_free(b->targets[i]);
  free(b->targets);
  free(b->meters);
  free(b->sets);
  free(b->rows);
  free(b->in);
  free(b->out);
  free(b->scratch);
  *b = (bench){.options = b->options};
}
