/* columns - exact attention by the scores of half of the columns of queries and keys, first or second:
 *
 *   o_i = sum_j exp(s_ij) v_j / sum_j exp(s_ij),   s_ij = sqrt(d_qk / h) scale sum_l q_il k_jl
 *
 * over the first or the last h = d_qk / 2 columns l, rounded up: halves of odd d_qk share the middle one. The
 * problem's scale, 1/sqrt(d_qk) where none is given, so becomes 1/sqrt(h). It is a term of `differential`;
 * alone it is another function than attention by all columns, held to its definition by ENT-0 and ENT-1. Cost
 * n_q n_kv (h + d_v). */
#include "attn_variant.h"

#include <math.h>

typedef struct params {
  int of;
} params;

static const char *const halves[] = {"first", "second", NULL};
static const attn_param table[] = {
    {"of", ATTN_CHOICE, offsetof(params, of), 0, 0, "first", halves, "half of the columns"},
    {.name = NULL},
};

static int64_t half_of(const attn_problem *p) { return (p->d_qk + 1) / 2; }

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const int64_t half = half_of(c->problem), d = c->problem->d_qk;
  (void)b;
  out->normaliser = attn_softmax_normaliser();
  out->normaliser.columns = half;
  out->normaliser.first = ((const params *)c->params)->of ? d - half : 0;
  out->normaliser.gain = sqrt((double)d / (double)half);
  return ATTN_OK;
}

static attn_cost cost(const attn_context *c) {
  const attn_problem *p = c->problem;
  attn_cost all = attn_softmax_cost(c, attn_visible_pairs(p));
  all.mul_add *= (double)(half_of(p) + p->d_v) / (double)(p->d_qk + p->d_v);
  return all;
}

ATTN_VARIANT(
    columns, .summary = "attention by half of the columns of queries and keys",
    .formula = "o_i = sum_j exp(s_ij) v_j / sum_j exp(s_ij), s_ij of one half of the columns; O(n^2 d)",
    .cite = "Ye et al. 2024, arXiv:2410.05258",
    .caps = (ATTN_CAP_SOFTMAX & ~ATTN_CAP_KEYS) | ATTN_CAP_PERMUTATION | ATTN_CAP_POSITIONS, .params = table,
    .params_size = sizeof(params), .describe = describe, .cost = cost)
