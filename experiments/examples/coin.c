/* coin - a tail that is drawn: a query takes each key with probability p, and always the last one that it
 * sees.
 *
 *   o_i = sum_j w_ij e^s_ij v_j / sum_j w_ij e^s_ij,   w_ij = 1/p where the coin of (i, j) fell so, else 0; 1
 *   for the last key
 *
 * Numerator and denominator have the right mean (Horvitz and Thompson 1952). Left of a '+' other keys are
 * exact, and coins are tossed for those that remain: "streaming:window=64 + coin". */
#include <attn_variant.h>

#include <math.h>

typedef struct params {
  double p;
  int64_t seed;
} params;

static const attn_param table[] = {
    {"p", ATTN_REAL, offsetof(params, p), 1e-3, 1, "0.25", NULL, "chance of a key"},
    {"seed", ATTN_INT, offsetof(params, seed), 0, 1e15, "0", NULL, "of the coins"},
    {.name = NULL}};

/* A query sees keys 0 ... last. */
static int64_t last_key(const attn_call *call, int64_t batch, int64_t i) {
  int64_t first, end;
  const int64_t keys = attn_call_keys(call, batch);
  attn_visible_span(call->context->problem, i, &first, &end);
  return (end < keys ? end : keys) - 1;
}

/* Coins follow from the seed, the head and where the query stands, whatever the others are. */
static void select(const void *state, const attn_call *call, const attn_block *b, const void *prepared,
                   attn_picks *picks, void *scratch) {
  const attn_problem *problem = call->context->problem;
  const params *x = call->context->params;
  const attn_picks *owned = picks->owned; /* keys of the terms left of this one, ascending */
  (void)state, (void)prepared, (void)scratch;
  for (int64_t i = 0; i < b->count; i++) {
    const int64_t query = b->first + i, last = last_key(call, b->batch, query);
    const attn_run *taken = owned ? owned->runs + i * owned->max_runs : NULL,
                   *end = owned ? taken + owned->counts[i] : NULL;
    attn_run *runs = picks->runs + i * picks->max_runs;
    double *log_weights = picks->log_weights + i * picks->max_runs;
    int64_t count = 0;
    attn_rng rng;
    attn_rng_init(&rng, (uint64_t)x->seed, 0x636f696e,
                  ((uint64_t)b->head << 32) + (uint64_t)attn_problem_position(problem, query));
    for (int64_t j = 0; j <= last; j++) {
      const bool heads = attn_rng_uniform(&rng) < x->p;
      while (taken < end && taken->first + taken->count <= j) taken++;
      if ((taken < end && taken->first <= j) || !(heads || j == last)) continue;
      runs[count] = (attn_run){j, 1, 1};
      log_weights[count++] = j == last ? 0 : -log(x->p);
    }
    picks->counts[i] = count;
  }
}

/* The law: E w_a w_b, which is 1 for two different keys, and the weight of a key that is kept. */
static void moments(const void *state, const attn_query *q, const int64_t *keys, int64_t count, double *m) {
  const params *x = q->call->context->params;
  const int64_t last = last_key(q->call, q->batch, q->i);
  (void)state;
  for (int64_t at = 0; at < count * count; at++)
    m[at] = at / count == at % count && keys[at / count] != last ? 1 / x->p : 1;
}

static double log_weight(const void *state, const attn_query *q, int64_t key) {
  const params *x = q->call->context->params;
  (void)state;
  return key == last_key(q->call, q->batch, q->i) ? 0 : -log(x->p);
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  (void)b;
  out->selector = (attn_selector){.share = ATTN_SHARE_ROW,
                                  .rows = 16,
                                  .max_runs = c->problem->n_kv,
                                  .weighted = true,
                                  .restricts = true,
                                  .select = select,
                                  .moments = moments,
                                  .log_weight = log_weight};
  return ATTN_OK;
}

static attn_cost cost(const attn_context *c) {
  const params *x = c->params;
  return attn_softmax_cost(c, x->p * attn_visible_pairs(c->problem));
}

ATTN_VARIANT(coin, .summary = "keys by the toss of a coin, weighted for all: an unbiased tail",
             .formula = "keys drawn with probability p, weighted 1 / p, and the last one; O(n^2 d p)",
             .cite = "an example", .caps = (ATTN_CAP_SOFTMAX & ~ATTN_CAP_MASK) | ATTN_CAP_LSE | ATTN_CAP_DATA,
             .params = table, .params_size = sizeof(params), .seed = "seed", .describe = describe,
             .cost = cost)
