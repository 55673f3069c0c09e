/* pooled - the last keys one by one, and means of blocks of all keys, in one softmax.
 *
 * Entry b stands for keys b block - overlap ... b block + block - 1: its key and its value are the means of
 * theirs. A query sees the last `window` keys, its own among them, and the entries whose last key is its own
 * or comes before it; the sink of the problem is one more term. whole=yes leaves out the first entries, of
 * fewer keys. With block=128, window=128 it is the heavily compressed attention of DeepSeek-V4 (HCA), with
 * block=4, overlap=4 the entries of its sparse attention (CSA), of which that keeps the best by an index;
 * known from implementations alone. With window=0 a query sees only entries, as the compressed branch of nsa
 * does. Deviation: there the weights of a mean are learned, here they are equal.
 *
 * Both parts are softmaxes by themselves, joined by their log-sum-exps; the entries stand at their last keys.
 * Cost O(n (window + n / block) d). Bound: POOL-1. */
#include "attn_variant.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>

typedef struct params {
  int64_t block, overlap, window;
  int whole;
} params;

static const char *const answers[] = {"no", "yes", NULL};

static const attn_param table[] = {
    {"block", ATTN_INT, offsetof(params, block), 1, 1 << 20, "128", NULL, "keys of an entry"},
    {"overlap", ATTN_INT, offsetof(params, overlap), 0, 1 << 20, "0", NULL,
     "keys before its block that an entry is a mean of, too"},
    {"window", ATTN_INT, offsetof(params, window), 0, 1 << 30, "128", NULL,
     "keys up to the query's own that it sees one by one; 0: none"},
    {"whole", ATTN_CHOICE, offsetof(params, whole), 0, 1, "no", answers,
     "leave out the first entries, of fewer keys than block and overlap"},
    {.name = NULL},
};

enum { LAST, ENTRIES, PARTS };
typedef struct state {
  params p;
  const attn_plan *plans[PARTS];
  int64_t *positions; /* of entries */
} state;

static attn_status applicable(const attn_context *c) {
  const attn_score *s = &c->problem->score;
  if (!c->problem->causal)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "variant pooled: only causal attention, its window ends at the query");
  return s->relative || s->dense.at
             ? attn_fail(ATTN_EUNSUPPORTED, "variant pooled: no bias is known of a mean of keys")
             : ATTN_OK;
}

static int64_t first_entry(const params *x) { return x->whole ? (x->overlap + x->block - 1) / x->block : 0; }

static int64_t entries_of(const attn_context *c, int64_t keys) {
  const params *x = c->params;
  const int64_t entries = keys / x->block - first_entry(x);
  return entries > 0 ? entries : 0;
}

static int first_part(const attn_context *c) { return ((const params *)c->params)->window ? LAST : ENTRIES; }

/* One part has the sink. */
static attn_problem problem_of(const attn_context *c, int part) {
  attn_problem own = *c->problem;
  const int64_t entries = entries_of(c, own.n_kv);
  own.o = (attn_stride){.batch = 0};
  if (part == LAST) return own;
  own.k = (attn_stride){own.kv_heads * entries * own.d_qk, entries * own.d_qk, own.d_qk, 0};
  own.v = (attn_stride){own.kv_heads * entries * own.d_v, entries * own.d_v, own.d_v, 0};
  if (first_part(c) == LAST) own.score.sink = NULL;
  return own;
}

static const char *spec_of(const attn_context *c, int part, char spec[64]) {
  const params *x = c->params;
  snprintf(spec, 64, part == LAST ? "streaming:sink=0,window=%lld" : "tiled", (long long)x->window);
  return spec;
}

typedef struct layout {
  void *o[PARTS], *k, *v, *work; /* outputs [batch, heads, n_q, d_v] */
  double *lse[PARTS];
  int64_t *lengths; /* entries of each batch entry */
  attn_slices sums; /* of each thread, [d] */
} layout;

static layout lay_out(const attn_context *c, size_t work, attn_carver *carver) {
  const attn_problem *p = c->problem;
  const size_t size = attn_dtype_size(p->dtype);
  const int64_t rows = p->batch * p->heads * p->n_q, lines = p->batch * p->kv_heads,
                entries = entries_of(c, p->n_kv), d = p->d_qk > p->d_v ? p->d_qk : p->d_v;
  layout l;
  for (int part = 0; part < PARTS; part++) {
    const int64_t own = part < first_part(c) ? 0 : rows;
    l.o[part] = attn_carve(carver, own, p->d_v, size);
    l.lse[part] = attn_carve(carver, own, 1, sizeof(double));
  }
  l.k = attn_carve(carver, lines * entries, p->d_qk, size);
  l.v = attn_carve(carver, lines * entries, p->d_v, size);
  l.lengths = attn_carve(carver, p->batch, 1, sizeof(int64_t));
  l.sums = attn_carve_slices(carver, c->threads, (size_t)d * sizeof(double));
  l.work = attn_carve(carver, 1, 1, work);
  return l;
}

static attn_status work_size(const attn_context *c, const attn_parts *parts, size_t *bytes) {
  attn_carver counter = attn_carver_count(c);
  attn_status status = ATTN_OK;
  size_t most = 0, own = 0;
  char spec[64];
  (void)parts;
  for (int part = first_part(c); part < PARTS && !status; part++) {
    const attn_problem p = problem_of(c, part);
    status = attn_context_estimate(c, &p, spec_of(c, part, spec), &own, NULL);
    if (own > most) most = own;
  }
  lay_out(c, most, &counter);
  *bytes = counter.used;
  return status;
}

static attn_status plan(attn_builder *b, const attn_parts *parts, void **out) {
  const attn_context *c = attn_builder_context(b);
  const int64_t entries = entries_of(c, c->problem->n_kv);
  char spec[64];
  state *s = attn_builder_alloc(b, 1, sizeof *s);
  if (!s) return ATTN_ENOMEM;
  *s = (state){.p = *(const params *)c->params};
  *out = s;
  (void)parts;
  if (!(s->positions = attn_builder_alloc(b, entries + 1, sizeof(int64_t)))) return ATTN_ENOMEM;
  for (int64_t e = 0; e < entries; e++) s->positions[e] = (e + first_entry(&s->p) + 1) * s->p.block - 1;
  attn_status status = ATTN_OK;
  for (int part = first_part(c); part < PARTS && !status; part++) {
    const attn_problem p = problem_of(c, part);
    status = attn_builder_plan(b, &p, spec_of(c, part, spec), &s->plans[part]);
  }
  return status;
}

/* The mean of rows first ... end - 1 of a head of keys or values. */
static void average(const attn_problem *p, const void *x, attn_stride at, int64_t first, int64_t end,
                    int64_t d, double *sums, void *to) {
  for (int64_t l = 0; l < d; l++) sums[l] = 0;
  attn_numbers[attn_stored(at, p->dtype)].add(attn_row_behind(x, at, first, p->dtype), at.row, end - first, d,
                                              sums);
  for (int64_t l = 0; l < d; l++) attn_set(to, l, p->dtype, sums[l] / (double)(end - first));
}

static void make_entries(const state *s, const attn_call *call, const layout *l) {
  const attn_problem *p = call->context->problem;
  const int64_t entries = entries_of(call->context, p->n_kv);
#pragma omp parallel for num_threads(call->context->threads) schedule(static)
  for (int64_t at = 0; at < p->batch * p->kv_heads * entries; at++) {
    const int64_t line = at / entries, batch = line / p->kv_heads, head = line % p->kv_heads,
                  block = (at % entries + first_entry(&s->p)) * s->p.block, end = block + s->p.block,
                  first = block > s->p.overlap ? block - s->p.overlap : 0;
    double *sums = attn_slice(l->sums, omp_get_thread_num());
    fenv_t outer;
    if (end > attn_call_keys(call, batch)) continue;
    attn_float_enter(&outer);
    average(p, attn_rows(call->k, p->k, batch, head, p->dtype), p->k, first, end, p->d_qk, sums,
            attn_at(l->k, at * p->d_qk, p->dtype));
    average(p, attn_rows(call->v, p->v, batch, head, p->dtype), p->v, first, end, p->d_v, sums,
            attn_at(l->v, at * p->d_v, p->dtype));
    attn_float_leave(&outer);
  }
}

static attn_status execute(const void *opaque, const attn_call *call) {
  const state *s = opaque;
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  const bool joined = s->plans[LAST];
  const size_t last = joined ? attn_plan_work_size(s->plans[LAST]) : 0,
               entries = attn_plan_work_size(s->plans[ENTRIES]);
  attn_carver carver = attn_carver_at(call, call->work);
  const layout l = lay_out(c, last > entries ? last : entries, &carver);
  attn_call inner = *call;
  make_entries(s, call, &l);
  for (int64_t b = 0; b < p->batch; b++) l.lengths[b] = entries_of(c, attn_call_keys(call, b));
  attn_status status = joined ? attn_call_run(call, s->plans[LAST], l.o[LAST], l.lse[LAST], l.work) : ATTN_OK;
  inner.k = l.k;
  inner.v = l.v;
  inner.kv_len = l.lengths;
  inner.k_position = (attn_key_positions){s->positions, 0, 0};
  if (!status) status = attn_call_run(&inner, s->plans[ENTRIES], l.o[ENTRIES], l.lse[ENTRIES], l.work);
  if (status) return status;
#pragma omp parallel for num_threads(c->threads) schedule(static)
  for (int64_t at = 0; at < p->batch * p->heads * p->n_q; at++) {
    const int64_t line = at / p->n_q, row = at * p->d_v;
    void *own = attn_at(l.o[joined ? LAST : ENTRIES], row, p->dtype);
    fenv_t outer;
    attn_float_enter(&outer);
    if (joined)
      attn_join_row(p, own, &l.lse[LAST][at], attn_at(l.o[ENTRIES], row, p->dtype), l.lse[ENTRIES][at]);
    attn_store_row(c->kernels, attn_stored(p->o, p->dtype), p->d_v, own,
                   attn_row(call->o, p->o, line / p->heads, line % p->heads, at % p->n_q, p->dtype));
    attn_float_leave(&outer);
  }
  return ATTN_OK;
}

/* Of the longer of both, with the roundings of a join. */
static void inspect(const void *opaque, const attn_context *c, attn_view *view) {
  const state *s = opaque;
  attn_view of[PARTS] = {{0}};
  for (int part = first_part(c); part < PARTS; part++)
    if (attn_plan_inspect(s->plans[part], &of[part])) return;
  const attn_rounding *last = &of[LAST].rounding, *entries = &of[ENTRIES].rounding;
  view->rounding = last->value > entries->value ? *last : *entries;
  view->rounding.value += 8;
  view->rounding.sum += 8;
}

static const attn_method method = {
    .work_size = work_size, .plan = plan, .execute = execute, .inspect = inspect};

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const params *x = c->params;
  (void)b;
  out->method = &method;
  out->pooling = (attn_pooling){x->window, x->block, x->overlap, first_entry(x)};
  return ATTN_OK;
}

static attn_cost cost(const attn_context *c) {
  const params *x = c->params;
  const attn_problem *p = c->problem;
  const double visible = attn_visible_pairs(p), last = (double)p->n_q * (double)x->window;
  attn_cost result = attn_softmax_cost(c, (last < visible ? last : visible) + visible / (double)x->block);
  result.mul_add += (double)(p->batch * p->kv_heads * p->n_kv) * (double)(p->d_qk + p->d_v);
  return result;
}

ATTN_VARIANT(pooled, .summary = "the last keys, and means of blocks of all, in one softmax (HCA)",
             .formula = "keys i - window < j <= i, and the mean key and value of each block of `block` keys "
                        "that ends at i or before; O(n (window + n / block) d)",
             .cite = "DeepSeek-AI 2026, DeepSeek-V4 (HCA, CSA), by its implementations",
             /* A row whose window is padding, without an entry as yet, is zeros: no weights add up to 1. */
             .caps = ATTN_CAP_CAUSAL | ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_SCORE | ATTN_CAP_HALF,
             .params = table, .params_size = sizeof(params), .budget = {"window", NULL},
             .applicable = applicable, .describe = describe, .cost = cost)
