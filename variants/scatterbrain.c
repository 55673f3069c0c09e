/* scatterbrain - a window of exact keys, and random features for all others.
 *
 *   o = sum_j W_j v_j / sum_j W_j,   W_j = exp(s_j) for |i - j| <= w / 2, else the estimate of it by positive
 *   random features; causal: j <= i as well
 *
 * It is "longformer + performer" (attn_expression.h), a name for it; any other head may stand before the '+',
 * and scatterbrain_lsh has the paper's.
 * The estimate is unbiased in numerator and denominator, and keys near the query, whose scores are the
 * largest, have none of its variance.
 *
 * Chen, Dao, Winsor, Song, Rudra, Re 2021 (arXiv:2110.15343), there with LSH for the sparse part. Cost n m (2
 * d + 2 d_v) multiply-adds of the features, and w (d + m + 2 d_v) a query. Bounds: RES-1, RES-2. Deviations:
 * the authors' code clamps the denominator at 1e-24, here a row whose denominator is lost in rounding is
 * NaN. */
#include "attn_expression.h"

typedef struct params {
  int64_t window, features, seed;
  int kernel;
} params;

static const char *const kernels[] = {"positive", "hyperbolic", "optimal", NULL};

static const attn_param table[] = {
    {"window", ATTN_INT, offsetof(params, window), 2, 1 << 30, "128", NULL,
     "total width of the exact keys, even: half on each side"},
    {"features", ATTN_INT, offsetof(params, features), 1, 1 << 20, "256", NULL, "random vectors"},
    {"kernel", ATTN_CHOICE, offsetof(params, kernel), 0, 2, "positive", kernels, "feature function"},
    {"seed", ATTN_INT, offsetof(params, seed), 0, 1e15, "0", NULL, "seed of the draws"},
    {.name = NULL},
};

ATTN_VARIANT(scatterbrain, .summary = "a window of exact keys, and random features for all others",
             .formula = "sum_j W_ij v_j / sum_j W_ij, W_ij = exp(s_ij) for |i - j| <= w/2, else its estimate "
                        "by m = `features` random features; O(n (w + m) d)",
             .cite = "Chen et al. 2021, arXiv:2110.15343",
             .caps = ATTN_CAP_CAUSAL | ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_STOCHASTIC |
                     ATTN_CAP_LSE | ATTN_CAP_POSITIONS | ATTN_CAP_HALF,
             .params = table, .params_size = sizeof(params), .seed = "seed",
             .budget = {.parameter = "features"},
             ATTN_EXPRESSION("longformer:window={window} + "
                             "performer:features={features},kernel={kernel},seed={seed}"))
