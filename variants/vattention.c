/* vattention - first, last and largest keys, and of the others a uniform sample of the size that (eps, delta)
 * ask for.
 *
 *   streaming:sink=sink,window=window + topk:k=heavy +
 *   sample:guarantee=guarantee,base=base,eps=eps,delta=delta,...
 * A first sample of `base` of the other keys says how much their weights vary; a second, fresh one has as
 * many keys as make the denominator's relative error <= eps except with probability delta, weighted to
 * represent the others (sample.c has the rules and the proof of guarantee=bernstein).
 *
 * vAttention, Desai et al. 2025 (arXiv:2510.05688); heavy and base, there about 2% and 1% of n, are numbers
 * of keys here. Its code takes the quantile of one side (quantile=one) for |D~ - D| > eps D, an event of two,
 * which fails about twice as often as delta. guarantee=bernstein is a theorem, which VA-1 tests;
 * guarantee=clt holds in the limit of many draws: kept on Gaussian keys, broken a little more often than
 * delta on heavy tails, of which VA-1 warns. Neither speaks of the output. Cost n (sink + window + heavy)
 * pairs, n n d for the largest keys, and that of sample. Deviations: those of sample; causal attention only,
 * as its window; `heavy` counts keys of the window and sinks that are among the largest. */
#include "attn_expression.h"

typedef struct params {
  int64_t sink, window, heavy, base, seed;
  double eps, delta, max_share;
  int guarantee, quantile;
} params;

static const char *const rules[] = {"clt", "bernstein", NULL};
static const char *const sides[] = {"one", "two", NULL};

static const attn_param table[] = {
    {"sink", ATTN_INT, offsetof(params, sink), 0, 1 << 20, "128", NULL, "leading keys that every query sees"},
    {"window", ATTN_INT, offsetof(params, window), 1, 1 << 30, "128", NULL,
     "keys up to the query's own, which is one of them"},
    {"heavy", ATTN_INT, offsetof(params, heavy), 1, 1 << 20, "256", NULL, "keys of largest score"},
    {"base", ATTN_INT, offsetof(params, base), 2, 1 << 20, "128", NULL, "keys of the first sample"},
    {"eps", ATTN_REAL, offsetof(params, eps), 1e-6, 1, "0.1", NULL, "relative error of the denominator"},
    {"delta", ATTN_REAL, offsetof(params, delta), 1e-12, 0.5, "0.1", NULL, "chance that it is larger"},
    {"guarantee", ATTN_CHOICE, offsetof(params, guarantee), 0, 1, "clt", rules,
     "how eps and delta choose the number of keys. clt: as published, holds in the limit of many draws; "
     "bernstein: a theorem"},
    {"quantile", ATTN_CHOICE, offsetof(params, quantile), 0, 1, "two", sides,
     "guarantee=clt: one- or two-sided quantile (one: as the authors' code, fails twice as often)"},
    {"max_share", ATTN_REAL, offsetof(params, max_share), 1e-6, 1, "1", NULL,
     "largest share of the other keys that eps and delta may ask for"},
    {"seed", ATTN_INT, offsetof(params, seed), 0, 1e15, "0", NULL, "seed of the draws"},
    {.name = NULL},
};

ATTN_VARIANT(vattention,
             .summary = "first, last and largest keys, and as many samples of the others as accuracy needs",
             .formula = "keys j < sink, the last `window`, the `heavy` largest, and of the others as many "
                        "drawn as eps and delta need, weighted; O(n^2 d) for the largest",
             .cite = "Desai et al. 2025, arXiv:2510.05688",
             ATTN_EXPRESSION("streaming:sink={sink},window={window} + topk:k={heavy} + "
                             "sample:guarantee={guarantee},eps={eps},delta={delta},base={base},"
                             "quantile={quantile},max_share={max_share},seed={seed}"),
             .caps = (ATTN_CAP_SOFTMAX & ~ATTN_CAP_SHIFT) | ATTN_CAP_LSE | ATTN_CAP_DATA | ATTN_CAP_POSITIONS,
             .params = table, .params_size = sizeof(params), .seed = "seed", .budget = {.parameter = "heavy"})
