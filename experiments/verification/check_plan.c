/* check_plan.c - see check_plan.h. Judges take contiguous tensors in the type of the arithmetic: of others
 * the same numbers are judged there, by a plan for them. */
#include "experiments/verification/check_plan.h"

#include <stdlib.h>

#include "attn_variant.h"
#include "experiments/checks/check.h"
#include "experiments/evidence/cache.h"
#include "experiments/evidence/columns.h"
#include "experiments/evidence/rounding/stored.h"
#include "experiments/properties/property.h"
#include "experiments/reference/census.h"

#define CENSUS_MEMORY 8e9 /* bytes, of whose eighth the exact output takes at most */

typedef struct judged_call {
  evidence e; /* of contiguous tensors */
  attn_problem problem;
  attn_view view;
  attn_plan *own;                    /* NULL: plan and tensors are the caller's */
  void *q, *k, *v, *o, *wide, *work; /* copies, or NULL */
} judged_call;

static void judged_call_free(judged_call *c) {
  void *const copies[] = {c->q, c->k, c->v, c->o, c->wide, c->work};
  for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) free(copies[i]);
  attn_plan_destroy(c->own);
  block_cache_free(c->e.cache);
}

static bool is_dense(const attn_problem *given, const attn_problem *dense) {
  const attn_stride a[] = {given->q, given->k, given->v, given->o},
                    b[] = {dense->q, dense->k, dense->v, dense->o};
  bool same = true;
  for (int i = 0; i < 4; i++)
    same = same && a[i].batch == b[i].batch && a[i].head == b[i].head && a[i].row == b[i].row &&
           a[i].stored == b[i].stored;
  return same;
}

/* The elements of a tensor as [batch, heads, rows, d]; NULL: no memory. */
static void *dense_copy(const attn_problem *p, attn_stride s, int64_t heads, int64_t rows, int64_t d,
                        const void *x, attn_dtype to) {
  const attn_dtype stored = attn_stored(s, p->dtype);
  const size_t row = (size_t)d * attn_dtype_size(to);
  char *copy = malloc((size_t)(p->batch * heads * rows) * row + 1);
  for (int64_t r = 0; copy && r < p->batch * heads * rows; r++) {
    const int64_t at = r / rows / heads * s.batch + r / rows % heads * s.head + r % rows * s.row;
    attn_convert(attn_at(x, at, stored), stored, d, to, copy + (size_t)r * row);
  }
  return copy;
}

/* Of an output that is stored in 16 bits: that of the same numbers in fp32. */
static attn_status widen_output(judged_call *c, attn_dtype as) {
  const attn_problem *p = &c->problem;
  const int64_t count = p->batch * p->heads * p->n_q * p->d_v;
  c->wide = malloc((size_t)count * attn_dtype_size(p->dtype) + 1);
  c->work = malloc(attn_plan_work_size(c->own) + 1);
  if (!c->wide || !c->work) return attn_fail(ATTN_ENOMEM, "no memory for the output in fp32");
  const attn_status status = attn_plan_run(c->own, &(attn_tensors){.q = c->q,
                                                                   .k = c->k,
                                                                   .v = c->v,
                                                                   .kv_len = c->e.kv_len,
                                                                   .o = c->wide,
                                                                   .work = c->work,
                                                                   .extra = c->e.extra,
                                                                   .extras = c->e.extras});
  if (status) return status;
  c->e.o = c->wide;
  c->e.stored = c->o;
  c->e.as = as;
  return stored_check(c->o, as, c->wide, p->dtype, count);
}

/* Copies of tensors that are strided or stored in 16 bits, and a plan for them. */
static attn_status make_dense(judged_call *c, const attn_plan *plan, const attn_tensors *t) {
  const attn_problem *p = attn_plan_problem(plan);
  const attn_context *context = attn_plan_context(plan);
  const attn_options options = {
      .threads = context->threads, .isa = attn_plan_isa(plan), .blocks = context->blocks};
  const attn_dtype as = attn_stored(p->o, p->dtype);
  const attn_status status =
      attn_plan_create_spec(&c->own, &c->problem, attn_plan_parsed_spec(plan), &options);
  if (status) return status;
  c->q = dense_copy(p, p->q, p->heads, p->n_q, p->d_qk, t->q, p->dtype);
  c->k = dense_copy(p, p->k, p->kv_heads, p->n_kv, p->d_qk, t->k, p->dtype);
  c->v = dense_copy(p, p->v, p->kv_heads, p->n_kv, p->d_v, t->v, p->dtype);
  c->o = dense_copy(p, p->o, p->heads, p->n_q, p->d_v, t->o, as);
  if (!c->q || !c->k || !c->v || !c->o) return attn_fail(ATTN_ENOMEM, "no memory for copies of the tensors");
  c->e.plan = c->own;
  c->e.q = c->q;
  c->e.k = c->k;
  c->e.v = c->v;
  c->e.o = c->o;
  return p->o.stored ? widen_output(c, as) : ATTN_OK;
}

static attn_status make_evidence(judged_call *c, const attn_plan *plan, const attn_tensors *t) {
  c->problem = *attn_plan_problem(plan);
  c->problem.q = c->problem.k = c->problem.v = c->problem.o = (attn_stride){.batch = 0};
  attn_status status = attn_problem_resolve(&c->problem);
  c->e = (evidence){.plan = plan,
                    .problem = &c->problem,
                    .view = &c->view,
                    .q = t->q,
                    .k = t->k,
                    .v = t->v,
                    .kv_len = t->kv_len,
                    .extra = t->extra,
                    .extras = t->extras,
                    .o = t->o,
                    .cache = block_cache_create()};
  if (!c->e.cache) return attn_fail(ATTN_ENOMEM, "no memory for what checks share");
  if (!status && !is_dense(attn_plan_problem(plan), &c->problem)) status = make_dense(c, plan, t);
  if (!status) status = attn_plan_inspect(c->e.plan, &c->view);
  return status;
}

/* Rows that checks look at; all of them beside, for errors, where that is wanted and takes no longer. */
static attn_status make_exact(const evidence *e, const check_request *r, exact_rows **exact) {
  const int64_t rows = r->rows > 0 ? r->rows : 0;
  const attn_status status = exact_rows_draw(e->problem, e->q, e->k, e->v, e->kv_len, r->seed, rows, exact);
  if (status || r->rows || (*exact)->complete || !census_affordable(e->problem, CENSUS_MEMORY)) return status;
  return census_take(e->problem, e->q, e->k, e->v, e->kv_len, *exact);
}

/* What an execution would refuse, and what checks do not know. */
static attn_status check_call(const attn_plan *plan, const attn_tensors *t) {
  const attn_problem *p = attn_plan_problem(plan);
  if (t->q_position || t->k_position.at)
    return attn_fail(ATTN_EUNSUPPORTED, "checks know nothing of a call's positions of queries and keys");
  for (int64_t b = 0; t->kv_len && b < p->batch; b++) {
    if (t->kv_len[b] < 0 || t->kv_len[b] > p->n_kv)
      return attn_fail(ATTN_EINVAL, "kv_len[%lld] = %lld, expected 0 ... %lld", (long long)b,
                       (long long)t->kv_len[b], (long long)p->n_kv);
    if (t->kv_len[b] < p->n_kv && !(attn_plan_variant(plan)->caps & ATTN_CAP_PADDING))
      return attn_fail(ATTN_EUNSUPPORTED, "%s takes no padding", attn_plan_variant(plan)->name);
  }
  return ATTN_OK;
}

attn_status check_plan(const attn_plan *plan, const attn_tensors *t, const check_request *r,
                       result_row *row) {
  judged_call c = {.own = NULL};
  exact_rows *exact = NULL;
  attn_status status = check_call(plan, t);
  if (!status) status = make_evidence(&c, plan, t);
  if (!status) status = make_exact(&c.e, r, &exact);
  c.e.exact = exact;
  c.e.seed = r->seed + 1; /* other draws than of the rows */
  c.e.only = r->only;
  if (c.e.cache) {
    c.e.cache->judged = r->told;
    c.e.cache->to = r->to;
  }
  if (!status && r->rows >= 0) status = evidence_errors(&c.e, row);
  if (!status) status = checks_run(&c.e, row);
  if (!status && r->properties) status = properties_run(&c.e, row);
  if (!status) result_row_judge(row);
  exact_rows_free(exact);
  judged_call_free(&c);
  return status;
}
