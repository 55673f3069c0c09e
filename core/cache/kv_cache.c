/* kv_cache.c - the cache of keys and values (attn_kv_cache.h): what arrives and goes, and attention to what
 * is held by a plan for n_kv positions that is told where queries and keys stand. */
#include "core/cache/kv_memory.h"

#include <string.h>

/* ---- making ------------------------------------------------------------------------------------------ */

/* The parts of the reader for all queries, which a rule may need. */
static attn_status describe_reader(const attn_kv_cache *c, attn_parts *parts) {
  attn_problem whole = c->problem;
  attn_context context = {.problem = &whole,
                          .blocks = c->options.blocks,
                          .variant = c->reader->variant,
                          .params = c->reader->params,
                          .expression = c->reader->expression};
  attn_status status = attn_options_resolve(&c->options, whole.dtype, &context.kernels, &context.threads);
  whole.n_q = whole.n_kv;
  whole.q = (attn_stride){.stored = whole.q.stored};
  whole.o = (attn_stride){.stored = whole.o.stored};
  if (!status) status = attn_problem_resolve(&whole);
  if (!status) status = attn_context_check(&context);
  return status ? status : attn_describe(NULL, &context, parts);
}

/* Keys and values are held as the store says, and read by its reader. */
static attn_status take_store(attn_kv_cache *c, const attn_kv_store *store, attn_parts *parts) {
  attn_spec *outer = c->reader;
  c->problem = attn_stored_problem(&c->problem, store);
  attn_status status = attn_problem_resolve(&c->problem);
  c->reader = NULL;
  if (!status) status = attn_spec_parse(&c->reader, store->reader ? store->reader : "tiled");
  attn_spec_destroy(outer);
  return status ? status : describe_reader(c, parts);
}

bool attn_kv_cache_reads(const attn_view *v) {
  const uint32_t others = ATTN_EXEMPT_LOOKAHEAD | ATTN_EXEMPT_PREFIX | ATTN_EXEMPT_ROWS | ATTN_EXEMPT_CAUSAL;
  for (const attn_exemption *x = v ? v->exempt : NULL; x && x->reason; x++)
    if (x->properties & others) return false;
  const attn_selector *s = v ? v->selector : NULL;
  return v && !(s && (s->weighted || s->least > 0 || s->share == ATTN_SHARE_TILE));
}

/* A reader of all keys gives at each step what it gives on the whole sequence. */
static attn_status check_reader(const attn_kv_cache *c) {
  attn_plan *plan = NULL;
  attn_view view;
  attn_status status = attn_plan_create_spec(&plan, &c->problem, c->reader, &c->options);
  if (!status) status = attn_plan_inspect(plan, &view);
  if (!status && !attn_kv_cache_reads(&view))
    status = attn_fail(ATTN_EUNSUPPORTED,
                       "cache: what a query of %s reads depends on other queries or on keys to come",
                       c->reader->text);
  attn_plan_destroy(plan);
  return status;
}

/* What the spec says of a cache: a store, a rule, or what reads all keys. */
static attn_status read_spec(attn_kv_cache *c, const char *text) {
  attn_parts parts;
  attn_status status = attn_spec_parse(&c->reader, text);
  if (!status) status = describe_reader(c, &parts);
  if (!status && (parts.store.k_scheme.decode || parts.store.v_scheme.decode || parts.store.residual ||
                  parts.store.group))
    return attn_fail(ATTN_EUNSUPPORTED, "cache: it holds number types, and '%s' codes rows otherwise", text);
  if (!status && (parts.store.k || parts.store.v)) {
    const attn_kv_store store = parts.store;
    status = take_store(c, &store, &parts);
  }
  if (status) return status;
  c->most = c->problem.n_kv;
  if (!parts.cache.score &&
      (parts.caps & (ATTN_CAP_POSITIONS | ATTN_CAP_PADDING)) != (ATTN_CAP_POSITIONS | ATTN_CAP_PADDING))
    return attn_fail(ATTN_EUNSUPPORTED, "cache: %s takes no positions of queries, and cannot read a cache",
                     c->reader->text);
  if (!parts.cache.score) return check_reader(c);
  c->rule = parts.cache;
  if ((status = attn_kv_read_filters(&c->rule, &c->problem, &c->arrays))) return status;
  c->rule.filters_file = NULL;
  if (c->rule.score->future)
    return attn_fail(ATTN_EUNSUPPORTED, "cache: score=%s ranks by queries that are still to come",
                     c->rule.score->name);
  if (c->rule.shared > 0)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "cache: kv heads with shared=%g hold different numbers of keys; evaluate the policy on "
                     "whole sequences",
                     c->rule.shared);
  c->evicts = true;
  c->most = attn_min(c->most, attn_max(c->rule.budget, c->rule.prompt));
  attn_spec_destroy(c->reader);
  c->reader = NULL;
  return attn_spec_parse(&c->reader, "tiled");
}

/* The cache of what c has, unless it has failed; copies what a plan would copy, since plans are made
 * later. */
static attn_status make(attn_kv_cache *c, attn_status status, int64_t rows, attn_kv_cache **out) {
  if (!status) status = attn_score_check_arrays(&c->problem);
  if (!status) status = attn_score_keep(&c->problem, &c->arrays);
  c->bytes += c->arrays.bytes;
  if (!status) status = kv_begin(c);
  if (!status && rows) status = kv_grow(c, rows);
  attn_kv_cache *made = status ? NULL : kv_take(c, 1, sizeof *made);
  if (!made) {
    kv_free(c);
    return status ? status : ATTN_ENOMEM;
  }
  *made = *c;
  made->options.allocator = &made->allocator;
  *out = made;
  return ATTN_OK;
}

attn_status attn_kv_cache_create(attn_kv_cache **out, const attn_problem *problem, const char *spec,
                                 const attn_options *options) {
  attn_kv_cache c = {.allocator = options && options->allocator ? *options->allocator : attn_allocator_libc};
  if (!out) return attn_null("cache", "cache");
  if (!problem) return attn_null("cache", "problem");
  if (!spec) return attn_null("cache", "spec");
  *out = NULL;
  c.arrays.allocator = c.allocator;
  c.problem = *problem;
  c.problem.n_q = 1;
  c.problem.q = (attn_stride){.stored = problem->q.stored};
  c.problem.o = (attn_stride){.stored = problem->o.stored};
  c.problem.k = (attn_stride){.stored = problem->k.stored};
  c.problem.v = (attn_stride){.stored = problem->v.stored};
  attn_status status = attn_problem_resolve(&c.problem);
  if (status) return status;
  if (!c.problem.causal)
    status = attn_fail(ATTN_EUNSUPPORTED, "cache: only causal attention, whose keys arrive in order");
  if (!status)
    status = attn_options_fill(options, c.problem.dtype, c.problem.d_qk, c.problem.d_v, &c.options);
  c.options.allocator = NULL;
  c.k_given = attn_stored(c.problem.k, c.problem.dtype);
  c.v_given = attn_stored(c.problem.v, c.problem.dtype);
  if (!status) status = read_spec(&c, spec);
  return make(&c, status, 0, out);
}

void attn_kv_cache_destroy(attn_kv_cache *c) {
  if (!c) return;
  attn_kv_cache own = *c;
  own.allocator.release(own.allocator.context, c, sizeof *c);
  kv_free(&own);
}

/* ---- arrivals ---------------------------------------------------------------------------------------- */

/* The appended tensors of a call. */
typedef struct arrivals {
  int64_t n;
  const int64_t *length;
  const char *q, *k, *v;
} arrivals;

static int64_t arriving(const arrivals *a, int64_t batch) { return a->length ? a->length[batch] : a->n; }

static attn_status check_arrivals(const attn_kv_cache *c, const arrivals *a) {
  if (a->n < 1) return attn_fail(ATTN_EINVAL, "cache: %lld positions to append", (long long)a->n);
  if (!a->k) return attn_null("cache", "k");
  if (!a->v) return attn_null("cache", "v");
  if (!a->q && c->evicts && attn_kv_observes(c->rule.score))
    return attn_fail(ATTN_EINVAL, "cache: score=%s looks at queries, and q is NULL", c->rule.score->name);
  for (int64_t b = 0; b < c->problem.batch; b++) {
    if (arriving(a, b) < 0 || arriving(a, b) > a->n)
      return attn_fail(ATTN_EINVAL, "cache: length[%lld] = %lld, expected 0 ... %lld", (long long)b,
                       (long long)arriving(a, b), (long long)a->n);
    if (arriving(a, b) > c->problem.n_kv - c->length[b])
      return attn_fail(
          ATTN_EINVAL, "cache: %lld positions more in batch entry %lld, which has %lld of at most %lld",
          (long long)arriving(a, b), (long long)b, (long long)c->length[b], (long long)c->problem.n_kv);
  }
  return ATTN_OK;
}

/* One key, as it is held, arrives in a head under a rule; others may go. */
static void arrive(attn_kv_cache *c, const arrivals *a, int64_t line, int64_t i, const char *k) {
  const attn_problem *p = &c->problem;
  const int64_t batch = line / p->kv_heads, d = p->d_qk, group = kv_group(c), position = c->length[batch] + i;
  const size_t q_bytes = (size_t)d * attn_dtype_size(attn_stored(p->q, p->dtype));
  double *own = c->row + line * (group + 1) * d, *wide = kv_row(c, KV_WIDE_KEYS, line, 0);
  attn_kv_head *h = &c->head[line];
  const int64_t before = h->count;
  attn_convert(k, attn_stored(p->k, p->dtype), d, ATTN_F64, own);
  h->values = kv_row(c, KV_WIDE_VALUES, line, 0);
  const int64_t gone = attn_kv_arrive(h, position, wide, own);
  kv_close_gaps(c, line, before, h->gone, gone);
  if (gone && line % p->kv_heads == 0) c->went[batch] = position;
  if (wide) memcpy(wide + (h->count - 1) * d, own, (size_t)d * sizeof *own);
  if (!attn_kv_observes(c->rule.score)) return;
  const int64_t head = line % p->kv_heads * group;
  for (int64_t g = 0; g < group; g++)
    attn_convert(a->q + (size_t)((batch * p->heads + head + g) * a->n + i) * q_bytes,
                 attn_stored(p->q, p->dtype), d, ATTN_F64, own + (g + 1) * d);
  attn_kv_observe(h, p, batch, head, group, own + d, wide, position);
}

static void take_line(attn_kv_cache *c, const arrivals *a, int64_t line) {
  const attn_problem *p = &c->problem;
  const int64_t batch = line / p->kv_heads;
  const size_t k_bytes = c->field[KV_KEYS].bytes;
  for (int64_t i = 0; i < arriving(a, batch); i++) {
    const char *k = a->k + (size_t)(line * a->n + i) * attn_row_bytes(p->d_qk, c->k_given),
               *v = a->v + (size_t)(line * a->n + i) * attn_row_bytes(p->d_v, c->v_given);
    char *code = c->evicts ? c->code + (size_t)line * k_bytes : NULL;
    if (code) {
      attn_convert(k, c->k_given, p->d_qk, attn_stored(p->k, p->dtype), code);
      arrive(c, a, line, i, code);
    }
    const int64_t at = code ? c->head[line].count - 1 : c->held[batch] + i;
    void *k_row = kv_row(c, KV_KEYS, line, at), *v_row = kv_row(c, KV_VALUES, line, at),
         *wide = kv_row(c, KV_WIDE_VALUES, line, at);
    if (code)
      memcpy(k_row, code, k_bytes);
    else
      attn_convert(k, c->k_given, p->d_qk, attn_stored(p->k, p->dtype), k_row);
    attn_convert(v, c->v_given, p->d_v, attn_stored(p->v, p->dtype), v_row);
    if (wide) attn_convert(v_row, attn_stored(p->v, p->dtype), p->d_v, ATTN_F64, wide);
  }
}

attn_status attn_kv_cache_append(attn_kv_cache *c, int64_t n, const int64_t *length, const void *q,
                                 const void *k, const void *v) {
  const arrivals a = {n, length, q, k, v};
  if (!c) return attn_null("cache", "cache");
  attn_status status = check_arrivals(c, &a);
  int64_t most = 0;
  for (int64_t b = 0; !status && b < c->problem.batch; b++)
    most = attn_max(most, attn_min(c->held[b] + arriving(&a, b), c->most));
  if (!status) status = kv_grow(c, most);
  if (!status) status = attn_threads_enter(c->options.threads);
  if (status) return status;
#pragma omp parallel for num_threads(c->options.threads) schedule(dynamic, 1)
  for (int64_t line = 0; line < kv_lines(c); line++) {
    fenv_t outer;
    attn_float_enter(&outer);
    take_line(c, &a, line);
    attn_float_leave(&outer);
  }
  for (int64_t b = 0; b < c->problem.batch; b++) {
    c->length[b] += arriving(&a, b);
    c->held[b] = c->evicts ? c->head[b * c->problem.kv_heads].count : c->length[b];
  }
  return ATTN_OK;
}

/* ---- attention --------------------------------------------------------------------------------------- */

static attn_status make_plan(attn_kv_cache *c, int64_t n) {
  attn_problem p = c->problem;
  const int64_t d_qk = attn_row_elements(p.d_qk, attn_stored(p.k, p.dtype)),
                d_v = attn_row_elements(p.d_v, attn_stored(p.v, p.dtype));
  p.n_q = n;
  p.q = (attn_stride){.stored = p.q.stored};
  p.o = (attn_stride){.stored = p.o.stored};
  p.k = (attn_stride){p.kv_heads * c->rows * d_qk, c->rows * d_qk, d_qk, p.k.stored};
  p.v = (attn_stride){p.kv_heads * c->rows * d_v, c->rows * d_v, d_v, p.v.stored};
  attn_plan *plan = NULL;
  attn_status status = attn_plan_create_spec(&plan, &p, c->reader, &c->options);
  if (status) return status;
  kv_drop_plan(c);
  c->work = kv_take(c, 1, attn_plan_work_size(plan) + 1);
  if (!c->work) {
    attn_plan_destroy(plan);
    return ATTN_ENOMEM;
  }
  c->plan = plan;
  c->bytes += attn_plan_bytes(plan);
  return ATTN_OK;
}

static attn_status check_queries(attn_kv_cache *c, int64_t n) {
  if (n < 1) return attn_fail(ATTN_EINVAL, "cache: %lld queries", (long long)n);
  for (int64_t b = 0; b < c->problem.batch; b++) {
    c->first[b] = c->length[b] - n;
    if (c->first[b] < 0)
      return attn_fail(ATTN_EINVAL, "cache: %lld queries of batch entry %lld, which has %lld positions",
                       (long long)n, (long long)b, (long long)c->length[b]);
    if (c->first[b] < c->went[b])
      return attn_fail(ATTN_EUNSUPPORTED,
                       "cache: a query at position %lld of batch entry %lld, which saw keys that went when "
                       "position %lld arrived",
                       (long long)c->first[b], (long long)b, (long long)c->went[b]);
  }
  return ATTN_OK;
}

attn_status attn_kv_cache_attend(attn_kv_cache *c, int64_t n, const void *q, void *o, double *lse) {
  if (!c) return attn_null("cache", "cache");
  attn_status status = check_queries(c, n);
  if (!status && (!c->plan || attn_plan_problem(c->plan)->n_q != n)) status = make_plan(c, n);
  if (status) return status;
  const attn_key_positions at = {c->field[KV_POSITIONS].at, c->problem.kv_heads * c->rows, c->rows};
  return attn_plan_run(c->plan,
                       &(attn_tensors){.q = q,
                                       .k = c->field[KV_KEYS].at,
                                       .v = c->field[KV_VALUES].at,
                                       .kv_len = c->held,
                                       .q_position = c->first,
                                       .k_position = c->evicts ? at : (attn_key_positions){.at = NULL},
                                       .o = o,
                                       .lse = lse,
                                       .work = c->work});
}

/* ---- going back, copying ---------------------------------------------------------------------- */

attn_status attn_kv_cache_truncate(attn_kv_cache *c, const int64_t *length) {
  if (!c) return attn_null("cache", "cache");
  if (!length) return attn_null("cache", "length");
  for (int64_t b = 0; b < c->problem.batch; b++) {
    if (length[b] < 0 || length[b] > c->length[b])
      return attn_fail(ATTN_EINVAL, "cache: length[%lld] = %lld, expected 0 ... %lld", (long long)b,
                       (long long)length[b], (long long)c->length[b]);
    if (length[b] < c->length[b] && c->evicts && (attn_kv_observes(c->rule.score) || c->went[b] >= length[b]))
      return attn_fail(ATTN_EUNSUPPORTED, "cache: batch entry %lld cannot go back to %lld positions: %s",
                       (long long)b, (long long)length[b],
                       c->went[b] >= length[b] ? "a key went since" : "queries were looked at since");
  }
  for (int64_t b = 0; b < c->problem.batch; b++) {
    c->held[b] -= c->length[b] - length[b];
    c->length[b] = length[b];
    for (int64_t h = 0; c->evicts && h < c->problem.kv_heads; h++)
      c->head[b * c->problem.kv_heads + h].count = c->held[b];
  }
  return ATTN_OK;
}

attn_status attn_kv_cache_copy(const attn_kv_cache *from, attn_kv_cache **out) {
  if (!from) return attn_null("cache", "cache");
  if (!out) return attn_null("cache", "copy");
  *out = NULL;
  attn_kv_cache c = {.allocator = from->allocator,
                     .options = from->options,
                     .problem = from->problem,
                     .k_given = from->k_given,
                     .v_given = from->v_given,
                     .reader = attn_spec_share(from->reader),
                     .evicts = from->evicts,
                     .rule = from->rule,
                     .most = from->most,
                     .arrays.allocator = from->allocator};
  const int64_t count = c.problem.kv_heads * c.problem.d_qk;
  double *own = c.rule.filters ? attn_arena_alloc(&c.arrays, count, sizeof *own) : NULL;
  if (own) memcpy(own, c.rule.filters, (size_t)count * sizeof *own);
  c.rule.filters = own;
  const attn_status status = make(&c, from->rule.filters && !own ? ATTN_ENOMEM : ATTN_OK, from->rows, out);
  if (!status) kv_copy(from, *out);
  return status;
}
