/* toeplitz - linear attention with a bias of the distance between query and key:
 *
 *   w_ij = e^b(i - j) phi(q_i).phi(k_j),   o_i = sum_j w_ij v_j / sum_j w_ij
 *
 * (Luo et al. 2021, arXiv:2106.12566; Choromanski et al. 2022, arXiv:2107.07999). phi is any map of `linear`
 * but exp, with its parameters. b is the problem's attn_score.relative (ALiBi, T5); where it has none,
 * -slope |i - j|, by ALiBi's slopes (Press et al. 2021, arXiv:2108.12409) or one for all heads. Positions are
 * those of the problem, i + n_kv - n_q of query i. With normalise=no outputs are the sums of w_ij v_j.
 *
 * Sums over keys are convolutions: O(n log n (columns) d_v) by FFT, of causal attention O(n log^2 n (columns)
 * d_v + n block (columns + d_v)). It approximates the biased softmax no more than linear does the plain one;
 * what it computes is held against its definition: TOEP.
 *
 * Deviations: eps is linear's. The papers' features are random and positive (PRF) of normalised q and k;
 * these are fixed. A causal sum is cut into blocks so that no row depends on later keys, where the papers
 * transform the whole of it. A row that transforms enter is NaN where rounding may have made its
 * denominator. */
#include "attn_variant.h"

#include <math.h>

typedef struct params {
  attn_fixed_features map;
  double slope;
  int64_t block;
} params;

static const attn_param table[] = {
    ATTN_FIXED_FEATURES_PARAMS(params, map.),
    {"slope", ATTN_REAL, offsetof(params, slope), 0, 1e6, "0", NULL,
     "of the distance, in every head; 0: ALiBi's, or the problem's bias"},
    {"block", ATTN_INT, offsetof(params, block), 8, 1 << 16, "1024", NULL,
     "of causal queries that meet their keys without a transform; rounded up to a multiple of 8"},
    {.name = NULL},
};

static attn_status applicable(const attn_context *c) {
  const params *p = c->params;
  if (p->map.feature == ATTN_FIXED_EXP)
    return attn_fail(ATTN_EINVAL, "variant %s: feature=exp is not supported: its sums are unbounded",
                     c->variant->name);
  if (p->slope > 0 && c->problem->score.relative)
    return attn_fail(ATTN_EINVAL, "variant %s: slope = %g, but the problem has a bias of the distance",
                     c->variant->name, p->slope);
  return attn_fixed_features_check(c, &p->map);
}

typedef struct slopes {
  double slope;
  int64_t heads;
} slopes;

/* attn_toeplitz.law */
static double law(const void *state, int64_t head, int64_t distance) {
  const slopes *s = state;
  double power = exp2(floor(log2((double)s->heads))), h = (double)(head + 1), slope = exp2(-8 * h / power);
  if (h > power) slope = exp2(-8 * (2 * (h - power) - 1) / (2 * power));
  return -(s->slope > 0 ? s->slope : slope) * fabs((double)distance);
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const params *p = c->params;
  const attn_problem *x = c->problem;
  const int64_t n = x->n_q > x->n_kv ? x->n_q : x->n_kv, span = 2 * n - 1;
  const slopes own = {p->slope, x->heads};
  attn_status status = attn_fixed_features_describe(b, c, &p->map, out);
  if (status) return status;
  out->caps &= ~(uint32_t)ATTN_CAP_PERMUTATION;
  out->toeplitz = (attn_toeplitz){.block = (p->block + 7) / 8 * 8, .bias = x->score, .law = law};
  if ((status = attn_builder_keep(b, &own, sizeof own, &out->toeplitz.state))) return status;
  if (!b || x->score.relative) return ATTN_OK;
  double *bias = attn_builder_alloc(b, x->heads * span, sizeof *bias);
  if (!bias) return ATTN_ENOMEM;
  if ((status = attn_alibi(x->heads, n, bias))) return status;
  for (int64_t at = 0; at < x->heads * span && p->slope > 0; at++)
    bias[at] = -p->slope * fabs((double)(at % span - (n - 1)));
  out->toeplitz.bias =
      (attn_score){.relative = bias, .relative_heads = x->heads, .span = span, .zero = n - 1};
  return ATTN_OK;
}

ATTN_VARIANT(toeplitz, .summary = "linear attention with a bias of the distance (ALiBi, T5), by FFT",
             .formula = "o_i = sum_j e^b(i-j) phi(q_i).phi(k_j) v_j / sum_j e^b(i-j) phi(q_i).phi(k_j); "
                        "O(n log n c d), c columns of phi",
             .cite = "Luo et al. 2021, arXiv:2106.12566",
             .caps = ATTN_CAP_CAUSAL | ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_STOCHASTIC |
                     ATTN_CAP_CONVEX | ATTN_CAP_POSITIONS | ATTN_CAP_HALF | ATTN_CAP_RELATIVE,
             .params = table, .params_size = sizeof(params), .applicable = applicable, .describe = describe,
             .cost = attn_toeplitz_cost)
