/* tune.c - see tune.h. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/bench/bench.h"
#include "experiments/runner/tune.h"

/* Each thread has two heads, so that they all have as much to do with the largest tiles too. */
enum { HEADS_PER_THREAD = 2, LENGTH = 2048, LENGTH_QUICK = 512, ROUNDS = 7, ROUNDS_QUICK = 3 };

static const struct {
  double query, key; /* times the suggested */
} around[TUNE_CANDIDATES] = {{1, 0.5}, {1, 0.75}, {1, 1.5}, {1, 2}, {1, 4}, {0.5, 1}, {2, 1}, {4, 1}, {2, 2}};

static void add_candidates(tune_case *c) {
  for (size_t i = 0; i < TUNE_CANDIDATES; i++) {
    const attn_block_sizes blocks = {(int64_t)(around[i].query * (double)c->suggested.query),
                                     (int64_t)(around[i].key * (double)c->suggested.key)};
    if (blocks.query >= 1 && blocks.key >= 1)
      c->candidates[c->count++] = (tune_candidate){blocks, (double)NAN, (double)NAN, (double)NAN};
  }
}

static attn_status list_cases(const bench_options *o, tune_result *r) {
  static const int64_t widths[] = {64, 128};
  const bench b = {.options = *o};
  for (const char *const *isa = bench_isas(&b); *isa; isa++)
    for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F64; dtype++)
      for (size_t i = 0; i < sizeof widths / sizeof *widths && r->count < TUNE_CASES_MAX; i++) {
        tune_case *c = &r->cases[r->count++];
        attn_options machine = {.isa = *isa, .threads = o->threads};
        const attn_status status = attn_options_fill(&machine, dtype, widths[i], widths[i], &machine);
        if (status != ATTN_OK) return status;
        *c = (tune_case){.isa = machine.isa, .dtype = dtype, .d = widths[i], .suggested = machine.blocks};
        add_candidates(c);
      }
  return ATTN_OK;
}

static bench_meter *add_meter(bench *b, bench_set *set, const tune_case *c, attn_block_sizes blocks) {
  char spec[96];
  snprintf(spec, sizeof spec, "tiled:path=fma,block_q=%" PRId64 ",block_k=%" PRId64, blocks.query,
           blocks.key);
  attn_problem p = attn_problem_make(1, HEADS_PER_THREAD * b->options.threads,
                                     b->options.quick ? LENGTH_QUICK : LENGTH, c->d);
  p.dtype = c->dtype;
  bench_meter *m = bench_plan(b, spec, &p, c->isa, 0);
  if (!m && b->status == ATTN_OK)
    b->status = attn_fail(ATTN_ENUMERIC, "%s cannot be planned on %s", spec, c->isa);
  return bench_put(b, set, m);
}

/* Sets the ratios of `count` candidates in each case of one dtype, side by side with the suggested sizes. */
static attn_status compare(const bench_options *o, tune_result *r, attn_dtype dtype,
                           tune_candidate *(*first)(tune_case *), size_t (*count)(const tune_case *)) {
  bench b = {.options = *o, .group = "tune"};
  b.options.dtype = dtype;
  size_t row = 0;
  for (size_t i = 0; i < r->count; i++) {
    tune_case *c = &r->cases[i];
    if (c->dtype != dtype || count(c) == 0) continue;
    bench_set *set =
        bench_set_add(&b, bench_peak(&b, c->isa, 0, dtype == ATTN_F64 ? ATTN_PEAK_F64 : ATTN_PEAK_F32));
    const bench_meter *own = add_meter(&b, set, c, c->suggested);
    for (size_t j = 0; j < count(c); j++)
      bench_row_add(&b, ROW_TIME_RATIO, add_meter(&b, set, c, first(c)[j].blocks), own, TARGET_NONE, "%s",
                    c->isa);
  }
  const attn_status status = b.set_count || b.status != ATTN_OK ? bench_measure(&b) : ATTN_OK;
  r->passed += b.passed;
  r->had += b.had;
  for (size_t i = 0; status == ATTN_OK && i < r->count; i++) {
    tune_case *c = &r->cases[i];
    for (size_t j = 0; c->dtype == dtype && j < count(c); j++, row++) {
      first(c)[j].ratio = b.rows[row].ratio;
      first(c)[j].low = b.rows[row].low;
      first(c)[j].high = b.rows[row].high;
    }
  }
  bench_free(&b);
  return status;
}

static tune_candidate *all_of(tune_case *c) { return c->candidates; }
static size_t count_all(const tune_case *c) { return c->count; }
static tune_candidate *again_of(tune_case *c) { return &c->again; }
static size_t count_again(const tune_case *c) { return c->again.blocks.key > 0; }

static void pick(tune_case *c) {
  const tune_candidate *best = NULL;
  for (size_t i = 0; i < c->count; i++)
    if (c->candidates[i].high < 1 && (!best || c->candidates[i].ratio < best->ratio))
      best = &c->candidates[i];
  c->again = (tune_candidate){.ratio = (double)NAN, .high = (double)NAN};
  if (best) c->again.blocks = best->blocks;
}

attn_status tune_measure(bool quick, tune_result *out) {
  const char *forced = getenv("ATTN_ISA");
  bench_options o = {.quick = quick, .rounds = quick ? ROUNDS_QUICK : ROUNDS, .one_isa = forced && *forced};
  *out = (tune_result){.count = 0};
  attn_status status = bench_machine(&o);
  if (status == ATTN_OK) status = list_cases(&o, out);
  for (attn_dtype dtype = ATTN_F32; status == ATTN_OK && dtype <= ATTN_F64; dtype++)
    status = compare(&o, out, dtype, all_of, count_all);
  if (status != ATTN_OK) return status;
  for (size_t i = 0; i < out->count; i++) pick(&out->cases[i]);
  o.rounds *= 2;
  for (attn_dtype dtype = ATTN_F32; status == ATTN_OK && dtype <= ATTN_F64; dtype++)
    status = compare(&o, out, dtype, again_of, count_again);
  for (size_t i = 0; i < out->count; i++) out->cases[i].chosen = out->cases[i].again.high < 1;
  return status;
}

char *tune_lines(const tune_result *r) {
  char *text = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&text, &size);
  for (size_t i = 0; stream && i < r->count; i++) {
    const tune_case *c = &r->cases[i];
    if (c->chosen)
      fprintf(stream, "%s %s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n", c->isa,
              c->dtype == ATTN_F64 ? "f64" : "f32", c->d, c->d, c->again.blocks.query, c->again.blocks.key);
  }
  if (stream && fclose(stream) == 0) return text;
  free(text);
  attn_fail(ATTN_ENOMEM, "no memory for the wisdom");
  return NULL;
}
