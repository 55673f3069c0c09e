/* group_score.c - the group `score`: what transforms of the scores and masks cost exact causal attention. An
 * ALiBi bias is one addition a score, a soft cap about ten multiply-adds, where a product of 64 elements
 * takes 128; documents take the time of their own pairs. */
#include "experiments/bench/benchmark.h"

#include <stdlib.h>

enum { DOCUMENT = 1024 };

static void add_alibi(bench *b, bench_set *set, const bench_meter *plain, int64_t n, int64_t d) {
  attn_problem p = bench_problem(bench_heads(n), n, d, true);
  double *table = malloc((size_t)(p.heads * (2 * n - 1)) * sizeof *table);
  if (!table) {
    if (!b->status) b->status = attn_fail(ATTN_ENOMEM, "out of memory for a table of biases");
    return;
  }
  if (!b->status) b->status = attn_alibi(p.heads, n, table);
  p.score = (attn_score){.relative = table, .relative_heads = p.heads, .span = 2 * n - 1, .zero = n - 1};
  bench_row_add(b, ROW_TIME_RATIO, bench_put(b, set, bench_plan(b, "tiled", &p, NULL, 0)), plain, TARGET_BIAS,
                "tiled causal: with ALiBi over without");
  free(table); /* the plan has its own */
}

static void add_softcap(bench *b, bench_set *set, const bench_meter *plain, int64_t n, int64_t d,
                        double cap) {
  attn_problem p = bench_problem(bench_heads(n), n, d, true);
  p.score.softcap = cap;
  bench_row_add(b, ROW_TIME_RATIO, bench_put(b, set, bench_plan(b, "tiled", &p, NULL, 0)), plain,
                TARGET_SOFTCAP, "tiled causal: with a soft cap of %g over without", cap);
}

static void add_documents(bench *b, bench_set *set, const bench_meter *plain, int64_t n, int64_t d) {
  const int64_t count = (n + DOCUMENT - 1) / DOCUMENT;
  attn_problem p = bench_problem(bench_heads(n), n, d, true);
  int64_t *offsets = malloc((size_t)(count + 1) * sizeof *offsets);
  if (!offsets) {
    if (!b->status) b->status = attn_fail(ATTN_ENOMEM, "out of memory for documents");
    return;
  }
  for (int64_t i = 0; i <= count; i++) offsets[i] = i < count ? i * DOCUMENT : n;
  p.mask = (attn_mask){.kind = ATTN_MASK_DOCUMENTS, .offsets = offsets, .count = count};
  /* Flops count the pairs, so that this is the time over the time that they predict, inverted. */
  bench_row_add(b, ROW_FLOPS_RATIO, bench_put(b, set, bench_plan(b, "tiled", &p, NULL, 0)), plain,
                TARGET_DOCUMENTS, "tiled causal: rate on documents of %d over that on one", (int)DOCUMENT);
  free(offsets);
}

void bench_score(bench *b) {
  static const int64_t length[] = {4096, 16384}, width[] = {64};
  size_t n_count, d_count;
  const int64_t *n = bench_list(&b->options.n, length, b->options.quick ? 1 : 2, &n_count);
  const int64_t *d = bench_list(&b->options.d, width, 1, &d_count);
  for (size_t i = 0; i < n_count; i++)
    for (size_t j = 0; j < d_count; j++) {
      bench_set *set = bench_set_add(b, NULL);
      const attn_problem p = bench_problem(bench_heads(n[i]), n[i], d[j], true);
      const bench_meter *plain = bench_put(b, set, bench_plan(b, "tiled", &p, NULL, 0));
      add_alibi(b, set, plain, n[i], d[j]);
      add_softcap(b, set, plain, n[i], d[j], 50);
      add_softcap(b, set, plain, n[i], d[j], 1); /* where scores reach beyond the polynomial of small ones */
      add_documents(b, set, plain, n[i], d[j]);
    }
}
