/* dyadic_backward.c - the gradients of dyadic(X). A row's output is the sum of w_p o_p over the parts p that
 * have it, w_p = exp(lse_p - lse); so part p is given, with its output and log-sum-exp computed again,
 *   w_p d_o by o_p,   w_p (d_o.(o_p - o) + dlse) by lse_p. */
#include "core/expression/dyadic.h"

#include <math.h>
#include <string.h>

/* Of the part with the most rows, keys or bytes. */
typedef struct layout {
  void *o, *d_o, *dq, *dk, *dv, *work;
  double *lse, *dlse;
  int64_t *lengths;
} layout;

typedef struct run {
  const dyadic *x;
  const attn_call *call;
  const attn_gradients *g;
  layout room;
} run;

static attn_status work_size(const dyadic *x, size_t *bytes) {
  attn_status status = ATTN_OK;
  *bytes = x->work_size;
  for (int64_t s = 0; s < x->shape_count && !status; s++)
    status = attn_plan_backward_most(x->shapes[s].plan, bytes);
  return status;
}

/* Elements of the outputs of a part, from the first to behind the last. */
static int64_t extent_of(const attn_problem *p) {
  return (p->batch - 1) * p->o.batch + (p->heads - 1) * p->o.head + (p->n_q - 1) * p->o.row + p->d_v;
}

static layout lay_out(const dyadic *x, size_t work, attn_carver *carver) {
  const attn_problem *p = &x->problem;
  const size_t e = attn_dtype_size(p->dtype);
  int64_t rows = 0, keys = 0, extent = 0;
  for (int64_t s = 0; s < x->shape_count; s++) {
    rows = attn_max(rows, x->shapes[s].rows);
    keys = attn_max(keys, x->shapes[s].keys);
    extent = attn_max(extent, extent_of(attn_plan_problem(x->shapes[s].plan)));
  }
  rows *= p->batch * p->heads;
  keys *= p->batch * p->kv_heads;
  return (layout){.o = attn_carve(carver, extent, 1, e),
                  .d_o = attn_carve(carver, rows, p->d_v, e),
                  .dq = attn_carve(carver, rows, p->d_qk, e),
                  .dk = attn_carve(carver, keys, p->d_qk, e),
                  .dv = attn_carve(carver, keys, p->d_v, e),
                  .work = attn_carve(carver, 1, 1, work),
                  .lse = attn_carve(carver, rows, 1, sizeof(double)),
                  .dlse = attn_carve(carver, rows, 1, sizeof(double)),
                  .lengths = attn_carve(carver, p->batch, 1, sizeof(int64_t))};
}

attn_status dyadic_backward_size(const void *state, const attn_context *c, const attn_parts *parts,
                                 size_t *bytes) {
  size_t work = 0;
  attn_status status = work_size(state, &work);
  attn_carver carver = attn_carver_count(c);
  (void)parts;
  lay_out(state, work, &carver);
  *bytes = carver.used;
  return status;
}

/* What the part is given. own: its problem. */
static void weigh(const run *r, const dyadic_part *part, const attn_problem *own) {
  const attn_call *call = r->call;
  const attn_problem *p = call->context->problem;
  const int64_t first = part->first - attn_problem_position(p, 0), rows = own->n_q;
#pragma omp parallel for num_threads(call->context->threads) schedule(static)
  for (int64_t at = 0; at < p->batch * p->heads * rows; at++) {
    const int64_t b = at / rows / p->heads, h = at / rows % p->heads, i = at % rows,
                  line = (b * p->heads + h) * p->n_q + first + i;
    const void *d_o = attn_row(r->g->d_o, r->g->d_o_at, b, h, first + i, p->dtype),
               *o = attn_row(call->o, p->o, b, h, first + i, p->dtype),
               *mine = attn_row(r->room.o, own->o, b, h, i, p->dtype);
    fenv_t outer;
    attn_float_enter(&outer);
    const double lse = r->room.lse[at], weight = lse == -(double)INFINITY ? 0 : exp(lse - call->lse[line]);
    double by_lse = r->g->dlse ? r->g->dlse[line] : 0;
    for (int64_t l = 0; l < p->d_v; l++) {
      const double x = attn_get(d_o, l, p->dtype);
      by_lse += x * (attn_get(mine, l, p->dtype) - attn_get(o, l, attn_stored(p->o, p->dtype)));
      attn_set(r->room.d_o, at * p->d_v + l, p->dtype, weight > 0 || isnan(weight) ? weight * x : 0);
    }
    r->room.dlse[at] = weight > 0 || isnan(weight) ? weight * by_lse : 0;
    attn_float_leave(&outer);
  }
}

/* Adds `rows` rows of d elements of each line to those of a result that begin at row `first` of `all`. */
static void add_up(const run *r, int64_t lines, int64_t all, int64_t first, int64_t rows, int64_t d, void *to,
                   const void *more) {
  const attn_dtype t = r->x->problem.dtype;
#pragma omp parallel for num_threads(r->call->context->threads) schedule(static)
  for (int64_t at = 0; at < (to ? lines * rows : 0); at++) {
    const int64_t own = (at / rows * all + first + at % rows) * d;
    fenv_t outer;
    attn_float_enter(&outer);
    for (int64_t l = 0; l < d; l++)
      attn_set(to, own + l, t, attn_get(to, own + l, t) + attn_get(more, at * d + l, t));
    attn_float_leave(&outer);
  }
}

static attn_status run_part(void *context, const dyadic_part *part) {
  const run *r = context;
  const attn_problem *p = &r->x->problem;
  const dyadic_shape *s = dyadic_shape_of(r->x, part);
  const int64_t queries = p->batch * p->heads, keys = p->batch * p->kv_heads,
                first = part->first - attn_problem_position(p, 0);
  attn_tensors x = dyadic_tensors(r->x, r->call, part, r->room.lengths);
  x.o = r->room.o;
  x.lse = r->room.lse;
  x.work = r->room.work;
  attn_status status = attn_plan_run(s->plan, &x);
  if (status) return status;
  weigh(r, part, attn_plan_problem(s->plan));
  status = attn_plan_backward(s->plan, &x,
                              &(attn_gradients){.d_o = r->room.d_o,
                                                .dlse = r->room.dlse,
                                                .dq = r->g->dq ? r->room.dq : NULL,
                                                .dk = r->g->dk ? r->room.dk : NULL,
                                                .dv = r->g->dv ? r->room.dv : NULL});
  if (status) return status;
  add_up(r, queries, p->n_q, first, s->rows, p->d_qk, r->g->dq, r->room.dq);
  add_up(r, keys, p->n_kv, part->key, s->keys, p->d_qk, r->g->dk, r->room.dk);
  add_up(r, keys, p->n_kv, part->key, s->keys, p->d_v, r->g->dv, r->room.dv);
  return ATTN_OK;
}

attn_status dyadic_backward(const void *state, const attn_call *call, const attn_gradients *g) {
  const dyadic *x = state;
  const attn_problem *p = &x->problem;
  const size_t e = attn_dtype_size(p->dtype), keys = (size_t)(p->batch * p->kv_heads * p->n_kv);
  size_t work = 0;
  const attn_status status = work_size(x, &work);
  if (status) return status;
  attn_carver carver = attn_carver_at(call, call->work);
  run r = {x, call, g, lay_out(x, work, &carver)};
  if (g->dsink) memset(g->dsink, 0, (size_t)p->heads * sizeof *g->dsink);
  if (g->dq) memset(g->dq, 0, (size_t)(p->batch * p->heads * p->n_q * p->d_qk) * e);
  if (g->dk) memset(g->dk, 0, keys * (size_t)p->d_qk * e);
  if (g->dv) memset(g->dv, 0, keys * (size_t)p->d_v * e);
  return dyadic_visit(x, run_part, &r);
}
