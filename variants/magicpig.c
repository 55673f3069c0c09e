/* magicpig - first and last keys, and of the others those that hashing samples.
 *
 *   streaming:sink=sink,window=window + lsh_tail:k=k,l=l,hits=hits,centre=centre
 * A query's softmax is over the first `sink` keys, the last `window` with its own, and of the keys between
 * them each that has the query's k signs in `hits` of l tables, divided by its chance u of that (lsh_tail.c
 * has the law).
 *
 * MagicPIG, Chen et al. 2024 (arXiv:2410.16179), whose presets are K = 10, L = 150, two hits, 4 sinks and a
 * window of 64. Cost n (sink + window) pairs and that of lsh_tail. Deviations: those of lsh_tail; causal
 * attention only, as its window. */
#include "attn_expression.h"

typedef struct params {
  int64_t k, l, hits, sink, window, seed;
  int centre;
} params;

static const char *const answers[] = {"no", "yes", NULL};

static const attn_param table[] = {
    {"k", ATTN_INT, offsetof(params, k), 1, 32, "10", NULL, "signs of a table"},
    {"l", ATTN_INT, offsetof(params, l), 1, 1024, "150", NULL, "tables"},
    {"hits", ATTN_INT, offsetof(params, hits), 1, 2, "min(2,l)", NULL,
     "tables in which a sampled key has the query's signs"},
    {"sink", ATTN_INT, offsetof(params, sink), 0, 1 << 20, "4", NULL, "leading keys that every query sees"},
    {"window", ATTN_INT, offsetof(params, window), 1, 1 << 30, "64", NULL,
     "keys up to the query's own, which is one of them"},
    {"centre", ATTN_CHOICE, offsetof(params, centre), 0, 1, "yes", answers,
     "hash keys less the mean of all keys of the kv head"},
    {"seed", ATTN_INT, offsetof(params, seed), 0, 1e15, "0", NULL, "seed of the tables"},
    {.name = NULL},
};

ATTN_VARIANT(magicpig, .summary = "first and last keys, and a weighted sample of the others by hashing",
             .formula = "keys j < sink, the last `window`, and those between that share signs with the query "
                        "in `hits` of l tables, weighted by 1 / P(that); O(n d l k + pairs d)",
             .cite = "Chen et al. 2024, arXiv:2410.16179",
             ATTN_EXPRESSION("streaming:sink={sink},window={window} + "
                             "lsh_tail:k={k},l={l},hits={hits},centre={centre},seed={seed}"),
             .caps = (ATTN_CAP_SOFTMAX & ~ATTN_CAP_SHIFT) | ATTN_CAP_LSE | ATTN_CAP_DATA | ATTN_CAP_POSITIONS,
             .params = table, .params_size = sizeof(params), .seed = "seed", .budget = {.parameter = "l"})
