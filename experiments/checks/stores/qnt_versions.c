/* qnt_versions.c - QNT-0 of a store with a residual, of which every query reads its own mixture of stored
 * and given rows: row by row FP-1 or FP-2 on these (evidence/stored_copies.h), over the keys that the
 * reader takes of those that are given. */
#include "experiments/checks/stores/qnt_versions.h"

#include "experiments/evidence/rows.h"
#include "experiments/evidence/stored_copies.h"

#include <math.h>
#include <stdlib.h>

enum { VERSIONS = 64 };

typedef struct versions {
  const evidence *e;
  outcome worst;
} versions;

/* A row on the keys and values that its query reads. */
static void judge_version(void *context, int64_t r, const head_data *h, row_space *s) {
  versions *x = context;
  const row_verdict verdict = row_bound(h, &x->e->view->rounding, false, NULL, s);
  (void)r;
  outcome_worsen(&x->worst, verdict == ROW_OK
                                ? outcome_components(s->given, s->o, s->bound, x->e->problem->d_v)
                                : (outcome){.why = row_reason(verdict)});
}

attn_status store_versions_judge(const evidence *e, result_bound *bound) {
  const attn_problem *p = e->problem;
  const double copied = (double)(p->n_kv * (p->d_qk + p->d_v));
  bool *take = rows_subsample(e, fmin(VERSIONS, 0x1p26 / copied));
  attn_plan *plan = NULL;
  attn_view view;
  versions x = {e, OUTCOME_NONE};
  attn_status status =
      take ? stored_reader_plan(e->plan, &plan) : attn_fail(ATTN_ENOMEM, "no memory for rows of a store");
  if (!status) status = attn_plan_inspect(plan, &view);
  if (!status)
    status = rows_walk_stored(e, &(stored_walk){.rows = e->exact->rows,
                                                .take = take,
                                                .count = e->exact->judged,
                                                .by = &(seen_run){plan, &view, evidence_tensors(e)},
                                                .context = &x,
                                                .visit = judge_version});
  if (!status) status = outcome_to_verdict(&x.worst, bound);
  attn_plan_destroy(plan);
  free(take);
  return status;
}
