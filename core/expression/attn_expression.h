/* attn_expression.h - specs that are made of others, for those who look into them or give one a name:
 *
 *   sum  := [gate '*'] atom (('+' | '-') [gate '*'] atom)* ['|' store]
 *   gate := number | 'gate'
 *   atom := name[:parameters] | '(' sum ')' | dyadic(sum[,base=keys])
 *
 * Without numbers a join: the terms, from left to right, take their keys of those that remain, and one
 * softmax runs over all of them. With a gate before every term a gated sum of the outputs of attention by
 * each: the word `gate` is read from the call's extra tensor "gate" (attn_extra), of g such terms the t-th
 * from columns t w ... t w + w - 1, w = 1 or d_v, and is 1 / g in a call without it; no other sum with this
 * word stands within one. Behind a bar stands a variant that is a store: keys and values are read as it holds
 * them. dyadic makes causal attention of attention without causality, by halves. */
#ifndef ATTN_EXPRESSION_H
#define ATTN_EXPRESSION_H

#include "attn_variant.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  ATTN_EXPRESSION_ATOM, /* a variant with its parameters */
  ATTN_EXPRESSION_JOIN,
  ATTN_EXPRESSION_SUM,
  ATTN_EXPRESSION_DYADIC, /* of its only term */
  ATTN_EXPRESSION_STORED, /* of the first term, as the second holds keys and values */
} attn_expression_kind;

typedef struct attn_expression {
  attn_expression_kind kind;
  double gate;            /* of a term of a sum: what its output is multiplied by */
  bool given;             /* by the call's tensor, if it has one, and then times the sign of `gate` */
  int64_t base;           /* of dyadic: rows of the smallest parts */
  int64_t column;         /* where it begins in the text, from 1 */
  char *text;             /* canonical, without the gate */
  struct attn_spec *atom; /* of an atom */
  int64_t count;          /* of terms */
  struct attn_expression **terms;
} attn_expression;

/* Is it an expression itself, rather than the name of one? */
static inline bool attn_spec_is_expression(const attn_spec *s) {
  return s->expression && !s->variant->expression;
}

/* *out: an expression, or a term of one, as a spec by itself. */
ATTN_API attn_status attn_spec_at(const attn_expression *, attn_spec **out);

/* Visits each variant of a spec: the spec itself, or the terms of an expression; within: also each variant in
 * the expression that a name abbreviates. Ends with the first failure. */
typedef attn_status (*attn_spec_visitor)(void *context, const attn_spec *atom);
ATTN_API attn_status attn_spec_each(const attn_spec *, bool within, attn_spec_visitor, void *context);

/* A variant's members of a name for an expression: ATTN_VARIANT(name, ATTN_EXPRESSION("streaming:sink={sink}
 * + topk:k={k}"), ...), in which {k} is the value of the variant's parameter k. .caps, which must not be more
 * than the expression keeps (`attnlab describe` of the expression lists that), .params, .seed and .budget are
 * the variant's own. */
ATTN_API attn_status attn_expression_applicable(const attn_context *);
ATTN_API attn_status attn_expression_describe(attn_builder *, const attn_context *, attn_parts *);
ATTN_API attn_cost attn_expression_cost(const attn_context *);
#define ATTN_EXPRESSION(text_)                                                                         \
  .expression = text_, .applicable = attn_expression_applicable, .describe = attn_expression_describe, \
  .cost = attn_expression_cost

#ifdef __cplusplus
}
#endif
#endif
