/* recurrent - recurrent attention: each head carries a matrix from key to key.
 *
 *   S_t = a_t S_t-1 + k_t v_t^T,   o_t = c S_t^T q_t;   that is
 *   o_i = c sum_j<=i a_j+1 ... a_i (q_i . k_j) v_j
 *
 * rule=retention: a_t is a constant of the head h = 0, 1, ..., a = 1 - 2^(-5 - h) (decay=retnet), or `gamma`
 * of all heads (decay=constant; 1: linear attention with features x and without a denominator). Sun et al.
 * 2023, arXiv:2307.08621. c is the problem's scale; the paper's is 1/sqrt(d_qk), its rotation of queries and
 * keys and the normalisation behind each head are outside.
 *
 * It approximates no softmax: its errors against softmax are reported, and what it computes is held against
 * its definition. Cost: chunks of `chunk` keys read the state and their own triangle. Bounds: REC-1. */
#include "attn_variant.h"

#include <math.h>

enum { RETNET, CONSTANT };

typedef struct params {
  int rule, decay;
  double gamma;
  int64_t chunk;
} params;

static const char *const rules[] = {"retention", NULL}, *const decays_of[] = {"retnet", "constant", NULL};
static const attn_param table[] = {
    {"rule", ATTN_CHOICE, offsetof(params, rule), 0, 0, "retention", rules, "how the state changes"},
    {"decay", ATTN_CHOICE, offsetof(params, decay), 0, 0, "retnet", decays_of, "what it keeps at each key"},
    {"gamma", ATTN_REAL, offsetof(params, gamma), 0, 1, "0.99", NULL, "decay=constant: a of every head"},
    {"chunk", ATTN_INT, offsetof(params, chunk), 1, 1024, "64", NULL, "keys that are taken together"},
    {.name = NULL},
};

static attn_status applicable(const attn_context *c) {
  if (!c->problem->causal) return attn_fail(ATTN_EUNSUPPORTED, "variant recurrent: only causal attention");
  return attn_problem_plain(c->problem)
             ? ATTN_OK
             : attn_fail(ATTN_EUNSUPPORTED, "variant recurrent: a mask or a transform of the scores");
}

static void decays(const void *state, const attn_context *c, int64_t head, int64_t first, int64_t count,
                   double *logs) {
  const params *p = state;
  const double own = p->decay == RETNET ? log1p(-exp2(-5 - (double)head)) : log(p->gamma);
  (void)c, (void)first;
  for (int64_t i = 0; i < count; i++) logs[i] = own;
}

static double law(const void *state, const attn_context *c, int64_t head, int64_t key) {
  const params *p = state;
  (void)c, (void)key;
  return log(p->decay == CONSTANT ? p->gamma : 1 - ldexp(1, (int)(-5 - head)));
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const params *p = c->params;
  out->recurrence = (attn_recurrence){.chunk = p->chunk, .decays = decays, .law = law};
  return attn_builder_keep(b, p, sizeof *p, &out->recurrence.state);
}

ATTN_VARIANT(recurrent, .summary = "a state carried from key to key (retention)",
             .formula = "o_i = c sum_j<=i a_j+1 ... a_i (q_i . k_j) v_j; O(n d (d + chunk))",
             .cite = "Sun et al. 2023, arXiv:2307.08621",
             .caps = ATTN_CAP_CAUSAL | ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_POSITIONS | ATTN_CAP_HALF,
             .params = table, .params_size = sizeof(params), .applicable = applicable, .describe = describe,
             .cost = attn_recurrent_cost)
