/* blocks.c - how many queries share a block of keys, and how many keys an online step takes, from the sizes
 * of the caches, where neither the variant nor the options set them.
 *
 * Keys. Rescaling O once a step costs one multiply-add for B of O += V^T P^T, 1 % at B = 96, and rounding
 * chains grow with B (B + 2 n / B). The weights of a step are read again for every few columns of V, so they
 * may fill 3/4 of L1d.
 *   B = min(96, 3/4 L1d / bytes of the weights of a key), whole register tiles
 * Queries. K and V are read from beyond L2 once for each tile: with 256 queries that is 128 operations a byte
 * in fp32. The tile's Q and O are read once a step: they may fill half of L2, the rest is for K and V.
 *   Q = min(256, 1/2 L2 / bytes of a query's q and o), whole ATTN_TILEs
 *
 * Smaller caches make smaller blocks, but larger caches do not make larger ones: processors of one
 * instruction set with 32 KiB of L1d or more compute the same bits. */
#include "core/internal.h"

enum {
  KEYS = 96,
  KEYS_UNIT = 12, /* register tiles are of 4 or 6 keys */
  QUERIES = 4 * ATTN_TILE,
  WIDTH_MAX = 1 << 24,
};

static int64_t whole(int64_t most, int64_t fits, int64_t unit) {
  return attn_max(attn_min(most, fits) / unit * unit, unit);
}

attn_blocks attn_blocks_for(const attn_kernels *k, int64_t d_qk, int64_t d_v, int64_t l1, int64_t l2) {
  int64_t width = attn_min(d_qk, WIDTH_MAX) + attn_min(d_v, WIDTH_MAX);
  return (attn_blocks){.query =
                           whole(QUERIES, l2 / 2 / (width * (int64_t)attn_dtype_size(k->dtype)), ATTN_TILE),
                       .key = whole(KEYS, l1 / 4 * 3 / k->key_bytes, KEYS_UNIT)};
}

attn_status attn_blocks_resolve(const attn_options *options, const attn_kernels *k, int64_t d_qk, int64_t d_v,
                                attn_blocks *out) {
  attn_blocks given = {0};
  if (options) given = options->blocks;
  if (given.query < 0 || given.query > ATTN_BLOCK_MAX || given.key < 0 || given.key > ATTN_BLOCK_MAX)
    return attn_fail(ATTN_EINVAL, "options: blocks of %lld queries and %lld keys, expected 0 ... %d",
                     (long long)given.query, (long long)given.key, ATTN_BLOCK_MAX);
  attn_blocks fit = attn_blocks_for(k, d_qk, d_v, attn_cache_size(1).bytes, attn_cache_size(2).bytes);
  *out = (attn_blocks){given.query ? given.query : fit.query, given.key ? given.key : fit.key};
  return ATTN_OK;
}
