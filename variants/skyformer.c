/* skyformer - attention by a Gaussian kernel that is not divided by the sums of its rows, of low rank: with
 * G(x, y) = e^(-c |x - y|^2 / 2), c the scale, of the n_q + n_kv points [Q; K] and of landmarks S among them,
 *
 *   o = G_QS G_SS^-1 G_SK V,   in the place of G_QK V.
 *
 * Chen, Zeng, Ji and Yang 2021 (arXiv:2111.00035), equations 4 to 7, from memory. G is what softmax's kernel
 * e^(c q.k) becomes by e^(-c |q|^2 / 2) and e^(-c |k|^2 / 2) on either side in place of the sums of its rows:
 * it is no approximation of softmax. Cost (n_q + n_kv) landmarks (d_qk + landmarks / 2 + d_v) multiply-adds,
 * in fp64. Bounds: SKY-1, COR-1, LOW-3, LIN-3.
 *
 * Deviations: landmarks are drawn without replacement; G_SS^-1 by Cholesky, in which a landmark of which at
 * most rcond is left by those before it is left out, in place of an iteration on G_SS + 0.1 I; the scale is
 * the problem's. Landmarks are of all positions: not causal, and a row depends on other queries. */
#include "attn_variant.h"

#include <math.h>

typedef struct params {
  int64_t landmarks, seed;
  double rcond;
} params;

static const attn_param table[] = {
    {"landmarks", ATTN_INT, offsetof(params, landmarks), 1, 1 << 16, "64", NULL,
     "queries and keys that stand for all"},
    {"rcond", ATTN_REAL, offsetof(params, rcond), 1e-13, 0.5, "1e-10", NULL,
     "a landmark of which less is left is left out"},
    {"seed", ATTN_INT, offsetof(params, seed), 0, 1e15, "0", NULL, "seed of the landmarks"},
    {.name = NULL},
};

enum { PURPOSE = 0x736b79 }; /* "sky" */

static attn_status applicable(const attn_context *c) {
  if (c->problem->causal)
    return attn_fail(ATTN_EUNSUPPORTED, "variant skyformer: causal attention is impossible, landmarks are of "
                                        "all positions");
  if (!(c->problem->scale >= 0))
    return attn_fail(ATTN_EUNSUPPORTED,
                     "variant skyformer: scale = %g, expected 0 or more, for the kernel to "
                     "be positive",
                     c->problem->scale);
  return ATTN_OK;
}

/* Each row with the probability that is left: all sets are as likely. */
static int64_t pick(const void *state, const attn_context *c, const attn_picked_head *h, int64_t *picked,
                    void *memory) {
  const params *p = state;
  const int64_t n = h->n_q + h->keys;
  attn_rng rng;
  int64_t count = 0;
  (void)c, (void)memory;
  attn_rng_init(&rng, (uint64_t)p->seed, PURPOSE, 0);
  for (int64_t i = 0; i < n && count < p->landmarks; i++)
    if (attn_rng_below(&rng, n - i) < p->landmarks - count) picked[count++] = i;
  return count;
}

static attn_cost cost(const attn_context *c) {
  const attn_problem *p = c->problem;
  const double heads = (double)(p->batch * p->heads), n = (double)(p->n_q + p->n_kv),
               m = fmin((double)((const params *)c->params)->landmarks, n);
  return (attn_cost){.mul_add = heads * n * m * ((double)p->d_qk + m / 2 + (double)(p->d_v + 1)),
                     .exp = heads * n * m,
                     .bytes = attn_problem_bytes(p)};
}

static const attn_exemption shared[] = {{ATTN_EXEMPT_ROWS, "landmarks are of other queries, too"},
                                        {.reason = NULL}};

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const params *x = c->params;
  (void)b;
  out->low_rank = (attn_low_rank){
      .state = x, .rank = x->landmarks, .rcond = x->rcond, .pick = pick, .picked = ATTN_PICKED_POINTS};
  out->exempt = shared;
  return ATTN_OK;
}

ATTN_VARIANT(
    skyformer, .summary = "a Gaussian kernel in place of softmax, by landmarks among queries and keys",
    .formula = "G_QS G_SS^-1 G_SK V, G(x, y) = e^(-c |x - y|^2 / 2), S landmarks among queries and keys; "
               "no division by sums; O(n landmarks (d + landmarks))",
    .cite = "Chen et al. 2021, arXiv:2111.00035", .caps = ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_HALF,
    .params = table, .params_size = sizeof(params), .seed = "seed", .budget = {.parameter = "landmarks"},
    .applicable = applicable, .describe = describe, .cost = cost)
