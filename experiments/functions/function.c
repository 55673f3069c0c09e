/* function.c - the variant that a function is: exact attention, or what the spec that it claims is made of,
 * with the function's outputs in place of an engine's. */
#include "experiments/functions/function.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/file.h"
#include "experiments/evidence/rounding/declared.h"
#include "experiments/functions/function_law.h"
#include "experiments/functions/function_tensors.h"

enum { OWN = PROPERTIES + 2 };

typedef struct function {
  attn_variant variant; /* the first: a context's variant is the function's */
  function_program program;
  attn_spec *claim; /* NULL: exact attention */
  char *operand;
  attn_param *params; /* of the claim, with its values as presets */
  char *values;
  attn_exemption exempt[OWN]; /* ends with one of no reason */
  pthread_mutex_t one;        /* call at a time */
} function;

enum { HALF_STEPS = 16 }; /* at which sums of one in 16 bits may be rounded */

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
  if (f->claim && !(takes & TAKES_SCALE) && !function_scale_is_usual(p))
    return refuse(f, "scale other than 1/sqrt(d)");
  if (p->causal && p->n_q != p->n_kv && !(takes & TAKES_LAST))
    return refuse(f, "fewer queries than keys under a causal mask that ends at the last key");
  if (p->n_q > p->n_kv && (p->causal || f->claim || takes & TAKES_SEES))
    return refuse(f, "queries before the first key");
  if (p->kv_heads != p->heads && !(takes & TAKES_GROUPS)) return refuse(f, "heads that share keys");
  if (p->d_v != p->d_qk && !(takes & TAKES_WIDTHS)) return refuse(f, "values of another width than keys");
  if (!(takes & (p->dtype == ATTN_F64 ? TAKES_F64 : TAKES_F32)))
    return refuse(f, p->dtype == ATTN_F64 ? "float64" : "float32");
  return ATTN_OK;
}

/* Has a head keys that are all alike, of which a selection may take any? */
static bool keys_tie(const attn_call *call) {
  const attn_problem *p = call->context->problem;
  for (int64_t line = 0; line < p->batch * p->kv_heads; line++) {
    const int64_t b = line / p->kv_heads, h = line % p->kv_heads, keys = attn_call_keys(call, b);
    const void *first = attn_row(call->k, p->k, b, h, 0, p->dtype);
    int64_t j = 1;
    while (j < keys &&
           memcmp(attn_row(call->k, p->k, b, h, j, p->dtype), first, attn_row_bytes(p->d_qk, p->dtype)) == 0)
      j++;
    if (j == keys && j > 1) return true;
  }
  return false;
}

/* Of a claim: a plan of its spec within this one, whose view is the function's, and what both are exempt
 * from. */
typedef struct claimed {
  const attn_plan *plan;
  bool selects;         /* keys by their scores */
  attn_pattern pattern; /* of a function that says which keys are seen */
  const attn_exemption *exempt;
} claimed;

static attn_status execute(const void *state, const attn_call *call) {
  const claimed *own = state;
  function *f = (function *)(uintptr_t)function_of(call->context);
  if (own->selects && keys_tie(call)) return refuse(f, "keys that are all alike, of which it may select any");
  pthread_mutex_lock(&f->one);
  const attn_status status = function_program_call(&f->program, call);
  pthread_mutex_unlock(&f->one);
  return status;
}

/* What every function is exempt from, and what this one says of itself. */
static void declare_exempt(function *f) {
  f->exempt[0] = (attn_exemption){
      ATTN_EXEMPT_BITS, "a function of another program: it may add in any order, and is called with copies"};
  memcpy(f->exempt + 1, f->program.exempt, sizeof f->program.exempt);
}

static attn_status ask_law(attn_builder *b, claimed *own) {
  function *f = (function *)(uintptr_t)function_of(attn_builder_context(b));
  if (!(f->program.takes & TAKES_SEES) || f->program.takes & TAKES_DRAWN) return ATTN_OK;
  pthread_mutex_lock(&f->one);
  const attn_status status = function_law_plan(b, &f->program, &own->pattern);
  pthread_mutex_unlock(&f->one);
  return status;
}

static attn_status plan(attn_builder *b, const attn_parts *parts, void **state) {
  const attn_context *c = attn_builder_context(b);
  const function *f = function_of(c);
  claimed *own = attn_builder_alloc(b, 1, sizeof *own);
  attn_view v;
  size_t count = 0;
  (void)parts;
  if (!own) return ATTN_ENOMEM;
  *own = (claimed){.exempt = f->exempt};
  *state = own;
  if (!f->claim) return ask_law(b, own);
  attn_status status = attn_builder_plan(b, c->problem, f->program.spec, &own->plan);
  if (!status) status = attn_plan_inspect(own->plan, &v);
  if (status) return status;
  own->selects = v.selector;
  if (own->selects && c->problem->scale == 0) return refuse(f, "scale of 0, at which all keys tie");
  while (v.exempt && v.exempt[count].reason) count++;
  attn_exemption *all = attn_builder_alloc(b, (int64_t)count + OWN, sizeof *all);
  if (!all) return ATTN_ENOMEM;
  if (count) memcpy(all, v.exempt, count * sizeof *all);
  memcpy(all + count, f->exempt, sizeof f->exempt);
  own->exempt = all;
  return ATTN_OK;
}

static void inspect(const void *state, const attn_context *c, attn_view *view) {
  const claimed *own = state;
  const attn_view plain = *view;
  (void)c;
  if (own->plan && attn_plan_inspect(own->plan, view)) *view = plain; /* it was inspected before */
  if (own->pattern.row) view->pattern = &own->pattern;
  view->caps &= plain.caps;
  view->exempt = own->exempt;
  view->rounding = plain.rounding;
  view->seed = NULL;
  view->budget = (attn_budget){NULL, NULL};
}

static const attn_method method = {.plan = plan,
                                   .execute = execute,
                                   .inspect = inspect,
                                   .no_gradient = "a function of another program gives its outputs alone"};

/* Sums in 16 bits are rightly those of more: what is rounded is operands, scores, weights and results. */
static attn_rounding rounding_of(const function *f, const attn_problem *p) {
  const attn_number *type = &attn_numbers[f->program.arithmetic];
  attn_rounding r = rounding_textbook(p);
  if (f->program.takes & TAKES_DRAWN) return (attn_rounding){.unit = 0};
  if (p->dtype != ATTN_F32 || f->program.arithmetic == ATTN_F32) return r;
  r.unit = r.operand = r.weight = r.exp_error = type->unit;
  r.score = r.value = r.sum = HALF_STEPS;
  r.underflow = 8 * type->subnormal;
  return r;
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  (void)b;
  out->method = &method;
  out->rounding = rounding_of(function_of(c), c->problem);
  return ATTN_OK;
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
  if (takes & TAKES_SEES) caps &= ~(uint32_t)(ATTN_CAP_EXACT | ATTN_CAP_PERMUTATION);
  if (takes & TAKES_DRAWN) caps &= ATTN_CAP_CAUSAL | ATTN_CAP_CROSS | ATTN_CAP_PADDING;
  if (!(takes & TAKES_CAUSAL)) caps &= ~(uint32_t)ATTN_CAP_CAUSAL;
  if (!(takes & TAKES_CROSS)) caps &= ~(uint32_t)ATTN_CAP_CROSS;
  if (!(takes & TAKES_KV_LEN)) caps &= ~(uint32_t)ATTN_CAP_PADDING;
  return caps;
}

bool function_lost(const attn_variant *v) {
  return v->describe == describe && function_program_lost(&((const function *)(const void *)v)->program);
}

static const double plugin_limit = 600; /* seconds of a call in a sweep */
static const attn_param none[] = {{.name = NULL}};

/* The parameters of the claim, which its parts may read, with its values as presets. Its canonical text has
 * all of them, in the order of the table. */
static attn_status copy_params(function *f) {
  const attn_param *of = f->claim->variant->params;
  int64_t count = 0;
  while (of[count].name) count++;
  f->params = calloc((size_t)count + 1, sizeof *f->params);
  f->values = strdup(f->claim->text + strcspn(f->claim->text, ":"));
  if (!f->params || !f->values) return attn_fail(ATTN_ENOMEM, "no memory for a function");
  char *at = f->values + (count > 0);
  for (int64_t i = 0; i < count; i++) {
    char *next = NULL, *end = text_format(",%s=", of[i + 1].name ? of[i + 1].name : "");
    if (!end) return ATTN_ENOMEM;
    f->params[i] = of[i];
    f->params[i].preset = at + strlen(of[i].name) + 1;
    if (of[i + 1].name) next = strstr(at, end);
    if (next) *next = '\0', at = next + 1;
    free(end);
  }
  return ATTN_OK;
}

static attn_status make_variant(function *f, const char *operand) {
  const char *spec = f->program.spec;
  const attn_variant *other;
  attn_status status = *spec ? attn_spec_parse(&f->claim, spec) : ATTN_OK;
  const bool parameters = !status && f->claim && !f->claim->expression;
  if (!status && parameters) status = copy_params(f);
  if (status) return status;
  declare_exempt(f);
  /* A function may well have the name of what it computes. */
  if (!attn_variant_find(f->program.name, &other) && other->describe != describe)
    strcat(f->program.name, "_");
  if (!(f->operand = strdup(operand))) return attn_fail(ATTN_ENOMEM, "no memory for a function");
  f->variant = (attn_variant){.abi = ATTN_ABI,
                              .size = sizeof(attn_variant),
                              .name = f->program.name,
                              .summary = "a function of another program",
                              .cite = "none: a function of another program",
                              .caps = caps_of(f),
                              .params = parameters ? f->params : none,
                              .params_size = parameters ? f->claim->variant->params_size : 0,
                              .exempt = f->exempt,
                              .applicable = applicable,
                              .describe = describe,
                              .cost = cost};
  return attn_variant_register(&f->variant);
}

attn_status function_register(const char *operand, double limit, const char **spec) {
  function *f = calloc(1, sizeof *f);
  if (!f) return attn_fail(ATTN_ENOMEM, "no memory for a function");
  attn_status status = function_program_start(operand, limit, &f->program);
  if (status) {
    free(f);
    return status;
  }
  pthread_mutex_init(&f->one, NULL);
  status = make_variant(f, operand);
  if (!status) {
    *spec = f->program.name;
    return ATTN_OK;
  }
  function_program_end(&f->program);
  attn_spec_destroy(f->claim);
  free(f->params);
  free(f->values);
  free(f->operand);
  free(f);
  return status;
}

attn_status function_load(const char *plugin) {
  const char *unused;
  return function_named(plugin) ? function_register(plugin, plugin_limit, &unused) : attn_plugin_load(plugin);
}

const char *function_operand(const attn_variant *v, const char **digest) {
  if (v->describe != describe) return NULL;
  const function *f = (const function *)(const void *)v;
  *digest = f->program.digest;
  return f->operand;
}
