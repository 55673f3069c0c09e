/* stored_engine.c - the engine of a store: keys and values are converted to the types in which a cache holds
 * them, and what reads them, exact attention unless the store says another, attends to these
 * (attn_kv_store).
 *
 * Codes of a type are what is read. Of a scheme what is read is a decoded copy of every row in the type of
 * the arithmetic: it shows what storing by the scheme does to outputs, and saves no memory here. */
#include "core/internal.h"

#include <omp.h>

typedef struct stored {
  attn_kv_store store;
  attn_problem problem; /* of the reader */
  const attn_plan *reader;
  const attn_exemption *exempt;
} stored;

typedef struct layout {
  void *k, *v, *work;
  attn_slices row; /* of each thread, a row in the type of the arithmetic and two in fp64 */
} layout;

/* Of each key or value head the rows one after the other; those that stay as they are stay in place. */
attn_problem attn_stored_problem(const attn_problem *p, const attn_kv_store *s) {
  attn_problem own = *p;
  if (attn_kv_changes(s->k, &s->k_scheme)) own.k = (attn_stride){.stored = s->k};
  if (attn_kv_changes(s->v, &s->v_scheme)) own.v = (attn_stride){.stored = s->v};
  return own;
}

/* Keys or values. */
typedef struct side {
  attn_dtype to;
  const attn_kv_scheme *scheme;
  attn_stride from;
  int64_t d;
} side;

static side keys_of(const attn_problem *p, const attn_kv_store *s) {
  return (side){s->k_scheme.decode ? p->dtype : s->k, &s->k_scheme, p->k, p->d_qk};
}
static side values_of(const attn_problem *p, const attn_kv_store *s) {
  return (side){s->v_scheme.decode ? p->dtype : s->v, &s->v_scheme, p->v, p->d_v};
}

static size_t bytes_of(const attn_problem *p, side s) {
  const size_t rows =
      attn_size_times(attn_size_times((size_t)p->batch, (size_t)p->kv_heads), (size_t)p->n_kv);
  return attn_kv_changes(s.to, s.scheme) ? attn_size_times(rows, attn_row_bytes(s.d, s.to)) : 0;
}

static layout carve(const attn_context *c, const attn_kv_store *s, size_t reader, attn_carver *carver) {
  const attn_problem *p = c->problem;
  const size_t d = (size_t)attn_max(p->d_qk, p->d_v);
  return (layout){.k = attn_carve(carver, 1, 1, bytes_of(p, keys_of(p, s))),
                  .v = attn_carve(carver, 1, 1, bytes_of(p, values_of(p, s))),
                  .row = attn_carve_slices(carver, c->threads, 3 * d * sizeof(double)),
                  .work = attn_carve(carver, 1, 1, reader)};
}

static const char *reader_of(const attn_parts *p) { return p->store.reader ? p->store.reader : "tiled"; }

static bool accepts(const attn_parts *p) { return attn_parts_kinds(p) == ATTN_PART_STORE; }

static attn_status work_size(const attn_context *c, const attn_parts *parts, size_t *bytes) {
  const attn_problem own = attn_stored_problem(c->problem, &parts->store);
  size_t reader = 0;
  attn_carver counter = attn_carver_count(c);
  const attn_status status = attn_context_estimate(c, &own, reader_of(parts), &reader, NULL);
  carve(c, &parts->store, reader, &counter);
  *bytes = counter.used;
  return status;
}

static bool lacks_draws(const attn_kv_law *l) {
  return (l->bits && !l->rotation) || (l->signs && !l->vectors);
}

static attn_status plan(attn_builder *b, const attn_parts *parts, void **state) {
  if (lacks_draws(&parts->store.k_scheme.law) || lacks_draws(&parts->store.v_scheme.law))
    return attn_fail(ATTN_EINVAL, "variant %s: the law of a scheme lacks its rotation or its vectors",
                     b->context.variant->name);
  stored *s = attn_builder_alloc(b, 1, sizeof *s);
  if (!s) return ATTN_ENOMEM;
  *s = (stored){.store = parts->store, .problem = attn_stored_problem(b->context.problem, &parts->store)};
  *state = s;
  static const attn_exemption values[] = {
      {ATTN_EXEMPT_VALUES, "what a stored value is rounded to depends on its size"}, {0, NULL}};
  attn_view reader;
  attn_status status = attn_builder_plan(b, &s->problem, reader_of(parts), &s->reader);
  if (!status) status = attn_plan_inspect(s->reader, &reader);
  if (status) return status;
  return attn_join_exemptions(
      b,
      (const attn_exemption *const[]){attn_kv_changes(s->store.v, &s->store.v_scheme) ? values : NULL,
                                      reader.exempt},
      2, &s->exempt);
}

/* Row `at` of [batch, kv_heads, n_kv]. room: 3 d of fp64. */
static void store_row(const attn_call *call, side s, const void *x, int64_t at, void *rows, double *room) {
  const attn_problem *p = call->context->problem;
  const int64_t line = at / p->n_kv;
  void *own = room + 2 * s.d, *to = (char *)rows + (size_t)at * attn_row_bytes(s.d, s.to);
  attn_load_row(call->context->kernels, attn_stored(s.from, p->dtype), s.d,
                attn_row(x, s.from, line / p->kv_heads, line % p->kv_heads, at % p->n_kv, p->dtype), own);
  if (s.scheme->decode) {
    attn_convert(own, p->dtype, s.d, ATTN_F64, room);
    s.scheme->decode(s.scheme->state, s.d, room, room + s.d);
    attn_convert(room + s.d, ATTN_F64, s.d, s.to, to);
  } else {
    attn_convert(own, p->dtype, s.d, s.to, to);
  }
}

static attn_status execute(const void *state, const attn_call *call) {
  const stored *s = state;
  const attn_problem *p = call->context->problem;
  attn_carver carver = attn_carver_at(call, call->work);
  const layout l = carve(call->context, &s->store, attn_plan_work_size(s->reader), &carver);
  const side k = keys_of(p, &s->store), v = values_of(p, &s->store);
  const bool of_k = attn_kv_changes(s->store.k, &s->store.k_scheme),
             of_v = attn_kv_changes(s->store.v, &s->store.v_scheme);
#pragma omp parallel for num_threads(call->context->threads) schedule(static)
  for (int64_t at = 0; at < p->batch * p->kv_heads * p->n_kv; at++) {
    fenv_t outer;
    attn_float_enter(&outer);
    void *room = attn_slice(l.row, omp_get_thread_num());
    if (at % p->n_kv < attn_call_keys(call, at / p->n_kv / p->kv_heads)) {
      if (of_k) store_row(call, k, call->k, at, l.k, room);
      if (of_v) store_row(call, v, call->v, at, l.v, room);
    }
    attn_float_leave(&outer);
  }
  attn_call inner = *call;
  if (of_k) inner.k = l.k;
  if (of_v) inner.v = l.v;
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
