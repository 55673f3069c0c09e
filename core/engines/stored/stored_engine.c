/* stored_engine.c - the engine of a store: keys and values are converted to the types in which a cache holds
 * them, and what reads them, exact attention unless the store says another, attends to these
 * (attn_kv_store). */
#include "core/internal.h"

#include <omp.h>

typedef struct stored {
  attn_kv_store types;
  attn_problem problem; /* of the reader */
  const attn_plan *reader;
  const attn_exemption *exempt;
} stored;

typedef struct layout {
  void *k, *v, *work;
  attn_slices row; /* of each thread, a row in the type of the arithmetic */
} layout;

/* Of each key or value head the rows one after the other; those that stay as they are stay in place. */
attn_problem attn_stored_problem(const attn_problem *p, attn_kv_store s) {
  attn_problem own = *p;
  if (s.k) own.k = (attn_stride){.stored = s.k};
  if (s.v) own.v = (attn_stride){.stored = s.v};
  return own;
}

static size_t bytes_of(const attn_problem *p, int64_t d, attn_dtype type) {
  const size_t rows =
      attn_size_times(attn_size_times((size_t)p->batch, (size_t)p->kv_heads), (size_t)p->n_kv);
  return type ? attn_size_times(rows, attn_row_bytes(d, type)) : 0;
}

static layout carve(const attn_context *c, attn_kv_store s, size_t reader, attn_carver *carver) {
  const attn_problem *p = c->problem;
  const size_t row = (size_t)attn_max(p->d_qk, p->d_v) * attn_dtype_size(p->dtype);
  return (layout){.k = attn_carve(carver, 1, 1, bytes_of(p, p->d_qk, s.k)),
                  .v = attn_carve(carver, 1, 1, bytes_of(p, p->d_v, s.v)),
                  .row = attn_carve_slices(carver, c->threads, row),
                  .work = attn_carve(carver, 1, 1, reader)};
}

static const char *reader_of(const attn_parts *p) { return p->store.reader ? p->store.reader : "tiled"; }

static bool accepts(const attn_parts *p) { return attn_parts_kinds(p) == ATTN_PART_STORE; }

static attn_status work_size(const attn_context *c, const attn_parts *parts, size_t *bytes) {
  const attn_problem own = attn_stored_problem(c->problem, parts->store);
  size_t reader = 0;
  attn_carver counter = attn_carver_count(c);
  const attn_status status = attn_context_estimate(c, &own, reader_of(parts), &reader, NULL);
  carve(c, parts->store, reader, &counter);
  *bytes = counter.used;
  return status;
}

static attn_status plan(attn_builder *b, const attn_parts *parts, void **state) {
  stored *s = attn_builder_alloc(b, 1, sizeof *s);
  if (!s) return ATTN_ENOMEM;
  *s = (stored){.types = parts->store, .problem = attn_stored_problem(b->context.problem, parts->store)};
  *state = s;
  static const attn_exemption values[] = {
      {ATTN_EXEMPT_VALUES, "what a stored value is rounded to depends on its size"}, {0, NULL}};
  attn_view reader;
  attn_status status = attn_builder_plan(b, &s->problem, reader_of(parts), &s->reader);
  if (!status) status = attn_plan_inspect(s->reader, &reader);
  if (status) return status;
  return attn_join_exemptions(b, (const attn_exemption *const[]){s->types.v ? values : NULL, reader.exempt},
                              2, &s->exempt);
}

/* Row `at` of [batch, kv_heads, n_kv]. */
static void store_row(const attn_call *call, attn_stride from, const void *x, int64_t d, int64_t at,
                      attn_dtype to, void *rows, void *own) {
  const attn_problem *p = call->context->problem;
  const int64_t line = at / p->n_kv;
  attn_load_row(call->context->kernels, attn_stored(from, p->dtype), d,
                attn_row(x, from, line / p->kv_heads, line % p->kv_heads, at % p->n_kv, p->dtype), own);
  attn_convert(own, p->dtype, d, to, (char *)rows + (size_t)at * attn_row_bytes(d, to));
}

static attn_status execute(const void *state, const attn_call *call) {
  const stored *s = state;
  const attn_problem *p = call->context->problem;
  attn_carver carver = attn_carver_at(call, call->work);
  const layout l = carve(call->context, s->types, attn_plan_work_size(s->reader), &carver);
#pragma omp parallel for num_threads(call->context->threads) schedule(static)
  for (int64_t at = 0; at < p->batch * p->kv_heads * p->n_kv; at++) {
    fenv_t outer;
    attn_float_enter(&outer);
    void *own = attn_slice(l.row, omp_get_thread_num());
    if (at % p->n_kv < attn_call_keys(call, at / p->n_kv / p->kv_heads)) {
      if (s->types.k) store_row(call, p->k, call->k, p->d_qk, at, s->types.k, l.k, own);
      if (s->types.v) store_row(call, p->v, call->v, p->d_v, at, s->types.v, l.v, own);
    }
    attn_float_leave(&outer);
  }
  attn_call inner = *call;
  if (s->types.k) inner.k = l.k;
  if (s->types.v) inner.v = l.v;
  return attn_call_run(&inner, s->reader, call->o, call->lse, l.work);
}

static void inspect(const void *state, const attn_context *c, attn_view *view) {
  const stored *s = state;
  attn_view reader;
  (void)c;
  if (attn_plan_inspect(s->reader, &reader)) return;
  view->caps &= reader.caps | ATTN_CAP_STORE;
  view->exempt = s->exempt;
  view->by_features = reader.by_features;
  view->rounding = reader.rounding;
}

const attn_engine attn_engine_stored = {"stored", accepts, {work_size, plan, execute, inspect}};
