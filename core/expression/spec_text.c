/* spec_text.c - the texts of specs and expressions: canonical, or with some of their parameters. */
#define _POSIX_C_SOURCE 200809L
#include "attn_tools.h"
#include "core/decimal.h"
#include "core/expression/expression.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_number(FILE *to, double value) {
  char text[32];
  attn_shortest_print(value, text, sizeof text);
  fputs(text, to);
}

typedef struct printer {
  FILE *to;
  attn_param_filter keep; /* NULL: all */
  void *context;
} printer;

static attn_status print(const printer *x, const attn_expression *e);

/* A canonical text has all parameters, in the order of the table; no value has a comma. */
static attn_status print_atom(const printer *x, const attn_spec *atom) {
  const attn_variant *v = atom->variant;
  void *params = NULL;
  char *presets = NULL, mark = ':';
  attn_status status =
      x->keep ? attn_params_parse(v->name, v->params, v->params_size, NULL, &params, &presets) : ATTN_OK;
  if (status) return status;
  fputs(x->keep ? v->name : atom->text, x->to);
  const char *item = atom->text + strcspn(atom->text, ":"), *preset = presets;
  for (const attn_param *p = v->params; x->keep && p->name; p++) {
    const size_t length = strcspn(++item, ","), other = strcspn(preset, ",");
    const bool same = length == other && strncmp(item, preset, length) == 0;
    if (x->keep(x->context, atom, p, same)) {
      fprintf(x->to, "%c%.*s", mark, (int)length, item);
      mark = ',';
    }
    item += length;
    preset += other + (preset[other] == ',');
  }
  attn_params_free(v->params, params);
  free(presets);
  return ATTN_OK;
}

static attn_status print_terms(const printer *x, const attn_expression *e) {
  attn_status status = ATTN_OK;
  for (int64_t t = 0; t < e->count && !status; t++) {
    const attn_expression *term = e->terms[t];
    const bool inside = term->kind == ATTN_EXPRESSION_JOIN || term->kind == ATTN_EXPRESSION_SUM ||
                        term->kind == ATTN_EXPRESSION_STORED,
               gated = e->kind == ATTN_EXPRESSION_SUM, minus = gated && t && signbit(term->gate);
    if (t) fputs(minus ? " - " : " + ", x->to);
    if (term->given)
      fputs(!t && term->gate < 0 ? "-gate" : "gate", x->to);
    else if (gated)
      print_number(x->to, minus ? -term->gate : term->gate);
    if (gated) fputc('*', x->to);
    if (inside) fputc('(', x->to);
    status = print(x, term);
    if (inside) fputc(')', x->to);
  }
  return status;
}

static attn_status print(const printer *x, const attn_expression *e) {
  if (e->kind == ATTN_EXPRESSION_ATOM) return print_atom(x, e->atom);
  if (e->kind == ATTN_EXPRESSION_STORED) {
    const attn_status read = print(x, e->terms[0]);
    fputs(" | ", x->to);
    return read ? read : print(x, e->terms[1]);
  }
  if (e->kind != ATTN_EXPRESSION_DYADIC) return print_terms(x, e);
  fputs("dyadic(", x->to);
  const attn_status status = print(x, e->terms[0]);
  fprintf(x->to, ",base=%lld)", (long long)e->base);
  return status;
}

attn_status expression_print(const attn_expression *e, attn_param_filter keep, void *context, char **out) {
  char *text = NULL;
  size_t size;
  FILE *stream = open_memstream(&text, &size);
  if (!stream) return attn_fail(ATTN_ENOMEM, "no memory for an expression");
  const attn_locale outer = attn_locale_enter();
  attn_status status = print(&(printer){stream, keep, context}, e);
  attn_locale_leave(outer);
  if (!attn_stream_text(stream, &text) && !status)
    status = attn_fail(ATTN_ENOMEM, "no memory for an expression");
  if (status)
    free(text);
  else
    *out = text;
  return status;
}

attn_status attn_spec_print(const attn_spec *spec, attn_param_filter keep, void *context, char **out) {
  if (!spec) return attn_null("spec", "spec");
  if (!out) return attn_null("spec", "text");
  const attn_expression atom = {.kind = ATTN_EXPRESSION_ATOM, .atom = (attn_spec *)(uintptr_t)spec};
  return expression_print(attn_spec_is_expression(spec) ? spec->expression : &atom, keep, context, out);
}

attn_status expression_set_text(attn_expression *e) { return expression_print(e, NULL, NULL, &e->text); }

void expression_free(attn_expression *e) {
  if (!e) return;
  for (int64_t t = 0; t < e->count; t++) expression_free(e->terms[t]);
  free(e->terms);
  free(e->text);
  attn_spec_destroy(e->atom);
  free(e);
}
