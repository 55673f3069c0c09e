/* residual.c - a head of exact keys and features of all others. Of the keys that query i sees H(i) are the
 * head's:
 *
 *   o = (sum_H A_j v_j + N) / (sum_H A_j + D),   A_j = exp(score),   A^_j = gain phi(q).phi(k_j),
 *   N = sum_seen A^_j v_j - sum_H A^_j v_j,       D likewise
 *
 * so that a key has its exact weight, or that of its features, and no key has both (ScatterBrain, Chen et al.
 * 2021, arXiv:2110.15343). The head is the softmax engine's, with its log-sum-exp; the sums over all keys
 * that are seen are the linear engine's, which takes out of them what the head has (residual_rows.c).
 *
 * D is a difference. Where the joined denominator is not above what rounding may make of it, the row is NaN:
 * a smaller one says nothing, and one below 0 turns the row round. */
#include "core/engines/linear/linear_engine.h"

#include <math.h>

typedef struct residual {
  const attn_parts *parts;
  attn_residual of;     /* these */
  void *head;           /* its engine's state */
  attn_problem problem; /* attn_problem_unrounded */
} residual;

/* The engine of the head, which looks at its own parts alone. */
static const attn_method *head_of(const attn_parts *p) {
  return p->pattern.row ? &attn_engine_softmax.method : &attn_engine_selection.method;
}

/* phi(q).phi(k) estimates the kernel (the exponential of the score, or another one) times 1 / gain. */
static double gain_of(const attn_feature_map *m) {
  const attn_feature_law *law = &m->law;
  switch (law->kind) {
  case ATTN_FEATURES_HYPERBOLIC:
    return 1 / (2 * (double)law->vectors);
  case ATTN_FEATURES_UNKNOWN:
  case ATTN_FEATURES_FIXED:
    return 1;
  default:
    return 1 / (double)law->vectors;
  }
}

static bool never_negative(const attn_feature_law *law) {
  return law->kind == ATTN_FEATURES_POSITIVE || law->kind == ATTN_FEATURES_HYPERBOLIC ||
         law->kind == ATTN_FEATURES_RELU;
}

/* Roundings of a term on its way into a row's sums: within its segment, whose references change from chunk to
 * chunk, of the segments, of the features' product, and in what is taken out again. */
static int64_t chain_of(const attn_problem *p, int64_t columns) {
  const int64_t segments = attn_ceil_div(p->n_kv, SEGMENT), chunks = attn_ceil_div(p->n_kv, CHUNK);
  return attn_min(SEGMENT, p->n_kv) + 3 * (SEGMENT / CHUNK + segments) + columns + CHUNK + chunks + 8;
}

static linear_residual shape_of(const attn_context *c, const attn_parts *x) {
  const bool pattern = x->pattern.row;
  const double chain =
      (double)chain_of(c->problem, x->features.columns) * attn_numbers[c->problem->dtype].unit;
  return (linear_residual){.pattern = pattern ? &x->pattern : NULL,
                           .max_runs = pattern ? x->pattern.max_runs : x->selector.max_runs,
                           .picker_bytes = pattern ? 0 : attn_selection_picker_bytes(c, &x->selector),
                           .gain = log(gain_of(&x->features)),
                           .norms = !never_negative(&x->features.law),
                           .rounding = chain < 1 ? chain / (1 - chain) : (double)INFINITY};
}

/* ---- planning ---------------------------------------------------------------------------------------- */

static bool accepts(const attn_parts *p) {
  const unsigned kinds = attn_parts_kinds(p);
  return kinds == (ATTN_PART_FEATURES | ATTN_PART_PATTERN) ||
         kinds == (ATTN_PART_FEATURES | ATTN_PART_SELECTOR);
}

static attn_status check_parts(const attn_context *c, const attn_parts *x) {
  const char *name = c->variant->name;
  if (x->selector.weighted)
    return attn_fail(
        ATTN_EINVAL,
        "variant %s: weighted keys already represent the rest, so features cannot be added for it", name);
  if (x->selector.order)
    return attn_fail(ATTN_EINVAL,
                     "variant %s: features cannot be joined with a selector that orders the queries", name);
  if (x->features.unnormalised)
    return attn_fail(ATTN_EINVAL, "variant %s: sums without a denominator cannot be joined with exact keys",
                     name);
  if (x->features.eps > 0)
    return attn_fail(ATTN_EINVAL,
                     "variant %s: eps = %g biases the features; joined with exact keys they need eps = 0",
                     name, x->features.eps);
  if (!attn_problem_plain(c->problem))
    return attn_fail(ATTN_EUNSUPPORTED, "variant %s: features support neither score transforms nor masks",
                     name);
  return ATTN_OK;
}

/* The workspace: the head's log-sum-exp and its own, then the linear engine's. */
typedef struct layout {
  void *lse, *head, *linear;
  void *o; /* of parts, where outputs are stored in another type */
} layout;

static layout lay_out(const linear_shape *s, size_t head, bool rounded, attn_carver *carver) {
  const attn_problem *p = s->p;
  return (layout){
      .lse = attn_carve(carver, p->batch * p->heads, p->n_q, sizeof(double)),
      .head = attn_carve(carver, 1, 1, head),
      .linear = attn_carve(carver, 1, 1, linear_work_size(s)),
      .o = attn_carve(carver, rounded ? p->batch * p->heads * p->n_q : 0, p->d_v, attn_dtype_size(p->dtype))};
}

static attn_status work_size(const attn_context *c, const attn_parts *x, size_t *bytes) {
  const attn_problem problem = attn_problem_unrounded(c->problem);
  attn_context parts = *c;
  parts.problem = &problem;
  size_t head = 0;
  attn_status status = check_parts(c, x);
  if (!status) status = head_of(x)->work_size(&parts, x, &head);
  if (status) return status;
  const linear_residual own = shape_of(&parts, x);
  linear_shape s = linear_shape_make(&parts, &x->features);
  s.residual = &own;
  attn_carver counter = attn_carver_count(c);
  lay_out(&s, head, c->problem->o.stored, &counter);
  *bytes = counter.used;
  return ATTN_OK;
}

static attn_status plan(attn_builder *b, const attn_parts *x, void **state) {
  const bool pattern = x->pattern.row;
  residual *r = attn_builder_alloc(b, 1, sizeof *r);
  if (!r) return ATTN_ENOMEM;
  *r = (residual){.parts = x,
                  .of = {.pattern = pattern ? &x->pattern : NULL,
                         .selector = pattern ? NULL : &x->selector,
                         .features = &x->features},
                  .problem = attn_problem_unrounded(b->context.problem)};
  attn_builder parts = *b;
  parts.context.problem = &r->problem;
  *state = r;
  return head_of(x)->plan(&parts, x, &r->head);
}

static void inspect(const void *state, const attn_context *c, attn_view *view) {
  const residual *r = state;
  (void)c;
  view->residual = &r->of;
  if (view->selector) view->caps |= ATTN_CAP_DATA;
  view->pattern = NULL;
  view->selector = NULL;
  view->features = NULL;
}

attn_cost attn_residual_cost(const attn_context *c, const attn_feature_map *map, double pairs) {
  if (!c || !map) return (attn_cost){0};
  const attn_problem *p = c->problem;
  return (attn_cost){.mul_add = (double)(p->batch * p->heads) * pairs * (double)(map->columns + p->d_v)};
}

/* ---- execution --------------------------------------------------------------------------------------- */

static attn_status execute(const void *state, const attn_call *call) {
  const residual *r = state;
  const attn_context *c = call->context;
  attn_status status = linear_check(call);
  if (status) return status;
  const bool rounded = c->problem->o.stored;
  size_t head = 0;
  attn_context parts = *c;
  parts.problem = &r->problem;
  if ((status = head_of(r->parts)->work_size(&parts, r->parts, &head))) return status;
  linear_shape s = linear_shape_make(&parts, &r->parts->features);
  linear_residual own = shape_of(&parts, r->parts);
  own.head = r->head;
  s.residual = &own;
  attn_carver carver = attn_carver_at(call, call->work);
  const layout l = lay_out(&s, head, rounded, &carver);
  attn_call joined = *call;
  joined.context = &parts;
  if (rounded) joined.o = l.o;
  own.call = joined;
  own.call.work = l.head;
  if (!call->lse) own.call.lse = l.lse;
  status = head_of(r->parts)->execute(r->head, &own.call);
  if (!status) linear_execute(&s, &joined, l.linear);
  if (!status && rounded) attn_store_outputs(call, l.o);
  return status;
}

const attn_engine attn_engine_residual = {
    "residual",
    accepts,
    {.work_size = work_size,
     .plan = plan,
     .execute = execute,
     .inspect = inspect,
     .no_gradient = "the derivative of features beside exact keys is not written"}};
