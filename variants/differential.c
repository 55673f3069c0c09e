/* differential - the difference of two attentions, each by half of the columns of queries and keys:
 *
 *   o = softmax(q1 k1^T c) v - lambda softmax(q2 k2^T c) v,   q = [q1, q2], k = [k1, k2]
 *
 * Ye et al. 2024 (arXiv:2410.05258; formula as recalled). It is "1*columns - lambda*columns:of=second"
 * (attn_expression.h), a name for it. c is sqrt(2) times the problem's scale: 1/sqrt(d_qk / 2) where none is
 * given. Rows of weights sum to 1 - lambda, and some are negative. lambda is learned in the paper, from 0.8 -
 * 0.6 e^(-0.3 layer) on; the norm over each head and the factor behind it are outside. It is another function
 * than softmax attention: errors against that are reported. Cost that of two `columns`. Bounds: SUM-1, and
 * ENT-0 of the terms. */
#include "attn_expression.h"

typedef struct params {
  double lambda;
} params;

static const attn_param table[] = {
    {"lambda", ATTN_REAL, offsetof(params, lambda), 0, 1e6, "0.8", NULL, "of the second attention"},
    {.name = NULL},
};

ATTN_VARIANT(
    differential, .summary = "the difference of attention by two halves of the columns",
    .formula = "o = softmax(q1 k1) v - lambda softmax(q2 k2) v, q = [q1, q2], k = [k1, k2]; O(n^2 d)",
    .cite = "Ye et al. 2024, arXiv:2410.05258",
    .caps = ATTN_CAP_CAUSAL | ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_PERMUTATION | ATTN_CAP_SHIFT |
            ATTN_CAP_HALF | ATTN_CAP_POSITIONS,
    .params = table, .params_size = sizeof(params),
    ATTN_EXPRESSION("1*columns:of=first - {lambda}*columns:of=second"))
