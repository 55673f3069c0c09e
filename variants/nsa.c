/* nsa - attention to means of blocks, to the pages that these choose, and to the last keys, with a gate each.
 *
 *   o_i = g_i1 softmax over the means of block + overlap keys, every `block` keys, that are complete at i
 *       + g_i2 softmax over the keys of budget / page pages (pages)
 *       + g_i3 softmax over the last `window` keys
 *
 * Native Sparse Attention, Yuan et al. 2025 (arXiv:2502.11089), eq. 5; the presets are theirs. The gates are
 * the extra tensor "gate" of 3 or 3 d_v columns, in this order and after their sigmoid; 1/3 each without it.
 * The first term of a query before the end of the first block is zeros. Cost O(n^2 d / block + n (budget +
 * window) d). Bounds: SUM-1, and each term by itself. Deviations: blocks are averaged, there by a learned
 * MLP; the three terms share keys and values, which there have separate projections. */
#include "attn_expression.h"

typedef struct params {
  int64_t block, overlap, page, budget, window;
} params;

static const attn_param table[] = {
    {"block", ATTN_INT, offsetof(params, block), 1, 1 << 16, "16", NULL, "keys from a mean to the next"},
    {"overlap", ATTN_INT, offsetof(params, overlap), 0, 1 << 16, "16", NULL,
     "keys before its block that a mean is of, too"},
    {"page", ATTN_INT, offsetof(params, page), 1, 1 << 16, "64", NULL, "keys of a page"},
    {"budget", ATTN_INT, offsetof(params, budget), 1, 1 << 20, "1024", NULL,
     "keys of the pages, one first and two last ones included"},
    {"window", ATTN_INT, offsetof(params, window), 1, 1 << 20, "512", NULL,
     "keys up to the query's own that it sees one by one"},
    {.name = NULL},
};

ATTN_VARIANT(
    nsa,
    ATTN_EXPRESSION("gate*pooled:block={block},overlap={overlap},whole=yes,window=0 + "
                    "gate*pages:page={page},budget={budget},score=weight,first=1,last=2,block={block},"
                    "overlap={overlap} + "
                    "gate*streaming:sink=0,window={window}"),
    .summary = "means of blocks, the pages that they choose, and the last keys, with a gate each (NSA)",
    .formula = "g_1 of the means of blocks, g_2 of the pages of largest weight among them, g_3 of the last "
               "`window` keys; O(n^2 / block + n (budget + window)) d",
    .cite = "Yuan et al. 2025, arXiv:2502.11089",
    .caps = ATTN_CAP_CAUSAL | ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_HALF | ATTN_CAP_DATA,
    .params = table, .params_size = sizeof(params), .budget = {.parameter = "budget"})
