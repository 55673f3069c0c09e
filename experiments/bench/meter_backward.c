/* meter_backward.c - the meter of a backward pass: that of a plan which was executed once. Its gradients are
 * not compared here: GRAD-FP and GRAD-FD judge them where variants are run. */
#include "experiments/bench/benchmark.h"

#include "attn_gradients.h"
#include "attn_variant.h"

#include <stdlib.h>

typedef struct state {
  attn_plan *plan;
  size_t q, k, v; /* elements */
  char *tensors;  /* o, dq, dk and dv, one behind the other */
  double *lse;
  bench_gates gates;
  bool executed;
} state;

static attn_status execute(bench_meter *m) {
  state *s = m->state;
  const bench *b = m->owner;
  const size_t e = attn_dtype_size(b->options.dtype),
               o = s->q / (size_t)m->d * (s->v / (s->k / (size_t)m->d));
  const char *in = b->in;
  const attn_tensors x = {.q = in,
                          .k = in + s->q * e,
                          .v = in + (s->q + s->k) * e,
                          .o = s->tensors,
                          .lse = attn_plan_variant(s->plan)->caps & ATTN_CAP_LSE ? s->lse : NULL,
                          .work = b->scratch,
                          .extra = s->gates.of,
                          .extras = s->gates.count};
  char *at = s->tensors + o * e;
  attn_status status = s->executed ? ATTN_OK : attn_plan_run(s->plan, &x);
  s->executed = true;
  if (status) return status;
  return attn_plan_backward(
      s->plan, &x,
      &(attn_gradients){
          .d_o = in + (s->q + s->k + s->v) * e, .dq = at, .dk = at + s->q * e, .dv = at + (s->q + s->k) * e});
}

static attn_status measure(bench_meter *m, double span, double *seconds) {
  return bench_repeat(m, execute, span, seconds);
}

static void release(void *state_) {
  state *s = state_;
  attn_plan_destroy(s->plan);
  bench_gates_free(&s->gates);
  free(s->tensors);
  free(s->lse);
  free(s);
}

static bool room_make(const attn_problem *p, state *s) {
  const size_t rows = (size_t)(p->batch * p->heads * p->n_q),
               keys = (size_t)(p->batch * p->kv_heads * p->n_kv);
  s->q = rows * (size_t)p->d_qk;
  s->k = keys * (size_t)p->d_qk;
  s->v = keys * (size_t)p->d_v;
  s->tensors = malloc((rows * (size_t)p->d_v + s->q + s->k + s->v) * attn_dtype_size(p->dtype));
  s->lse = malloc(rows * sizeof *s->lse);
  return s->tensors && s->lse;
}

bench_meter *bench_backward(bench *b, const char *spec, const attn_problem *problem, int threads) {
  if (b->status) return NULL;
  const attn_options options = {.threads = threads ? threads : b->options.threads, .isa = b->options.isa};
  attn_plan *plan = NULL;
  size_t bytes = 0;
  attn_status status = attn_plan_create(&plan, problem, spec, &options);
  if (!status) status = attn_plan_backward_size(plan, &bytes);
  state *s = status ? NULL : calloc(1, sizeof *s);
  bench_meter *m = s ? bench_meter_add(b, attn_plan_spec(plan)) : NULL;
  if (!m) {
    if (!status || status == ATTN_ENOMEM)
      b->status = attn_fail(ATTN_ENOMEM, "out of memory to measure %s backward", spec);
    free(s);
    attn_plan_destroy(plan);
    return NULL;
  }
  const attn_problem *p = attn_plan_problem(plan);
  const double products = (double)(3 * p->d_qk + 2 * p->d_v) / (double)(p->d_qk + p->d_v);
  *s = (state){.plan = plan};
  m->release = release;
  m->state = s;
  if (!room_make(p, s) || !bench_gates_make(plan, &s->gates)) {
    b->status = attn_fail(ATTN_ENOMEM, "out of memory for the gradients of %s", spec);
    return NULL;
  }
  if (bytes < attn_plan_work_size(plan)) bytes = attn_plan_work_size(plan);
  bench_need(b, s->q + s->k + s->v + (size_t)(p->batch * p->heads * p->n_q * p->d_v), 0, bytes);
  m->threads = options.threads;
  m->n = p->n_kv;
  m->d = p->d_qk;
  m->flops = 2 * attn_plan_cost(plan).mul_add * products;
  m->memory = (double)(attn_plan_bytes(plan) + bytes);
  m->measure = measure;
  return m;
}
