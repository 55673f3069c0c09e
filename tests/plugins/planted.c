/* planted.c - the variant of variants/template.c with a fault to choose, for cli/cases/. */
#include "tests/support/method.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define FAULTS(FAULT)                                                                                       \
  FAULT(none), FAULT(unnormalised), FAULT(future), FAULT(unwritten), FAULT(overlapping), FAULT(off_by_one), \
      FAULT(stale), FAULT(crash), FAULT(division), FAULT(abort), FAULT(loop), FAULT(fork), FAULT(exit),     \
      FAULT(silent), FAULT(zero), FAULT(third), FAULT(lse_off), FAULT(lse_head), FAULT(lse_base),           \
      FAULT(lse_nothing), FAULT(lse_late), FAULT(strides), FAULT(beyond), FAULT(padding), FAULT(late),      \
      FAULT(needle), FAULT(flat), FAULT(large), FAULT(isa), FAULT(empty), FAULT(values), FAULT(shared)
CHOOSE_FAULT("fault", "what is wrong");
enum { BLOCK = 16 };

typedef struct state {
  fault fault;
  int64_t n;
  attn_pattern pattern;
  double *last; /* an output that is kept */
  int *calls;
} state;

static int64_t row(const void *opaque, int64_t head, int64_t position, attn_run *runs) {
  const state *s = opaque;
  int64_t first = position / BLOCK * BLOCK, end = first + BLOCK - (s->fault == F_off_by_one);
  (void)head;
  end = end < s->n ? end : s->n;
  if (end <= first) end = first + 1;
  runs[0] = (attn_run){first, end - first, 1};
  if (s->fault != F_overlapping) return 1;
  runs[1] = runs[0];
  return 2;
}

static bool sees(const void *opaque, int64_t head, int64_t position, int64_t key) {
  (void)opaque, (void)head;
  return position / BLOCK == key / BLOCK;
}

static attn_status work_size(const attn_context *c, const attn_parts *parts, size_t *bytes) {
  (void)parts;
  *bytes = (size_t)c->problem->n_kv * sizeof(double);
  return ATTN_OK;
}

static attn_cost cost(const attn_context *c) {
  return attn_softmax_cost(c, (double)c->problem->n_q * BLOCK / (c->problem->causal ? 2 : 1));
}

static attn_status plan(attn_builder *b, const attn_parts *parts, void **out) {
  (void)parts;
  const attn_context *c = attn_builder_context(b);
  const attn_problem *p = c->problem;
  state *s = attn_builder_alloc(b, 1, sizeof *s);
  if (!s) return ATTN_ENOMEM;
  *s = (state){.fault = fault_of(c), .n = p->n_kv};
  s->pattern = (attn_pattern){.state = s, .row = row, .max_runs = 2, .sees = sees, .grain = BLOCK};
  s->last = attn_builder_alloc(b, p->batch * p->heads * p->n_q * p->d_v, sizeof *s->last);
  s->calls = attn_builder_alloc(b, 1, sizeof *s->calls);
  if (!s->last || !s->calls) return ATTN_ENOMEM;
  *s->calls = 0;
  *out = s;
  return ATTN_OK;
}

/* Does this instruction set pack more than the smallest does? */
static bool is_wide(const attn_context *c) {
  return attn_gemm_packed_bytes(c->kernels, 1, 1) > 4 * attn_dtype_size(c->problem->dtype);
}

static double lse_of(fault f, double top, double sum, int64_t seen, int64_t i) {
  if (!seen) return f == F_lse_nothing ? 0 : -(double)INFINITY;
  const double lse = top + log(sum);
  return f == F_lse_off || (f == F_lse_late && i >= 512) ? lse + log(2)
         : f == F_lse_base                               ? lse / log(2)
                                                         : lse;
}

/* What is read and not used. */
static void touch(const state *s, const attn_problem *p, const char *k, int64_t keys) {
  static volatile double sink;
  if (s->fault == F_beyond) sink = attn_get(k, p->n_kv * p->k.row, p->dtype);
  if (s->fault == F_padding && keys < p->n_kv) sink = attn_get(k, keys * p->k.row, p->dtype);
  (void)sink;
}

static double weigh(const state *s, double *weight, int64_t seen, double *top) {
  double least = (double)INFINITY, sum = 0;
  *top = -(double)INFINITY;
  for (int64_t j = 0; j < seen; j++) {
    if (s->fault == F_needle && weight[j] > 50) weight[j] = -(double)INFINITY;
    *top = fmax(*top, weight[j]);
    least = fmin(least, weight[j]);
  }
  if (s->fault == F_large) *top = 0;
  if (s->fault == F_flat && seen > 1 && !(*top > least)) return (double)INFINITY;
  for (int64_t j = 0; j < seen; j++) sum += weight[j] = exp(weight[j] - *top);
  return sum;
}

/* One row by the textbook, with the fault. */
static void compute(const state *s, const attn_call *call, int64_t b, int64_t h, int64_t i, double *weight) {
  attn_problem own = *call->context->problem;
  if (s->fault == F_strides) {
    own.q = own.k = own.v = own.o = (attn_stride){0};
    (void)attn_problem_resolve(&own);
  }
  const attn_problem *p = &own;
  const attn_dtype t = p->dtype;
  const int64_t kv = h / (p->heads / p->kv_heads), keys = attn_call_keys(call, b);
  const char *q = attn_at(attn_rows(call->q, p->q, b, h, t), i * p->q.row, t),
             *k = attn_rows(call->k, p->k, b, kv, t), *v = attn_rows(call->v, p->v, b, kv, t);
  void *o = attn_at(attn_rows(call->o, p->o, b, h, t), i * p->o.row, t);
  const int64_t limit = p->causal ? i + 1 + (s->fault == F_future) : p->n_kv;
  attn_run runs[2];
  int64_t count = row(s, h, i, runs), seen = 0, first = runs[0].first;
  touch(s, p, k, keys);
  for (int64_t r = 0; r < count; r++)
    for (int64_t j = first; j < first + runs[r].count && j < keys && j < limit; j++) {
      double x = 0;
      for (int64_t l = 0; l < p->d_qk; l++) x += attn_get(q, l, t) * attn_get(k, j * p->k.row + l, t);
      weight[seen++] = p->scale * x;
    }
  double top, sum = weigh(s, weight, seen, &top);
  if (call->lse)
    call->lse[(b * p->heads + (h + (s->fault == F_lse_head)) % p->heads) * p->n_q + i] =
        lse_of(s->fault, top, sum, seen, i);
  if ((s->fault == F_late && i > 1024 && i % 64 == 0) || (s->fault == F_isa && !is_wide(call->context)))
    sum *= 1.01;
  const int64_t each = seen / count;
  for (int64_t l = 0; l < p->d_v - (s->fault == F_unwritten); l++) {
    double x = 0;
    for (int64_t j = 0; j < seen; j++) x += weight[j] * attn_get(v, (first + j % each) * p->v.row + l, t);
    const double kept = x / sum * (1 + (s->fault == F_third && b > 1));
    const double row = s->fault == F_values && x / sum < -2 ? -2
                       : s->fault == F_zero                 ? 0
                       : s->fault == F_unnormalised         ? x
                                                            : kept;
    attn_set(o, l, t, seen ? row : s->fault == F_empty ? x / sum : 0);
  }
}

/* Faults that end more than a computation: under a causal mask alone. */
static void break_down(fault f) {
  static volatile int turns;
  if (f == F_crash) raise(SIGSEGV);
  if (f == F_division) raise(SIGFPE);
  if (f == F_abort) abort();
  if (f == F_exit) _exit(0);
  if (f == F_fork) (void)fork();
  while (f == F_loop) turns = 1 - turns;
}

static attn_status execute(const void *opaque, const attn_call *call) {
  const state *s = opaque;
  const attn_problem *p = call->context->problem;
  if (p->causal) break_down(s->fault);
  const bool stale = s->fault == F_stale && (*s->calls)++ > 0;
  for (int64_t line = 0; line < p->batch * p->heads; line++)
    for (int64_t i = 0; i < p->n_q; i++) {
      void *o = attn_at(attn_rows(call->o, p->o, line / p->heads, line % p->heads, p->dtype), i * p->o.row,
                        p->dtype);
      double *kept = s->last + (line * p->n_q + i) * p->d_v;
      if (!stale)
        compute(s, call, line / p->heads, line % p->heads, i, s->fault == F_shared ? s->last : call->work);
      for (int64_t l = 0; l < p->d_v && s->fault == F_stale; l++)
        if (stale)
          attn_set(o, l, p->dtype, kept[l]);
        else
          kept[l] = attn_get(o, l, p->dtype);
    }
  return ATTN_OK;
}

static void inspect(const void *opaque, const attn_context *c, attn_view *view) {
  const state *s = opaque;
  view->caps = s->fault == F_silent || s->fault == F_zero ? ATTN_CAP_CAUSAL : view->caps;
  if (s->fault == F_silent || s->fault == F_zero) return;
  view->pattern = &s->pattern;
  view->rounding = (attn_rounding){.unit = c->problem->dtype == ATTN_F64 ? 0x1p-52 : 0x1p-24,
                                   .score = c->problem->d_qk,
                                   .value = 2 * BLOCK,
                                   .sum = 2 * BLOCK,
                                   .exp_error = 0x1p-50,
                                   .kappa_s = 2,
                                   .kappa_d = 2};
}

static DESCRIBE_METHOD(describe, NO_ROUNDING, .work_size = work_size, .plan = plan, .execute = execute,
                       .inspect = inspect);

ATTN_VARIANT(planted, .summary = "blocks, with a fault to choose", .cite = "none",
             .caps = ATTN_CAP_CAUSAL | ATTN_CAP_PADDING | ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX |
                     ATTN_CAP_SHIFT | ATTN_CAP_LSE,
             .params = table, .params_size = sizeof(params), .describe = describe, .cost = cost)
