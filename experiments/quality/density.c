/* density.c - keys that sampled queries read (density.h). */
#include "experiments/quality/density.h"

#include <math.h>
#include <stdlib.h>

#include "experiments/reference/seen.h"
#include "experiments/reference/visible.h"

enum { SAMPLE = 16 /* queries of a head */ };

/* The rows of a head. */
static attn_status read_head(const data_llama_attention *a, const attn_view *view, const sample_row *rows,
                             int64_t count, double *read, double *pairs) {
  const attn_problem *p = attn_plan_problem(a->plan);
  const seen_run run = {
      .plan = a->plan, .view = view, .q = a->q + a->first * p->heads * p->d_qk, .k = a->k, .v = a->v};
  seen_keys seen = {0};
  attn_status status = seen_make(&run, rows, NULL, count, &seen);
  if (status) return status;
  const attn_pattern *pattern = seen_of(&seen, 0);
  attn_run *runs = malloc((size_t)visible_most_runs(pattern, p) * sizeof *runs);
  bool *inside = malloc((size_t)p->n_kv * sizeof *inside);
  if (!runs || !inside) status = attn_fail(ATTN_ENOMEM, "no memory for the keys that a query sees");
  for (int64_t r = 0; !status && r < count; r++) {
    *pairs += (double)visible_keys(p, rows[r].i, p->n_kv);
    *read += (double)visible_mark(pattern, p, 0, rows[r].head, rows[r].i, p->n_kv, runs, inside);
  }
  free(runs);
  free(inside);
  seen_free(&seen);
  return status;
}

attn_status quality_density(const data_llama_attention *a, double *read, double *pairs) {
  const int64_t heads = attn_plan_problem(a->plan)->heads, count = SAMPLE < a->count ? SAMPLE : a->count;
  attn_view view;
  attn_status status = attn_plan_inspect(a->plan, &view);
  if (!status && (view.features || view.projection || view.low_rank || view.residual))
    *read = *pairs = (double)NAN;
  for (int64_t h = 0; !status && !isnan(*pairs) && h < heads; h++) {
    sample_row rows[SAMPLE];
    for (int64_t r = 0; r < count; r++) rows[r] = (sample_row){0, h, (2 * r + 1) * a->count / (2 * count)};
    status = read_head(a, &view, rows, count, read, pairs);
  }
  return status;
}
