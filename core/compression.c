/* compression.c - the compression engine: keys and values become k << n slots by a linear map, and the
 * softmax engine attends to the slots (Wang et al. 2020). Projections run in parallel over batch, kv head and
 * side. */
#include "internal.h"

#include <omp.h>

struct attn_compression {
  attn_projection projection;
  attn_problem inner; /* n_kv = slots, contiguous keys and values */
  attn_softmax *softmax;
};

static attn_problem inner_problem(const attn_problem *p, int64_t slots) {
  attn_problem inner = *p;
  inner.n_kv = slots;
  inner.k = (attn_stride){p->kv_heads * slots * p->d_qk, slots * p->d_qk, p->d_qk};
  inner.v = (attn_stride){p->kv_heads * slots * p->d_v, slots * p->d_v, p->d_v};
  return inner;
}

/* The workspace: slots of K and V, the slots in use, then either the projections' scratch or the softmax
 * engine's. */
typedef struct layout {
  void *k, *v;
  int64_t *used;
  char *rest;
  size_t scratch; /* of one projection */
} layout;

static layout lay_out(const attn_context *c, const attn_projection *e, attn_carver *carver) {
  const attn_problem *p = c->problem;
  int64_t heads = p->batch * p->kv_heads, widest = attn_max(p->d_qk, p->d_v);
  attn_problem inner = inner_problem(p, e->slots);
  attn_context inner_context = *c;
  inner_context.problem = &inner;
  layout l = {.k = attn_carve(carver, heads * e->slots, p->d_qk, attn_dtype_size(p->dtype)),
              .v = attn_carve(carver, heads * e->slots, p->d_v, attn_dtype_size(p->dtype)),
              .used = attn_carve(carver, p->batch, 1, sizeof(int64_t)),
              .scratch = e->scratch ? attn_size_sum(e->scratch(e->state, c, widest), 63) & ~(size_t)63 : 0};
  size_t projecting = attn_size_times(l.scratch, (size_t)c->threads);
  size_t attending = attn_softmax_work_size(&inner_context, (attn_blocks){0, 0}, 1);
  l.rest = attn_carve(carver, 1, 1, projecting > attending ? projecting : attending);
  return l;
}

size_t attn_compression_work_size(const attn_context *c, const attn_projection *e) {
  attn_carver counter = {0};
  lay_out(c, e, &counter);
  return counter.used;
}

attn_status attn_compression_plan(attn_builder *b, const attn_projection *e, attn_compression **out) {
  attn_compression *engine = attn_builder_alloc(b, 1, sizeof *engine);
  if (!engine) return ATTN_ENOMEM;
  *engine = (attn_compression){.projection = *e, .inner = inner_problem(b->context.problem, e->slots)};
  attn_builder inner = *b;
  inner.context.problem = &engine->inner;
  attn_status status = attn_softmax_plan(&inner, NULL, (attn_blocks){0, 0}, &engine->softmax);
  if (!status) *out = engine;
  return status;
}

attn_status attn_compression_execute(const attn_compression *engine, const attn_call *call) {
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  const attn_projection *e = &engine->projection;
  attn_carver carver = {.base = call->work};
  layout l = lay_out(c, e, &carver);
#pragma omp parallel for num_threads(c->threads) schedule(dynamic, 1)
  for (int64_t i = 0; i < 2 * p->batch * p->kv_heads; i++) {
    fenv_t outer;
    attn_float_enter(&outer);
    bool value = i % 2;
    int64_t head = i / 2 % p->kv_heads, b = i / 2 / p->kv_heads, d = value ? p->d_v : p->d_qk;
    attn_stride stride = value ? p->v : p->k;
    void *y = attn_at(value ? l.v : l.k, (b * p->kv_heads + head) * e->slots * d, p->dtype);
    int64_t used =
        e->project(e->state, c, head, value ? ATTN_VALUE : ATTN_KEY,
                   attn_rows(value ? call->v : call->k, stride, b, head, p->dtype), stride.row,
                   attn_call_keys(call, b), d, y, l.rest + (size_t)omp_get_thread_num() * l.scratch);
    if (!head && !value) l.used[b] = attn_call_keys(call, b) ? used : 0;
    attn_float_leave(&outer);
  }
  attn_context inner_context = *c;
  inner_context.problem = &engine->inner;
  attn_call inner = {.context = &inner_context,
                     .q = call->q,
                     .k = l.k,
                     .v = l.v,
                     .kv_len = l.used,
                     .o = call->o,
                     .work = l.rest};
  return attn_softmax_execute(engine->softmax, &inner);
}

attn_cost attn_compression_cost(const attn_context *c, int64_t slots, double project_mul_add_per_column) {
  const attn_problem *p = c->problem;
  attn_problem inner = inner_problem(p, slots);
  attn_context inner_context = *c;
  inner_context.problem = &inner;
  attn_cost cost = attn_softmax_cost(&inner_context, (double)p->n_q * (double)slots);
  cost.mul_add += (double)(p->batch * p->kv_heads) * (double)(p->d_qk + p->d_v) * project_mul_add_per_column;
  cost.bytes += (double)attn_dtype_size(p->dtype) * (double)(p->batch * p->kv_heads * (p->n_kv - slots)) *
                (double)(p->d_qk + p->d_v);
  return cost;
}
