/* planted_declared.c - a variant that declares more than it keeps: attention within blocks by the softmax
 * engine, or rectified features by the linear one, with what is wrong to choose. For
 * cli/cases/declared.txt. */
#include "tests/support/method.h"

#define FAULTS(FAULT)                                                                      \
  FAULT(none),         /* right */                                                         \
      FAULT(rounding), /* outputs 2 % too large, which it calls rounding of its weights */ \
      FAULT(generous), /* nothing, and as much rounding as may be declared */              \
      FAULT(lse),      /* outputs are wrong whenever the log-sum-exp is wanted */          \
      FAULT(lawless),  /* blocks lack their last key, and no law says that they have it */ \
      FAULT(cheap),    /* a hundredth of the cost */                                       \
      FAULT(dear),     /* ten times the cost */                                            \
      FAULT(relu),     /* queries that share no feature with any key: 0/0 */               \
      FAULT(exact),    /* that blocks are every key */                                     \
      FAULT(loose)     /* at d = 64 next to any rounding, and outputs 2 % too large there */
CHOOSE_FAULT("fault", "what is wrong");
enum { BLOCK = 16 };

typedef struct blocks {
  int64_t n;
  bool short_of_one;
} blocks;

static int64_t row(const void *opaque, int64_t head, int64_t position, attn_run *runs) {
  const blocks *s = opaque;
  const int64_t first = position / BLOCK * BLOCK, end = first + BLOCK - (s->short_of_one && first);
  (void)head;
  runs[0] = (attn_run){first, (end < s->n ? end : s->n) - first, 1};
  return 1;
}

static bool sees(const void *opaque, int64_t head, int64_t position, int64_t key) {
  (void)opaque, (void)head;
  return position / BLOCK == key / BLOCK;
}

static void map(const void *state, const attn_context *c, const attn_feature_rows *x, void *f, int64_t f_row,
                double *scale) {
  const attn_dtype t = c->problem->dtype;
  (void)state;
  for (int64_t i = 0; i < x->rows; i++) {
    for (int64_t l = 0; l < c->problem->d_qk; l++) {
      const double value = attn_get(x->x, i * x->stride + l, t);
      attn_set(f, i * f_row + l, t, value > 0 ? value : 0);
    }
    if (scale) scale[i] = 0;
  }
}

static double kernel(const void *state, const attn_context *c, const attn_feature_pair *x, double *size) {
  double sum = 0;
  (void)state;
  for (int64_t l = 0; l < c->problem->d_qk; l++) sum += x->q[l] > 0 && x->k[l] > 0 ? x->q[l] * x->k[l] : 0;
  *size = sum;
  return sum;
}

static attn_cost cost(const attn_context *c) {
  if (fault_of(c) == F_relu) return attn_features_cost(c);
  attn_cost all = attn_softmax_cost(c, (double)c->problem->n_q * BLOCK / (c->problem->causal ? 2 : 1));
  const double times = fault_of(c) == F_cheap ? 0.01 : fault_of(c) == F_dear ? 10 : 1;
  return (attn_cost){all.mul_add * times, all.exp * times, all.bytes * times};
}

/* -- a plan of itself without the fault, whose output and whose rounding are changed -- */

static const char sound[] = "planted_declared";

static attn_status work_size(const attn_context *c, const attn_parts *parts, size_t *bytes) {
  size_t inner = 0;
  attn_carver carver = attn_carver_count(c);
  (void)parts;
  const attn_status status = attn_context_estimate(c, c->problem, sound, &inner, NULL);
  attn_carve(&carver, 1, 1, inner);
  *bytes = carver.used;
  return status;
}

static attn_status plan(attn_builder *b, const attn_parts *parts, void **out) {
  const attn_plan *inner = NULL;
  (void)parts;
  const attn_status status = attn_builder_plan(b, attn_builder_context(b)->problem, sound, &inner);
  *out = (void *)(uintptr_t)inner;
  return status;
}

static double factor_of(const attn_call *call) {
  switch (fault_of(call->context)) {
  case F_rounding:
    return 1.02;
  case F_loose:
    return call->context->problem->d_qk == 64 ? 1.02 : 1;
  case F_lse:
    return call->lse ? 1.5 : 1;
  default:
    return 1;
  }
}

static attn_status execute(const void *inner, const attn_call *call) {
  const attn_problem *p = call->context->problem;
  const double factor = factor_of(call);
  attn_carver carver = attn_carver_at(call, call->work);
  void *work = attn_carve(&carver, 1, 1, attn_plan_work_size(inner));
  const attn_status status =
      call->lse
          ? attn_plan_execute_lse(inner, call->q, call->k, call->v, call->kv_len, call->o, call->lse, work)
          : attn_plan_execute(inner, call->q, call->k, call->v, call->kv_len, call->o, work);
  for (int64_t line = 0; !status && factor > 1 && line < p->batch * p->heads; line++)
    for (int64_t i = 0; i < p->n_q; i++) {
      char *o = attn_at(attn_rows(call->o, p->o, line / p->heads, line % p->heads, p->dtype), i * p->o.row,
                        p->dtype);
      for (int64_t l = 0; l < p->d_v; l++) attn_set(o, l, p->dtype, factor * attn_get(o, l, p->dtype));
    }
  return status;
}

static void inspect(const void *inner, const attn_context *c, attn_view *view) {
  attn_view own;
  if (attn_plan_inspect(inner, &own)) return;
  view->pattern = own.pattern;
  view->rounding = own.rounding;
  if (fault_of(c) == F_rounding) view->rounding.weight = 0.03;
  if (fault_of(c) == F_loose && c->problem->d_qk == 64) view->rounding.unit = view->rounding.weight = 0x1p-8;
  if (fault_of(c) == F_generous) view->rounding.weight = view->rounding.operand = 0x1p-8;
}

/* -- its parts -- */

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  static const attn_method method = {
      .work_size = work_size, .plan = plan, .execute = execute, .inspect = inspect};
  const fault f = fault_of(c);
  const blocks own = {c->problem->n_kv, f == F_lawless};
  if (f == F_relu) {
    out->caps = ATTN_CAP_LINEAR & ~(uint32_t)ATTN_CAP_FEATURES;
    out->features = (attn_feature_map){
        .columns = c->problem->d_qk, .map = map, .law = {.kind = ATTN_FEATURES_FIXED, .kernel = kernel}};
    return ATTN_OK;
  }
  if (f == F_rounding || f == F_generous || f == F_lse || f == F_loose) {
    out->method = &method;
    return ATTN_OK;
  }
  if (f == F_exact) out->caps |= ATTN_CAP_EXACT;
  out->tiling.path = ATTN_PATH_FMA;
  out->pattern =
      (attn_pattern){.row = row, .max_runs = 1, .sees = f == F_lawless ? NULL : sees, .grain = BLOCK};
  return attn_builder_keep(b, &own, sizeof own, &out->pattern.state);
}

ATTN_VARIANT(planted_declared, .summary = "blocks, or rectified features, that declare too much",
             .cite = "none",
             .caps = ATTN_CAP_CAUSAL | ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_STOCHASTIC |
                     ATTN_CAP_CONVEX | ATTN_CAP_SHIFT | ATTN_CAP_LSE,
             .params = table, .params_size = sizeof(params), .describe = describe, .cost = cost)
