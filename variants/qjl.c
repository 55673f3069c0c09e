/* qjl - exact attention to keys of which a cache holds the norm and signs of random products.
 *
 *   k^ = |k| sqrt(pi/2) / m S' sign(S k),   S Gaussian [m, d], m = bits d
 *
 * The products q.k^ are unbiased, with variance ((pi/2) |q|^2 |k|^2 - (q.k)^2) / m; their exponentials are
 * not. Zandieh et al. 2024, arXiv:2406.03482, section 3; values are left as they are. The authors' code
 * makes the rows of S orthogonal in blocks, which the paper's theorem does not speak of.
 *
 * Bits of a key: bits d, and 16 for |k|. Cost: that of tiled, and 2 m d multiply-adds a key. Bounds: QNT-0
 * ... QNT-2, QNT-3. What is read is a decoded copy (core/engines/stored). */
#include "attn_variant.h"

typedef struct params {
  int64_t bits, seed;
} params;

enum { PURPOSE = 0x7151 };

static const attn_param table[] = {
    {"bits", ATTN_INT, offsetof(params, bits), 1, 64, "4", NULL, "signs for each element of a key"},
    {"seed", ATTN_INT, offsetof(params, seed), 0, 1e15, "0", NULL, "seed of the draws"},
    {.name = NULL},
};

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const params *x = c->params;
  const int64_t d = c->problem->d_qk;
  return attn_kv_codes(b, d, 0, x->bits * d, (uint64_t)x->seed, PURPOSE, &out->store.k_scheme);
}

ATTN_VARIANT(
    qjl, .summary = "exact attention to keys stored as signs of random products",
    .formula = "softmax over c q.k^, k^ = |k| sqrt(pi/2)/m S' sign(S k), S Gaussian; O(n^2 d + n m d)",
    .cite = "Zandieh et al. 2024, arXiv:2406.03482", .caps = ATTN_CAP_KV_STORE, .params = table,
    .params_size = sizeof(params), .seed = "seed", .describe = describe, .cost = attn_kv_store_cost)
