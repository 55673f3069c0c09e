/* kv_cache.c - the cache of keys and values (attn_kv_cache.h): making it of a spec, attention to what is
 * held by a plan for n_kv positions that is told where queries and keys stand, and the way back. */
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
  const attn_selector *s = v ? v->selector : NULL;
  return v && !attn_exempt(v->exempt, others) &&
         !(s && (s->weighted || s->least > 0 || s->share == ATTN_SHARE_TILE));
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
    if (!status && parts.latent.rank)
      return attn_fail(ATTN_EUNSUPPORTED, "cache: latents are held as numbers, not in the types of a store");
  }
  if (status) return status;
  c->most = c->problem.n_kv;
  if (parts.latent.rank) return kv_latents_take(c, &parts.latent);
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
  if (!(c.allocator.alloc && c.allocator.release))
    return attn_null("options", c.allocator.alloc ? "allocator.release" : "allocator.alloc");
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
  if (!status && c.problem.score.dense.at)
    status = attn_fail(ATTN_EUNSUPPORTED, "cache: score.dense, whose rows are the queries of one call");
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

/* ---- attention --------------------------------------------------------------------------------------- */

static attn_status make_plan(attn_kv_cache *c, int64_t n) {
  attn_problem p = c->problem;
  const int64_t d_qk = attn_row_elements(p.d_qk, attn_stored(p.k, p.dtype)),
                d_v = attn_row_elements(p.d_v, attn_stored(p.v, p.dtype));
  p.n_q = n;
  if (kv_ragged(c)) p.n_kv += c->most; /* where rows stand that are no keys */
  p.q = (attn_stride){.stored = p.q.stored};
  p.o = (attn_stride){.stored = p.o.stored};
  p.k = (attn_stride){p.kv_heads * c->rows * d_qk, c->rows * d_qk, d_qk, p.k.stored};
  p.v = (attn_stride){p.kv_heads * c->rows * d_v, c->rows * d_v, d_v, p.v.stored};
  if (c->latents.law.rank) p.v = p.k;
  attn_plan *plan = NULL;
  attn_status status = attn_plan_create_spec(&plan, &p, c->reader, &c->options);
  if (status) return status;
  kv_drop_plan(c);
  c->work = kv_take(c, 1, kv_work_bytes(c, plan));
  if (!c->work) {
    attn_plan_destroy(plan);
    return ATTN_ENOMEM;
  }
  c->plan = plan;
  c->bytes += attn_plan_bytes(plan);
  return ATTN_OK;
}

static int64_t last_gone(const attn_kv_cache *c, int64_t batch) {
  int64_t last = -1;
  for (int64_t h = 0; h < c->problem.kv_heads; h++)
    last = attn_max(last, c->went[batch * c->problem.kv_heads + h]);
  return last;
}

/* The plan reads as many rows of each kv head: those that are no keys stand after all queries. */
static void place_rest(attn_kv_cache *c) {
  for (int64_t line = 0; line < kv_lines(c); line++) {
    const int64_t batch = line / c->problem.kv_heads, count = kv_count(c, line);
    int64_t *position = kv_row(c, KV_POSITIONS, line, 0);
    for (int64_t j = count; j < c->held[batch]; j++) position[j] = c->length[batch] + j - count;
  }
}

static attn_status check_queries(attn_kv_cache *c, int64_t n) {
  if (n < 1) return attn_fail(ATTN_EINVAL, "cache: %lld queries", (long long)n);
  for (int64_t b = 0; b < c->problem.batch; b++) {
    c->first[b] = c->length[b] - n;
    if (c->first[b] < 0)
      return attn_fail(ATTN_EINVAL, "cache: %lld queries of batch entry %lld, which has %lld positions",
                       (long long)n, (long long)b, (long long)c->length[b]);
    if (c->first[b] < last_gone(c, b))
      return attn_fail(ATTN_EUNSUPPORTED,
                       "cache: a query at position %lld of batch entry %lld, which saw keys that went when "
                       "position %lld arrived",
                       (long long)c->first[b], (long long)b, (long long)last_gone(c, b));
  }
  return ATTN_OK;
}

attn_status kv_plan(attn_kv_cache *c, int64_t n) {
  return c->plan && attn_plan_problem(c->plan)->n_q == n ? ATTN_OK : make_plan(c, n);
}

attn_status kv_run(attn_kv_cache *c, const void *q, void *o, double *lse) {
  const attn_key_positions at = {c->field[KV_POSITIONS].at, c->problem.kv_heads * c->rows, c->rows};
  return attn_plan_run(
      c->plan,
      &(attn_tensors){.q = q,
                      .k = c->field[KV_KEYS].at,
                      .v = c->field[c->latents.law.rank ? KV_KEYS : KV_VALUES].at,
                      .kv_len = c->held,
                      .q_position = c->first,
                      .k_position = c->evicts ? at : (attn_key_positions){.at = NULL},
                      .o = o,
                      .lse = lse,
                      .work = (char *)c->work + kv_latents_work(c, attn_plan_problem(c->plan)->n_q)});
}

attn_status attn_kv_cache_attend(attn_kv_cache *c, int64_t n, const void *q, void *o, double *lse) {
  if (!c) return attn_null("cache", "cache");
  attn_status status = check_queries(c, n);
  if (!status && c->latents.law.rank) return kv_latents_attend(c, n, q, o, lse);
  if (!status) status = kv_plan(c, n);
  if (status) return status;
  place_rest(c);
  return kv_run(c, q, o, lse);
}

/* ---- going back, copying ---------------------------------------------------------------------- */

attn_status attn_kv_cache_truncate(attn_kv_cache *c, const int64_t *length) {
  if (!c) return attn_null("cache", "cache");
  if (!length) return attn_null("cache", "length");
  for (int64_t b = 0; b < c->problem.batch; b++) {
    if (length[b] < 0 || length[b] > c->length[b])
      return attn_fail(ATTN_EINVAL, "cache: length[%lld] = %lld, expected 0 ... %lld", (long long)b,
                       (long long)length[b], (long long)c->length[b]);
    const int64_t gone = last_gone(c, b);
    const bool observes = c->evicts && attn_kv_observes(c->rule.score);
    if (length[b] < c->length[b] && (observes || gone >= length[b]))
      return attn_fail(ATTN_EUNSUPPORTED, "cache: batch entry %lld cannot go back to %lld positions: %s",
                       (long long)b, (long long)length[b],
                       gone >= length[b] ? "a key went since" : "queries were looked at since");
  }
  if (c->latents.law.rank) return kv_latents_truncate(c, length);
  for (int64_t line = 0; line < kv_lines(c) && c->evicts; line++) {
    const int64_t b = line / c->problem.kv_heads;
    c->head[line].count -= c->length[b] - length[b];
  }
  for (int64_t b = 0; b < c->problem.batch; b++) c->length[b] = length[b];
  kv_count_held(c);
  return ATTN_OK;
}

attn_status attn_kv_cache_copy(const attn_kv_cache *from, attn_kv_cache **out) {
  if (!from) return attn_null("cache", "cache");
  if (!out) return attn_null("cache", "copy");
  *out = NULL;
  attn_kv_cache c = {.allocator = from->allocator,
                     .options = from->options,
                     .problem = from->problem,
                     .latents = {.law = from->latents.law, .given = from->latents.given},
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
  attn_status status = make(&c, from->rule.filters && !own ? ATTN_ENOMEM : ATTN_OK, from->rows, out);
  if (!status) kv_copy(from, *out);
  if (!status && from->latents.law.rank) status = kv_latents_copy(from, *out);
  if (!status) return ATTN_OK;
  attn_kv_cache_destroy(*out);
  *out = NULL;
  return status;
}
