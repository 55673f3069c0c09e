/* parse.c - from the text of an expression to its tree, by recursive descent. Joins within joins are one
 * join. */
#define _POSIX_C_SOURCE 200809L
#include "core/expression/expression.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct parser {
  const char *text, *at;
  int64_t depth, atoms;
  int level;   /* of names for expressions within each other */
  bool dyadic; /* in the parentheses of dyadic itself */
} parser;

/* Of a place in a text; of length 0: its end. */
static attn_status refuse_at(attn_status status, int64_t column, const char *at, size_t length,
                             const char *format, ...) {
  enum { SHOWN = 12 };
  char reason[440], shown[SHOWN + 8] = "the end";
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  if (length)
    snprintf(shown, sizeof shown, "\"%.*s%s\"", (int)(length > SHOWN ? SHOWN : length), at,
             length > SHOWN ? "..." : "");
  return attn_fail(status, "expression at %lld (%s): %s", (long long)column, shown, reason);
}

attn_status expression_refuse_part(attn_status status, const attn_expression *e, const char *reason) {
  return refuse_at(status, e->column, e->text, strlen(e->text), "%s", reason);
}

static attn_status refuse(const parser *x, const char *at, const char *reason) {
  return refuse_at(ATTN_EINVAL, at - x->text + 1, at, strlen(at), "%s", reason);
}

static attn_status no_memory(void) { return attn_fail(ATTN_ENOMEM, "no memory for an expression"); }

static attn_expression *make(const parser *x, attn_expression_kind kind) {
  attn_expression *e = calloc(1, sizeof *e);
  if (!e) {
    no_memory();
    return NULL;
  }
  *e = (attn_expression){.kind = kind, .gate = 1, .column = x->at - x->text + 1};
  return e;
}

/* Takes the term, also where it fails. */
static attn_status add(attn_expression *to, attn_expression *term) {
  attn_expression **terms = realloc(to->terms, (size_t)(to->count + 1) * sizeof *terms);
  if (!terms) {
    expression_free(term);
    return no_memory();
  }
  to->terms = terms;
  terms[to->count++] = term;
  return ATTN_OK;
}

static attn_status parse_sum(parser *x, attn_expression **out);

/* Behind a parenthesis that opens. */
static attn_status parse_inside(parser *x, bool dyadic, attn_expression **out) {
  const char *opened = x->at - 1;
  const bool outer = x->dyadic;
  if (x->depth == EXPRESSION_DEPTH) return refuse(x, opened, "parentheses within each other, at most 8");
  x->depth++;
  x->dyadic = dyadic;
  attn_status status = parse_sum(x, out);
  x->depth--;
  x->dyadic = outer;
  if (status) return status;
  x->at = expression_skip(x->at);
  if (*x->at == ')' || (dyadic && expression_base(x->at))) return ATTN_OK;
  status = *x->at ? refuse(x, x->at, "expected '+', '-' or ')'")
                  : refuse(x, opened, "this parenthesis is not closed");
  expression_free(*out);
  *out = NULL;
  return status;
}

static attn_status parse_dyadic(parser *x, const char *inside, attn_expression **out) {
  attn_expression *e = make(x, ATTN_EXPRESSION_DYADIC), *term = NULL;
  if (!e) return ATTN_ENOMEM;
  e->base = DYADIC_BASE;
  x->at = inside;
  attn_status status = parse_inside(x, true, &term);
  if (!status) status = add(e, term);
  const char *base = status ? NULL : expression_base(x->at);
  if (base) {
    const size_t length = strcspn(base, " \t\r\n,)");
    char *value = strndup(base, length);
    const char *end = expression_skip(base + length);
    if (!value)
      status = no_memory();
    else if (!attn_int_parse(value, &e->base) || e->base < 1 || e->base > INT32_MAX)
      status = refuse(x, base, "base is an integer from 1, such as 1Ki");
    else if (*end != ')')
      status = refuse(x, end, "expected ')' behind base");
    free(value);
    x->at = end;
  }
  if (status) {
    expression_free(e);
    return status;
  }
  x->at++;
  *out = e;
  return ATTN_OK;
}

static attn_status parse_name(parser *x, attn_expression **out) {
  const char *begin = x->at;
  const size_t length = expression_name(begin);
  expression_place place = {NULL, x->depth > 0, x->dyadic};
  if (!length) return refuse(x, begin, *begin ? "expected a term" : "a term is missing");
  attn_variant_find_part(begin, length, &place.variant);
  const char *end = begin + length;
  if (*end == ':') end = expression_params(end + 1, place);
  attn_expression *e = make(x, ATTN_EXPRESSION_ATOM);
  if (!e) return ATTN_ENOMEM;
  char *text = strndup(begin, (size_t)(end - begin));
  attn_status status = text ? expression_parse_atom(text, x->level, &e->atom) : no_memory();
  free(text);
  if (status && status != ATTN_ENOMEM) {
    char why[400];
    snprintf(why, sizeof why, "%s", attn_last_error());
    status = refuse_at(status, e->column, begin, (size_t)(end - begin), "%s", why);
  }
  if (!status && ++x->atoms > EXPRESSION_ATOMS) status = refuse(x, begin, "more than 16 terms");
  if (status) {
    expression_free(e);
    return status;
  }
  x->at = end;
  *out = e;
  return ATTN_OK;
}

static attn_status parse_atom(parser *x, attn_expression **out) {
  attn_expression *e = NULL;
  double gate;
  if (expression_gate(x->at, &gate)) return refuse(x, x->at, "a term has one gate before it");
  const char *dyadic = expression_dyadic(x->at);
  const bool inside = *x->at == '(';
  x->at += inside;
  attn_status status = dyadic   ? parse_dyadic(x, dyadic, &e)
                       : inside ? parse_inside(x, false, &e)
                                : parse_name(x, &e);
  if (status) return status;
  x->at += inside;
  if (!e->text) status = expression_set_text(e);
  if (!status)
    *out = e;
  else
    expression_free(e);
  return status;
}

/* A term of a sum with gates, or without. */
static attn_status parse_term(parser *x, attn_expression *sum, bool minus) {
  const char *begin = x->at;
  double gate = 1;
  const char *behind = expression_gate(begin, &gate);
  const bool gated = behind;
  if (minus && !gated)
    return refuse(x, begin, "only outputs are subtracted, with a number before every term: 1*a - 1*b");
  if (sum->count && gated != (sum->kind == ATTN_EXPRESSION_SUM))
    return refuse(
        x, begin,
        "joins (a + b) and gated sums (0.5*a + 0.5*b) do not mix: write a number before every term, "
        "or before none; parentheses hold either");
  if (gated && !isnormal(gate) && gate != 0) return refuse(x, begin, "the number is out of range");
  sum->kind = gated ? ATTN_EXPRESSION_SUM : ATTN_EXPRESSION_JOIN;
  if (behind) x->at = expression_skip(behind);
  attn_expression *term = NULL;
  attn_status status = parse_atom(x, &term);
  if (status) return status;
  term->gate = minus ? -gate : gate;
  term->given = expression_given(begin);
  if (gated || term->kind != ATTN_EXPRESSION_JOIN) return add(sum, term);
  for (int64_t t = 0; t < term->count; t++) {
    if (!status)
      status = add(sum, term->terms[t]);
    else
      expression_free(term->terms[t]);
  }
  term->count = 0;
  expression_free(term);
  return status;
}

/* Behind a bar: *of becomes what reads by *of from the store. Takes *of where it fails. */
static attn_status parse_store(parser *x, attn_expression **of) {
  attn_expression *e = make(x, ATTN_EXPRESSION_STORED), *store = NULL;
  attn_status status = e ? add(e, *of) : ATTN_ENOMEM;
  if (!e) expression_free(*of);
  *of = NULL;
  if (!status) {
    e->column = e->terms[0]->column;
    x->at = expression_skip(x->at + 1);
    status = parse_name(x, &store);
  }
  if (!status && !(status = expression_set_text(store)))
    status = add(e, store);
  else
    expression_free(store);
  if (!status) status = expression_set_text(e);
  if (status) {
    expression_free(e);
    return status;
  }
  x->at = expression_skip(x->at);
  *of = e;
  return *x->at == '|' ? refuse(x, x->at, "keys and values are stored once") : ATTN_OK;
}

/* Gates of a call without their tensor. */
static void share_gates(attn_expression *sum) {
  double given = 0;
  for (int64_t t = 0; t < sum->count; t++) given += sum->terms[t]->given;
  for (int64_t t = 0; t < sum->count; t++)
    if (sum->terms[t]->given) sum->terms[t]->gate /= given;
}

static attn_status parse_terms(parser *x, attn_expression **out) {
  x->at = expression_skip(x->at);
  attn_expression *sum = make(x, ATTN_EXPRESSION_JOIN);
  attn_status status = sum ? ATTN_OK : ATTN_ENOMEM;
  for (bool minus = false, more = true; more && !status;) {
    status = parse_term(x, sum, minus);
    if (status) break;
    x->at = expression_skip(x->at);
    more = *x->at == '+' || *x->at == '-';
    minus = *x->at == '-';
    if (more) x->at = expression_skip(x->at + 1);
  }
  if (status) {
    expression_free(sum);
    return status;
  }
  share_gates(sum);
  if (sum->count == 1 && sum->kind == ATTN_EXPRESSION_JOIN) {
    attn_expression *only = sum->terms[0];
    sum->count = 0;
    expression_free(sum);
    sum = only;
  }
  if (!sum->text && (status = expression_set_text(sum)))
    expression_free(sum);
  else
    *out = sum;
  return status;
}

static attn_status parse_sum(parser *x, attn_expression **out) {
  attn_expression *sum = NULL;
  attn_status status = parse_terms(x, &sum);
  if (!status && *x->at == '|') status = parse_store(x, &sum);
  if (status)
    expression_free(sum);
  else
    *out = sum;
  return status;
}

attn_status expression_parse(const char *text, int level, attn_expression **out) {
  parser x = {.text = text, .at = text, .level = level};
  attn_expression *e = NULL;
  if (strlen(text) > EXPRESSION_TEXT)
    return attn_fail(ATTN_EINVAL, "an expression of %zu characters, expected at most %d", strlen(text),
                     EXPRESSION_TEXT);
  attn_status status = parse_sum(&x, &e);
  if (!status && *x.at)
    status = refuse(&x, x.at, *x.at == ')' ? "this parenthesis was not opened" : "expected '+' or '-'");
  if (status)
    expression_free(e);
  else
    *out = e;
  return status;
}
