/* checks_shown.h - a variant with the parameters of another, which it executes, and whose view it shows
 * changed. */
#ifndef TESTS_SUPPORT_CHECKS_SHOWN_H
#define TESTS_SUPPORT_CHECKS_SHOWN_H

#include "tests/support/checks_case.h"
#include "tests/support/method.h"

/* The other's name, and what is changed, if anything; set before a plan is made. */
static struct shown {
  const char *of;
  void (*change)(attn_view *);
} shown;

static void shown_spec(const attn_context *c, const char *of, char *spec, size_t size) {
  size_t used = (size_t)snprintf(spec, size, "%s", of);
  for (const attn_param *p = c->variant->params; p->name; p++) {
    char value[64];
    attn_param_print(p, c->params, value, sizeof value);
    used += (size_t)snprintf(spec + used, size - used, "%c%s=%s", p == c->variant->params ? ':' : ',',
                             p->name, value);
  }
}

/* As attn_method.plan: a plan of the other is the state. */
static attn_status shown_plan_of(attn_builder *b, const char *of, void **state) {
  const attn_context *c = attn_builder_context(b);
  const attn_plan *inner = NULL;
  char spec[400];
  shown_spec(c, of, spec, sizeof spec);
  const attn_status status = attn_builder_plan(b, c->problem, spec, &inner);
  *state = (void *)(uintptr_t)inner;
  return status;
}

static inline attn_status shown_plan(attn_builder *b, const attn_parts *parts, void **state) {
  (void)parts;
  return shown_plan_of(b, shown.of, state);
}

static attn_status shown_work_size_of(const attn_context *c, const char *of, size_t *bytes) {
  char spec[400];
  shown_spec(c, of, spec, sizeof spec);
  return attn_context_estimate(c, c->problem, spec, bytes, NULL);
}

static inline attn_status shown_work_size(const attn_context *c, const attn_parts *parts, size_t *bytes) {
  (void)parts;
  return shown_work_size_of(c, shown.of, bytes);
}

static inline attn_status shown_execute(const void *inner, const attn_call *call) {
  return attn_call_run(call, inner, call->o, call->lse, call->work);
}

static inline void shown_inspect(const void *inner, const attn_context *c, attn_view *view) {
  (void)c;
  cr_assert_eq(attn_plan_inspect(inner, view), ATTN_OK, "%s", attn_last_error());
  if (shown.change) shown.change(view);
}

static inline DESCRIBE_METHOD(shown_describe, NO_ROUNDING, .work_size = shown_work_size, .plan = shown_plan,
                              .execute = shown_execute, .inspect = shown_inspect);

/* Registers it as `name`, and says what is changed. */
static inline void show_as(const char *of, const char *name, void (*change)(attn_view *)) {
  const attn_variant *known;
  if (attn_variant_find(name, &known)) variant_described(of, name, shown_describe);
  shown = (struct shown){of, change};
}

#endif
