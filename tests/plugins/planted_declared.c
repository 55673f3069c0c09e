/* planted_declared.c - a variant that declares more than it keeps: attention within blocks by the softmax
 * engine, or rectified features by the linear one, with what is wrong to choose. For cli/declared.c. */
#include "attn_variant.h"

typedef enum {
  NONE,
  ROUNDING, /* outputs 2 % too large, which it calls rounding of its weights */
  GENEROUS, /* nothing, and as much rounding as may be declared */
  LSE,      /* outputs are wrong whenever the log-sum-exp is wanted */
  LAWLESS,  /* blocks lack their last key, and no law says that they have it */
  CHEAP,    /* a hundredth of the cost */
  DEAR,     /* ten times the cost */
  RELU,     /* queries that share no feature with any key: 0/0 */
  EXACT,    /* that blocks are every key */
  LOOSE,    /* at d = 64 next to any rounding, and outputs 2 % too large there */
} fault;
static const char *const faults[] = {"none", "rounding", "generous", "lse",   "lawless", "cheap",
                                     "dear", "relu",     "exact",    "loose", NULL};
enum { BLOCK = 16 };

typedef struct params {
  int fault;
} params;

static const attn_param table[] = {
    {"fault", ATTN_CHOICE, offsetof(params, fault), 0, 0, "none", faults, "what is wrong"}, {.name = NULL}};

static fault fault_of(const attn_context *c) { return (fault)((const params *)c->params)->fault; }

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

static attn_feature_map features_of(const attn_context *c) {
  return (attn_feature_map){
      .columns = c->problem->d_qk, .map = map, .law = {.kind = ATTN_FEATURES_FIXED, .kernel = kernel}};
}

static attn_pattern pattern_of(const attn_context *c, blocks *s) {
  const bool lawless = fault_of(c) == LAWLESS;
  if (s) *s = (blocks){c->problem->n_kv, lawless};
  return (attn_pattern){.state = s, .row = row, .max_runs = 1, .sees = lawless ? NULL : sees, .grain = BLOCK};
}

static size_t work_size(const attn_context *c) {
  const attn_feature_map features = features_of(c);
  const attn_pattern pattern = pattern_of(c, NULL);
  return fault_of(c) == RELU ? attn_linear_work_size(c, &features)
                             : attn_softmax_work_size(c, &pattern, (attn_tiling){.path = ATTN_PATH_FMA});
}

static attn_cost cost(const attn_context *c) {
  const attn_feature_map features = features_of(c);
  if (fault_of(c) == RELU) return attn_linear_cost(c, &features);
  attn_cost all = attn_softmax_cost(c, (double)c->problem->n_q * BLOCK / (c->problem->causal ? 2 : 1));
  const double times = fault_of(c) == CHEAP ? 0.01 : fault_of(c) == DEAR ? 10 : 1;
  return (attn_cost){all.mul_add * times, all.exp * times, all.bytes * times};
}

/* The state is the engine's. */
static attn_status plan(attn_builder *b, void **out) {
  const attn_context *c = attn_builder_context(b);
  const attn_feature_map features = features_of(c);
  blocks *own = attn_builder_alloc(b, 1, sizeof *own);
  if (!own) return ATTN_ENOMEM;
  const attn_pattern pattern = pattern_of(c, own);
  return fault_of(c) == RELU ? attn_linear_plan(b, &features, out)
                             : attn_softmax_plan(b, &pattern, (attn_tiling){.path = ATTN_PATH_FMA}, out);
}

static double factor_of(const attn_call *call) {
  switch (fault_of(call->context)) {
  case ROUNDING:
    return 1.02;
  case LOOSE:
    return call->context->problem->d_qk == 64 ? 1.02 : 1;
  case LSE:
    return call->lse ? 1.5 : 1;
  default:
    return 1;
  }
}

static attn_status execute(const void *engine, const attn_call *call) {
  const attn_problem *p = call->context->problem;
  const double factor = factor_of(call);
  attn_status status = fault_of(call->context) == RELU ? attn_linear_execute(engine, call)
                                                       : attn_softmax_execute(engine, call);
  for (int64_t line = 0; !status && factor > 1 && line < p->batch * p->heads; line++)
    for (int64_t i = 0; i < p->n_q; i++) {
      char *o = attn_at(attn_rows(call->o, p->o, line / p->heads, line % p->heads, p->dtype), i * p->o.row,
                        p->dtype);
      for (int64_t l = 0; l < p->d_v; l++) attn_set(o, l, p->dtype, factor * attn_get(o, l, p->dtype));
    }
  return status;
}

static void inspect(const void *engine, const attn_context *c, attn_view *view) {
  if (fault_of(c) == RELU) {
    attn_linear_inspect(engine, c, view);
    view->caps = ATTN_CAP_CAUSAL | ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX |
                 ATTN_CAP_PERMUTATION;
    return;
  }
  attn_softmax_inspect(engine, c, view);
  if (fault_of(c) == ROUNDING) view->rounding.weight = 0.03;
  if (fault_of(c) == EXACT) view->caps |= ATTN_CAP_EXACT;
  if (fault_of(c) == LOOSE && c->problem->d_qk == 64) view->rounding.unit = view->rounding.weight = 0x1p-8;
  if (fault_of(c) == GENEROUS) view->rounding.weight = view->rounding.operand = 0x1p-8;
}

ATTN_VARIANT(planted_declared, .summary = "blocks, or rectified features, that declare too much",
             .cite = "none",
             .caps = ATTN_CAP_CAUSAL | ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_STOCHASTIC |
                     ATTN_CAP_CONVEX | ATTN_CAP_SHIFT | ATTN_CAP_LSE,
             .params = table, .params_size = sizeof(params), .work_size = work_size, .cost = cost,
             .plan = plan, .execute = execute, .inspect = inspect)
