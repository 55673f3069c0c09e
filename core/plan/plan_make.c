/* plan_make.c - a variant prepared for a problem: validity, memory, inspection. */
#include "core/plan/plan.h"

#include <omp.h>
#include <string.h>

static const char *feature_missing(const attn_variant *v, const attn_problem *p) {
  const attn_score *s = &p->score;
  if (p->causal && !(v->caps & ATTN_CAP_CAUSAL)) return "causal attention";
  if (p->n_q != p->n_kv && !(v->caps & ATTN_CAP_CROSS)) return "n_q different from n_kv";
  if (p->mask.kind && !(v->caps & ATTN_CAP_MASK)) return "a mask";
  if ((p->q.stored || p->k.stored || p->v.stored || p->o.stored) && !(v->caps & ATTN_CAP_HALF))
    return "tensors stored in another type (f16, bf16, codes)";
  if (v->caps & ATTN_CAP_SCORE) return NULL;
  if (s->softcap > 0) return "a soft cap of the scores";
  if (s->leaky > 0) return "a leaky slope of the scores";
  if (s->relative && !(v->caps & ATTN_CAP_RELATIVE)) return "a bias of the distance";
  if (s->dense.at) return "a bias of the scores";
  return s->sink ? "a sink" : NULL;
}

/* The variant's own reason comes first, since it is more specific. */
attn_status attn_context_check(const attn_context *c) {
  const attn_variant *v = c->variant;
  attn_status status = v->applicable ? v->applicable(c) : ATTN_OK;
  if (status) return status;
  const char *missing = feature_missing(v, c->problem);
  return missing ? attn_fail(ATTN_EUNSUPPORTED, "variant %s: %s is not supported", v->name, missing)
                 : ATTN_OK;
}

attn_status attn_options_resolve(const attn_options *options, attn_dtype dtype, const attn_kernels **kernels,
                                 int *threads) {
  int wanted = options ? options->threads : 0;
  if (wanted < 0 || wanted > 4096)
    return attn_fail(ATTN_EINVAL, "options: threads = %d, expected 0 ... 4096", wanted);
  attn_status status = attn_kernels_select(options && options->isa ? options->isa : "", dtype, kernels);
  if (!status) *threads = wanted ? wanted : omp_get_max_threads();
  return status;
}

attn_status attn_options_fill(const attn_options *options, attn_dtype dtype, int64_t d_qk, int64_t d_v,
                              attn_options *out) {
  const attn_kernels *kernels;
  attn_options o = {0};
  if (!out) return attn_null("options", "result");
  if (options) o = *options;
  if (d_qk < 1 || d_v < 1)
    return attn_fail(ATTN_EINVAL, "options: rows of %lld and %lld elements", (long long)d_qk, (long long)d_v);
  attn_status status = attn_options_resolve(options, dtype, &kernels, &o.threads);
  if (!status) status = attn_blocks_resolve(options, kernels, d_qk, d_v, &o.blocks);
  if (status) return status;
  o.isa = kernels->isa;
  *out = o;
  return ATTN_OK;
}

/* What the problem takes from what the variant keeps. */
static uint32_t caps_left(uint32_t caps, const attn_problem *p) {
  const attn_score *s = &p->score;
  if (s->sink) caps &= ~(uint32_t)(ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX | ATTN_CAP_SHIFT);
  if (s->softcap > 0 || s->leaky > 0) caps &= ~(uint32_t)ATTN_CAP_SHIFT;
  if (s->relative || s->dense.at || p->mask.kind) caps &= ~(uint32_t)ATTN_CAP_PERMUTATION;
  return caps;
}

static attn_status make_context(const attn_problem *problem, const attn_options *options,
                                const attn_spec *spec, attn_problem *resolved, attn_context *out) {
  attn_problem p = *problem;
  attn_context c = {
      .problem = resolved, .variant = spec->variant, .params = spec->params, .expression = spec->expression};
  attn_status status = attn_problem_resolve(&p);
  if (status) return status;
  if (p.positions.shift || p.positions.key)
    return attn_fail(ATTN_EINVAL, "problem: positions must be zero in a plan, they come with each call");
  if ((status = attn_options_resolve(options, p.dtype, &c.kernels, &c.threads))) return status;
  if ((status = attn_blocks_resolve(options, c.kernels, p.d_qk, p.d_v, &c.blocks))) return status;
  *resolved = p;
  *out = c;
  return attn_context_check(out);
}

attn_status plan_work_size(const attn_context *c, const attn_parts *parts, size_t *out) {
  size_t bytes;
  const attn_status status = attn_parts_work_size(c, parts, &bytes);
  if (status) return status;
  if (bytes > PTRDIFF_MAX - PLAN_ALIGNMENT)
    return attn_fail(ATTN_EINVAL, "variant %s: the size of its work memory overflows", c->variant->name);
  *out = bytes ? bytes + PLAN_ALIGNMENT : 0;
  return ATTN_OK;
}

/* The same before there is a plan. */
static attn_status estimate_work_size(const attn_context *c, size_t *out) {
  attn_parts parts;
  const attn_status status = attn_describe(NULL, c, &parts);
  return status ? status : plan_work_size(c, &parts, out);
}

attn_status attn_estimate_spec(const attn_problem *problem, const attn_spec *spec,
                               const attn_options *options, size_t *work_size, attn_cost *cost) {
  attn_problem resolved;
  attn_context c;
  if (!problem) return attn_null("estimate", "problem");
  if (!spec) return attn_null("estimate", "spec");
  attn_status status = make_context(problem, options, spec, &resolved, &c);
  if (!status) status = attn_score_check_arrays(&resolved);
  if (!status && work_size) status = estimate_work_size(&c, work_size);
  if (!status && cost) *cost = spec->variant->cost(&c);
  return status;
}

attn_status attn_estimate(const attn_problem *problem, const char *text, const attn_options *options,
                          size_t *work_size, attn_cost *cost) {
  attn_spec *spec = NULL;
  if (!problem) return attn_null("estimate", "problem");
  if (!text) return attn_null("estimate", "spec");
  attn_status status = attn_spec_parse(&spec, text);
  if (!status) status = attn_estimate_spec(problem, spec, options, work_size, cost);
  attn_spec_destroy(spec);
  return status;
}

static void release_spec(void *spec) { attn_spec_destroy(spec); }

/* The parts, which may need no more work memory than was estimated, and what their method makes of them. */
static attn_status plan_parts(attn_plan *plan, attn_builder *b) {
  const attn_method *method;
  size_t bytes = 0;
  attn_status status = attn_describe(b, &plan->context, &plan->parts);
  if (!status) status = plan_work_size(&plan->context, &plan->parts, &bytes);
  if (status) return status;
  if (bytes > plan->work_size)
    return attn_fail(ATTN_EINVAL,
                     "variant %s: describe gives parts that work in %zu bytes, and without a builder in %zu",
                     plan->context.variant->name, bytes, plan->work_size);
  method = plan->parts.method;
  return method->plan ? method->plan(b, &plan->parts, &plan->state) : ATTN_OK;
}

/* A plan in the caller's memory, which stays the caller's where this fails. */
static attn_status make_plan(attn_plan **out, const attn_problem *problem, const attn_spec *spec,
                             const attn_options *options, attn_arena *arena, attn_arena *scratch) {
  attn_status status = attn_arena_own(arena, attn_spec_share(spec), release_spec);
  if (status) return status;
  attn_plan *plan = attn_arena_alloc(arena, 1, sizeof *plan);
  if (!plan) return ATTN_ENOMEM;
  *plan = (attn_plan){.spec = spec};
  if ((status = make_context(problem, options, spec, &plan->problem, &plan->context))) return status;
  if ((status = attn_score_check_arrays(&plan->problem))) return status;
  if ((status = attn_score_keep(&plan->problem, arena))) return status;
  attn_builder builder = {.context = plan->context, .arena = arena, .scratch = scratch};
  if ((status = estimate_work_size(&plan->context, &plan->work_size))) return status;
  if ((status = attn_threads_enter(plan->context.threads))) return status;
  if ((status = plan_parts(plan, &builder))) return status;
  plan->gradients = !attn_plan_backward_size(plan, &(size_t){0});
  *out = plan;
  return ATTN_OK;
}

static attn_status make_outer_plan(attn_plan **out, const attn_problem *problem, const attn_spec *spec,
                                   const attn_options *options) {
  attn_arena arena = {.allocator = options && options->allocator ? *options->allocator : attn_allocator_libc};
  attn_arena scratch = {.allocator = arena.allocator};
  attn_plan *plan = NULL;
  attn_status status = make_plan(&plan, problem, spec, options, &arena, &scratch);
  attn_arena_free(&scratch);
  if (status) {
    attn_arena_free(&arena);
    return status;
  }
  plan->arena = arena;
  *out = plan;
  return ATTN_OK;
}

/* -- plans within plans -- */

static attn_options inner_options(const attn_context *c) {
  return (attn_options){.threads = c->threads, .isa = c->kernels->isa, .blocks = c->blocks};
}

attn_status attn_builder_plan_spec(attn_builder *b, const attn_problem *problem, const attn_spec *spec,
                                   const attn_plan **out) {
  const attn_options options = inner_options(&b->context);
  attn_plan *plan = NULL;
  attn_status status = make_plan(&plan, problem, spec, &options, b->arena, b->scratch);
  if (!status) *out = plan;
  return status;
}

attn_status attn_builder_plan(attn_builder *b, const attn_problem *problem, const char *text,
                              const attn_plan **out) {
  if (!b) return attn_null("inner plan", "builder");
  if (!problem) return attn_null("inner plan", "problem");
  if (!text) return attn_null("inner plan", "spec");
  if (!out) return attn_null("inner plan", "plan");
  attn_spec *spec = NULL;
  attn_status status = attn_spec_parse(&spec, text);
  if (!status) status = attn_builder_plan_spec(b, problem, spec, out);
  attn_spec_destroy(spec);
  return status;
}

attn_status attn_context_estimate_spec(const attn_context *c, const attn_problem *problem,
                                       const attn_spec *spec, size_t *work_size, attn_cost *cost) {
  const attn_options options = inner_options(c);
  return attn_estimate_spec(problem, spec, &options, work_size, cost);
}

attn_status attn_context_estimate(const attn_context *c, const attn_problem *problem, const char *text,
                                  size_t *work_size, attn_cost *cost) {
  if (!c) return attn_null("estimate", "context");
  const attn_options options = inner_options(c);
  return attn_estimate(problem, text, &options, work_size, cost);
}

attn_status attn_plan_create_spec(attn_plan **out, const attn_problem *problem, const attn_spec *spec,
                                  const attn_options *options) {
  if (!out) return attn_null("plan", "plan");
  if (!problem) return attn_null("plan", "problem");
  if (!spec) return attn_null("plan", "spec");
  if (options && options->allocator && !(options->allocator->alloc && options->allocator->release))
    return attn_null("options", options->allocator->alloc ? "allocator.release" : "allocator.alloc");
  fenv_t outer;
  attn_float_enter(&outer);
  attn_status status = make_outer_plan(out, problem, spec, options);
  attn_float_leave(&outer);
  return status;
}

attn_status attn_plan_create(attn_plan **out, const attn_problem *problem, const char *text,
                             const attn_options *options) {
  attn_spec *spec = NULL;
  fenv_t outer;
  if (!out) return attn_null("plan", "plan");
  if (!problem) return attn_null("plan", "problem");
  if (!text) return attn_null("plan", "spec");
  attn_float_enter(&outer);
  attn_status status = attn_spec_parse(&spec, text);
  attn_float_leave(&outer);
  if (!status) status = attn_plan_create_spec(out, problem, spec, options);
  attn_spec_destroy(spec);
  return status;
}

void attn_plan_destroy(attn_plan *plan) {
  if (!plan) return;
  attn_arena arena = plan->arena; /* the plan itself lives in it */
  attn_arena_free(&arena);
}

bool attn_plan_settles(const attn_plan *p) {
  const attn_method *m = p->parts.method;
  return (m == &attn_engine_softmax.method || m == &attn_engine_selection.method) &&
         !(p->parts.tiling.skip > 0);
}

attn_status attn_plan_inspect(const attn_plan *plan, attn_view *view) {
  if (!plan) return attn_null("inspect", "plan");
  if (!view) return attn_null("inspect", "view");
  const attn_variant *variant = plan->spec->variant;
  *view = attn_parts_view(variant, &plan->parts);
  if (plan->parts.method->inspect) plan->parts.method->inspect(plan->state, &plan->context, view);
  view->caps = caps_left(view->caps, &plan->problem);
  view->gradients = plan->gradients;
  attn_status status = attn_view_check(variant, view);
  return status ? status : attn_rounding_check(variant->name, &plan->problem, &view->rounding);
}

size_t attn_plan_work_size(const attn_plan *plan) { return plan ? plan->work_size : 0; }

size_t attn_plan_state_size(const attn_plan *plan) {
  if (!plan || !(attn_parts_kinds(&plan->parts) & ATTN_PART_RECURRENCE) || plan->parts.recurrence.normalised)
    return 0;
  const attn_problem *p = &plan->problem;
  return attn_size_times((size_t)(p->batch * p->heads),
                         attn_size_times((size_t)p->d_qk, (size_t)p->d_v) * attn_dtype_size(p->dtype));
}
size_t attn_plan_bytes(const attn_plan *plan) { return plan ? plan->arena.bytes : 0; }
attn_cost attn_plan_cost(const attn_plan *plan) {
  return plan ? plan->spec->variant->cost(&plan->context) : (attn_cost){0};
}
const attn_problem *attn_plan_problem(const attn_plan *plan) { return plan ? &plan->problem : NULL; }
const attn_context *attn_plan_context(const attn_plan *plan) { return plan ? &plan->context : NULL; }
const attn_variant *attn_plan_variant(const attn_plan *plan) { return plan ? plan->spec->variant : NULL; }
const char *attn_plan_spec(const attn_plan *plan) { return plan ? plan->spec->text : NULL; }
const attn_spec *attn_plan_parsed_spec(const attn_plan *plan) { return plan ? plan->spec : NULL; }
const char *attn_plan_isa(const attn_plan *plan) { return plan ? plan->context.kernels->isa : NULL; }
