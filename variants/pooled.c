/* pooled - the last keys one by one, and means of blocks of all keys, in one softmax.
 *
 * Entry b stands for keys b block - overlap ... b block + block - 1: its key and its value are the means of
 * theirs. A query sees the last `window` keys, its own among them, and the entries whose last key is its own
 * or comes before it; the sink of the problem is one more term. whole=yes leaves out the first entries, of
 * fewer keys. With top it sees of these entries the `top` of the largest score by a lightning indexer
 * (attn_index: topk's by=index, the same for all heads), whose keys, the extra tensor index_k or else the
 * mean of the keys over kv heads, an entry has the means of as well. With block=128, window=128 it is the
 * heavily compressed attention of DeepSeek-V4 (HCA), with block=4, overlap=4, window=128, top=512 its sparse
 * attention (CSA); known from implementations alone. With window=0 a query sees only entries, as the
 * compressed branch of nsa does. Deviation: there the weights of a mean are learned, here they are equal.
 *
 * Both parts are softmaxes by themselves, joined by their log-sum-exps; the entries stand at their last keys.
 * Cost O(n (window + n / block) d); with top n^2 / block products of the index, and O(n (window + top) d).
 * Bound: POOL-1. */
#include "attn_gradients.h"
#include "attn_variant.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>

typedef struct params {
  int64_t block, overlap, window, top;
  attn_index index;
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
    {"top", ATTN_INT, offsetof(params, top), 0, 1 << 20, "0", NULL,
     "entries of a query, of largest score by the index; 0: all"},
    {"index_heads", ATTN_INT, offsetof(params, index.heads), 0, 1 << 10, "0", NULL,
     "top: heads of the extra tensors index_q and index_w; 0: the queries'"},
    {"index_width", ATTN_INT, offsetof(params, index.width), 0, 1 << 14, "0", NULL,
     "top: columns of index_q and index_k; 0: d_qk"},
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

/* Of heads 0 where a query sees all entries. */
static attn_index index_of(const attn_context *c) {
  const params *x = c->params;
  if (!x->top || x->top >= entries_of(c, c->problem->n_kv)) return (attn_index){0, 0};
  return (attn_index){x->index.heads ? x->index.heads : c->problem->heads,
                      x->index.width ? x->index.width : c->problem->d_qk};
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

enum { SPEC = 128 };
static const char *spec_of(const attn_context *c, int part, char spec[SPEC]) {
  const params *x = c->params;
  const attn_index index = index_of(c);
  if (part == LAST)
    snprintf(spec, SPEC, "streaming:sink=0,window=%lld", (long long)x->window);
  else if (index.heads)
    snprintf(spec, SPEC, "topk:by=index,k=%lld,index_heads=%lld,index_width=%lld", (long long)x->top,
             (long long)index.heads, (long long)index.width);
  else
    snprintf(spec, SPEC, "tiled");
  return spec;
}

typedef struct layout {
  void *o[PARTS], *k, *v, *work; /* outputs [batch, heads, n_q, d_v] */
  void *index;                   /* index_k of entries, [batch, n_kv, width]; of entries alone it has rows */
  double *lse[PARTS];
  int64_t *lengths; /* entries of each batch entry */
  attn_slices sums; /* of each thread, [d] */
} layout;

static layout lay_out(const attn_context *c, size_t work, attn_carver *carver) {
  const attn_problem *p = c->problem;
  const size_t size = attn_dtype_size(p->dtype);
  const int64_t rows = p->batch * p->heads * p->n_q, lines = p->batch * p->kv_heads,
                entries = entries_of(c, p->n_kv), width = index_of(c).width,
                d = attn_max(width, attn_max(p->d_qk, p->d_v));
  layout l;
  for (int part = 0; part < PARTS; part++) {
    const int64_t own = part < first_part(c) ? 0 : rows;
    l.o[part] = attn_carve(carver, own, p->d_v, size);
    l.lse[part] = attn_carve(carver, own, 1, sizeof(double));
  }
  l.k = attn_carve(carver, lines * entries, p->d_qk, size);
  l.v = attn_carve(carver, lines * entries, p->d_v, size);
  l.index = attn_carve(carver, p->batch * p->n_kv, width, size);
  l.lengths = attn_carve(carver, p->batch, 1, sizeof(int64_t));
  l.sums = attn_carve_slices(carver, c->threads, (size_t)d * sizeof(double));
  l.work = attn_carve(carver, 1, 1, work);
  return l;
}

static attn_status work_size(const attn_context *c, const attn_parts *parts, size_t *bytes) {
  attn_carver counter = attn_carver_count(c);
  attn_status status = ATTN_OK;
  size_t most = 0, own = 0;
  char spec[SPEC];
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
  char spec[SPEC];
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

/* The keys of an entry: from *first on. Returns the one behind them. */
static int64_t keys_of(const params *x, int64_t entry, int64_t *first) {
  const int64_t block = (entry + first_entry(x)) * x->block;
  *first = attn_max(block - x->overlap, 0);
  return block + x->block;
}

/* The mean of rows of d elements, `row` elements apart. */
static void average(const void *x, attn_dtype of, int64_t row, int64_t rows, int64_t d, double *sums,
                    attn_dtype t, void *to) {
  for (int64_t l = 0; l < d; l++) sums[l] = 0;
  attn_numbers[of].add(x, row, rows, d, sums);
  for (int64_t l = 0; l < d; l++) attn_set(to, l, t, sums[l] / (double)rows);
}

static void make_entries(const state *s, const attn_call *call, const layout *l) {
  const attn_problem *p = call->context->problem;
  const int64_t entries = entries_of(call->context, p->n_kv);
#pragma omp parallel for num_threads(call->context->threads) schedule(static)
  for (int64_t at = 0; at < p->batch * p->kv_heads * entries; at++) {
    const int64_t line = at / entries, batch = line / p->kv_heads, head = line % p->kv_heads;
    int64_t first, end = keys_of(&s->p, at % entries, &first);
    double *sums = attn_slice(l->sums, omp_get_thread_num());
    fenv_t outer;
    if (end > attn_call_keys(call, batch)) continue;
    attn_float_enter(&outer);
    average(attn_row(call->k, p->k, batch, head, first, p->dtype), attn_stored(p->k, p->dtype), p->k.row,
            end - first, p->d_qk, sums, p->dtype, attn_at(l->k, at * p->d_qk, p->dtype));
    average(attn_row(call->v, p->v, batch, head, first, p->dtype), attn_stored(p->v, p->dtype), p->v.row,
            end - first, p->d_v, sums, p->dtype, attn_at(l->v, at * p->d_v, p->dtype));
    attn_float_leave(&outer);
  }
}

/* The tensors by which entries are ranked, of which index_k has a row for each key. Returns how many. */
static int64_t make_index(const state *s, const attn_call *call, const layout *l, attn_extra *of) {
  static const char *const others[] = {"index_q", "index_w"};
  const attn_problem *p = call->context->problem;
  const attn_extra *k = attn_call_extra(call, "index_k");
  const int64_t entries = entries_of(call->context, p->n_kv);
  int64_t count = 0;
  if (!index_of(call->context).heads) return 0;
  for (int x = 0; x < 2; x++)
    if (attn_call_extra(call, others[x])) of[count++] = *attn_call_extra(call, others[x]);
  if (!k) return count;
  of[count] = *k;
  of[count].dtype = p->dtype;
  of[count].at = l->index;
#pragma omp parallel for num_threads(call->context->threads) schedule(static)
  for (int64_t at = 0; at < k->batch * entries; at++) {
    const int64_t batch = at / entries, entry = at % entries;
    int64_t first, end = keys_of(&s->p, entry, &first);
    fenv_t outer;
    attn_float_enter(&outer);
    average(attn_extra_row(k, batch, 0, first), k->dtype, k->columns, end - first, k->columns,
            attn_slice(l->sums, omp_get_thread_num()), p->dtype,
            attn_at(l->index, (batch * p->n_kv + entry) * k->columns, p->dtype));
    attn_float_leave(&outer);
  }
  return count + 1;
}

static size_t most_work(const state *s) {
  const size_t last = s->plans[LAST] ? attn_plan_work_size(s->plans[LAST]) : 0,
               entries = attn_plan_work_size(s->plans[ENTRIES]);
  return last > entries ? last : entries;
}

/* Both parts, joined in the first: its output and log-sum-exp are then those of all. *inner: the call on the
 * entries, with `index`. */
static attn_status attend(const state *s, const attn_call *call, const layout *l, attn_call *inner,
                          attn_extra index[3]) {
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  const bool joined = s->plans[LAST];
  *inner = *call;
  make_entries(s, call, l);
  inner->extras = make_index(s, call, l, index);
  inner->extra = index;
  for (int64_t b = 0; b < p->batch; b++) l->lengths[b] = entries_of(c, attn_call_keys(call, b));
  attn_status status =
      joined ? attn_call_run(call, s->plans[LAST], l->o[LAST], l->lse[LAST], l->work) : ATTN_OK;
  inner->k = l->k;
  inner->v = l->v;
  inner->kv_len = l->lengths;
  inner->k_position = (attn_key_positions){s->positions, 0, 0};
  if (!status) status = attn_call_run(inner, s->plans[ENTRIES], l->o[ENTRIES], l->lse[ENTRIES], l->work);
  if (status || !joined) return status;
#pragma omp parallel for num_threads(c->threads) schedule(static)
  for (int64_t at = 0; at < p->batch * p->heads * p->n_q; at++) {
    fenv_t outer;
    attn_float_enter(&outer);
    attn_join_row(p, attn_at(l->o[LAST], at * p->d_v, p->dtype), &l->lse[LAST][at],
                  attn_at(l->o[ENTRIES], at * p->d_v, p->dtype), l->lse[ENTRIES][at]);
    attn_float_leave(&outer);
  }
  return ATTN_OK;
}

static attn_status execute(const void *opaque, const attn_call *call) {
  const state *s = opaque;
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  attn_carver carver = attn_carver_at(call, call->work);
  const layout l = lay_out(c, most_work(s), &carver);
  attn_call inner;
  attn_extra index[3];
  const attn_status status = attend(s, call, &l, &inner, index);
  if (status) return status;
#pragma omp parallel for num_threads(c->threads) schedule(static)
  for (int64_t at = 0; at < p->batch * p->heads * p->n_q; at++) {
    const int64_t line = at / p->n_q;
    fenv_t outer;
    attn_float_enter(&outer);
    attn_store_row(c->kernels, attn_stored(p->o, p->dtype), p->d_v,
                   attn_at(l.o[first_part(c)], at * p->d_v, p->dtype),
                   attn_row(call->o, p->o, line / p->heads, line % p->heads, at % p->n_q, p->dtype));
    attn_float_leave(&outer);
  }
  return ATTN_OK;
}

/* -- the gradients: each part is given the output and log-sum-exp of both together -- */

/* By queries, of entries; by entries, of which the plan has as many rows as there are keys. */
typedef struct back_layout {
  layout of;
  void *dq, *dk, *dv;
} back_layout;

static back_layout lay_out_back(const attn_context *c, size_t work, attn_carver *carver) {
  const attn_problem *p = c->problem;
  const size_t size = attn_dtype_size(p->dtype);
  const int64_t rows = p->batch * p->heads * p->n_q, keys = p->batch * p->kv_heads * p->n_kv;
  return (back_layout){.of = lay_out(c, work, carver),
                       .dq = attn_carve(carver, first_part(c) == LAST ? rows : 0, p->d_qk, size),
                       .dk = attn_carve(carver, keys, p->d_qk, size),
                       .dv = attn_carve(carver, keys, p->d_v, size)};
}

static attn_status back_work(const state *s, size_t *most) {
  attn_status status = ATTN_OK;
  *most = most_work(s);
  for (int part = 0; part < PARTS && !status; part++) {
    size_t own = 0;
    if (s->plans[part]) status = attn_plan_backward_size(s->plans[part], &own);
    if (own > *most) *most = own;
  }
  return status;
}

static attn_status backward_size(const void *opaque, const attn_context *c, const attn_parts *parts,
                                 size_t *bytes) {
  size_t most = 0;
  const attn_status status = back_work(opaque, &most);
  attn_carver counter = attn_carver_count(c);
  (void)parts;
  lay_out_back(c, most, &counter);
  *bytes = counter.used;
  return status;
}

/* Adds to each key its share of the entries that are means of it; what no part gave begins at 0. */
static void spread(const state *s, const attn_call *call, const void *of_entries, int64_t d, void *of_keys) {
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  if (!of_keys) return;
#pragma omp parallel for num_threads(c->threads) schedule(static)
  for (int64_t line = 0; line < p->batch * p->kv_heads; line++) {
    const int64_t exist = entries_of(c, attn_call_keys(call, line / p->kv_heads));
    fenv_t outer;
    attn_float_enter(&outer);
    for (int64_t x = 0; !s->plans[LAST] && x < p->n_kv * d; x++)
      attn_set(of_keys, line * p->n_kv * d + x, p->dtype, 0);
    for (int64_t e = 0; e < exist; e++) {
      int64_t first, end = keys_of(&s->p, e, &first);
      for (int64_t x = first * d; x < end * d; x++) {
        const int64_t at = line * p->n_kv * d + x;
        attn_set(of_keys, at, p->dtype,
                 attn_get(of_keys, at, p->dtype) +
                     attn_get(of_entries, (line * p->n_kv + e) * d + x % d, p->dtype) /
                         (double)(end - first));
      }
    }
    attn_float_leave(&outer);
  }
}

static attn_status backward(const void *opaque, const attn_call *call, const attn_gradients *g) {
  const state *s = opaque;
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  const int whole = first_part(c);
  size_t most = 0;
  attn_status status = back_work(s, &most);
  if (status) return status;
  attn_carver carver = attn_carver_at(call, call->work);
  const back_layout l = lay_out_back(c, most, &carver);
  attn_gradients own = *g, of_entries = *g;
  attn_call inner;
  attn_extra index[3];
  own.dextra = of_entries.dextra = NULL;
  of_entries.dk = l.dk;
  of_entries.dv = l.dv;
  if (whole == LAST) {
    of_entries.dq = g->dq ? l.dq : NULL;
    of_entries.dsink = NULL;
  }
  status = attend(s, call, &l.of, &inner, index);
  if (!status && whole == LAST)
    status = attn_call_backward(call, s->plans[LAST], l.of.o[whole], l.of.lse[whole], &own, l.of.work);
  if (!status)
    status =
        attn_call_backward(&inner, s->plans[ENTRIES], l.of.o[whole], l.of.lse[whole], &of_entries, l.of.work);
  if (status) return status;
  spread(s, call, l.dk, p->d_qk, g->dk);
  spread(s, call, l.dv, p->d_v, g->dv);
#pragma omp parallel for num_threads(c->threads) schedule(static)
  for (int64_t x = 0; x < (g->dq && whole == LAST ? p->batch * p->heads * p->n_q * p->d_qk : 0); x++)
    attn_set(g->dq, x, p->dtype, attn_get(g->dq, x, p->dtype) + attn_get(l.dq, x, p->dtype));
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

static const attn_method method = {.work_size = work_size,
                                   .plan = plan,
                                   .execute = execute,
                                   .inspect = inspect,
                                   .backward_size = backward_size,
                                   .backward = backward};

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  enum { OF_ALL = ATTN_EXEMPT_GROUPS | ATTN_EXEMPT_HEADS };
  static const attn_exemption by_index[] = {{OF_ALL, "top ranks entries for all heads together"}, {0, NULL}};
  const params *x = c->params;
  const attn_index index = index_of(c);
  (void)b;
  out->method = &method;
  out->pooling =
      (attn_pooling){x->window, x->block, x->overlap, first_entry(x), index.heads ? x->top : 0, index};
  if (!index.heads) return ATTN_OK;
  out->caps |= ATTN_CAP_DATA;
  out->exempt = by_index;
  return ATTN_OK;
}

static attn_cost cost(const attn_context *c) {
  const params *x = c->params;
  const attn_problem *p = c->problem;
  const attn_index index = index_of(c);
  const double visible = attn_visible_pairs(p), last = (double)p->n_q * (double)x->window,
               entries = visible / (double)x->block, top = (double)p->n_q * (double)x->top;
  attn_cost result = attn_softmax_cost(c, (last < visible ? last : visible) +
                                              (index.heads && top < entries ? top : entries));
  result.mul_add += (double)(p->batch * p->kv_heads * index.heads * index.width) * entries;
  result.mul_add += (double)(p->batch * p->kv_heads * p->n_kv) * (double)(p->d_qk + p->d_v);
  return result;
}

ATTN_VARIANT(pooled, .summary = "the last keys, and means of blocks of all, in one softmax (HCA, CSA)",
             .formula =
                 "keys i - window < j <= i, and the mean key and value of each block of `block` keys "
                 "that ends at i or before, or of these the best `top` by an index; O(n (window + n / block) "
                 "d)",
             .cite = "DeepSeek-AI 2026, DeepSeek-V4 (HCA, CSA), by its implementations",
             /* A row whose window is padding, without an entry as yet, is zeros: no weights add up to 1. */
             .caps = ATTN_CAP_CAUSAL | ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_SCORE | ATTN_CAP_HALF,
             .params = table, .params_size = sizeof(params), .budget = {"window", NULL},
             .applicable = applicable, .describe = describe, .cost = cost)
