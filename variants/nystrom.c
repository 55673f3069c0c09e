/* nystrom - landmarks: o = F Z (B V) with F = softmax(c Q Kl^T), B = softmax(c Ql K^T), c the scale, and Z of
 * A = softmax(c Ql Kl^T), Ql and Kl the `landmarks` rows that represent the queries and keys:
 *
 *   by=mean    means of nearly equal segments of the rows        by=sample   a row drawn from each segment
 *   middle=newton    Z <- Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4, `iterations` times from A^T / (|A|_1
 *                    |A|_inf)
 *   middle=pinv      A^+, singular values of at most rcond times the largest left out
 *   middle=agents    agent attention: o = softmax(c Q Ql^T) B V, a landmark query passes on what it sees
 *
 * Xiong et al. 2021, Nystroemformer (arXiv:2102.03902), newton; Han et al. 2023, agent attention
 * (arXiv:2312.08874), agents. Cost n landmarks (2 d_qk + 2 d_v) + 4 iterations landmarks^3 multiply-adds.
 * Bounds: LIN-3, LOW-1, NYS-1 (newton), NYS-2 (pinv), NYS-3 (agents).
 *
 * Deviations: the published initialisation takes one maximum of |A|_1 and |A|_inf over all heads and batch
 * entries, which makes outputs depend on neighbours; here each head has its own. What is learned is left out:
 * convolutions of V, and agent attention's biases; so are paddings in front. Causal attention is
 * dyadic(nystrom). */
#include "attn_variant.h"

#include <stddef.h>

typedef enum { MEAN, SAMPLE } choice;

typedef struct params {
  int64_t landmarks, iterations, seed;
  double rcond;
  int middle, by;
} params;

static const char *const middles[] = {"newton", "pinv", "agents", NULL}; /* as attn_middle */
static const char *const choices[] = {"mean", "sample", NULL};

static const attn_param table[] = {
    {"landmarks", ATTN_INT, offsetof(params, landmarks), 1, 1 << 10, "64", NULL,
     "rows that stand for the queries, and for the keys"},
    {"middle", ATTN_CHOICE, offsetof(params, middle), 0, 2, "newton", middles,
     "what is between landmarks; agents: queries meet landmarks of queries"},
    {"iterations", ATTN_INT, offsetof(params, iterations), 0, 1000, "6", NULL, "steps of newton"},
    {"rcond", ATTN_REAL, offsetof(params, rcond), 0, 0.5, "1e-06", NULL,
     "singular values left out by pinv, over the largest"},
    {"by", ATTN_CHOICE, offsetof(params, by), 0, 1, "mean", choices,
     "means of segments, or a row drawn from each"},
    {"seed", ATTN_INT, offsetof(params, seed), 0, 1e15, "0", NULL, "seed of the rows drawn"},
    {.name = NULL},
};

static attn_status applicable(const attn_context *c) {
  if (c->problem->causal)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "variant nystrom: causal attention is impossible, a landmark mixes positions and so the "
                     "future; dyadic(nystrom) is causal");
  return ATTN_OK;
}

enum { PURPOSE = 0x6e7973 }; /* "nys" */

/* floor(l n / landmarks), whose product may be above what an int64_t holds. */
static int64_t edge(int64_t n, int64_t landmarks, int64_t l) {
  return n / landmarks * l + n % landmarks * l / landmarks;
}

/* The law: the rows, of n, of landmark l. */
static void segment(const void *opaque, attn_side side, int64_t n, int64_t landmarks, int64_t l,
                    int64_t *first, int64_t *count) {
  const params *x = opaque;
  *first = edge(n, landmarks, l);
  *count = edge(n, landmarks, l + 1) - *first;
  if (x->by == MEAN) return;
  attn_rng rng;
  attn_rng_init(&rng, (uint64_t)x->seed, PURPOSE + (uint64_t)side, (uint64_t)l);
  *first += attn_rng_below(&rng, *count);
  *count = 1;
}

static const attn_exemption shared[] = {{ATTN_EXEMPT_ROWS, "landmarks are of all queries"}, {.reason = NULL}};
static const attn_exemption few[] = {
    {ATTN_EXEMPT_ROWS, "landmarks are of all queries"},
    {ATTN_EXEMPT_GROUPS,
     "fewer landmarks than a tile has queries: those of heads that share keys are summed together"},
    {.reason = NULL}};

static attn_low_rank law_of(const params *x) {
  return (attn_low_rank){.state = x,
                         .rank = x->landmarks,
                         .middle = (attn_middle)x->middle,
                         .iterations = x->iterations,
                         .rcond = x->rcond,
                         .segment = segment};
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const params *x = c->params;
  (void)b;
  out->low_rank = law_of(x);
  out->exempt = x->landmarks < ATTN_TILE ? few : shared;
  if (x->by == MEAN) out->seed = NULL;
  /* For the other middles, sums are 1 and shifts cancel only as exactly as Z is an inverse. */
  if (x->middle == ATTN_MIDDLE_AGENTS) out->caps |= ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX | ATTN_CAP_SHIFT;
  return ATTN_OK;
}

static attn_cost cost(const attn_context *c) {
  const attn_low_rank law = law_of(c->params);
  return attn_landmark_cost(c, &law);
}

ATTN_VARIANT(nystrom, .summary = "landmarks of queries and keys (Nystroemformer, agent attention)",
             .formula =
                 "softmax(c Q Kl^T) Z softmax(c Ql K^T) V, Ql and Kl landmarks of queries and keys, Z near "
                 "the inverse of softmax(c Ql Kl^T); middle=agents: softmax(c Q Ql^T) softmax(c Ql "
                 "K^T) V; O(n landmarks d + landmarks^3)",
             .cite = "Xiong et al. 2021, arXiv:2102.03902; Han et al. 2023, arXiv:2312.08874",
             .caps = ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_LSE | ATTN_CAP_HALF, .params = table,
             .params_size = sizeof(params), .seed = "seed", .budget = {.parameter = "landmarks"},
             .applicable = applicable, .describe = describe, .cost = cost)
