/* styles.c - exact attention as different people write it, each of them right: nothing may be said against
 * any. Sums in single or double precision or compensated (Kahan); in two passes, online by steps of keys, or
 * key by key over all queries; exp, exp2 or the library's expf; the causal end by a test or an early break;
 * rows dealt to threads or not. */
#include "tests/support/method.h"

#include <math.h>
#include <omp.h>

typedef enum { SUM_SINGLE, SUM_DOUBLE, SUM_KAHAN } sum_kind;
typedef enum { PASS_TWO, PASS_ONLINE, PASS_KEYS } pass_kind;
typedef enum { EXP_PLAIN, EXP_TWO, EXP_SINGLE } exp_kind;

typedef struct params {
  int sum, pass, power, rows;
  int64_t step, threads, described, multiple;
} params;

static const char *const sums[] = {"single", "double", "kahan", NULL};
static const char *const passes[] = {"two", "online", "keys", NULL};
static const char *const powers[] = {"exp", "exp2", "expf", NULL};
static const char *const ends[] = {"test", "break", NULL};
static const attn_param table[] = {
    {"sum", ATTN_CHOICE, offsetof(params, sum), 0, 0, "double", sums, "how sums are taken"},
    {"pass", ATTN_CHOICE, offsetof(params, pass), 0, 0, "two", passes, "how keys are visited"},
    {"power", ATTN_CHOICE, offsetof(params, power), 0, 0, "exp", powers, "which exponential"},
    {"end", ATTN_CHOICE, offsetof(params, rows), 0, 0, "test", ends, "how a causal row ends"},
    {"step", ATTN_INT, offsetof(params, step), 1, 4096, "16", NULL, "keys of an online step"},
    {"threads", ATTN_INT, offsetof(params, threads), 0, 1, "0", NULL, "are rows dealt to threads?"},
    {"described", ATTN_INT, offsetof(params, described), 0, 1, "1", NULL, "is the rounding declared?"},
    {"multiple", ATTN_INT, offsetof(params, multiple), 1, 1024, "1", NULL, "of which lengths are taken"},
    {.name = NULL}};

/* One sum. */
typedef struct sum {
  double at, rest;
} sum;

/* To the precision of the style; f64 tensors always have that of double. */
static double to(const attn_context *c, double x) {
  const params *s = c->params;
  return s->sum == SUM_SINGLE && c->problem->dtype == ATTN_F32 ? (double)(float)x : x;
}

static void add(const attn_context *c, sum *s, double x) {
  if (((const params *)c->params)->sum != SUM_KAHAN) {
    s->at = to(c, s->at + to(c, x));
    return;
  }
  const double y = x - s->rest, t = s->at + y;
  s->rest = (t - s->at) - y;
  s->at = t;
}

static void scale_sum(const attn_context *c, sum *s, double by) {
  s->at = to(c, s->at * by);
  s->rest *= by;
}

static double power(const attn_context *c, double x) {
  const int kind = ((const params *)c->params)->power;
  if (kind == EXP_TWO) return to(c, exp2(x * 1.4426950408889634));
  return kind == EXP_SINGLE && c->problem->dtype == ATTN_F32 ? (double)expf((float)x) : to(c, exp(x));
}

/* Of a thread: scores of the keys, then of each query a maximum, a sum and sums of values. */
typedef struct room {
  double *score, *top;
  sum *norm, *value;
} room;

static size_t room_bytes(const attn_problem *p) {
  return (size_t)(p->n_kv + p->n_q) * sizeof(double) + (size_t)(p->n_q * (1 + p->d_v)) * sizeof(sum);
}
static attn_status work_size(const attn_context *c, const attn_parts *parts, size_t *bytes) {
  (void)parts;
  *bytes = room_bytes(c->problem) * (size_t)c->threads;
  return ATTN_OK;
}

static room room_at(const attn_call *call, int thread) {
  const attn_problem *p = call->context->problem;
  room r = {.score = (double *)(void *)((char *)call->work + (size_t)thread * room_bytes(p))};
  r.top = r.score + p->n_kv;
  r.norm = (sum *)(void *)(r.top + p->n_q);
  r.value = r.norm + p->n_q;
  return r;
}

typedef struct head {
  const attn_call *call;
  const attn_context *c;
  const attn_problem *p;
  const void *q, *k, *v;
  void *o;
  int64_t keys;
  double *lse;
  room r;
} head;

static double score(const head *h, int64_t i, int64_t j) {
  const attn_problem *p = h->p;
  sum s = {0, 0};
  for (int64_t l = 0; l < p->d_qk; l++)
    add(h->c, &s, attn_get(h->q, i * p->q.row + l, p->dtype) * attn_get(h->k, j * p->k.row + l, p->dtype));
  return to(h->c, p->scale * s.at);
}

static bool sees(const attn_problem *p, int64_t i, int64_t j) {
  return !p->causal || j <= i + p->n_kv - p->n_q;
}

static void begin(const head *h, int64_t i) {
  h->r.top[i] = -(double)INFINITY;
  h->r.norm[i] = (sum){0, 0};
  for (int64_t l = 0; l < h->p->d_v; l++) h->r.value[i * h->p->d_v + l] = (sum){0, 0};
}

/* Another maximum: what there is shrinks. */
static void raise_top(const head *h, int64_t i, double top) {
  if (!(top > h->r.top[i])) return;
  const double by = power(h->c, h->r.top[i] - top);
  scale_sum(h->c, &h->r.norm[i], by);
  for (int64_t l = 0; l < h->p->d_v; l++) scale_sum(h->c, &h->r.value[i * h->p->d_v + l], by);
  h->r.top[i] = top;
}

static void take_key(const head *h, int64_t i, int64_t j, double x) {
  const double w = power(h->c, to(h->c, x - h->r.top[i]));
  add(h->c, &h->r.norm[i], w);
  for (int64_t l = 0; l < h->p->d_v; l++)
    add(h->c, &h->r.value[i * h->p->d_v + l], w * attn_get(h->v, j * h->p->v.row + l, h->p->dtype));
}

static void finish(const head *h, int64_t i) {
  const attn_problem *p = h->p;
  const bool any = h->r.norm[i].at > 0;
  for (int64_t l = 0; l < p->d_v; l++)
    attn_set(h->o, i * p->o.row + l, p->dtype, any ? h->r.value[i * p->d_v + l].at / h->r.norm[i].at : 0);
  if (h->lse) h->lse[i] = any ? h->r.top[i] + log(h->r.norm[i].at) : -(double)INFINITY;
}

/* A row, some keys at a time: all of them in two passes. */
static void row(const head *h, int64_t i) {
  const params *s = h->c->params;
  const int64_t step = s->pass == PASS_TWO ? h->p->n_kv : s->step;
  int64_t keys = h->keys;
  if (s->rows) /* an early end */
    for (keys = 0; keys < h->keys && sees(h->p, i, keys);) keys++;
  begin(h, i);
  for (int64_t from = 0; from < keys; from += step) {
    const int64_t end = from + step < keys ? from + step : keys;
    double top = -(double)INFINITY;
    for (int64_t j = from; j < end; j++) {
      h->r.score[j] = sees(h->p, i, j) ? score(h, i, j) : -(double)INFINITY;
      top = fmax(top, h->r.score[j]);
    }
    raise_top(h, i, top);
    for (int64_t j = from; j < end; j++)
      if (sees(h->p, i, j)) take_key(h, i, j, h->r.score[j]);
  }
  finish(h, i);
}

/* Every query at one key, then at the next. */
static void key_by_key(const head *h) {
  for (int64_t i = 0; i < h->p->n_q; i++) begin(h, i);
  for (int64_t j = 0; j < h->keys; j++)
    for (int64_t i = 0; i < h->p->n_q; i++) {
      if (!sees(h->p, i, j)) continue;
      const double x = score(h, i, j);
      raise_top(h, i, x);
      take_key(h, i, j, x);
    }
  for (int64_t i = 0; i < h->p->n_q; i++) finish(h, i);
}

static void line(const attn_call *call, int64_t at, int thread) {
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  const int64_t b = at / p->heads, h = at % p->heads, kv = h / (p->heads / p->kv_heads);
  const head x = {call,
                  c,
                  p,
                  attn_rows(call->q, p->q, b, h, p->dtype),
                  attn_rows(call->k, p->k, b, kv, p->dtype),
                  attn_rows(call->v, p->v, b, kv, p->dtype),
                  (void *)(uintptr_t)attn_rows(call->o, p->o, b, h, p->dtype),
                  attn_call_keys(call, b),
                  call->lse ? call->lse + at * p->n_q : NULL,
                  room_at(call, thread)};
  if (((const params *)c->params)->pass == PASS_KEYS)
    key_by_key(&x);
  else
    for (int64_t i = 0; i < p->n_q; i++) row(&x, i);
}

static attn_status execute(const void *state, const attn_call *call) {
  const attn_context *c = call->context;
  const int64_t lines = c->problem->batch * c->problem->heads;
  (void)state;
  if (((const params *)c->params)->threads) {
#pragma omp parallel for num_threads(c->threads)
    for (int64_t at = 0; at < lines; at++) line(call, at, omp_get_thread_num());
  } else {
    for (int64_t at = 0; at < lines; at++) line(call, at, 0);
  }
  return ATTN_OK;
}

/* The chains that the code above has, in the precision of its sums; a stored output rounds once. */
static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  static const attn_method method = {.work_size = work_size, .execute = execute};
  const params *s = c->params;
  const attn_problem *p = c->problem;
  const double u = p->dtype == ATTN_F64 ? 0x1p-53 : 0x1p-24;
  const int64_t steps = s->pass == PASS_TWO    ? 1
                        : s->pass == PASS_KEYS ? p->n_kv
                                               : (p->n_kv + s->step - 1) / s->step;
  (void)b;
  out->method = &method;
  if (!s->described) return ATTN_OK;
  out->rounding = (attn_rounding){.unit = u,
                                  .score = p->d_qk + 1,
                                  .value = p->n_kv + 2 * steps + 2,
                                  .sum = p->n_kv + 2 * steps + 2,
                                  .block = s->pass == PASS_TWO    ? 0
                                           : s->pass == PASS_KEYS ? 1
                                                                  : s->step,
                                  .exp_error = 4 * u,
                                  .kappa_s = 4,
                                  .kappa_d = 2};
  return ATTN_OK;
}

static attn_status applicable(const attn_context *c) {
  const int64_t by = ((const params *)c->params)->multiple;
  return c->problem->n_q % by || c->problem->n_kv % by ? attn_fail(ATTN_EUNSUPPORTED, "other lengths")
                                                       : ATTN_OK;
}

ATTN_VARIANT(styles, .summary = "exact attention in many styles", .cite = "none",
             .caps = ATTN_CAP_CAUSAL | ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_STOCHASTIC |
                     ATTN_CAP_CONVEX | ATTN_CAP_SHIFT | ATTN_CAP_EXACT | ATTN_CAP_PERMUTATION | ATTN_CAP_LSE,
             .params = table, .params_size = sizeof(params), .applicable = applicable, .describe = describe,
             .cost = exact_cost)
