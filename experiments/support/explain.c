/* explain.c - see explain.h. What a term does is told from what its own plan shows. */
#include "experiments/support/explain.h"

#include <stdlib.h>

#include "data/support/file.h"
#include "experiments/support/escape.h"
#include "experiments/support/label.h"

static const char *keys_of(const attn_view *v, bool first) {
  const attn_selector *s = v->selector;
  if (v->caps & ATTN_CAP_EXACT || (s && s->every))
    return first ? "takes every key" : "takes every key that remains";
  if (v->pattern)
    return first ? "takes the keys of its pattern" : "takes those keys of its pattern that remain";
  if (s && s->weighted && s->log_weight && !s->moments)
    return "takes keys, some of which count several times";
  if (s && s->weighted && first) return "draws keys, which stand with weights for all";
  if (s && s->weighted) return "draws among the keys that remain, for which those drawn stand with weights";
  if (s && first) return "selects keys by Q and K";
  if (s && s->restricts) return "selects by Q and K among the keys that remain";
  if (s) return "selects by Q and K among all keys, and takes those that remain";
  return "attends";
}

static char *does(const attn_problem *p, const attn_spec *term, const attn_expression *x,
                  attn_expression_kind of, bool first) {
  attn_plan *plan = NULL;
  attn_view view;
  char *text;
  if (of == ATTN_EXPRESSION_STORED && !first) return text_format("holds keys and values");
  if (x->given) return text_format("its output, times the call's gate, or %g, is added", x->gate);
  if (of == ATTN_EXPRESSION_SUM) return text_format("its output, times %g, is added", x->gate);
  attn_status status = attn_plan_create_spec(&plan, p, term, NULL);
  if (!status) status = attn_plan_inspect(plan, &view);
  if (status)
    text = text_format("%s", attn_last_error());
  else if (of == ATTN_EXPRESSION_DYADIC)
    text = text_format("%s", "attends from each later half to the earlier one");
  else
    text = text_format("%s", keys_of(&view, first));
  attn_plan_destroy(plan);
  return text;
}

static bool put(json_t *one, const char *name, char *text) {
  char *harmless = text ? escape_text(text) : NULL;
  const bool good = harmless && json_object_set_new(one, name, json_string(harmless)) == 0;
  free(harmless);
  free(text);
  return good;
}

/* The terms of an expression, and of those in parentheses, or that are names. */
static bool add_terms(const attn_problem *p, const attn_expression *e, int depth, json_t *list) {
  attn_problem own = *p;
  if (e->kind == ATTN_EXPRESSION_DYADIC) own.causal = false;
  for (int64_t t = 0; t < e->count; t++) {
    const attn_expression *x = e->terms[t], *inside = x->atom ? x->atom->expression : x;
    json_t *one = json_object();
    attn_spec *spec = NULL;
    char *term = NULL;
    const bool good = !json_array_append_new(list, one) && !attn_spec_at(x, &spec) &&
                      !label_make(spec, true, &term) && put(one, "term", term) &&
                      !json_object_set_new(one, "depth", json_integer(depth)) &&
                      put(one, "does", does(&own, spec, x, e->kind, t == 0));
    attn_spec_destroy(spec);
    if (!good || (inside && !add_terms(&own, inside, depth + 1, list))) return false;
  }
  return true;
}

json_t *explain_terms(const attn_spec *spec, const attn_problem *p) {
  json_t *list = json_array();
  if (list && spec->expression && !add_terms(p, spec->expression, 0, list)) {
    json_decref(list);
    return NULL;
  }
  return list;
}
