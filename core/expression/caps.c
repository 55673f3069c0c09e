/* caps.c - what an expression keeps of what its terms keep, and which terms it cannot have. */
#include "core/expression/expression.h"

#include <math.h>

/* Capabilities that all terms must have. */
enum {
  ALL = ATTN_CAP_CAUSAL | ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX |
        ATTN_CAP_PERMUTATION | ATTN_CAP_SHIFT | ATTN_CAP_SCORE | ATTN_CAP_MASK | ATTN_CAP_POSITIONS |
        ATTN_CAP_HALF,
};

static uint32_t of_terms(const attn_expression *e) {
  uint32_t all = ~UINT32_C(0), any = 0;
  for (int64_t t = 0; t < e->count; t++) {
    const uint32_t caps = expression_caps(e->terms[t]);
    all &= caps;
    any |= caps;
  }
  return (all & ALL) | (any & ATTN_CAP_DATA);
}

/* Does it end with features, which estimate the keys that remain? */
static bool has_features(const attn_expression *e) {
  if (e->kind == ATTN_EXPRESSION_JOIN) return has_features(e->terms[e->count - 1]);
  if (e->kind != ATTN_EXPRESSION_ATOM) return false;
  if (e->atom->expression) return has_features(e->atom->expression);
  return e->atom->variant->caps & ATTN_CAP_FEATURES;
}

/* What is taken out of features is not to the bit what went in: weights may be below 0. */
static uint32_t of_join(const attn_expression *e) {
  uint32_t caps = of_terms(e) | ATTN_CAP_LSE;
  if (has_features(e)) caps &= ~(uint32_t)ATTN_CAP_CONVEX;
  for (int64_t t = 0; t < e->count; t++) caps |= expression_caps(e->terms[t]) & ATTN_CAP_EXACT;
  return caps;
}

static bool is_gated(const attn_expression *sum) {
  bool found = false;
  for (int64_t t = 0; t < sum->count; t++) found = found || sum->terms[t]->given;
  return found;
}

/* Gates that are decimal fractions sum to 1 within rounding, unless they are so large that the sum says
 * nothing. */
static uint32_t of_sum(const attn_expression *e) {
  uint32_t caps = of_terms(e);
  double sum = 0, size = 0;
  for (int64_t t = 0; t < e->count; t++) {
    sum += e->terms[t]->gate;
    size += fabs(e->terms[t]->gate);
    if (!(e->terms[t]->gate >= 0)) caps &= ~(uint32_t)ATTN_CAP_CONVEX;
  }
  const double rounding = (double)e->count * 0x1p-52 * size;
  if (is_gated(e) || !(fabs(sum - 1) <= rounding && rounding <= 0x1p-32))
    caps &= ~(uint32_t)(ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX);
  return caps;
}

static uint32_t of_dyadic(const attn_expression *e) {
  const uint32_t kept = ATTN_CAP_PADDING | ATTN_CAP_CROSS | ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX |
                        ATTN_CAP_SHIFT | ATTN_CAP_DATA | ATTN_CAP_LSE | ATTN_CAP_HALF;
  return (expression_caps(e->terms[0]) & kept) | ATTN_CAP_CAUSAL;
}

/* Codes are neither a convex combination of what was given nor the same for shifted keys. */
static uint32_t of_stored(const attn_expression *e) {
  const uint32_t lost = ATTN_CAP_EXACT | ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX | ATTN_CAP_SHIFT |
                        ATTN_CAP_KEYS | ATTN_CAP_FEATURES;
  return expression_caps(e->terms[0]) & ~lost;
}

uint32_t expression_caps(const attn_expression *e) {
  switch (e->kind) {
  case ATTN_EXPRESSION_JOIN:
    return of_join(e);
  case ATTN_EXPRESSION_SUM:
    return of_sum(e);
  case ATTN_EXPRESSION_DYADIC:
    return of_dyadic(e);
  case ATTN_EXPRESSION_STORED:
    return of_stored(e);
  case ATTN_EXPRESSION_ATOM:
    break;
  }
  return e->atom->variant->caps;
}

/* -- what cannot be -- */

bool expression_restricts(const attn_expression *e) {
  if (e->kind == ATTN_EXPRESSION_JOIN) return true; /* its terms were asked */
  if (e->kind != ATTN_EXPRESSION_ATOM) return false;
  if (e->atom->expression) return expression_restricts(e->atom->expression);
  return e->atom->variant->caps & (ATTN_CAP_KEYS | ATTN_CAP_EXACT);
}

/* Is there a store in it? */
static bool has_store(const attn_expression *e) {
  bool found = e->kind == ATTN_EXPRESSION_STORED;
  for (int64_t t = 0; t < e->count; t++) found = found || has_store(e->terms[t]);
  if (e->kind != ATTN_EXPRESSION_ATOM) return found;
  return e->atom->variant->caps & ATTN_CAP_STORE || (e->atom->expression && has_store(e->atom->expression));
}

/* Is there a gate of the call in it? */
static bool has_gates(const attn_expression *e) {
  bool found = is_gated(e);
  for (int64_t t = 0; t < e->count; t++) found = found || has_gates(e->terms[t]);
  return found || (e->atom && e->atom->expression && has_gates(e->atom->expression));
}

static attn_status check_term(const attn_expression *e, const attn_expression *term) {
  const uint32_t caps = expression_caps(term);
  if (e->kind == ATTN_EXPRESSION_JOIN && !expression_restricts(term) && !has_features(term))
    return expression_refuse_part(ATTN_EUNSUPPORTED, term, "cannot restrict itself to the keys that remain");
  if (is_gated(e) && has_gates(term))
    return expression_refuse_part(ATTN_EUNSUPPORTED, term,
                                  "has gates within gates: a call has one tensor of them");
  if (e->kind == ATTN_EXPRESSION_STORED && term == e->terms[1] && !(caps & ATTN_CAP_STORE))
    return expression_refuse_part(ATTN_EUNSUPPORTED, term, "is no store of keys and values");
  if (e->kind == ATTN_EXPRESSION_STORED && term == e->terms[0] && !(caps & ATTN_CAP_HALF))
    return expression_refuse_part(ATTN_EUNSUPPORTED, term, "reads tensors of fp32 and fp64 alone");
  if (e->kind == ATTN_EXPRESSION_STORED && term == e->terms[0] && has_store(term))
    return expression_refuse_part(ATTN_EUNSUPPORTED, term, "keys and values are stored once");
  if (e->kind == ATTN_EXPRESSION_DYADIC && term->kind == ATTN_EXPRESSION_DYADIC)
    return expression_refuse_part(ATTN_EUNSUPPORTED, term,
                                  "dyadic needs attention without causality, which this is not");
  if (e->kind == ATTN_EXPRESSION_DYADIC && !(caps & ATTN_CAP_CROSS))
    return expression_refuse_part(ATTN_EUNSUPPORTED, term,
                                  "dyadic needs attention with n_q different from n_kv, which this is not");
  if (e->kind == ATTN_EXPRESSION_DYADIC && !(caps & ATTN_CAP_LSE))
    return expression_refuse_part(ATTN_EUNSUPPORTED, term,
                                  "dyadic needs log-sum-exps, which this does not give");
  return ATTN_OK;
}

attn_status expression_check(const attn_expression *e) {
  attn_status status = ATTN_OK;
  for (int64_t t = 0; t < e->count && !status; t++) {
    status = expression_check(e->terms[t]);
    if (!status) status = check_term(e, e->terms[t]);
    if (!status && t && e->kind == ATTN_EXPRESSION_JOIN && has_features(e->terms[t - 1]))
      status = expression_refuse_part(ATTN_EUNSUPPORTED, e->terms[t],
                                      "nothing remains: the features before stand for every key");
  }
  return status;
}
