/* judged_run.c - fills the columns of a run, and keeps what its judges share. */
#include "experiments/evidence/judged_run.h"

#include "experiments/evidence/budget.h"
#include "experiments/evidence/cache.h"
#include "experiments/evidence/columns.h"
#include "experiments/evidence/head.h"
#include "experiments/evidence/probe.h"

#include <stdlib.h>

struct block_cache *block_cache_create(void) {
  return calloc(1, sizeof(struct block_cache));
}

void block_cache_free(struct block_cache *c) {
  if (!c) return;
  probe_forget(c);
  for (int64_t i = 0; i < c->head_count; i++) head_data_free(&c->heads[i]);
  free(c->heads);
  budget_curves_free(&c->curves);
  free(c->exact_map);
  free(c->gradients);
  for (int i = 0; i < SPECTRA; i++) {
    free(c->spectra[i].block);
    free(c->spectra[i].squares);
  }
  free(c);
}

/* Budgets and features leave a probe in the cache, which the judge uses, too. */
static attn_status plan_columns(const evidence *e, bool map, evidence_judge *judge, result_row *row) {
  attn_status status = evidence_budget(e, row);
  if (!status) status = evidence_features(e, row);
  if (!status && map) status = evidence_map(e, row);
  if (!status && e->backward) status = evidence_gradients(e, row);
  row->bounds_count = 0;
  if (!status) status = judge(e, row);
  if (status) return status;
  evidence_rank_ratio(row);
  result_row_judge(row);
  return ATTN_OK;
}

attn_status evidence_all(const evidence *e, bool map, evidence_judge *judge, result_row *row) {
  attn_status status = evidence_errors(e, row);
  if (!status) status = evidence_describe_input(e, row);
  if (status || !e->plan) return status;
  status = plan_columns(e, map, judge, row);
  probe_forget(e->cache);
  return status;
}

attn_status evidence_plan(const evidence *e, const attn_problem *p, const attn_spec *spec, int threads,
                          attn_plan **plan, attn_view *view) {
  const attn_options options = {.threads = threads ? threads : attn_plan_context(e->plan)->threads,
                                .isa = attn_plan_isa(e->plan)};
  const attn_status status =
      attn_plan_create_spec(plan, p, spec ? spec : attn_plan_parsed_spec(e->plan), &options);
  return status || !view ? status : attn_plan_inspect(*plan, view);
}

int64_t evidence_seed(const evidence *e) {
  return (int64_t)attn_spec_number(attn_plan_parsed_spec(e->plan), e->view->seed);
}

attn_status evidence_seeded_plan(const evidence *e, const attn_problem *p, int64_t seed, int threads,
                                 attn_plan **plan, attn_view *view) {
  attn_spec *spec = NULL;
  attn_status status = attn_spec_with_seed(attn_plan_parsed_spec(e->plan), e->view->seed, seed, &spec);
  if (!status) status = evidence_plan(e, p, spec, threads, plan, view);
  attn_spec_destroy(spec);
  return status;
}
