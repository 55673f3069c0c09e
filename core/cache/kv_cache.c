/* kv_cache.c - the cache of keys and values (attn_kv_cache.h): storage, what arrives and goes, and
 * attention to what is held by a plan for n_kv positions that is told where queries and keys stand. */
#include "core/internal.h"

#include <string.h>

#include "core/cache/attn_kv_cache.h"

enum { FIRST_ROWS = 64 };

struct attn_kv_cache {
  attn_allocator allocator;
  attn_options options;
  attn_problem problem; /* resolved; k.stored and v.stored as the cache holds them */
  attn_dtype k_given, v_given;
  attn_arena arrays; /* that its score and mask point to */
  attn_spec *reader;
  bool evicts;
  attn_kv_rule rule;
  int64_t most, rows;             /* keys that a kv head may hold, and for how many there is room */
  char *k, *v;                    /* [batch, kv_heads, rows, d] */
  double *wide, *wide_v;          /* keys and values again in fp64, where scores or queries read them */
  int64_t *position;              /* [batch, kv_heads, rows], where keys go */
  attn_kv_head *head;             /* [batch, kv_heads], where keys go */
  char *state;                    /* of these */
  size_t state_bytes;             /* of one */
  int64_t *length, *held, *first; /* [batch]: positions; held keys; positions of queries of the next call */
  int64_t *went;                  /* [batch]: the last position for which a key went */
  char *code;                     /* where keys go, of each head the row of an arriving key as it is held */
  double *row;                    /* [heads / kv_heads + 1, d_qk] */
  attn_plan *plan;
  void *work;
  size_t bytes;
};

/* ---- memory ------------------------------------------------------------------------------------------ */

static void *take(attn_kv_cache *c, int64_t count, size_t size) {
  size_t bytes = 0;
  if (attn_size_product("a cache's memory", (int64_t[]){count, (int64_t)size}, 2, &bytes)) return NULL;
  void *at = c->allocator.alloc(c->allocator.context, bytes);
  if (!at) attn_fail(ATTN_ENOMEM, "cache: no memory for %zu bytes", bytes);
  if (at) c->bytes += bytes;
  return at;
}

static void give(attn_kv_cache *c, void *at, int64_t count, size_t size) {
  if (!at) return;
  c->allocator.release(c->allocator.context, at, (size_t)count * size);
  c->bytes -= (size_t)count * size;
}

static int64_t lines(const attn_kv_cache *c) { return c->problem.batch * c->problem.kv_heads; }
static size_t k_bytes(const attn_kv_cache *c) {
  return attn_row_bytes(c->problem.d_qk, attn_stored(c->problem.k, c->problem.dtype));
}
static size_t v_bytes(const attn_kv_cache *c) {
  return attn_row_bytes(c->problem.d_v, attn_stored(c->problem.v, c->problem.dtype));
}
static size_t wide_bytes(const attn_kv_cache *c) {
  return c->evicts && !c->rule.score->fixed ? (size_t)c->problem.d_qk * sizeof(double) : 0;
}
static size_t wide_v_bytes(const attn_kv_cache *c) {
  return c->evicts && c->rule.score->values ? (size_t)c->problem.d_v * sizeof(double) : 0;
}

static void drop_plan(attn_kv_cache *c) {
  if (!c->plan) return;
  give(c, c->work, 1, attn_plan_work_size(c->plan) + 1);
  c->bytes -= attn_plan_bytes(c->plan);
  attn_plan_destroy(c->plan);
  c->plan = NULL;
  c->work = NULL;
}

static void give_rows(attn_kv_cache *c) {
  give(c, c->k, lines(c) * c->rows, k_bytes(c));
  give(c, c->v, lines(c) * c->rows, v_bytes(c));
  give(c, c->wide, lines(c) * c->rows, wide_bytes(c));
  give(c, c->wide_v, lines(c) * c->rows, wide_v_bytes(c));
  give(c, c->position, lines(c) * c->rows, sizeof(int64_t));
}

static void free_all(attn_kv_cache *c) {
  const int64_t row =
      c->evicts ? lines(c) * (c->problem.heads / c->problem.kv_heads + 1) * c->problem.d_qk : 0;
  drop_plan(c);
  give_rows(c);
  give(c, c->length, 4 * c->problem.batch, sizeof(int64_t));
  give(c, c->head, lines(c), sizeof *c->head);
  give(c, c->state, lines(c), c->state_bytes);
  give(c, c->row, row, sizeof *c->row);
  give(c, c->code, lines(c), k_bytes(c));
  attn_spec_destroy(c->reader);
  attn_arena_free(&c->arrays);
}

/* Moves rows of all heads from one room to a larger one. */
static void move_rows(const attn_kv_cache *c, const void *from, int64_t from_rows, void *to, int64_t to_rows,
                      size_t bytes) {
  for (int64_t line = 0; line < lines(c) && from; line++)
    memcpy((char *)to + (size_t)(line * to_rows) * bytes,
           (const char *)from + (size_t)(line * from_rows) * bytes,
           (size_t)c->held[line / c->problem.kv_heads] * bytes);
}

/* Room for that many keys of each head; the cache is as it was where there is no memory. */
static attn_status grow(attn_kv_cache *c, int64_t wanted) {
  int64_t rows = c->rows ? c->rows : FIRST_ROWS;
  while (rows < wanted) rows *= 2;
  rows = attn_min(rows, c->most);
  if (rows <= c->rows) return ATTN_OK;
  attn_kv_cache larger = *c;
  larger.rows = rows;
  larger.k = take(&larger, lines(c) * rows, k_bytes(c));
  larger.v = larger.k ? take(&larger, lines(c) * rows, v_bytes(c)) : NULL;
  larger.wide = larger.v && wide_bytes(c) ? take(&larger, lines(c) * rows, wide_bytes(c)) : NULL;
  larger.wide_v = larger.v && wide_v_bytes(c) ? take(&larger, lines(c) * rows, wide_v_bytes(c)) : NULL;
  larger.position = larger.v && c->evicts ? take(&larger, lines(c) * rows, sizeof(int64_t)) : NULL;
  if (!larger.v || (wide_bytes(c) && !larger.wide) || (wide_v_bytes(c) && !larger.wide_v) ||
      (c->evicts && !larger.position)) {
    give_rows(&larger);
    return ATTN_ENOMEM;
  }
  move_rows(c, c->k, c->rows, larger.k, rows, k_bytes(c));
  move_rows(c, c->v, c->rows, larger.v, rows, v_bytes(c));
  move_rows(c, c->wide, c->rows, larger.wide, rows, wide_bytes(c));
  move_rows(c, c->wide_v, c->rows, larger.wide_v, rows, wide_v_bytes(c));
  move_rows(c, c->position, c->rows, larger.position, rows, sizeof(int64_t));
  c->bytes = larger.bytes;
  give_rows(c);
  larger.bytes = c->bytes;
  *c = larger;
  for (int64_t line = 0; line < lines(c) && c->evicts; line++)
    c->head[line].position = c->position + line * rows;
  drop_plan(c);
  return ATTN_OK;
}

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
  const attn_problem whole = c->problem;
  if (!parts.cache.score &&
      (parts.caps & (ATTN_CAP_POSITIONS | ATTN_CAP_PADDING)) != (ATTN_CAP_POSITIONS | ATTN_CAP_PADDING))
    return attn_fail(ATTN_EUNSUPPORTED, "cache: %s takes no positions of queries, and cannot read a cache",
                     c->reader->text);
  c->most = whole.n_kv;
  if (!parts.cache.score) return ATTN_OK;
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
  c->most = attn_min(whole.n_kv, attn_max(c->rule.budget, c->rule.prompt));
  attn_spec_destroy(c->reader);
  c->reader = NULL;
  return attn_spec_parse(&c->reader, "tiled");
}

static int64_t group_of(const attn_kv_cache *c) { return c->problem.heads / c->problem.kv_heads; }

/* Copies what a plan would copy, since plans are made later. */
static attn_status keep_arrays(attn_kv_cache *c) {
  attn_status status = attn_score_check_arrays(&c->problem);
  if (!status) status = attn_score_keep(&c->problem, &c->arrays);
  c->bytes += c->arrays.bytes;
  return status;
}

static attn_status make_state(attn_kv_cache *c) {
  const int64_t batch = c->problem.batch;
  c->length = take(c, 4 * batch, sizeof(int64_t));
  if (!c->length) return ATTN_ENOMEM;
  c->held = c->length + batch;
  c->first = c->held + batch;
  c->went = c->first + batch;
  for (int64_t b = 0; b < batch; b++) c->length[b] = c->held[b] = 0;
  for (int64_t b = 0; b < batch; b++) c->went[b] = -1;
  if (!c->evicts) return ATTN_OK;
  c->state_bytes = (attn_kv_head_bytes(&c->rule, &c->problem, c->most) + 63) / 64 * 64;
  if (!(c->head = take(c, lines(c), sizeof *c->head))) return ATTN_ENOMEM;
  if (!(c->state = take(c, lines(c), c->state_bytes))) return ATTN_ENOMEM;
  c->row = take(c, lines(c) * (group_of(c) + 1) * c->problem.d_qk, sizeof *c->row);
  if (!c->row || !(c->code = take(c, lines(c), k_bytes(c)))) return ATTN_ENOMEM;
  for (int64_t line = 0; line < lines(c); line++)
    attn_kv_head_begin(&c->head[line], &c->rule, &c->problem, line % c->problem.kv_heads, c->most, false,
                       NULL, c->state + (size_t)line * c->state_bytes);
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
  if (!status) status = keep_arrays(&c);
  if (!status) status = make_state(&c);
  attn_kv_cache *made = status ? NULL : take(&c, 1, sizeof *made);
  if (!status && !made) status = ATTN_ENOMEM;
  if (status) {
    free_all(&c);
    return status;
  }
  *made = c;
  made->options.allocator = &made->allocator;
  *out = made;
  return ATTN_OK;
}

void attn_kv_cache_destroy(attn_kv_cache *c) {
  if (!c) return;
  attn_kv_cache own = *c;
  own.allocator.release(own.allocator.context, c, sizeof *c);
  free_all(&own);
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

/* Closes the gaps that keys leave in rows of `bytes` bytes. */
static void close_gaps(void *rows, size_t bytes, int64_t count, const int64_t *gone, int64_t n) {
  char *at = rows;
  for (int64_t g = 0; g < n; g++) {
    const int64_t end = g + 1 < n ? gone[g + 1] : count;
    memmove(at + (size_t)(gone[g] - g) * bytes, at + (size_t)(gone[g] + 1) * bytes,
            (size_t)(end - gone[g] - 1) * bytes);
  }
}

/* Where the rows of a head begin. */
static char *rows_of(const attn_kv_cache *c, void *base, int64_t line, size_t bytes) {
  return (char *)base + (size_t)(line * c->rows) * bytes;
}

/* One key, as it is held, arrives in a head under a rule; others may go. */
static void arrive(attn_kv_cache *c, const arrivals *a, int64_t line, int64_t i, const char *k) {
  const attn_problem *p = &c->problem;
  const int64_t batch = line / p->kv_heads, d = p->d_qk, group = group_of(c), position = c->length[batch] + i;
  const size_t q_bytes = (size_t)d * attn_dtype_size(attn_stored(p->q, p->dtype));
  double *own = c->row + line * (group + 1) * d, *wide = c->wide ? c->wide + line * c->rows * d : NULL,
         *wide_v = c->wide_v ? c->wide_v + line * c->rows * p->d_v : NULL;
  attn_kv_head *h = &c->head[line];
  const int64_t before = h->count;
  attn_convert(k, attn_stored(p->k, p->dtype), d, ATTN_F64, own);
  h->values = wide_v;
  const int64_t gone = attn_kv_arrive(h, position, wide, own);
  if (gone) {
    close_gaps(rows_of(c, c->k, line, k_bytes(c)), k_bytes(c), before, h->gone, gone);
    close_gaps(rows_of(c, c->v, line, v_bytes(c)), v_bytes(c), before, h->gone, gone);
    if (wide) close_gaps(wide, wide_bytes(c), before, h->gone, gone);
    if (wide_v) close_gaps(wide_v, wide_v_bytes(c), before, h->gone, gone);
    if (line % p->kv_heads == 0) c->went[batch] = position;
  }
  if (wide) memcpy(wide + (h->count - 1) * d, own, wide_bytes(c));
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
  for (int64_t i = 0; i < arriving(a, batch); i++) {
    const char *k = a->k + (size_t)(line * a->n + i) * attn_row_bytes(p->d_qk, c->k_given),
               *v = a->v + (size_t)(line * a->n + i) * attn_row_bytes(p->d_v, c->v_given);
    char *code = c->evicts ? c->code + (size_t)line * k_bytes(c) : NULL;
    if (code) {
      attn_convert(k, c->k_given, p->d_qk, attn_stored(p->k, p->dtype), code);
      arrive(c, a, line, i, code);
    }
    const int64_t at = code ? c->head[line].count - 1 : c->held[batch] + i;
    char *k_row = rows_of(c, c->k, line, k_bytes(c)) + (size_t)at * k_bytes(c),
         *v_row = rows_of(c, c->v, line, v_bytes(c)) + (size_t)at * v_bytes(c);
    if (code)
      memcpy(k_row, code, k_bytes(c));
    else
      attn_convert(k, c->k_given, p->d_qk, attn_stored(p->k, p->dtype), k_row);
    attn_convert(v, c->v_given, p->d_v, attn_stored(p->v, p->dtype), v_row);
    if (c->wide_v)
      attn_convert(v_row, attn_stored(p->v, p->dtype), p->d_v, ATTN_F64,
                   c->wide_v + (line * c->rows + at) * p->d_v);
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
  if (!status) status = grow(c, most);
  if (!status) status = attn_threads_enter(c->options.threads);
  if (status) return status;
#pragma omp parallel for num_threads(c->options.threads) schedule(dynamic, 1)
  for (int64_t line = 0; line < lines(c); line++) {
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
  drop_plan(c);
  c->work = take(c, 1, attn_plan_work_size(plan) + 1);
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
  const attn_key_positions at = {c->position, c->problem.kv_heads * c->rows, c->rows};
  return attn_plan_run(c->plan,
                       &(attn_tensors){.q = q,
                                       .k = c->k,
                                       .v = c->v,
                                       .kv_len = c->held,
                                       .q_position = c->first,
                                       .k_position = c->evicts ? at : (attn_key_positions){.at = NULL},
                                       .o = o,
                                       .lse = lse,
                                       .work = c->work});
}

/* ---- looking, going back, copying ---------------------------------------------------------------------- */

attn_status attn_kv_cache_look(const attn_kv_cache *c, int64_t batch, int64_t kv_head,
                               attn_kv_cache_view *out) {
  if (!c) return attn_null("cache", "cache");
  if (!out) return attn_null("cache", "view");
  if (batch < 0 || batch >= c->problem.batch || kv_head < 0 || kv_head >= c->problem.kv_heads)
    return attn_fail(ATTN_EINVAL, "cache: no kv head %lld of batch entry %lld", (long long)kv_head,
                     (long long)batch);
  *out = (attn_kv_cache_view){
      .length = c->length[batch],
      .held = c->held[batch],
      .position = c->position ? c->position + (batch * c->problem.kv_heads + kv_head) * c->rows : NULL};
  return ATTN_OK;
}

size_t attn_kv_cache_bytes(const attn_kv_cache *c) { return c ? c->bytes : 0; }

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

static void copy_state(const attn_kv_cache *from, attn_kv_cache *to) {
  const size_t rows = (size_t)(lines(to) * to->rows);
  memcpy(to->length, from->length, 4 * (size_t)to->problem.batch * sizeof *to->length);
  if (rows) memcpy(to->k, from->k, rows * k_bytes(to));
  if (rows) memcpy(to->v, from->v, rows * v_bytes(to));
  if (to->wide) memcpy(to->wide, from->wide, rows * wide_bytes(to));
  if (to->wide_v) memcpy(to->wide_v, from->wide_v, rows * wide_v_bytes(to));
  if (to->position) memcpy(to->position, from->position, rows * sizeof *to->position);
  if (!to->evicts) return;
  memcpy(to->state, from->state, (size_t)lines(to) * to->state_bytes);
  for (int64_t line = 0; line < lines(to); line++) {
    to->head[line].count = from->head[line].count;
    to->head[line].queries = from->head[line].queries;
    to->head[line].newest = from->head[line].newest;
  }
}

/* Those of the cache that is copied, for its own. */
static attn_status copy_filters(attn_kv_cache *c) {
  const int64_t count = c->problem.kv_heads * c->problem.d_qk;
  if (!c->rule.filters) return ATTN_OK;
  double *own = attn_arena_alloc(&c->arrays, count, sizeof *own);
  if (own) memcpy(own, c->rule.filters, (size_t)count * sizeof *own);
  c->rule.filters = own;
  return own ? ATTN_OK : ATTN_ENOMEM;
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
                     .most = from->most};
  c.arrays.allocator = c.allocator;
  attn_status status = copy_filters(&c);
  if (!status) status = keep_arrays(&c);
  if (!status) status = make_state(&c);
  if (!status && from->rows) status = grow(&c, from->rows);
  attn_kv_cache *made = status ? NULL : take(&c, 1, sizeof *made);
  if (!made) {
    free_all(&c);
    return status ? status : ATTN_ENOMEM;
  }
  copy_state(from, &c);
  *made = c;
  made->options.allocator = &made->allocator;
  *out = made;
  return ATTN_OK;
}
