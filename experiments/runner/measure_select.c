/* measure_select.c - which share of an execution's time selecting keys takes: the median over executions of
 * what the engine reports of its stages, with caches as the run has them. */
#include "experiments/runner/measure.h"

#include "experiments/mathematics/statistics.h"

#include <stdlib.h>

enum { EXECUTIONS = 15 };

/* As long as they take no longer than the samples of a run may. */
static attn_status time_stages(measured_run *r, void *work) {
  const measure_block *block = r->block;
  double share[EXECUTIONS];
  size_t count = 0;
  const double start = timing_now();
  do {
    attn_stages spent;
    if (block->evictor.buffer) evict(&block->evictor);
    const attn_tensors tensors = {.q = block->q.at,
                                  .k = block->k.at,
                                  .v = block->v.at,
                                  .o = block->o.at,
                                  .work = work,
                                  .extra = block->extra,
                                  .extras = block->extras,
                                  .stages = &spent};
    const attn_status status = attn_plan_run(r->plan, &tensors);
    if (status) return status;
    share[count++] = spent.select / (spent.select + spent.attend);
  } while (count < EXECUTIONS && timing_now() - start < block->job->timing.max_time);
  r->row.select_share = median_of(share, count);
  return ATTN_OK;
}

attn_status measure_select(measured_run *r) {
  attn_view view;
  attn_status status = attn_plan_inspect(r->plan, &view);
  if (status || !view.selector || view.selector->least > 0) return status;
  const size_t bytes = attn_plan_work_size(r->plan);
  if (view.selector->every) r->row.select_share = 0;
  if (view.selector->every || !memory_take(&r->memory, bytes)) return ATTN_OK;
  void *work = malloc(bytes + 1);
  status = work ? time_stages(r, work) : attn_fail(ATTN_ENOMEM, "no memory to time selections in");
  free(work);
  memory_give(&r->memory, bytes);
  return status;
}
