/* streaming_cache - attention sinks and a sliding window at the positions that keys have in a cache.
 *
 *   o_i = softmax_j(c q_i . R(g_ij) k_j) v_j   over the keys of streaming: j < sink, i - window < j <= i
 *
 * R turns the pairs (l, l + dims/2) of a row by angles g base^(-2l/dims): the rotary embedding of g positions
 * (Su et al. 2021, arXiv:2104.09864), which q and k have of i and j already. g_ij is the number of keys that
 * the cache has given up between j and i, so that j is as far from the query as there are held keys after it:
 * a sink never further than sink + window - 1. Xiao et al. 2023, StreamingLLM (arXiv:2309.17453, section
 * 3.2), whose cache holds keys that are not turned yet.
 *
 * Sinks meet R(-g) q in place of q: rows of 2 d_qk, [q, R(-g) q] and [0, k] or [k, 0], are what streaming
 * attends to. Bound: POS-1. The frequencies are those of a context that is not stretched. */
#include "attn_variant.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>

typedef struct params {
  int64_t sink, window, dims;
  double base;
} params;

static const attn_param table[] = {
    {"sink", ATTN_INT, offsetof(params, sink), 0, 1 << 20, "4", NULL, "leading keys that stay"},
    {"window", ATTN_INT, offsetof(params, window), 1, 1 << 30, "512", NULL,
     "keys up to the query's own, which is one of them"},
    {"base", ATTN_REAL, offsetof(params, base), 1, 1e12, "1e+04", NULL, "of the rotary embedding"},
    {"dims", ATTN_INT, offsetof(params, dims), 0, 1 << 16, "0", NULL, "components that turn; 0: all"},
    {.name = NULL},
};

typedef struct state {
  params p;
  const double *frequency; /* [dims/2] */
  attn_relocation law;
  const attn_plan *plan; /* of streaming */
} state;

static attn_status applicable(const attn_context *c) {
  const params *x = c->params;
  const int64_t dims = x->dims ? x->dims : c->problem->d_qk;
  if (!c->problem->causal)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "variant streaming_cache: only causal attention, its window ends at the query");
  if (c->problem->dtype != ATTN_F32)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "variant streaming_cache: its rotations are of fp32 and 16-bit tensors");
  if (dims % 2 || dims > c->problem->d_qk)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "variant streaming_cache: %lld of %lld components turn, expected pairs of them",
                     (long long)dims, (long long)c->problem->d_qk);
  return ATTN_OK;
}

static void turn(const state *s, int64_t by, double *x) {
  const int64_t half = s->p.dims / 2;
  for (int64_t l = 0; l < half; l++) {
    const double angle = (double)by * s->frequency[l], c = cos(angle), z = sin(angle), a = x[l];
    x[l] = a * c - x[l + half] * z;
    x[l + half] = x[l + half] * c + a * z;
  }
}

/* The law: to its place in the cache: as many keys before the query's as are held after it. */
static void meet(const void *opaque, int64_t position, int64_t key, double *k) {
  const state *s = opaque;
  int64_t after = 0;
  for (int64_t j = key + 1; j <= position; j++) after += j < s->p.sink || position - s->p.window < j;
  turn(s, position - after - key, k);
}

/* -- what is attended to -- */

static attn_problem inner_problem(const attn_problem *p) {
  attn_problem own = *p;
  own.q = own.k = (attn_stride){.batch = 0};
  own.d_qk = 2 * p->d_qk;
  return own;
}

static const char *inner_spec(const params *x, char spec[80]) {
  snprintf(spec, 80, "streaming:sink=%lld,window=%lld", (long long)x->sink, (long long)x->window);
  return spec;
}

typedef struct layout {
  float *q, *k; /* [batch, heads, n_q, 2 d_qk], [batch, kv_heads, n_kv, 2 d_qk] */
  void *work;
  attn_slices row; /* of each thread, [d_qk] */
} layout;

static layout lay_out(const attn_context *c, size_t work, attn_carver *carver) {
  const attn_problem *p = c->problem;
  return (layout){.q = attn_carve(carver, p->batch * p->heads * p->n_q, 2 * p->d_qk, sizeof(float)),
                  .k = attn_carve(carver, p->batch * p->kv_heads * p->n_kv, 2 * p->d_qk, sizeof(float)),
                  .work = attn_carve(carver, 1, 1, work),
                  .row = attn_carve_slices(carver, c->threads, (size_t)p->d_qk * sizeof(double))};
}

static attn_status work_size(const attn_context *c, const attn_parts *parts, size_t *bytes) {
  char spec[80];
  const attn_problem own = inner_problem(c->problem);
  attn_carver counter = attn_carver_count(c);
  size_t work = 0;
  const attn_status status = attn_context_estimate(c, &own, inner_spec(c->params, spec), &work, NULL);
  (void)parts;
  lay_out(c, work, &counter);
  *bytes = counter.used;
  return status;
}

static attn_cost cost(const attn_context *c) {
  char spec[80];
  const attn_problem own = inner_problem(c->problem);
  attn_cost result = {0};
  if (!attn_context_estimate(c, &own, inner_spec(c->params, spec), NULL, &result))
    result.bytes = attn_problem_bytes(c->problem);
  return result;
}

static attn_status plan(attn_builder *b, const attn_parts *parts, void **out) {
  char spec[80];
  const attn_context *c = attn_builder_context(b);
  const attn_problem own = inner_problem(c->problem);
  state *s = attn_builder_alloc(b, 1, sizeof *s);
  if (!s) return ATTN_ENOMEM;
  *s = (state){.p = *(const params *)c->params, .law = {s, meet}};
  if (!s->p.dims) s->p.dims = c->problem->d_qk;
  double *frequency = attn_builder_alloc(b, s->p.dims / 2, sizeof *frequency);
  if (!frequency) return ATTN_ENOMEM;
  for (int64_t l = 0; l < s->p.dims / 2; l++)
    frequency[l] = pow(s->p.base, -2 * (double)l / (double)s->p.dims);
  s->frequency = frequency;
  *out = s;
  (void)parts;
  return attn_builder_plan(b, &own, inner_spec(c->params, spec), &s->plan);
}

/* Row i of a head of queries or keys, in both halves. */
static void double_row(const attn_call *call, const state *s, bool query, int64_t line, int64_t i,
                       double *row, float *to) {
  const attn_problem *p = call->context->problem;
  const attn_stride stride = query ? p->q : p->k;
  const int64_t heads = query ? p->heads : p->kv_heads, d = p->d_qk,
                gone = query ? attn_problem_position(p, i) - s->p.window + 1 - s->p.sink : 0;
  attn_numbers[attn_stored(stride, p->dtype)].load(
      attn_row(query ? call->q : call->k, stride, line / heads, line % heads, i, p->dtype), d, row);
  for (int64_t l = 0; l < d; l++) to[l] = query || i >= s->p.sink ? (float)row[l] : 0;
  if (gone > 0) turn(s, -gone, row);
  for (int64_t l = 0; l < d; l++) to[d + l] = query || i < s->p.sink ? (float)row[l] : 0;
}

static attn_status execute(const void *opaque, const attn_call *call) {
  const state *s = opaque;
  const attn_problem *p = call->context->problem;
  attn_carver carver = attn_carver_at(call, call->work);
  const layout l = lay_out(call->context, attn_plan_work_size(s->plan), &carver);
  const int64_t queries = p->batch * p->heads * p->n_q, keys = p->batch * p->kv_heads * p->n_kv;
#pragma omp parallel for num_threads(call->context->threads) schedule(static)
  for (int64_t at = 0; at < queries + keys; at++) {
    const int64_t own = at < queries ? at : at - queries, n = at < queries ? p->n_q : p->n_kv;
    fenv_t outer;
    attn_float_enter(&outer);
    if (at < queries || own % n < attn_call_keys(call, own / n / p->kv_heads))
      double_row(call, s, at < queries, own / n, own % n, attn_slice(l.row, omp_get_thread_num()),
                 (at < queries ? l.q : l.k) + own * 2 * p->d_qk);
    attn_float_leave(&outer);
  }
  attn_call inner = *call;
  inner.q = l.q;
  inner.k = l.k;
  return attn_call_run(&inner, s->plan, call->o, NULL, l.work);
}

/* What is turned is rounded once more, after sums of fp64. */
static void inspect(const void *opaque, const attn_context *c, attn_view *view) {
  const state *s = opaque;
  attn_view own;
  (void)c;
  if (attn_plan_inspect(s->plan, &own)) return;
  view->pattern = own.pattern;
  view->relocation = &s->law;
  view->rounding = own.rounding;
  view->rounding.score += 2;
}

static const attn_method method = {.work_size = work_size,
                                   .plan = plan,
                                   .execute = execute,
                                   .inspect = inspect,
                                   .no_gradient =
                                       "the derivative of keys that turn with their places is not written"};

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  (void)b, (void)c;
  out->method = &method;
  return ATTN_OK;
}

ATTN_VARIANT(
    streaming_cache, .summary = "attention sinks and a window, at positions in a cache (StreamingLLM)",
    .formula = "keys j < sink and i - window < j <= i, turned to be as far from the query as there are "
               "such keys after them; O(n (sink + window) d)",
    .cite = "Xiao et al. 2023, arXiv:2309.17453",
    .caps = ATTN_CAP_CAUSAL | ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX |
            ATTN_CAP_HALF,
    .params = table, .params_size = sizeof(params), .budget = {"window", NULL}, .applicable = applicable,
    .describe = describe, .cost = cost)
