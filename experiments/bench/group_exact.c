/* group_exact.c - the group `exact`: the rate of dense tiled attention over the peak of its instruction set,
 * the time of causal attention, the rate of short sequences and odd head sizes, and the memory; and the rate
 * of the fp64 reference over the peak of fp64. */
#include "experiments/bench/benchmark.h"

#include <string.h>

/* A form of tiled on an instruction set, and its limit; isa NULL: on any other set. */
typedef struct form {
  const char *isa, *spec;
  attn_peak_kind peak;
  bench_target narrow, wide; /* targets for heads of up to 64, and for wider ones */
} form;

static const form forms[] = {
    {"amx", "tiled", ATTN_PEAK_F32, TARGET_SPLIT, TARGET_SPLIT_WIDE},
    {"amx", "tiled:precision=bf16", ATTN_PEAK_BF16, TARGET_BF16, TARGET_BF16_WIDE},
    {"avx512_bf16", "tiled:precision=bf16", ATTN_PEAK_F32, TARGET_PAIRS, TARGET_PAIRS},
    {"avx512", "tiled", ATTN_PEAK_F32, TARGET_EXACT_AVX512, TARGET_EXACT_AVX512},
    {"avx2", "tiled", ATTN_PEAK_F32, TARGET_EXACT_AVX2, TARGET_EXACT_AVX2},
    {NULL, "tiled", ATTN_PEAK_F32, TARGET_NONE, TARGET_NONE},
};

/* The next form for isa; NULL starts and ends the list. A set without its own forms has the one for any
 * other. */
static const form *next_form(const form *f, const char *isa) {
  const bool first = !f;
  if (f && !f->isa) return NULL;
  for (f = first ? forms : f + 1; f->isa; f++)
    if (strcmp(f->isa, isa) == 0) return f;
  return first ? f : NULL;
}

/* 5 % of the tensors and one head's packed K and V. */
static void memory_row(bench *b, const bench_meter *m) {
  if (!m) return;
  const double head = (double)m->n * (double)m->d * sizeof(float);
  bench_row *row = bench_row_add(b, ROW_VALUE, m, NULL, TARGET_MEMORY, "%s, %s: memory", m->name, m->isa);
  if (row) bench_row_value(row, m->memory / (0.05 * 4 * (double)bench_heads(m->n) * head + 2 * head));
}

typedef struct tuned_sizes {
  const int64_t *n, *d;
  size_t n_count, d_count;
} tuned_sizes;

static tuned_sizes sizes_of(const bench *b) {
  static const int64_t lengths[] = {4096, 16384}, brief[] = {2048}, widths[] = {64, 128};
  const bool quick = b->options.quick;
  tuned_sizes s;
  s.n = bench_list(&b->options.n, quick ? brief : lengths, quick ? 1 : 2, &s.n_count);
  s.d = bench_list(&b->options.d, widths, 2, &s.d_count);
  return s;
}

static void throughput(bench *b, const form *f, const char *isa) {
  const tuned_sizes s = sizes_of(b);
  for (size_t i = 0; i < s.n_count; i++)
    for (size_t j = 0; j < (i && !b->options.d.count ? 1 : s.d_count);
         j++) { /* only short sequences are wide */
      bench_set *set = bench_set_add(b, bench_peak(b, isa, 0, f->peak));
      const attn_problem dense = bench_problem(bench_heads(s.n[i]), s.n[i], s.d[j], false),
                         causal = bench_problem(bench_heads(s.n[i]), s.n[i], s.d[j], true);
      bench_meter *a = bench_put(b, set, bench_plan(b, f->spec, &dense, isa, 0));
      bench_meter *c = bench_put(b, set, bench_plan(b, f->spec, &causal, isa, 0));
      bench_row_add(b, ROW_OVER_LIMIT, a, NULL, s.d[j] > 64 ? f->wide : f->narrow, "%s, %s: over the peak",
                    f->spec, isa);
      bench_row_add(b, ROW_TIME_RATIO, c, a, TARGET_CAUSAL, "%s, %s: causal over not", f->spec, isa);
      memory_row(b, a);
    }
}

/* By which errors are measured, on the machine's best instruction set and the first length. */
static void reference(bench *b) {
  const tuned_sizes s = sizes_of(b);
  for (size_t j = 0; j < s.d_count; j++) {
    const attn_problem p = bench_problem(bench_heads(s.n[0]), s.n[0], s.d[j], false);
    bench_set *set = bench_set_add(b, bench_peak(b, NULL, 0, ATTN_PEAK_F64));
    bench_row_add(b, ROW_OVER_LIMIT, bench_put(b, set, bench_census(b, &p)), NULL, TARGET_REFERENCE,
                  "exact attention in fp64, %s: over the peak", b->options.isa);
  }
}

/* Sizes that no kernel was tuned for, each beside the nearest tuned one. */
static void untuned(bench *b, const char *isa) {
  static const struct {
    int64_t n, d_qk, d_v, tuned;
  } sizes[] = {{128, 64, 64, 64},   {256, 64, 64, 64},    {512, 64, 64, 64},     {2048, 40, 40, 64},
               {2048, 80, 80, 64},  {2048, 96, 96, 128},  {2048, 192, 192, 128}, {2048, 256, 256, 128},
               {2048, 64, 128, 64}, {2048, 192, 128, 128}};
  enum { COUNT = sizeof sizes / sizeof *sizes, TUNED_LENGTH = 2048 };
  for (int64_t width = 64; width <= 128; width *= 2) {
    bench_set *set = bench_set_add(b, bench_peak(b, isa, 0, ATTN_PEAK_F32));
    const attn_problem tuned = bench_problem(bench_heads(TUNED_LENGTH), TUNED_LENGTH, width, false);
    bench_meter *reference = bench_put(b, set, bench_plan(b, "tiled", &tuned, isa, 0));
    for (int i = 0; i < COUNT; i++) {
      if (sizes[i].tuned != width) continue;
      attn_problem p = bench_problem(bench_heads(sizes[i].n), sizes[i].n, sizes[i].d_qk, false);
      p.d_v = sizes[i].d_v;
      bench_meter *m = bench_put(b, set, bench_plan(b, "tiled", &p, isa, 0));
      bench_row_add(b, ROW_FLOPS_RATIO, m, reference, TARGET_UNTUNED,
                    "tiled, %s: d_v = %lld, over n = %d, d = %lld", isa, (long long)sizes[i].d_v,
                    TUNED_LENGTH, (long long)width);
    }
  }
}

void bench_exact(bench *b) {
  for (const char *const *isa = bench_isas(b); *isa; isa++) {
    bool plain = false; /* avx512_bf16 has avx512's kernels for fp32 */
    for (const form *f = next_form(NULL, *isa); f; f = next_form(f, *isa)) {
      throughput(b, f, *isa);
      plain |= strcmp(f->spec, "tiled") == 0;
    }
    if (plain && !b->options.n.count && !b->options.d.count) untuned(b, *isa);
  }
  if (strcmp(b->options.isa, attn_isa_list()[0]) == 0) reference(b);
}
