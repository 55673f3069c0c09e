/* method.h - what variants of tests share: a description that is a method alone, how often a plan was
 * executed, the cost of exact attention, and a fault to choose. */
#ifndef TESTS_SUPPORT_METHOD_H
#define TESTS_SUPPORT_METHOD_H

#include "attn_variant.h"

/* The function `describe` of a method, whose members follow its rounding. */
#define DESCRIBE_METHOD(describe, rounding_, ...)                                 \
  attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) { \
    static const attn_method method = {__VA_ARGS__};                              \
    (void)b, (void)c;                                                             \
    out->method = &method;                                                        \
    out->rounding = rounding_;                                                    \
    return ATTN_OK;                                                               \
  }                                                                               \
  _Static_assert(1, "for a semicolon")
#define NO_ROUNDING ((attn_rounding){0})

/* As attn_method.plan: the state is a number that only count_execution changes. */
static inline attn_status plan_to_count(attn_builder *b, const attn_parts *parts, void **out) {
  (void)parts;
  int *executions = attn_builder_alloc(b, 1, sizeof *executions);
  if (!executions) return ATTN_ENOMEM;
  *executions = 0;
  *out = executions;
  return ATTN_OK;
}

/* How often the plan of this state has been executed, with this time. */
static inline int count_execution(const void *state) { return ++*(int *)(uintptr_t)state; }

static inline attn_cost exact_cost(const attn_context *c) {
  return attn_softmax_cost(c, attn_visible_pairs(c->problem));
}

/* Of FAULTS, a list of its argument applied to each name, "none" first: numbers F_NAME and texts. */
#define FAULT_NUMBER(name) F_##name
#define FAULT_NAME(name) #name
#define NAME_FAULTS                            \
  typedef enum { FAULTS(FAULT_NUMBER) } fault; \
  static const char *const faults[] = {FAULTS(FAULT_NAME), NULL}

/* They are the values of the only parameter. */
#define CHOOSE_FAULT(key, help)                                                                      \
  NAME_FAULTS;                                                                                       \
  typedef struct params {                                                                            \
    int fault;                                                                                       \
  } params;                                                                                          \
  static fault fault_of(const attn_context *c) { return (fault)((const params *)c->params)->fault; } \
  static const attn_param table[] = {                                                                \
      {key, ATTN_CHOICE, offsetof(params, fault), 0, 0, "none", faults, help}, {.name = NULL}}

#endif
