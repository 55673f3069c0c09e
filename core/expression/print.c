/* print.c - the texts of expressions: canonical, or with other texts of their atoms. */
#define _POSIX_C_SOURCE 200809L
#include "core/decimal.h"
#include "core/expression/expression.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The shortest text that reads back as the same number. */
static void print_number(FILE *to, double value) {
  char text[32] = "";
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, value);
    if (!(strtod(text, NULL) < value || strtod(text, NULL) > value)) break;
  }
  fputs(text, to);
}

typedef struct printer {
  FILE *to;
  attn_atom_rewrite rewrite;
  void *context;
} printer;

static attn_status print(const printer *x, const attn_expression *e);

static attn_status print_atom(const printer *x, const attn_expression *e) {
  char *text = NULL;
  attn_status status = x->rewrite ? x->rewrite(x->context, e->atom, &text) : ATTN_OK;
  if (!status) fputs(text ? text : e->atom->text, x->to);
  free(text);
  return status;
}

static attn_status print_terms(const printer *x, const attn_expression *e) {
  attn_status status = ATTN_OK;
  for (int64_t t = 0; t < e->count && !status; t++) {
    const attn_expression *term = e->terms[t];
    const bool inside = term->kind == ATTN_EXPRESSION_JOIN || term->kind == ATTN_EXPRESSION_SUM,
               gated = e->kind == ATTN_EXPRESSION_SUM, minus = gated && t && signbit(term->gate);
    if (t) fputs(minus ? " - " : " + ", x->to);
    if (gated) print_number(x->to, minus ? -term->gate : term->gate);
    if (gated) fputc('*', x->to);
    if (inside) fputc('(', x->to);
    status = print(x, term);
    if (inside) fputc(')', x->to);
  }
  return status;
}

static attn_status print(const printer *x, const attn_expression *e) {
  if (e->kind == ATTN_EXPRESSION_ATOM) return print_atom(x, e);
  if (e->kind != ATTN_EXPRESSION_DYADIC) return print_terms(x, e);
  fputs("dyadic(", x->to);
  const attn_status status = print(x, e->terms[0]);
  fprintf(x->to, ",base=%lld)", (long long)e->base);
  return status;
}

attn_status attn_expression_print(const attn_expression *e, attn_atom_rewrite rewrite, void *context,
                                  char **out) {
  if (!e) return attn_null("expression", "expression");
  if (!out) return attn_null("expression", "text");
  char *text = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&text, &size);
  if (!stream) return attn_fail(ATTN_ENOMEM, "no memory for an expression");
  const attn_locale outer = attn_locale_enter();
  attn_status status = print(&(printer){stream, rewrite, context}, e);
  attn_locale_leave(outer);
  if (fclose(stream) && !status) status = attn_fail(ATTN_ENOMEM, "no memory for an expression");
  if (status)
    free(text);
  else
    *out = text;
  return status;
}

attn_status expression_set_text(attn_expression *e) { return attn_expression_print(e, NULL, NULL, &e->text); }

void expression_free(attn_expression *e) {
  if (!e) return;
  for (int64_t t = 0; t < e->count; t++) expression_free(e->terms[t]);
  free(e->terms);
  free(e->text);
  attn_spec_destroy(e->atom);
  free(e);
}
