/* residual.c - a head of exact keys and features of all others. Of the keys that query i sees H(i) are the head's:
 *
 *   o = (sum_H A_j v_j + N) / (sum_H A_j + D),   A_j = exp(score),   A^_j = gain phi(q).phi(k_j),
 *   N = sum_seen A^_j v_j - sum_H A^_j v_j,       D likewise
 *
 * so that a key has its exact weight, or that of its features, and no key has both (ScatterBrain, Chen et al. 2021,
 * arXiv:2110.15343). The head is the softmax engine's, with its log-sum-exp; the sums over all keys that are seen are
 * the linear engine's, which takes out of them what the head has (residual_rows.c).
 *
 * D is a difference. Where the joined denominator is not above what rounding may make of it, the row is NaN: a smaller
 * one says nothing, and one below 0 turns the row round. */
#include "core/engines/linear/linear.h"

#include <math.h>

typedef struct residual {
  attn_pattern pattern;
  attn_selector selector;
  attn_feature_map features;
  attn_residual of;     /* these */
  void *head;           /* the engine's state */
  attn_problem problem; /* attn_problem_unrounded */
} residual;

/* phi(q).phi(k) estimates the exponential of the score, or what else stands for it, times 1 / gain. */
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

/* Roundings of a term on its way into a row's sums: within its segment, whose references change from chunk to chunk, of
 * the segments, of the features' product, and in what is taken out again. */
static int64_t chain_of(const attn_problem *p, int64_t columns) {
  const int64_t segments = attn_ceil_div(p->n_kv, SEGMENT), chunks = attn_ceil_div(p->n_kv, CHUNK);
  return attn_min(SEGMENT, p->n_kv) + 3 * (SEGMENT / CHUNK + segments) + columns + CHUNK + chunks + 8;
}

static linear_residual shape_of(const attn_context *c, const attn_residual *x) {
  const double chain =
      (double)chain_of(c->problem, x->features->columns) * attn_numbers[c->problem->dtype].unit;
  return (linear_residual){.pattern = x->pattern,
                           .max_runs = x->pattern ? x->pattern->max_runs : x->selector->max_runs,
                           .picker_bytes = x->selector ? attn_selection_picker_bytes(c, x->selector) : 0,
                           .gain = log(gain_of(x->features)),
                           .norms = !never_negative(&x->features->law),
                           .rounding = chain < 1 ? chain / (1 - chain) : (double)INFINITY};
}

/* ---- planning ------------------------------------------------------------------------------------------- */

static attn_status check(const attn_context *c, const attn_residual *x) {
  const char *name = c->variant->name;
  if (!x) return attn_null("residual", "residual");
  if (!x->pattern == !x->selector)
    return attn_fail(ATTN_EINVAL,
                     "variant %s: a residual needs a pattern or a selector of its head, one of them", name);
  attn_status status = attn_feature_map_check(name, x->features);
  if (status) return status;
  if (x->selector && x->selector->weighted)
    return attn_fail(
        ATTN_EUNSUPPORTED,
        "variant %s: keys with weights of their own stand for others, of which features cannot be "
        "the rest",
        name);
  if (x->selector && x->selector->order)
    return attn_fail(ATTN_EUNSUPPORTED, "variant %s: features join no head that orders its queries", name);
  if (x->features->unnormalised)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "variant %s: sums without a denominator cannot be joined with exact keys", name);
  if (x->features->eps > 0)
    return attn_fail(
        ATTN_EUNSUPPORTED,
        "variant %s: eps = %g adds the same to all features, which estimate nothing then; joined "
        "with exact keys they need eps = 0",
        name, x->features->eps);
  if (!attn_problem_plain(c->problem))
    return attn_fail(ATTN_EUNSUPPORTED, "variant %s: features know scores as they are, and no mask", name);
  return ATTN_OK;
}

static size_t head_bytes(const attn_context *c, const attn_residual *x) {
  return x->pattern ? attn_softmax_work_size(c, x->pattern, (attn_tiling){0})
                    : attn_selection_work_size(c, x->selector);
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

size_t attn_residual_work_size(const attn_context *c, const attn_residual *x) {
  if (!c) {
    attn_null("residual", "context");
    return SIZE_MAX;
  }
  if (check(c, x)) return SIZE_MAX;
  const attn_problem problem = attn_problem_unrounded(c->problem);
  attn_context parts = *c;
  parts.problem = &problem;
  const size_t head = head_bytes(&parts, x);
  if (head == SIZE_MAX) return SIZE_MAX;
  const linear_residual own = shape_of(&parts, x);
  linear_shape s = linear_shape_make(&parts, x->features);
  s.residual = &own;
  attn_carver counter = attn_carver_count(c);
  lay_out(&s, head, c->problem->o.stored, &counter);
  return counter.used;
}

attn_status attn_residual_plan(attn_builder *b, const attn_residual *x, void **state) {
  if (!b) return attn_null("residual", "builder");
  if (!state) return attn_null("residual", "state");
  const attn_context *c = &b->context;
  attn_status status = check(c, x);
  if (!status) status = attn_engine_room(c, "residual", attn_residual_work_size(c, x));
  residual *r = status ? NULL : attn_builder_alloc(b, 1, sizeof *r);
  if (!r) return status ? status : ATTN_ENOMEM;
  *r = (residual){.features = *x->features,
                  .of = {.features = &r->features},
                  .problem = attn_problem_unrounded(c->problem)};
  attn_builder parts = *b;
  parts.context.problem = &r->problem;
  if (x->pattern) {
    r->pattern = *x->pattern;
    r->of.pattern = &r->pattern;
    status = attn_softmax_plan(&parts, &r->pattern, (attn_tiling){0}, &r->head);
  } else {
    r->selector = *x->selector;
    r->of.selector = &r->selector;
    status = attn_selection_plan(&parts, &r->selector, &r->head);
  }
  if (!status) *state = r;
  return status;
}

void attn_residual_inspect(const void *state, const attn_context *c, attn_view *view) {
  const residual *r = state;
  (void)c;
  if (!r || !view) return;
  view->residual = &r->of;
  if (r->of.selector) view->caps |= ATTN_CAP_DATA;
}

attn_cost attn_residual_cost(const attn_context *c, const attn_feature_map *map, double pairs) {
  if (!c || !map) return (attn_cost){0};
  const attn_problem *p = c->problem;
  return (attn_cost){.mul_add = (double)(p->batch * p->heads) * pairs * (double)(map->columns + p->d_v)};
}

/* ---- execution ------------------------------------------------------------------------------------------ */

attn_status attn_residual_execute(const void *state, const attn_call *call) {
  if (!call) return attn_null("residual", "call");
  const residual *r = state;
  const attn_context *c = call->context;
  if (!r) return attn_no_state(c, "residual");
  attn_status status = linear_check(call);
  if (status) return status;
  const bool rounded = c->problem->o.stored;
  attn_context parts = *c;
  parts.problem = &r->problem;
  linear_shape s = linear_shape_make(&parts, &r->features);
  linear_residual own = shape_of(&parts, &r->of);
  own.head = r->head;
  s.residual = &own;
  attn_carver carver = attn_carver_at(call, call->work);
  const layout l = lay_out(&s, head_bytes(&parts, &r->of), rounded, &carver);
  attn_call joined = *call;
  joined.context = &parts;
  if (rounded) joined.o = l.o;
  own.call = joined;
  own.call.work = l.head;
  if (!call->lse) own.call.lse = l.lse;
  status =
      own.pattern ? attn_softmax_execute(r->head, &own.call) : attn_selection_execute(r->head, &own.call);
  if (!status) linear_execute(&s, &joined, l.linear);
  if (!status && rounded) attn_store_outputs(call, l.o);
  return status;
}
