/* sage - exact attention to keys in SageAttention's codes: less the mean key, with one scale for a group.
 *
 *   k^_j = m + s round((k_j - m) / s),   m = mean of all keys,   s = max |k - m| / (2^(bits-1) - 1)
 *
 * The maximum is that of all elements of `group` keys that follow each other; the last group may be shorter.
 * Zhang et al. 2024, arXiv:2410.02367, sections 4.2 and 4.3 (as recalled): softmax does not see m, and they
 * leave it out of the scores; here it is added again, because sinks, soft caps and log-sum-exps would see it.
 * Theirs and not here: queries in int8 by groups of 128 rows, products of integers, and sums of values in
 * f16. Queries are as they are given; values are f16 as theirs unless v says otherwise.
 *
 * Later keys enter m and the scales, by a step of a key's code at most, as in the paper, which codes a whole
 * sequence at once: a causal row depends on the length of the sequence. A mean of the first group and keys
 * that wait for theirs would not, and would be another method.
 *
 * Bits of an element: bits + 32 / (group d), and m for a head. Cost: that of tiled. Bounds: QNT-0 ... QNT-2,
 * and with smooth=yes QNT-4. What is read is a decoded copy (core/engines/stored). */
#include "attn_variant.h"

typedef struct params {
  int64_t bits, group;
  int smooth, v;
} params;

static const char *const answers[] = {"no", "yes", NULL}, *const types[] = {"f32", "f16", "bf16", "fp8",
                                                                            NULL};

static const attn_param table[] = {
    {"bits", ATTN_INT, offsetof(params, bits), 2, 8, "8", NULL, "bits of a key's code"},
    {"group", ATTN_INT, offsetof(params, group), 1, 1 << 30, "64", NULL, "keys that share a scale"},
    {"smooth", ATTN_CHOICE, offsetof(params, smooth), 0, 1, "yes", answers,
     "codes are of keys less their mean"},
    {"v", ATTN_CHOICE, offsetof(params, v), 0, 3, "f16", types, "how values are stored"},
    {.name = NULL},
};

static attn_status applicable(const attn_context *c) {
  return attn_dtype_size(c->problem->dtype) == sizeof(float)
             ? ATTN_OK
             : attn_fail(ATTN_EUNSUPPORTED, "variant sage: its codes are of fp32 and 16-bit tensors");
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  static const attn_dtype of[] = {ATTN_F32, ATTN_F16, ATTN_BF16, ATTN_FP8};
  const params *x = c->params;
  (void)b;
  out->store = (attn_kv_store){.k = (attn_dtype)((int)ATTN_INT1 + (int)x->bits - 1),
                               .v = of[x->v],
                               .group = x->group,
                               .smooth = x->smooth};
  return ATTN_OK;
}

ATTN_VARIANT(sage,
             .summary = "exact attention to keys in SageAttention's codes, with a scale for a group of them",
             .formula = "softmax over codes of K less its mean, a scale for a group of keys; O(n^2 d)",
             .cite = "Zhang et al. 2024, arXiv:2410.02367",
             .caps = ATTN_CAP_KV_STORE & ~(uint32_t)(ATTN_CAP_PERMUTATION | ATTN_CAP_POSITIONS),
             .params = table, .params_size = sizeof(params), .applicable = applicable, .describe = describe,
             .cost = attn_kv_store_cost)
