/* slot_gradients.c - the gradients of the compression engine: the slots and their log-sum-exp are computed
 * again, the softmax engine gives the gradients by the slots, and the transposed projections those by keys
 * and values: dK = E^T dK', dV = F^T dV'.
 *
 * Each part of the sequence writes other rows, so that threads do not matter. */
#include "core/engines/compression/compression.h"

#include <omp.h>
#include <string.h>

typedef struct layout {
  void *o; /* that of the execution once more, [batch, heads, n_q, d_v] */
  double *lse;
  void *dk, *dv; /* by the slots, [batch, kv_heads, slots, d] */
  compression_layout slots;
} layout;

/* Outputs side by side: the call's are read, and not written. */
static attn_problem outputs_apart(const attn_problem *inner) {
  attn_problem p = *inner;
  p.o = (attn_stride){p.heads * p.n_q * p.d_v, p.n_q * p.d_v, p.d_v, 0};
  return p;
}

static layout lay_out(const attn_context *c, const compression *engine, attn_carver *carver) {
  const attn_problem *p = &engine->inner, apart = outputs_apart(p);
  const int64_t rows = p->batch * p->heads * p->n_q, slots = p->batch * p->kv_heads * p->n_kv;
  const size_t size = attn_dtype_size(p->dtype);
  attn_context inner = *c;
  inner.problem = &apart;
  const size_t forward = attn_softmax_size(&inner, NULL, (attn_tiling){0});
  inner.problem = p;
  const size_t backward = attn_softmax_back_size(&inner, NULL, (attn_tiling){0});
  return (layout){
      .o = attn_carve(carver, rows, p->d_v, size),
      .lse = attn_carve(carver, rows, 1, sizeof(double)),
      .dk = attn_carve(carver, slots, p->d_qk, size),
      .dv = attn_carve(carver, slots, p->d_v, size),
      .slots = compression_lay_out(c, engine->projection, forward > backward ? forward : backward, carver)};
}

attn_status compression_backward_size(const void *state, const attn_context *c, const attn_parts *parts,
                                      size_t *bytes) {
  attn_carver counter = attn_carver_count(c);
  if (!parts->projection.transpose)
    return attn_fail(ATTN_EUNSUPPORTED, "variant %s: no gradient without projection.transpose",
                     c->variant->name);
  lay_out(c, state, &counter);
  *bytes = counter.used;
  return ATTN_OK;
}

/* One block of columns of one part of a head: rows of dk or dv. */
static void expand(const compression *engine, const attn_call *call, const compression_layout *l,
                   attn_slab slab, int64_t part, int64_t block, int64_t batch) {
  const attn_problem *p = call->context->problem;
  const attn_projection *e = engine->projection;
  const compression_division by = compression_divide(p, e);
  const int64_t d = slab.side == ATTN_VALUE ? p->d_v : p->d_qk, line = batch * p->kv_heads + slab.head,
                end = attn_min((part + 1) * by.rows, attn_call_keys(call, batch)),
                step = e->slice ? e->slice : by.rows, column = block * e->columns;
  char *scratch = l->rest + (size_t)omp_get_thread_num() * l->scratch + l->rows;
  void *rows = attn_at(slab.y, line * p->n_kv * d + column, p->dtype);
  slab.x = attn_at(slab.x, line * e->slots * d + column, p->dtype);
  slab.x_row = slab.y_row = d;
  slab.d = e->columns ? attn_min(e->columns, d - column) : d;
  for (slab.first = part * by.rows; slab.d > 0 && slab.first < end; slab.first += step) {
    slab.rows = attn_min(step, end - slab.first);
    slab.y = attn_at(rows, slab.first * d, p->dtype);
    e->transpose(e->state, call->context, &slab, scratch);
  }
}

/* From the gradients by the slots to those by all keys, and zeros for keys that do not exist. */
static void expand_all(const compression *engine, const attn_call *call, const layout *l,
                       const attn_gradients *g) {
  const attn_problem *p = call->context->problem;
  const compression_division by = compression_divide(p, engine->projection);
  const int64_t heads = p->batch * p->kv_heads, rows = heads * p->n_kv;
  if (g->dk) memset(g->dk, 0, (size_t)(rows * p->d_qk) * attn_dtype_size(p->dtype));
  if (g->dv) memset(g->dv, 0, (size_t)(rows * p->d_v) * attn_dtype_size(p->dtype));
#pragma omp parallel num_threads(call->context->threads)
  {
    fenv_t outer;
    attn_float_enter(&outer);
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < by.parts * by.blocks * heads; i++) {
      const int64_t part = i / by.blocks / heads, block = i / heads % by.blocks;
      for (attn_side side = ATTN_KEY; side <= ATTN_VALUE; side++) {
        const attn_slab slab = {.head = i % p->kv_heads,
                                .side = side,
                                .x = side == ATTN_VALUE ? l->dv : l->dk,
                                .y = side == ATTN_VALUE ? g->dv : g->dk};
        if (slab.y) expand(engine, call, &l->slots, slab, part, block, i / p->kv_heads % p->batch);
      }
    }
    attn_float_leave(&outer);
  }
}

attn_status compression_backward(const void *state, const attn_call *call, const attn_gradients *g) {
  const compression *engine = state;
  const attn_problem apart = outputs_apart(&engine->inner);
  attn_context inner_context = *call->context;
  attn_carver carver = attn_carver_at(call, call->work);
  const layout l = lay_out(call->context, engine, &carver);
  attn_status status = compression_project(engine, call, &l.slots);
  attn_call inner = {.context = &inner_context,
                     .q = call->q,
                     .k = l.slots.k,
                     .v = l.slots.v,
                     .kv_len = l.slots.used,
                     .o = l.o,
                     .lse = l.lse,
                     .work = l.slots.rest};
  inner_context.problem = &apart;
  if (!status) status = attn_softmax_execute(engine->softmax, &inner);
  if (status) return status;
  attn_gradients of_slots = *g;
  of_slots.dlse = NULL;
  of_slots.dk = g->dk ? l.dk : NULL;
  of_slots.dv = g->dv ? l.dv : NULL;
  inner_context.problem = &engine->inner;
  inner.o = call->o;
  status = attn_softmax_backward(engine->softmax, &inner, &of_slots);
  if (!status) expand_all(engine, call, &l, g);
  return status;
}
