/* part_output.c - see part_output.h. */
#include "experiments/checks/expressions/part_output.h"

#include <math.h>
#include <stdlib.h>

/* The tensors of the part within those of the run. */
static attn_problem problem_of(const evidence *e, const part_request *r) {
  attn_problem p = *e->problem;
  p.n_q = r->rows;
  p.n_kv = r->keys;
  p.causal = r->causal;
  p.o = (attn_stride){0};
  return p;
}

static const void *row_at(const void *tensor, attn_stride stride, int64_t row, attn_dtype t) {
  return attn_at(tensor, row * stride.row, t);
}

static attn_status execute(const evidence *e, const attn_plan *plan, const part_request *r, void *o,
                           double *lse) {
  const attn_problem *p = e->problem;
  const void *q = row_at(e->q, p->q, r->first, p->dtype), *k = row_at(e->k, p->k, r->key, p->dtype),
             *v = row_at(e->v, p->v, r->key, p->dtype);
  int64_t *lengths = calloc((size_t)p->batch, sizeof *lengths);
  void *work = malloc(attn_plan_work_size(plan) + 1);
  attn_status status = lengths && work
                           ? ATTN_OK
                           : attn_fail(ATTN_ENOMEM, "no memory for a part of %s", attn_plan_spec(e->plan));
  for (int64_t b = 0; !status && b < p->batch; b++) {
    const int64_t left = evidence_keys(e, b) - r->key;
    lengths[b] = left < 0 ? 0 : left < r->keys ? left : r->keys;
  }
  attn_tensors own = evidence_tensors(e);
  own.q = q, own.k = k, own.v = v, own.kv_len = e->kv_len ? lengths : NULL;
  own.o = o, own.lse = lse, own.work = work;
  if (r->rows != p->n_q || r->keys != p->n_kv) own.extras = 0;
  if (!status) status = attn_plan_run(plan, &own);
  free(work);
  free(lengths);
  return status;
}

attn_status part_compute(const evidence *e, const part_request *r, void *o, double *lse) {
  const attn_context *c = attn_plan_context(e->plan);
  const attn_options options = {.threads = c->threads, .isa = attn_plan_isa(e->plan), .blocks = c->blocks};
  const attn_problem p = problem_of(e, r);
  attn_spec *spec = NULL;
  attn_plan *plan = NULL;
  attn_status status = r->term ? attn_spec_at(r->term, &spec) : attn_spec_parse(&spec, "tiled");
  if (!status) status = attn_plan_create_spec(&plan, &p, spec, &options);
  if (!status) status = execute(e, plan, r, o, lse);
  attn_plan_destroy(plan);
  attn_spec_destroy(spec);
  return status;
}

void part_compare(part_finding *f, const evidence *e, int64_t at, double want, double bound) {
  const double own = attn_get(e->o, at, e->problem->dtype);
  double ratio = fabs(own - want) / bound;
  if (isfinite(own) != isfinite(want) || isnan(own) != isnan(want)) ratio = (double)INFINITY;
  if (!isfinite(own) || !(fabs(own - want) > 0)) ratio = isinf(ratio) ? ratio : 0;
  if (ratio > f->worst) *f = (part_finding){ratio, at};
}

attn_status part_settle(const part_finding *f, const evidence *e, result_bound *bound) {
  const attn_problem *p = e->problem;
  const int64_t row = f->at / p->d_v, line = row / p->n_q;
  if (!(f->worst <= 1))
    bound_say(bound, "batch entry %lld, head %lld, query %lld, column %lld", (long long)(line / p->heads),
              (long long)(line % p->heads), (long long)(row % p->n_q), (long long)(f->at % p->d_v));
  return bound_hard(bound, f->worst, 1);
}
