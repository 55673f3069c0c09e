/* measure_watch.c - a run once more under attn_plan_verify: what does the variant do to memory, and is the
 * log-sum-exp that it declares right on some of the sampled rows? */
#include "experiments/runner/measure.h"

#include <math.h>
#include <stdlib.h>

#include "experiments/properties/log_sum.h"

/* A plan to watch: of the run's problem or, where an execution takes longer than all samples may and there
 * are no extra tensors, of the heads that share its first keys. */
static attn_status plan_watched(measured_run *r, attn_plan **plan) {
  const attn_options options = measure_options(r);
  const attn_problem *whole = &r->block->problem;
  attn_problem part = *whole;
  part.heads /= part.kv_heads;
  part.batch = part.kv_heads = 1;
  if (!r->block->extras && r->first > r->block->job->timing.max_time &&
      !attn_plan_create_spec(plan, &part, r->run->spec, &options))
    return ATTN_OK;
  return attn_plan_create_spec(plan, whole, r->run->spec, &options);
}

enum { LSE_ROWS = 64 };

/* Some of the sampled rows, those of the heads that were watched. plan: of what is judged. */
static attn_status judge_lse(const measured_run *r, const attn_plan *plan, const double *lse) {
  const measure_block *block = r->block;
  const attn_problem *part = attn_plan_problem(plan);
  attn_view view;
  const exact_rows *x = block->exact;
  const int64_t step = x->judged / LSE_ROWS + 1;
  sample_row rows[LSE_ROWS];
  double expected[LSE_ROWS], bound[LSE_ROWS];
  const char *why = "";
  int64_t count = 0;
  for (int64_t at = 0; at < x->judged; at += step)
    if (x->rows[at].batch < part->batch && x->rows[at].head < part->heads) rows[count++] = x->rows[at];
  const evidence e = {.plan = plan,
                      .problem = &block->judged,
                      .view = &view,
                      .q = block->judged_q,
                      .k = block->judged_k,
                      .v = block->judged_v,
                      .extra = block->extra,
                      .extras = block->extras};
  attn_status status = attn_plan_inspect(plan, &view);
  if (!status) status = log_sum_rows(&e, rows, count, expected, bound, &why);
  for (int64_t k = 0; !status && k < count; k++) {
    const double given = lse[(rows[k].batch * part->heads + rows[k].head) * part->n_q + rows[k].i];
    if (isnan(bound[k]) || log_sum_holds(given, expected[k], bound[k])) continue;
    status = attn_fail(ATTN_EFOREIGN,
                       "batch %lld, head %lld, row %lld: lse is %.9g, expected %.9g within %.3g (PROP-LSE)",
                       (long long)rows[k].batch, (long long)rows[k].head, (long long)rows[k].i, given,
                       expected[k], bound[k]);
  }
  return status;
}

/* The log-sum-exp of tensors that are stored in 16 bits is that of fp32 on the same numbers. */
static attn_status judge_sums(const measured_run *r, const double *lse) {
  if (!measure_block_stored(r->block)) return judge_lse(r, r->plan, lse);
  const attn_options options = grid_options(&r->block->job->block);
  attn_problem wide = *attn_plan_problem(r->plan);
  attn_plan *own = NULL;
  wide.q.stored = wide.k.stored = wide.v.stored = wide.o.stored = ATTN_F32;
  attn_status status = attn_plan_create_spec(&own, &wide, r->run->spec, &options);
  if (!status) status = judge_lse(r, own, lse);
  attn_plan_destroy(own);
  return status;
}

attn_status measure_watch(measured_run *r) {
  const measure_block *block = r->block;
  attn_view view;
  attn_plan_destroy(r->plan);
  r->plan = NULL;
  attn_status status = plan_watched(r, &r->plan);
  if (!status) status = attn_plan_inspect(r->plan, &view);
  if (status) return status;
  const attn_problem *p = attn_plan_problem(r->plan);
  const bool sums = view.caps & ATTN_CAP_LSE;
  const size_t size = attn_plan_verify_size(r->plan);
  if (!memory_take(&r->memory, size)) return attn_fail(ATTN_ENOMEM, "no memory for %zu bytes of work", size);
  void *work = malloc(size + 1);
  double *lse = sums ? malloc((size_t)(p->batch * p->heads * p->n_q) * sizeof *lse) : NULL;
  if (!work || (sums && !lse))
    status = attn_fail(ATTN_ENOMEM, "no memory for %zu bytes of work", size);
  else
    status = attn_plan_verify(r->plan, &(attn_tensors){.q = block->q.at,
                                                       .k = block->k.at,
                                                       .v = block->v.at,
                                                       .o = block->o.at,
                                                       .lse = lse,
                                                       .work = work,
                                                       .extra = block->extra,
                                                       .extras = block->extras});
  if (!status && lse) status = judge_sums(r, lse);
  free(lse);
  free(work);
  memory_give(&r->memory, size);
  return status;
}
