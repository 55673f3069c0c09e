/* stored_engine.c - the engine of a store: keys and values are converted to the types in which a cache holds
 * them, and what reads them, exact attention unless the store says another, attends to these
 * (attn_kv_store).
 *
 * Codes of a type are what is read. Of a scheme, and of a store with groups or a residual, what is read is a
 * decoded copy of every row in the type of the arithmetic: it shows what storing by the scheme does to
 * outputs, and saves no memory here. With a residual the reader has the given rows as well, and each query
 * reads the older ones from the copy (attn_settled). */
#include "core/internal.h"

#include <math.h>
#include <omp.h>

typedef struct stored {
  attn_kv_store store;
  attn_problem problem; /* of the reader */
  const attn_plan *reader;
  const attn_exemption *exempt;
} stored;

typedef struct layout {
  void *k, *v, *work;
  attn_slices row; /* of each thread, a row in the type of the arithmetic and two in fp64, and codes */
} layout;

/* Of each key or value head the rows one after the other; those that stay as they are stay in place. */
attn_problem attn_stored_problem(const attn_problem *p, const attn_kv_store *s) {
  attn_problem own = *p;
  if (s->residual) return own;
  if (attn_kv_changes(s->k, &s->k_scheme)) own.k = (attn_stride){.stored = s->group ? ATTN_F32 : s->k};
  if (attn_kv_changes(s->v, &s->v_scheme)) own.v = (attn_stride){.stored = s->v};
  return own;
}

/* Keys or values: the type of their codes, 0 of none, and in which they are read. */
typedef struct side {
  attn_dtype type, to;
  const attn_kv_scheme *scheme;
  attn_stride from;
  int64_t d;
} side;

static side keys_of(const attn_problem *p, const attn_kv_store *s) {
  const bool copied = s->k_scheme.decode || s->residual || s->group;
  return (side){s->k, copied ? p->dtype : s->k, &s->k_scheme, p->k, p->d_qk};
}
static side values_of(const attn_problem *p, const attn_kv_store *s) {
  return (side){s->v, s->v_scheme.decode || s->residual ? p->dtype : s->v, &s->v_scheme, p->v, p->d_v};
}

static size_t bytes_of(const attn_problem *p, side s) {
  const size_t rows =
      attn_size_times(attn_size_times((size_t)p->batch, (size_t)p->kv_heads), (size_t)p->n_kv);
  return attn_kv_changes(s.type, s.scheme) ? attn_size_times(rows, attn_row_bytes(s.d, s.to)) : 0;
}

static layout carve(const attn_context *c, const attn_kv_store *s, size_t reader, attn_carver *carver) {
  const attn_problem *p = c->problem;
  const size_t d = (size_t)attn_max(p->d_qk, p->d_v),
               codes = s->residual
                           ? d * sizeof(double) + 64 + attn_size_times((size_t)s->group, sizeof(float))
                           : 0;
  return (layout){.k = attn_carve(carver, 1, 1, bytes_of(p, keys_of(p, s))),
                  .v = attn_carve(carver, 1, 1, bytes_of(p, values_of(p, s))),
                  .row = attn_carve_slices(carver, c->threads, attn_size_sum(3 * d * sizeof(double), codes)),
                  .work = attn_carve(carver, 1, 1, reader)};
}

int64_t attn_kv_coded(const attn_kv_store *s, bool keys, int64_t t, int64_t n) {
  const int64_t m = t + 1 < n ? t + 1 : n;
  if (!s || t < s->prompt || m < s->residual) return 0;
  return keys && s->group ? m - m % s->residual : m - s->residual;
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
  static const attn_exemption groups[] = {
      {ATTN_EXEMPT_LOOKAHEAD | ATTN_EXEMPT_PREFIX,
       "a key's code depends on later keys, those of its group and all whose mean is taken"},
      {0, NULL}};
  attn_view reader;
  attn_status status = attn_builder_plan(b, &s->problem, reader_of(parts), &s->reader);
  if (!status) status = attn_plan_inspect(s->reader, &reader);
  if (!status && s->store.residual && !attn_plan_settles(s->reader))
    status = attn_fail(ATTN_EUNSUPPORTED,
                       "variant %s: '%s' reads no store with a residual, for it is no softmax over keys that "
                       "it takes one by one",
                       b->context.variant->name, reader_of(parts));
  if (status) return status;
  return attn_join_exemptions(
      b,
      (const attn_exemption *const[]){attn_kv_changes(s->store.v, &s->store.v_scheme) ? values : NULL,
                                      s->store.group && !s->store.residual ? groups : NULL, reader.exempt},
      3, &s->exempt);
}

void attn_kv_block(int64_t bits, int64_t count, float *x) {
  if (!x || count < 1 || bits < 1 || bits > 8) return;
  const float top = (float)((1 << bits) - 1);
  float most = x[0], least = x[0];
  bool sound = true;
  for (int64_t i = 0; i < count; i++) {
    most = fmaxf(most, x[i]);
    least = fminf(least, x[i]);
    sound = sound && isfinite(x[i]);
  }
  const double scale = attn_rounded((double)((most - least) / top), ATTN_F16),
               from = attn_rounded((double)least, ATTN_F16);
  sound = sound && isfinite(from); /* an infinite scale gives NaN */
  for (int64_t i = 0; i < count; i++) {
    const float code = scale > 0 ? fminf(top, fmaxf(0, rintf((x[i] - (float)from) / (float)scale))) : 0;
    x[i] = sound ? (float)(scale * (double)code + from) : NAN;
  }
}

/* Row `at` of [batch, kv_heads, n_kv]. room: 3 d of fp64, and codes. */
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
  } else if (s.to != s.type) {
    attn_convert(own, p->dtype, s.d, s.type, room + 3 * s.d);
    attn_convert(room + 3 * s.d, s.type, s.d, s.to, to);
  } else {
    attn_convert(own, p->dtype, s.d, s.to, to);
  }
}

/* Group `at` of the groups of all lines of keys, channel by channel; one that is not complete is not read. */
static void store_group(const attn_call *call, const attn_kv_store *store, side s, int64_t at, void *rows,
                        double *room) {
  const attn_problem *p = call->context->problem;
  const int64_t groups = attn_ceil_div(p->n_kv, store->group), line = at / groups,
                first = at % groups * store->group,
                count = attn_min(store->group, attn_call_keys(call, line / p->kv_heads) - first);
  side given = s;
  float *block = (float *)(void *)(room + 3 * s.d);
  given.type = s.to;
  for (int64_t i = 0; i < count; i++) store_row(call, given, call->k, line * p->n_kv + first + i, rows, room);
  for (int64_t l = 0; l < (count < store->group ? 0 : s.d); l++) {
    const int64_t own = (line * p->n_kv + first) * s.d + l;
    for (int64_t i = 0; i < count; i++) block[i] = (float)attn_get(rows, own + i * s.d, s.to);
    attn_kv_block((int64_t)s.type - ATTN_INT1 + 1, count, block);
    for (int64_t i = 0; i < count; i++) attn_set(rows, own + i * s.d, s.to, (double)block[i]);
  }
}

/* The keys of a line, whose groups have one scale each. */
static void store_line(const attn_call *call, const attn_kv_store *store, side s, int64_t line, void *rows,
                       double *room) {
  const attn_problem *p = call->context->problem;
  const int64_t keys = attn_call_keys(call, line / p->kv_heads), first = line * p->n_kv;
  side given = s;
  given.type = s.to;
  for (int64_t i = 0; i < keys; i++) store_row(call, given, call->k, first + i, rows, room);
  attn_kv_groups(store, s.to, keys, s.d, attn_at(rows, first * s.d, s.to), room);
}

/* Where the rows of a copy lie. */
static attn_stride rows_of(const attn_problem *p, side s) {
  return (attn_stride){p->kv_heads * p->n_kv * s.d, p->n_kv * s.d, s.d, 0};
}

/* Writes the copies that the layout has room for. */
static void store_all(const stored *s, const attn_call *call, const layout *l) {
  const attn_problem *p = call->context->problem;
  const side k = keys_of(p, &s->store), v = values_of(p, &s->store);
  const bool of_k = attn_kv_changes(s->store.k, &s->store.k_scheme),
             of_v = attn_kv_changes(s->store.v, &s->store.v_scheme);
  const int64_t lines = p->batch * p->kv_heads, group = s->store.group,
                parts = !group              ? 0
                        : s->store.residual ? attn_ceil_div(p->n_kv, group)
                                            : 1;
#pragma omp parallel for num_threads(call->context->threads) schedule(static)
  for (int64_t at = 0; at < lines * (p->n_kv + parts); at++) {
    const int64_t line = at / (p->n_kv + parts), i = at % (p->n_kv + parts), row = line * p->n_kv + i;
    fenv_t outer;
    attn_float_enter(&outer);
    void *room = attn_slice(l->row, omp_get_thread_num());
    if (i >= p->n_kv)
      (s->store.residual ? store_group : store_line)(call, &s->store, k, line * parts + i - p->n_kv, l->k,
                                                     room);
    else if (i < attn_call_keys(call, line / p->kv_heads)) {
      if (of_k && !group) store_row(call, k, call->k, row, l->k, room);
      if (of_v) store_row(call, v, call->v, row, l->v, room);
    }
    attn_float_leave(&outer);
  }
}

/* The call on the copies. */
static attn_call call_on(const stored *s, const attn_call *call, const layout *l) {
  attn_call inner = *call;
  if (attn_kv_changes(s->store.k, &s->store.k_scheme)) inner.k = l->k;
  if (attn_kv_changes(s->store.v, &s->store.v_scheme)) inner.v = l->v;
  return inner;
}

static attn_status execute(const void *state, const attn_call *call) {
  const stored *s = state;
  const attn_problem *p = call->context->problem;
  attn_carver carver = attn_carver_at(call, call->work);
  const layout l = carve(call->context, &s->store, attn_plan_work_size(s->reader), &carver);
  store_all(s, call, &l);
  attn_call inner = call_on(s, call, &l);
  const attn_settled settled = {inner.k == call->k ? NULL : l.k, inner.v == call->v ? NULL : l.v,
                                rows_of(p, keys_of(p, &s->store)), rows_of(p, values_of(p, &s->store)),
                                &s->store};
  if (s->store.residual) {
    inner = *call;
    inner.settled = &settled;
  }
  return attn_call_run(&inner, s->reader, call->o, call->lse, l.work);
}

/* What a row is rounded to counts as the row and a constant: the gradients by the copies are those by the
 * rows (the straight-through estimator, Bengio et al. 2013, arXiv:1308.3432). */
static attn_status backward_size(const void *state, const attn_context *c, const attn_parts *parts,
                                 size_t *bytes) {
  const stored *s = state;
  size_t reader = 0;
  if (parts->store.residual)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "variant %s: no gradient where queries read a key in two ways, as it is stored and as "
                     "it is given",
                     c->variant->name);
  const attn_status status = attn_plan_backward_size(s->reader, &reader);
  attn_carver counter = attn_carver_count(c);
  carve(c, &s->store, reader, &counter);
  *bytes = counter.used;
  return status;
}

static attn_status backward(const void *state, const attn_call *call, const attn_gradients *g) {
  const stored *s = state;
  size_t reader = 0;
  const attn_status status = attn_plan_backward_size(s->reader, &reader);
  if (status) return status;
  attn_carver carver = attn_carver_at(call, call->work);
  const layout l = carve(call->context, &s->store, reader, &carver);
  store_all(s, call, &l);
  const attn_call inner = call_on(s, call, &l);
  return attn_call_backward(&inner, s->reader, call->o, call->lse, g, l.work);
}

static void inspect(const void *state, const attn_context *c, attn_view *view) {
  const stored *s = state;
  attn_view reader;
  if (attn_plan_inspect(s->reader, &reader)) return;
  view->caps &= reader.caps | ATTN_CAP_STORE;
  view->exempt = s->exempt;
  view->by_features = reader.by_features;
  view->rounding = reader.rounding;
  if (!s->store.residual || !(view->rounding.block > 0)) return;
  /* A step is taken in three ways at most. */
  const int64_t more = 8 * attn_ceil_div(c->problem->n_kv, view->rounding.block) + 4;
  view->rounding.value += more;
  view->rounding.sum += more;
}

const attn_engine attn_engine_stored = {"stored",
                                        accepts,
                                        {.work_size = work_size,
                                         .plan = plan,
                                         .execute = execute,
                                         .inspect = inspect,
                                         .backward_size = backward_size,
                                         .backward = backward,
                                         .bias_gradients = true}};
