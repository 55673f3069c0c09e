/* exact_residual.c - see exact_residual.h. */
#include "experiments/reference/exact_residual.h"

#include "experiments/reference/visible.h"

#include <string.h>

int64_t residual_runs(const attn_residual *x) {
  return x->pattern ? x->pattern->max_runs : x->selector->max_runs;
}

attn_status residual_mark(const residual_run *r, const sample_row *row, attn_run *runs, bool *inside) {
  const attn_problem *p = attn_plan_problem(r->plan);
  int64_t count;
  if (r->of->pattern) {
    visible_mark(r->of->pattern, p, row->batch, row->head, row->i,
                 r->kv_len ? r->kv_len[row->batch] : p->n_kv, runs, inside);
    return ATTN_OK;
  }
  memset(inside, 0, (size_t)p->n_kv * sizeof *inside);
  attn_picks picks = {.max_runs = r->of->selector->max_runs, .runs = runs, .counts = &count};
  const attn_row_set set = {row->batch, row->head, 1, &row->i};
  attn_status status = attn_plan_select(
      r->plan, &(attn_tensors){.q = r->q, .k = r->k, .v = r->v, .kv_len = r->kv_len}, &set, &picks);
  for (int64_t a = 0; !status && a < count; a++)
    for (int64_t t = 0; t < runs[a].count; t++) inside[runs[a].first + t * runs[a].step] = true;
  return status;
}

/* The mean of a vector's product is the kernel; of hyperbolic features, which have w and -w, twice that. */
double residual_gain(const attn_feature_map *m) {
  const attn_feature_law *law = &m->law;
  const bool drawn = law->kind != ATTN_FEATURES_UNKNOWN && law->kind != ATTN_FEATURES_FIXED;
  return drawn ? (law->kind == ATTN_FEATURES_HYPERBOLIC ? 0.5 : 1) / (double)law->vectors : 1;
}
