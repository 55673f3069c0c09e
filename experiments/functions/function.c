/* function.c - the variant that a function is: exact attention, or what the spec that it claims is made of,
 * with the function's outputs in place of an engine's. */
#include "experiments/functions/function.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/evidence/rounding/declared.h"
#include "experiments/functions/function_program.h"

typedef struct function {
  attn_variant variant; /* the first: a context's variant is the function's */
  function_program program;
  attn_spec *claim;    /* NULL: exact attention */
  pthread_mutex_t one; /* call at a time */
} function;

static const function *function_of(const attn_context *c) {
  return (const function *)(const void *)c->variant;
}

bool function_named(const char *operand) {
  return strncmp(operand, "python:", 7) == 0 || strncmp(operand, "command:", 8) == 0 ||
         strncmp(operand, "socket:", 7) == 0;
}

static attn_status refuse(const function *f, const char *what) {
  return attn_fail(ATTN_EUNSUPPORTED, "function %s: it takes no %s", f->program.name, what);
}

static attn_status applicable(const attn_context *c) {
  const function *f = function_of(c);
  const attn_problem *p = c->problem;
  const uint32_t takes = f->program.takes;
  if (!p->causal && !(takes & TAKES_FULL)) return refuse(f, "attention that is not causal");
  if (p->causal && p->n_q != p->n_kv && !(takes & TAKES_LAST))
    return refuse(f, "fewer queries than keys under a causal mask that ends at the last key");
  if (p->causal && p->n_q > p->n_kv) return refuse(f, "queries before the first key");
  if (p->kv_heads != p->heads && !(takes & TAKES_GROUPS)) return refuse(f, "heads that share keys");
  if (p->d_v != p->d_qk && !(takes & TAKES_WIDTHS)) return refuse(f, "values of another width than keys");
  if (!(takes & (p->dtype == ATTN_F64 ? TAKES_F64 : TAKES_F32)))
    return refuse(f, p->dtype == ATTN_F64 ? "float64" : "float32");
  return ATTN_OK;
}

static attn_status execute(const void *state, const attn_call *call) {
  (void)state;
  function *f = (function *)(uintptr_t)function_of(call->context);
  pthread_mutex_lock(&f->one);
  const attn_status status = function_program_call(&f->program, call);
  pthread_mutex_unlock(&f->one);
  return status;
}

static const attn_method method = {.execute = execute,
                                   .no_gradient = "a function of another program gives its outputs alone"};

static const attn_exemption elsewhere[] = {
    {ATTN_EXEMPT_BITS, "a function of another program: it may add in any order, and is called with copies"},
    {0, NULL}};

/* What the claimed spec is exempt from, and functions are. */
static attn_status join_exemptions(attn_builder *b, const attn_exemption *of_claim, attn_parts *out) {
  size_t count = 0;
  while (of_claim && of_claim[count].reason) count++;
  attn_exemption *all = attn_builder_alloc(b, (int64_t)count + 2, sizeof *all);
  if (!all) return ATTN_ENOMEM;
  if (count) memcpy(all, of_claim, count * sizeof *all);
  memcpy(all + count, elsewhere, sizeof elsewhere);
  out->exempt = all;
  return ATTN_OK;
}

/* The parts of the claimed spec, which live in a plan of it within this one. */
static attn_status take_parts(attn_builder *b, const attn_context *c, attn_parts *out) {
  const function *f = function_of(c);
  const attn_plan *plan = NULL;
  attn_view v;
  attn_status status = attn_builder_plan(b, c->problem, f->program.spec, &plan);
  if (!status) status = attn_plan_inspect(plan, &v);
  if (status) return status;
  if (v.expression || v.residual || v.relocation || v.toeplitz)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "function %s: %s is a sum or has a bias of its own, which no function can claim as yet",
                     f->program.name, f->program.spec);
  out->caps &= v.caps;
  if (v.pattern) out->pattern = *v.pattern;
  if (v.selector) out->selector = *v.selector;
  if (v.features) out->features = *v.features;
  if (v.projection) out->projection = *v.projection;
  if (v.recurrence) out->recurrence = *v.recurrence;
  if (v.store) out->store = *v.store;
  if (v.low_rank) out->low_rank = *v.low_rank;
  if (v.pooling) out->pooling = *v.pooling;
  if (v.normaliser) out->normaliser = *v.normaliser;
  return join_exemptions(b, v.exempt, out);
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  out->method = &method;
  out->rounding = rounding_textbook(c->problem);
  return function_of(c)->claim && b ? take_parts(b, c, out) : ATTN_OK;
}

static attn_cost cost(const attn_context *c) {
  const function *f = function_of(c);
  attn_cost result = attn_softmax_cost(c, attn_visible_pairs(c->problem));
  if (f->claim) (void)attn_context_estimate(c, c->problem, f->program.spec, NULL, &result);
  return result;
}

/* What functions of its kind can have; what it computes on tensors, without state or transforms. */
static uint32_t caps_of(const function *f) {
  const uint32_t takes = f->program.takes;
  uint32_t caps = ATTN_CAP_EXACT | ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX | ATTN_CAP_PERMUTATION |
                  ATTN_CAP_SHIFT | ATTN_CAP_CAUSAL | ATTN_CAP_CROSS | ATTN_CAP_PADDING;
  if (f->claim) caps = (caps | ATTN_CAP_DATA) & f->claim->variant->caps;
  if (!(takes & TAKES_CAUSAL)) caps &= ~(uint32_t)ATTN_CAP_CAUSAL;
  if (!(takes & TAKES_CROSS)) caps &= ~(uint32_t)ATTN_CAP_CROSS;
  if (!(takes & TAKES_KV_LEN)) caps &= ~(uint32_t)ATTN_CAP_PADDING;
  return caps;
}

bool function_lost(const attn_variant *v) {
  return v->describe == describe && function_program_lost(&((const function *)(const void *)v)->program);
}

static const attn_param none[] = {{.name = NULL}};

attn_status function_register(const char *operand, double limit, const char **spec) {
  function *f = calloc(1, sizeof *f);
  if (!f) return attn_fail(ATTN_ENOMEM, "no memory for a function");
  attn_status status = function_program_start(operand, limit, &f->program);
  if (status) {
    free(f);
    return status;
  }
  pthread_mutex_init(&f->one, NULL);
  if (*f->program.spec) status = attn_spec_parse(&f->claim, f->program.spec);
  f->variant = (attn_variant){.abi = ATTN_ABI,
                              .size = sizeof(attn_variant),
                              .name = f->program.name,
                              .summary = "a function of another program",
                              .cite = "none: a function of another program",
                              .caps = status ? 0 : caps_of(f),
                              .params = none,
                              .exempt = elsewhere,
                              .applicable = applicable,
                              .describe = describe,
                              .cost = cost};
  if (!status) status = attn_variant_register(&f->variant);
  if (!status) {
    *spec = f->program.name;
    return ATTN_OK;
  }
  function_program_end(&f->program);
  attn_spec_destroy(f->claim);
  free(f);
  return status;
}
