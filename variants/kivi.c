/* kivi - exact attention to keys and values in KIVI's codes: keys channel by channel in groups of tokens,
 * values token by token, the newest of both as they are given.
 *
 *   x^ = z + s round((x - z) / s),   z = min x, s = (max x - min x) / (2^bits - 1), both in f16
 *
 * of the x of a block, which is one channel of `group` keys that follow each other, or 32 channels of a
 * value. A query at position t, which has come into the cache, reads the values of the last `residual`
 * tokens and the keys from `residual` floor((t + 1) / residual) on as they are given. Liu et al. 2024,
 * arXiv:2402.02750, algorithm 1 (as recalled): what is due is coded before the query is answered; the
 * authors' program codes it afterwards. Queries before `prompt` read everything as it is given, as a
 * prompt's do there.
 *
 * Bits of an element that is coded: bits + 32 / group of a key, bits + 1 of a value. A block whose numbers
 * are all the same has s = 0 and is z. Cost: that of tiled. Bounds: QNT-0 ... QNT-2. What is read is a
 * decoded copy (core/engines/stored), by a softmax over keys. */
#include "attn_variant.h"

typedef struct params {
  int64_t bits, group, residual, prompt;
} params;

static const attn_param table[] = {
    {"bits", ATTN_INT, offsetof(params, bits), 1, 8, "2", NULL, "bits of a code"},
    {"group", ATTN_INT, offsetof(params, group), 1, 1 << 20, "32", NULL, "keys that are coded together"},
    {"residual", ATTN_INT, offsetof(params, residual), 1, 1 << 30, "128", NULL,
     "newest tokens that are not coded; a multiple of group"},
    {"prompt", ATTN_INT, offsetof(params, prompt), 0, 1 << 30, "0", NULL,
     "positions whose queries read all as it is given"},
    {.name = NULL},
};

static attn_status applicable(const attn_context *c) {
  const params *x = c->params;
  if (x->residual % x->group)
    return attn_fail(ATTN_EINVAL, "variant kivi: residual=%lld is no multiple of group=%lld",
                     (long long)x->residual, (long long)x->group);
  if (attn_dtype_size(c->problem->dtype) != sizeof(float))
    return attn_fail(ATTN_EUNSUPPORTED, "variant kivi: its codes are of fp32 and 16-bit tensors");
  return ATTN_OK;
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const params *x = c->params;
  const attn_dtype type = (attn_dtype)((int)ATTN_INT1 + (int)x->bits - 1);
  (void)b;
  out->store =
      (attn_kv_store){.k = type, .v = type, .residual = x->residual, .group = x->group, .prompt = x->prompt};
  return ATTN_OK;
}

ATTN_VARIANT(kivi, .summary = "exact attention to keys and values in KIVI's codes, but the newest",
             .formula = "softmax over codes of K by channel and of V by token, the newest as given; O(n^2 d)",
             .cite = "Liu et al. 2024, arXiv:2402.02750",
             .caps = ATTN_CAP_KV_STORE & ~(uint32_t)(ATTN_CAP_PERMUTATION | ATTN_CAP_POSITIONS),
             .params = table, .params_size = sizeof(params), .applicable = applicable, .describe = describe,
             .cost = attn_kv_store_cost)
