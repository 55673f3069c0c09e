/* dyadic.c - dyadic(X): causal attention of any attention X that has none,
 *
 *   causal(n) = [ causal(p),  causal(n - p) (+) X(q_2; k_1, v_1) ],   p = the largest base 2^k < n,
 *
 * and exact attention of at most `base` rows (Han et al. 2023, arXiv:2310.05869, algorithm 4, for
 * HyperAttention). (+) joins two softmaxes over different keys by their log-sum-exps. Where a part ends does
 * not depend on n, so that the first rows are those of a shorter sequence, unless rows of X depend on each
 * other. Parts of the same shape share a plan. */
#include "core/expression/dyadic.h"

#include <math.h>
#include <string.h>

/* -- parts -- */

static int64_t first_part(int64_t n, int64_t base) {
  while (base * 2 < n) base *= 2;
  return base;
}

static attn_status visit(const dyadic *x, int64_t first, int64_t end, dyadic_visitor see, void *context) {
  const int64_t n = end - first, from = attn_max(first, x->offset);
  if (from >= end) return ATTN_OK;
  if (n <= x->base) return see(context, &(dyadic_part){from, end, first, end, true});
  const int64_t middle = first + first_part(n, x->base);
  attn_status status = visit(x, first, middle, see, context);
  if (!status) status = visit(x, middle, end, see, context);
  return status ? status : see(context, &(dyadic_part){attn_max(middle, from), end, first, middle, false});
}

attn_status dyadic_visit(const dyadic *x, dyadic_visitor see, void *context) {
  return visit(x, 0, x->problem.n_kv, see, context);
}

const dyadic_shape *dyadic_shape_of(const dyadic *x, const dyadic_part *p) {
  for (int64_t s = 0; s < x->shape_count; s++) {
    const dyadic_shape *known = &x->shapes[s];
    if (known->rows == p->end - p->first && known->keys == p->key_end - p->key && known->exact == p->exact)
      return known;
  }
  return NULL;
}

static attn_status note(void *context, const dyadic_part *p) {
  dyadic *x = context;
  dyadic_shape *known = (dyadic_shape *)(uintptr_t)dyadic_shape_of(x, p);
  if (!known && x->shape_count == DYADIC_SHAPES)
    return attn_fail(ATTN_EUNSUPPORTED, "dyadic: too many parts");
  if (!known) {
    known = &x->shapes[x->shape_count++];
    *known = (dyadic_shape){.rows = p->end - p->first, .keys = p->key_end - p->key, .exact = p->exact};
  }
  known->times++;
  return ATTN_OK;
}

static attn_status measure(const attn_problem *p, int64_t base, dyadic *x) {
  *x = (dyadic){.problem = attn_problem_unrounded(p),
                .rounded = p->o.stored,
                .base = base,
                .offset = attn_max(attn_problem_position(p, 0), 0)};
  return dyadic_visit(x, note, x);
}

/* Its rows are written to the result, others to a place of their own. */
static attn_problem problem_of(const dyadic *x, const dyadic_shape *s) {
  attn_problem p = s->exact ? x->problem : expression_packed(&x->problem);
  p.n_q = s->rows;
  p.n_kv = s->keys;
  p.causal = s->exact;
  return p;
}

typedef struct layout {
  double *lse, *part_lse; /* [batch, heads, n_q] if the caller wants none; of a part */
  void *part_o, *work;
  void *o;          /* the result before it is rounded */
  int64_t *lengths; /* kv_len of a part */
} layout;

static layout lay_out(const dyadic *x, size_t work_size, attn_carver *carver) {
  const attn_problem *p = &x->problem;
  const int64_t lines = p->batch * p->heads;
  int64_t most = 0, joined = 0;
  for (int64_t s = 0; s < x->shape_count; s++) {
    most = attn_max(most, x->shapes[s].rows);
    if (!x->shapes[s].exact) joined = attn_max(joined, x->shapes[s].rows);
  }
  return (layout){.lse = attn_carve(carver, lines, p->n_q, sizeof(double)),
                  .part_lse = attn_carve(carver, lines, most, sizeof(double)),
                  .part_o = attn_carve(carver, lines * joined, p->d_v, attn_dtype_size(p->dtype)),
                  .work = attn_carve(carver, 1, 1, work_size),
                  .o = attn_carve(carver, x->rounded ? lines * p->n_q : 0, p->d_v, attn_dtype_size(p->dtype)),
                  .lengths = attn_carve(carver, p->batch, 1, sizeof(int64_t))};
}

/* -- planning -- */

/* c: of the whole. */
static bool has_pattern(const attn_context *c, const attn_expression *e) {
  bool found = false;
  for (int64_t t = 0; t < e->count; t++) found = found || has_pattern(c, e->terms[t]);
  if (e->kind != ATTN_EXPRESSION_ATOM) return found;
  if (e->atom->expression) return has_pattern(c, e->atom->expression);
  attn_context own = *c;
  attn_parts parts;
  own.variant = e->atom->variant;
  own.params = e->atom->params;
  return !attn_describe(NULL, &own, &parts) && parts.pattern.row;
}

/* Does it look at where a query stands among the keys? What it draws for a query follows from that, except
 * the vectors of hashes, which all queries share. */
static bool looks_at_places(const attn_context *c, const attn_expression *e, const attn_view *term) {
  return has_pattern(c, e) || (term->seed && term->selector && !term->selector->hashes);
}

static attn_status inspect_term(attn_builder *b, dyadic *x, const attn_expression *e, const attn_plan *term) {
  static const attn_exemption places[] = {
      {ATTN_EXEMPT_PREFIX,
       "dyadic: the last query of a part stands at its last key, so that how many come after a row enters"},
      {0, NULL}};
  static const attn_exemption few[] = {
      {ATTN_EXEMPT_GROUPS, "dyadic: parts of few queries are summed in another order, which depends on the "
                           "heads that share keys"},
      {0, NULL}};
  static const attn_exemption rows[] = {
      {ATTN_EXEMPT_LOOKAHEAD | ATTN_EXEMPT_PREFIX | ATTN_EXEMPT_ROWS,
       "dyadic: queries of one part depend on each other, and with them on later tokens"},
      {0, NULL}};
  attn_view view;
  attn_status status = attn_plan_inspect(term, &view);
  if (status) return status;
  const bool shared = attn_exempt(view.exempt, ATTN_EXEMPT_ROWS);
  x->caps = view.caps | ATTN_CAP_CAUSAL;
  x->by_features = view.by_features;
  return attn_join_exemptions(
      b,
      (const attn_exemption *const[]){view.exempt, few, shared ? rows : NULL,
                                      looks_at_places(&b->context, e, &view) ? places : NULL},
      4, &x->exempt);
}

static attn_status plan(attn_builder *b, const attn_parts *parts, void **state) {
  const attn_expression *e = b->context.expression;
  dyadic *x = attn_builder_alloc(b, 1, sizeof *x);
  (void)parts;
  if (!x) return ATTN_ENOMEM;
  attn_status status = measure(b->context.problem, e->base, x);
  const attn_plan *term = NULL;
  for (int64_t s = 0; s < x->shape_count && !status; s++) {
    dyadic_shape *own = &x->shapes[s];
    const attn_problem p = problem_of(x, own);
    status = own->exact ? attn_builder_plan(b, &p, "tiled", &own->plan)
                        : expression_plan_term(b, &p, e->terms[0], &own->plan);
    if (status) break;
    if (attn_plan_work_size(own->plan) > x->work_size) x->work_size = attn_plan_work_size(own->plan);
    if (!own->exact) term = own->plan;
  }
  x->caps = ~UINT32_C(0);
  if (!status && term) status = inspect_term(b, x, e, term);
  if (!status) *state = x;
  return status;
}

static void inspect(const void *state, const attn_context *c, attn_view *view) {
  const dyadic *x = state;
  view->expression = c->expression;
  view->caps &= x->caps;
  view->exempt = x->exempt;
  view->by_features = x->by_features;
}

static attn_status size(const attn_context *c, size_t *work_size, attn_cost *cost) {
  const attn_expression *e = c->expression;
  dyadic x;
  size_t most = 0;
  if (!c->problem->causal)
    return expression_refuse_part(ATTN_EUNSUPPORTED, e,
                                  "dyadic makes attention causal; without causality take its term");
  if (!attn_problem_plain(c->problem)) /* of which its parts would have their own */
    return expression_refuse_part(ATTN_EINVAL, e,
                                  "dyadic takes scores as they are, without a mask, bias, soft cap or sink");
  attn_status status = measure(c->problem, e->base, &x);
  for (int64_t s = 0; s < x.shape_count && !status; s++) {
    const attn_problem p = problem_of(&x, &x.shapes[s]);
    size_t bytes = 0;
    attn_cost more = {0};
    status = x.shapes[s].exact ? attn_context_estimate(c, &p, "tiled", &bytes, &more)
                               : expression_size_term(c, &p, e->terms[0], &bytes, &more);
    if (bytes > most) most = bytes;
    if (cost) expression_add_cost(cost, more, (double)x.shapes[s].times);
  }
  attn_carver carver = attn_carver_count(c);
  lay_out(&x, most, &carver);
  if (work_size) *work_size = carver.used;
  return status;
}

/* -- execution -- */

typedef struct run {
  const dyadic *x;
  const attn_call *call;
  layout room;
  void *o;
  double *lse;
} run;

static void *row_of(const run *r, int64_t line, int64_t i) {
  const attn_problem *p = &r->x->problem;
  return attn_row(r->o, p->o, line / p->heads, line % p->heads, i, p->dtype);
}

attn_tensors dyadic_tensors(const dyadic *x, const attn_call *call, const dyadic_part *part,
                            int64_t *lengths) {
  const attn_problem *p = &x->problem;
  const int64_t keys = part->key_end - part->key;
  for (int64_t b = 0; b < p->batch; b++)
    lengths[b] = attn_max(attn_min(attn_call_keys(call, b) - part->key, keys), 0);
  return (attn_tensors){
      .q = attn_row_behind(call->q, p->q, part->first - attn_problem_position(p, 0), p->dtype),
      .k = attn_row_behind(call->k, p->k, part->key, p->dtype),
      .v = attn_row_behind(call->v, p->v, part->key, p->dtype),
      .kv_len = call->kv_len ? lengths : NULL};
}

static void merge_part(const run *r, const dyadic_part *x, int64_t rows) {
  const attn_problem *p = &r->x->problem;
  const int64_t first = x->first - attn_problem_position(p, 0);
#pragma omp parallel for num_threads(r->call->context->threads) schedule(static)
  for (int64_t at = 0; at < p->batch * p->heads * rows; at++) {
    const int64_t line = at / rows, i = first + at % rows;
    double *lse = &r->lse[line * p->n_q + i];
    fenv_t outer;
    attn_float_enter(&outer);
    if (x->exact)
      *lse = r->room.part_lse[at];
    else
      attn_join_row(p, row_of(r, line, i), lse, attn_at(r->room.part_o, at * p->d_v, p->dtype),
                    r->room.part_lse[at]);
    attn_float_leave(&outer);
  }
}

static attn_status run_part(void *context, const dyadic_part *x) {
  const run *r = context;
  const attn_problem *p = &r->x->problem;
  const attn_call *call = r->call;
  const int64_t row = x->first - attn_problem_position(p, 0);
  const dyadic_shape *s = dyadic_shape_of(r->x, x);
  attn_tensors part = dyadic_tensors(r->x, call, x, r->room.lengths);
  part.o = x->exact ? attn_row_behind(r->o, p->o, row, p->dtype) : r->room.part_o;
  part.lse = r->room.part_lse;
  part.work = r->room.work;
  const attn_status status = attn_plan_run(s->plan, &part);
  if (!status) merge_part(r, x, x->end - x->first);
  return status;
}

/* Queries before the first key see nothing. */
static void clear(const run *r) {
  const attn_problem *p = &r->x->problem;
  const int64_t before = attn_min(attn_max(p->n_q - p->n_kv, 0), p->n_q);
  for (int64_t line = 0; line < p->batch * p->heads; line++)
    for (int64_t i = 0; i < before; i++) {
      memset(row_of(r, line, i), 0, (size_t)p->d_v * attn_dtype_size(p->dtype));
      r->lse[line * p->n_q + i] = -(double)INFINITY;
    }
}

static attn_status execute(const void *state, const attn_call *call) {
  const dyadic *x = state;
  attn_carver carver = attn_carver_at(call, call->work);
  run r = {.x = x, .call = call, .room = lay_out(x, x->work_size, &carver)};
  r.o = x->rounded ? r.room.o : call->o;
  r.lse = call->lse ? call->lse : r.room.lse;
  clear(&r);
  const attn_status status = dyadic_visit(x, run_part, &r);
  if (!status && x->rounded) attn_store_outputs(call, r.room.o);
  return status;
}

const expression_kind expression_dyadic_run = {.method = {.work_size = expression_work_size,
                                                          .plan = plan,
                                                          .execute = execute,
                                                          .inspect = inspect,
                                                          .backward_size = dyadic_backward_size,
                                                          .backward = dyadic_backward},
                                               .size = size};
