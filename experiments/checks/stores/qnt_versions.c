/* qnt_versions.c - QNT-0 of a store with a residual, of which every query reads its own mixture of stored
 * and given rows: row by row FP-1 or FP-2 on these (evidence/stored_copies.h), over the keys that the
 * reader takes of those that are given. */
#include "experiments/checks/stores/qnt_versions.h"

#include "experiments/evidence/rows.h"
#include "experiments/evidence/stored_copies.h"

#include <math.h>
#include <stdlib.h>

enum { VERSIONS = 64 };

/* A row on the keys and values that its query reads. */
static outcome judge_version(const evidence *e, const stored_copies *copies, const seen_keys *seen,
                             const sample_row *row, row_space *s) {
  const attn_problem *p = e->problem;
  evidence own = *e;
  head_data h;
  outcome found = {.why = "no memory for the row of a store"};
  own.k = copies->k;
  own.v = copies->v;
  stored_copies_see(copies, row->batch * p->kv_heads + row->head / (p->heads / p->kv_heads), row->i);
  if (head_data_load(&own, row->batch, row->head, &h)) return found;
  row_widen(e->q, p->dtype, row_offset(p, row, p->d_qk), p->d_qk, s->q);
  row_widen(e->o, p->dtype, row_offset(p, row, p->d_v), p->d_v, s->given);
  row_see(&h, seen, row->i, s);
  const row_verdict verdict = row_bound(&h, &e->view->rounding, false, NULL, s);
  found = verdict == ROW_OK ? outcome_components(s->given, s->o, s->bound, p->d_v)
                            : (outcome){.why = row_reason(verdict)};
  head_data_free(&h);
  return found;
}

attn_status store_versions_judge(const evidence *e, result_bound *bound) {
  const attn_problem *p = e->problem;
  const double copied = (double)(p->n_kv * (p->d_qk + p->d_v));
  bool *take = rows_subsample(e, fmin(VERSIONS, 0x1p26 / copied));
  attn_plan *plan = NULL;
  attn_view view;
  stored_copies copies;
  row_space space = {0};
  seen_keys seen = {.pattern = NULL};
  outcome worst = OUTCOME_NONE;
  attn_status status = stored_copies_make(p, e->view->store, e->k, e->v, e->kv_len, &copies);
  if (!status)
    status =
        take ? stored_reader_plan(e->plan, &plan) : attn_fail(ATTN_ENOMEM, "no memory for rows of a store");
  if (!status) status = attn_plan_inspect(plan, &view);
  if (!status) status = row_space_make(p, view.pattern, &space);
  if (!status)
    status = seen_make(&(seen_run){plan, &view, evidence_tensors(e)}, e->exact->rows, take, e->exact->judged,
                       &seen);
  for (int64_t r = 0; r < e->exact->judged && !status; r++)
    if (take[r]) outcome_worsen(&worst, judge_version(e, &copies, &seen, &e->exact->rows[r], &space));
  if (!status) status = outcome_to_verdict(&worst, bound);
  seen_free(&seen);
  row_space_free(&space);
  attn_plan_destroy(plan);
  stored_copies_free(&copies);
  free(take);
  return status;
}
