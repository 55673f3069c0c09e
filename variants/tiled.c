/* tiled - exact attention by online softmax over blocks of keys.
 *
 *   o_i = sum_j exp(s_ij - m_i) v_j / sum_j exp(s_ij - m_i), maximum and sums updated block by block
 *
 * Milakov and Gimelshein 2018 (arXiv:1805.02867); Dao et al. 2022 (arXiv:2205.14135). Cost n_q n_kv (d_qk +
 * d_v) multiply-adds, half of it when causal (whole blocks above the diagonal are skipped); memory O(n).
 * Bound: rounding only (FP-2), also with precision=bf16 (FP-4): Q, K, V and the weights are rounded to the
 * nearest bf16, sums are fp32, and the denominator sums the rounded weights. path=split multiplies fp32 as
 * three terms of bf16 (core/README.md).
 *
 * skip > 0: 64 queries pass over a block of keys in which every score is below its query's maximum so far
 * plus ln(skip) (BLASST, arXiv:2512.12087; rule as recalled). n keys passed over hold at most n skip / (1 + n
 * skip) of a row's mass (SKIP-1); their products with the values are saved, those with the queries are not.
 * order says which blocks come first: the maximum is found early where the mass is. */
#include "attn_variant.h"

typedef struct params {
  int precision, path, order;
  int64_t block_q, block_k;
  double skip;
} params;

enum { F32, BF16 };
static const char *const precisions[] = {"f32", "bf16", NULL};
static const char *const paths[] = {"auto", "fma", "split", NULL};               /* as attn_path */
static const char *const orders[] = {"forward", "diagonal", "sink_first", NULL}; /* as attn_order */

static const attn_param table[] = {
    {"precision", ATTN_CHOICE, offsetof(params, precision), 0, 0, "f32", precisions,
     "bf16: operands rounded, sums fp32; fp32 tensors alone"},
    {"path", ATTN_CHOICE, offsetof(params, path), 0, 0, "auto", paths,
     "f32: fused multiply-adds, or three terms of bf16 each; auto: split if the processor has tiles"},
    {"block_q", ATTN_INT, offsetof(params, block_q), 0, ATTN_BLOCK_MAX, "0", NULL,
     "queries of a tile; 0: the machine's (attnlab info)"},
    {"block_k", ATTN_INT, offsetof(params, block_k), 0, ATTN_BLOCK_MAX, "0", NULL,
     "keys of an online step; 0: the machine's"},
    {"skip", ATTN_REAL, offsetof(params, skip), 0, 1, "0", NULL,
     "blocks of keys whose weights are below so much of the largest so far are passed over; 0: none"},
    {"order", ATTN_CHOICE, offsetof(params, order), 0, 0, "forward", orders,
     "order of blocks, with skip: ascending, from the diagonal backwards, or that after the first"},
    {.name = NULL},
};

static attn_status applicable(const attn_context *c) {
  const params *p = c->params;
  if (p->precision == BF16 && p->path)
    return attn_fail(ATTN_EINVAL, "variant tiled: path=%s is a choice of precision=f32", paths[p->path]);
  if (attn_dtype_size(c->problem->dtype) == sizeof(float) ||
      (p->precision == F32 && p->path != ATTN_PATH_SPLIT))
    return ATTN_OK;
  return attn_fail(ATTN_EUNSUPPORTED, "variant tiled: %s needs fp32 tensors",
                   p->precision == BF16 ? "precision=bf16" : "path=split");
}

static attn_cost cost(const attn_context *c) { return attn_softmax_cost(c, attn_visible_pairs(c->problem)); }

static const attn_exemption shared[] = {
    {ATTN_EXEMPT_LOOKAHEAD | ATTN_EXEMPT_PREFIX | ATTN_EXEMPT_ROWS,
     "skip: 64 queries pass over a block together, so that other queries, and keys that these see, enter"},
    {.reason = NULL}};

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const params *p = c->params;
  (void)b;
  out->tiling = (attn_tiling){.blocks = {p->block_q, p->block_k},
                              .path = p->precision == BF16 ? ATTN_PATH_BF16 : (attn_path)p->path,
                              .skip = p->skip,
                              .order = (attn_order)p->order};
  if (!(p->skip > 0)) return ATTN_OK;
  out->caps &= ~(uint32_t)(ATTN_CAP_EXACT | ATTN_CAP_PERMUTATION | ATTN_CAP_SHIFT);
  out->caps |= ATTN_CAP_DATA;
  out->exempt = shared;
  return ATTN_OK;
}

ATTN_VARIANT(tiled, .summary = "exact attention by online softmax over blocks of keys",
             .formula = "o_i = sum_j exp(s_ij) v_j / sum_j exp(s_ij), block by block with a running maximum; "
                        "O(n^2 d) time, O(n) memory",
             .cite = "Dao et al. 2022, arXiv:2205.14135",
             .caps = ATTN_CAP_SOFTMAX | ATTN_CAP_EXACT | ATTN_CAP_PERMUTATION | ATTN_CAP_LSE |
                     ATTN_CAP_POSITIONS,
             .params = table, .params_size = sizeof(params), .applicable = applicable, .describe = describe,
             .cost = cost)
