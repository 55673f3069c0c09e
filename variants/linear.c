/* linear - attention without softmax: the weights are products of features, w_ij = phi(q_i).phi(k_j), in a
 * fixed map.
 *
 *   elu       phi(x)_l = x_l + 1 for x_l > 0, else exp(x_l)         Katharopoulos et al. 2020
 *   (arXiv:2006.16236)
 *   relu      max(x_l, 0)                                           relu2: its square
 *   identity  sqrt(scale) x_l: w = s, the score                     exp: exp(x_l)
 *   dpfp      u_i u_(i + r), r = 1 ... nu, of u = max([x; -x], 0)   Schlag et al. 2021 (arXiv:2102.11174),
 *   eq. 37
 *   cos       max(x_l, 0) (cos, sin)(pi (i + 1) / (2 M)), i the position: w = relu(q).relu(k) cos(pi (i - j)
 *                                                                   / (2 M)) Qin et al. 2022, cosFormer
 *                                                                   (arXiv:2202.08791)
 *   taylor    1, x_l, x_l x_m, with sqrt(scale) x: w = 1 + s or 1 + s + s^2 / 2
 *                                                                   Keles et al. 2022 (arXiv:2209.04881)
 *   hedgehog  softmax([x; -x]) of 2 x, or of the given matrix's     Zhang et al. 2024 (arXiv:2402.04347)
 *
 * With `weights`, a matrix W from a file, all of it is of W x. q and k enter as they are, without the
 * problem's scale, but in identity and taylor, whose kernels are functions of the score; products of relu,
 * relu2, dpfp and cos are homogeneous, so that it would cancel. With normalise=no outputs are the sums of
 * w_ij v_j, not divided by that of w_ij (Qin et al. 2022, TransNormer, arXiv:2210.10340, whose norm of what
 * comes out is the model's). Cost n (columns) (d_qk + 2 d_v) multiply-adds with a matrix, n (columns) 2 d_v
 * without. Bounds: FAV-6, FAV-11, FP-6, LIN-3; of taylor TAY-1, AS-1.
 *
 * Deviations: eps is added to each feature, as Performer's, where published code adds it to denominators, so
 * that weights still add up to 1; with eps = 0 a query that shares no positive feature with any key is 0/0,
 * NaN, where cosFormer's code clamps. Published M is the length of the sequence (M = 0 here): a causal row
 * then depends on it. */
#include "attn_variant.h"

static const attn_param table[] = {
    ATTN_FIXED_FEATURES_PARAMS(attn_fixed_features, ),
    {.name = NULL},
};

static attn_status applicable(const attn_context *c) { return attn_fixed_features_check(c, c->params); }

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  return attn_fixed_features_describe(b, c, c->params, out);
}

ATTN_VARIANT(linear, .summary = "fixed features without softmax (elu, Taylor, cosFormer, DPFP, Hedgehog)",
             .formula = "o_i = phi(q_i).sum_j phi(k_j) v_j / phi(q_i).sum_j phi(k_j), phi the fixed map "
                        "`feature`; O(n c d), c columns of phi",
             .cite = "Katharopoulos et al. 2020, arXiv:2006.16236",
             .caps = ATTN_CAP_LINEAR | ATTN_CAP_POSITIONS, .params = table,
             .params_size = sizeof(attn_fixed_features), .applicable = applicable, .describe = describe,
             .cost = attn_features_cost)
