/* judged_layer.c - see judged_layer.h. Rows are a sample of the layer's (check_plan); properties, which say
 * nothing of these tensors, are left to attnlab test. */
#include "experiments/quality/judged_layer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/results/bound.h"
#include "experiments/verification/check_plan.h"

/* Of two p-values the least counts twice: Bonferroni's correction. */
static void keep_worse(result_bound *kept, const result_bound *b) {
  const bool drawn = kept->kind == KIND_PROB && b->kind == KIND_PROB;
  const double p = drawn ? fmin(1, 2 * fmin(kept->p_value, b->p_value)) : kept->p_value;
  const check_verdict worst = bounds_worst((const result_bound[]){*kept, *b}, 2);
  if (b->verdict == worst && (kept->verdict != worst || b->margin > kept->margin)) *kept = *b;
  if (drawn) kept->p_value = p;
}

static attn_status add(judged_cells *cells, const result_bound *b) {
  for (int i = 0; i < cells->count; i++)
    if (strcmp(cells->at[i].name, b->name) == 0) {
      keep_worse(&cells->at[i], b);
      return ATTN_OK;
    }
  return bounds_add(&cells->at, &cells->count, b);
}

attn_status judged_layer_add(const data_llama_attention *a, judged_cells *cells) {
  const attn_problem *p = attn_plan_problem(a->plan);
  const float *q = a->q + a->first * p->heads * p->d_qk;
  float *o = malloc((size_t)(p->heads * p->n_q * p->d_v) * sizeof *o);
  void *work = malloc(attn_plan_work_size(a->plan) + 1);
  result_row row;
  result_row_init(&row);
  attn_status status = o && work ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory to judge a layer's attention");
  if (!status) status = attn_plan_execute(a->plan, q, a->k, a->v, NULL, o, work);
  if (!status)
    status = check_plan(a->plan, &(attn_tensors){.q = q, .k = a->k, .v = a->v, .o = o},
                        &(check_request){.rows = -1}, &row);
  for (int i = 0; !status && i < row.bounds_count; i++) status = add(cells, &row.bounds[i]);
  result_row_free(&row);
  free(work);
  free(o);
  return status;
}
