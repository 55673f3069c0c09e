/* turbo - exact attention to keys and values in TurboQuant's codes: a norm, and each coordinate of the
 * rotated direction in few bits.
 *
 *   x^ = |x| R' c(R x / |x|),   R a random orthogonal matrix, c the nearest of 2^bits levels
 *
 * A coordinate of R x / |x| has the density (1 - t^2)^((d-3)/2), whatever x is, for which the levels are
 * best (Lloyd 1957, Max 1960): E |x - x^|^2 = D |x|^2, D .363, .117, .0345, .0095 as d grows. prod=yes
 * spends one of the bits on the signs of S e, S Gaussian [d, d], e what the others leave of the direction: +
 * |x| |e| sqrt(pi/2) / d S' sign(S e), by which q.x^ is unbiased. Zandieh et al. 2025, arXiv:2504.19874,
 * algorithms 1 and 2.
 *
 * Bits of a row: bits d, and 16 for |x|, 16 for |e| with prod=yes. Cost: that of tiled, and 2 d^2
 * multiply-adds a row, twice with prod=yes. Bounds: QNT-0 ... QNT-2, QNT-3. R and S are drawn for keys and
 * for values, all heads alike; the paper draws once. What is read is a decoded copy (core/engines/stored). */
#include "attn_variant.h"

typedef struct params {
  int64_t bits, seed;
  int prod, of;
} params;

enum { PURPOSE = 0x70b0, BOTH = 0, K, V };
static const char *const answers[] = {"no", "yes", NULL};
static const char *const sides[] = {"kv", "k", "v", NULL};

static const attn_param table[] = {
    {"bits", ATTN_INT, offsetof(params, bits), 1, 4, "3", NULL, "bits of a coordinate"},
    {"prod", ATTN_CHOICE, offsetof(params, prod), 0, 1, "no", answers, "one of them for signs of the rest"},
    {"of", ATTN_CHOICE, offsetof(params, of), 0, V, "kv", sides, "what is stored so: keys, values, or both"},
    {"seed", ATTN_INT, offsetof(params, seed), 0, 1e15, "0", NULL, "seed of the draws"},
    {.name = NULL},
};

static attn_status applicable(const attn_context *c) {
  const params *x = c->params;
  const int64_t k = x->of != V ? c->problem->d_qk : 3, v = x->of != K ? c->problem->d_v : 3;
  if (k < 3 || v < 3)
    return attn_fail(ATTN_EUNSUPPORTED, "variant turbo: rows of %lld elements, expected 3 or more",
                     (long long)(k < 3 ? k : v));
  return ATTN_OK;
}

static attn_status code(attn_builder *b, const params *x, int64_t d, uint64_t purpose, attn_kv_scheme *out) {
  return attn_kv_codes(b, d, x->bits - x->prod, x->prod ? d : 0, (uint64_t)x->seed, purpose, out);
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const params *x = c->params;
  attn_status status = ATTN_OK;
  if (x->of != V) status = code(b, x, c->problem->d_qk, PURPOSE, &out->store.k_scheme);
  if (x->of != K && !status) status = code(b, x, c->problem->d_v, PURPOSE + 1, &out->store.v_scheme);
  return status;
}

ATTN_VARIANT(turbo, .summary = "exact attention to keys and values in TurboQuant's codes",
             .formula = "softmax over |x| R' c(R x / |x|), c the nearest of 2^bits levels; O(n^2 d + n d^2)",
             .cite = "Zandieh et al. 2025, arXiv:2504.19874", .caps = ATTN_CAP_KV_STORE, .params = table,
             .params_size = sizeof(params), .seed = "seed", .applicable = applicable, .describe = describe,
             .cost = attn_kv_store_cost)
