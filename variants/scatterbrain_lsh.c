/* scatterbrain_lsh - exact weights for the keys that hashing puts into a query's bucket, and random features
 * for all others.
 *
 *   o = sum_j W_j v_j / sum_j W_j,   W_j = exp(s_j) for keys of the query's buckets and the last `window`,
 *   else the estimate of it by positive random features; causal: j <= i as well
 *
 * It is "lsh + performer" (attn_expression.h), a name for it, and the form of the paper; scatterbrain has a
 * window. Whatever was hashed, the estimate of the rest is unbiased in numerator and denominator.
 *
 * Chen, Dao, Winsor, Song, Rudra, Re 2021 (arXiv:2110.15343). Cost that of lsh, and n m (2 d + 2 d_v)
 * multiply-adds of m features. Bounds: RES-1, RES-2; LSH-1 of lsh alone. Deviations: those of lsh, whose
 * buckets are Reformer's, and of scatterbrain. */
#include "attn_expression.h"

typedef struct params {
  int64_t rounds, buckets, window, features, seed;
  int kernel;
} params;

static const char *const kernels[] = {"positive", "hyperbolic", "optimal", NULL};

static const attn_param table[] = {
    {"rounds", ATTN_INT, offsetof(params, rounds), 1, 64, "4", NULL, "independent hashes"},
    {"buckets", ATTN_INT, offsetof(params, buckets), 2, 4096, "64", NULL, "buckets of a round, even"},
    {"window", ATTN_INT, offsetof(params, window), 0, 1 << 20, "1", NULL, "last keys, always exact"},
    {"features", ATTN_INT, offsetof(params, features), 1, 1 << 20, "256", NULL, "random vectors"},
    {"kernel", ATTN_CHOICE, offsetof(params, kernel), 0, 2, "positive", kernels, "feature function"},
    {"seed", ATTN_INT, offsetof(params, seed), 0, 1e15, "0", NULL,
     "seed of the rotations and of the vectors"},
    {.name = NULL},
};

ATTN_VARIANT(
    scatterbrain_lsh, .summary = "exact keys of the query's bucket, and random features for all others",
    .formula = "sum_j W_ij v_j / sum_j W_ij, W_ij = exp(s_ij) where one of `rounds` hashes puts i and j "
               "into one bucket, else its estimate by m = `features` random features; "
               "O(n (rounds buckets + m) d + pairs d)",
    .cite = "Chen et al. 2021, arXiv:2110.15343",
    .caps = ATTN_CAP_CAUSAL | ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_STOCHASTIC | ATTN_CAP_LSE |
            ATTN_CAP_POSITIONS | ATTN_CAP_HALF,
    .params = table, .params_size = sizeof(params), .seed = "seed", .budget = {.parameter = "features"},
    ATTN_EXPRESSION("lsh:rounds={rounds},buckets={buckets},window={window},seed={seed} + "
                    "performer:features={features},kernel={kernel},seed={seed}"))
