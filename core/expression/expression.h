/* expression.h - what the files of core/expression share. */
#ifndef ATTN_CORE_EXPRESSION_H
#define ATTN_CORE_EXPRESSION_H

#include "core/expression/attn_expression.h"
#include "core/internal.h"

enum {
  EXPRESSION_DEPTH = 8,   /* parentheses within each other */
  EXPRESSION_ATOMS = 16,  /* of an expression */
  EXPRESSION_TEXT = 4096, /* characters */
  DYADIC_BASE = 1024,     /* preset */
};

/* -- texts (lexer.c) -- */

/* Is the text more than the name of a variant and its parameters? */
bool expression_is(const char *text);
const char *expression_skip(const char *at); /* blanks */
/* The letters, digits and _ of a name. */
size_t expression_name(const char *at);
/* A number that a '*' follows, NaN if none is so small; the place behind it, or NULL. */
const char *expression_gate(const char *at, double *gate);
/* The word "gate" and a '*', perhaps behind a minus, which are a gate of 1 or -1, too. */
const char *expression_given(const char *at);
/* "dyadic" and a parenthesis, the place behind which is given; or NULL. */
const char *expression_dyadic(const char *at);
/* What the parameters of an atom may contain, which say where they end. */
typedef struct expression_place {
  const attn_variant *variant; /* NULL: not known */
  bool inside, dyadic;         /* of parentheses; of those of dyadic */
} expression_place;
/* The end of the parameters that begin here, without blanks. */
const char *expression_params(const char *at, expression_place);
/* dyadic's own parameter, the place behind "base="; or NULL. */
const char *expression_base(const char *at);

/* -- trees -- */

/* level: of names for expressions within each other. */
attn_status expression_parse(const char *text, int level, attn_expression **out);       /* parse.c */
attn_status expression_parse_atom(const char *text, int level, struct attn_spec **out); /* spec.c */
/* The spec of an expression that is more than an atom; takes it, also where it fails (spec.c). */
attn_status expression_spec(attn_expression *, attn_spec **out);
/* The parameters of an atom as they were written (spec.c). */
const char *expression_named(const attn_spec *atom);
void expression_free(attn_expression *);            /* spec_text.c */
attn_status expression_set_text(attn_expression *); /* spec_text.c: from those of its terms */
/* As attn_spec_print (spec_text.c). */
attn_status expression_print(const attn_expression *, attn_param_filter keep, void *context, char **out);
/* EINVAL and so on: "at 23 ("topk:k=8"): reason", of an expression's place. */
attn_status expression_refuse_part(attn_status, const attn_expression *, const char *reason);

/* -- variants (made.c) -- */

/* The variant that executes the expression, whose only parameter is a seed, if any. Its name is the
 * expression without defaults and seeds. */
attn_status expression_make(const attn_expression *, attn_variant **out);
void expression_unmake(const attn_variant *);
/* The seed of the first atom that draws. */
int64_t expression_seed(const attn_expression *);
/* What the terms leave each other (caps.c). */
uint32_t expression_caps(const attn_expression *);
/* Can its keys be told, and taken from those of others (caps.c)? */
bool expression_restricts(const attn_expression *);
/* The parts that an expression cannot have: a term of a join that cannot be restricted, and so on
 * (caps.c). */
attn_status expression_check(const attn_expression *);

#endif
