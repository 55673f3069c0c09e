/* evict - attention to the keys that a cache of bounded size still holds.
 *
 * Keys arrive in the order of their positions. From position `prompt` on, a cache of `budget` keys gives
 * up the key of the least score before one arrives, except the `recent` newest (the arriving one is one of
 * them):
 *   S_t = S_(t-1) without the least of S_(t-1), and t;   o_t = softmax over S_t of the exact scores
 * A key that went never returns. Queries before `prompt` see all keys up to their own. The heads of a kv
 * head share its cache. Scores (core/cache/kv_scores.c has each): random, knorm, keydiff of the keys;
 * tova, h2o, h2o_mean, snapkv of the weights that queries gave them, for which all queries are needed.
 *
 * Cost: sum_t |S_t| pairs for attention, and as many products again for scores of weights; one of |S_t|
 * d_qk operations a step for keydiff. Memory O(n d). Bounds: SP-1, SP-2; FP-2 on the keys that are held;
 * SEL-1, SEL-2 for random and knorm, whose survivors are the budget - recent largest. budget >= n is
 * tiled. */
#include "attn_variant.h"

#include <math.h>

typedef struct params {
  int64_t budget, recent, prompt, seed;
  int score;
} params;
static const char *const scores[] = {"random", "knorm", "keydiff", "tova", "h2o", "h2o_mean", "snapkv", NULL};

static const attn_param table[] = {
    {"score", ATTN_CHOICE, offsetof(params, score), 0, 6, "knorm", scores, "by which keys go"},
    {"budget", ATTN_INT, offsetof(params, budget), 1, 1 << 30, "512", NULL,
     "keys that a kv head's cache holds"},
    {"recent", ATTN_INT, offsetof(params, recent), 1, 1 << 30, "min(32,budget)", NULL,
     "newest of these, which do not go"},
    {"prompt", ATTN_INT, offsetof(params, prompt), 0, 1 << 30, "0", NULL,
     "positions whose queries see all keys, before any goes"},
    {"seed", ATTN_INT, offsetof(params, seed), 0, 1e15, "0", NULL, "seed of score=random"},
    {.name = NULL},
};

enum { ROWS = 16, HELD = -1 };

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static attn_kv_rule rule_of(const attn_context *c) {
  const params *x = c->params;
  return (attn_kv_rule){.score = attn_kv_score_at(x->score),
                        .budget = x->budget,
                        .recent = x->recent,
                        .prompt = x->prompt,
                        .seed = (uint64_t)x->seed};
}

static int64_t capacity(const attn_context *c) {
  const params *x = c->params;
  return smaller(x->prompt > x->budget ? x->prompt : x->budget, c->problem->n_kv);
}

/* Keys and a query of each head that shares them in fp64, and the head. */
typedef struct room {
  double *keys, *queries;
  int64_t *position;
  void *head;
} room;

static room carve(const attn_context *c, attn_carver *carver) {
  const attn_problem *p = c->problem;
  const attn_kv_rule rule = rule_of(c);
  return (room){.keys = attn_carve(carver, p->n_kv, p->d_qk, sizeof(double)),
                .queries = attn_carve(carver, p->heads / p->kv_heads, p->d_qk, sizeof(double)),
                .position = attn_carve(carver, capacity(c), 1, sizeof(int64_t)),
                .head = attn_carve(carver, 1, 1, attn_kv_head_bytes(&rule, capacity(c)))};
}

static void observe(const attn_call *call, int64_t batch, int64_t i, attn_kv_head *h, const room *w) {
  const attn_problem *p = call->context->problem;
  const int64_t group = p->heads / p->kv_heads, first = h->kv_head * group;
  for (int64_t g = 0; g < group; g++)
    attn_convert(attn_row(call->q, p->q, batch, first + g, i, p->dtype), attn_stored(p->q, p->dtype), p->d_qk,
                 ATTN_F64, w->queries + g * p->d_qk);
  attn_kv_observe(h, p, batch, first, group, w->queries, w->keys, attn_problem_position(p, i));
}

/* Of each key the position that it made room for, HELD to the end. */
static void prepare(const void *unused, const attn_call *call, int64_t batch, int64_t kv_head, void *prepared,
                    void *scratch) {
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  const attn_kv_rule rule = rule_of(c);
  const int64_t keys = attn_call_keys(call, batch), first = attn_problem_position(p, 0);
  int64_t *went = prepared;
  attn_carver carver = {.base = scratch};
  const room w = carve(c, &carver);
  attn_kv_head h;
  (void)unused;
  attn_kv_head_begin(&h, &rule, kv_head, p->d_qk, capacity(c), true, w.position, w.head);
  for (int64_t t = 0; t < p->n_kv; t++) {
    went[t] = HELD;
    if (t < keys) {
      double *own = w.keys + t * p->d_qk;
      attn_convert(attn_row(call->k, p->k, batch, kv_head, t, p->dtype), attn_stored(p->k, p->dtype), p->d_qk,
                   ATTN_F64, own);
      const int64_t gone = attn_kv_arrive(&h, t, w.keys, own);
      for (int64_t g = 0; g < gone; g++) went[h.gone_position[g]] = t;
    }
    if (attn_kv_observes(rule.score) && t >= first) observe(call, batch, t - first, &h, &w);
  }
}

static void select(const void *unused, const attn_call *call, const attn_block *b, const void *prepared,
                   attn_picks *picks, void *scratch) {
  const int64_t *went = prepared;
  const params *x = call->context->params;
  (void)unused, (void)scratch;
  for (int64_t i = 0; i < b->count; i++) {
    const int64_t t = attn_problem_position(call->context->problem, b->first + i),
                  keys = smaller(t + 1, attn_call_keys(call, b->batch));
    picks->counts[i] = 0;
    if (t < x->prompt && keys > 0) attn_picks_add(picks, i, 0, keys, 0);
    for (int64_t j = 0; j < keys && t >= x->prompt; j++)
      if (went[j] == HELD || went[j] > t) attn_picks_add(picks, i, j, j + 1, 0);
  }
}

/* The law of scores that are fixed: besides what is safe, the largest stay. */
static bool always(const void *unused, const attn_query *query, int64_t key) {
  const params *x = query->call->context->params;
  const int64_t t = attn_call_position(query->call, query->batch, query->i),
                last = smaller(t, attn_call_keys(query->call, query->batch) - 1);
  (void)unused;
  return t < x->prompt || last - key < x->recent;
}

static double score_of(const void *unused, const attn_query *query, int64_t key, double *error) {
  const attn_problem *p = query->call->context->problem;
  const params *x = query->call->context->params;
  const int64_t kv_head = query->head / (p->heads / p->kv_heads);
  const attn_dtype t = attn_stored(p->k, p->dtype);
  const void *k = attn_row(query->call->k, p->k, query->batch, kv_head, key, p->dtype);
  double square = 0;
  (void)unused;
  *error = 0;
  if (x->score == 0) {
    attn_rng rng;
    attn_rng_init(&rng, (uint64_t)x->seed, (uint64_t)kv_head, (uint64_t)key);
    return attn_rng_uniform(&rng);
  }
  for (int64_t l = 0; l < p->d_qk; l++) square += attn_get(k, l, t) * attn_get(k, l, t);
  *error = (double)(p->d_qk + 2) * 0x1p-53 * sqrt(square);
  return -sqrt(square);
}

static attn_status applicable(const attn_context *c) {
  const attn_problem *p = c->problem;
  const params *x = c->params;
  if (x->recent > x->budget)
    return attn_fail(ATTN_EINVAL, "variant evict: budget = %lld, expected at least recent = %lld",
                     (long long)x->budget, (long long)x->recent);
  if (!p->causal) return attn_fail(ATTN_EUNSUPPORTED, "variant evict: only causal attention");
  if (attn_kv_observes(attn_kv_score_at(x->score)) && p->n_q != p->n_kv)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "variant evict: score=%s ranks by the weights of all queries, of which %lld of %lld are "
                     "given",
                     scores[x->score], (long long)p->n_q, (long long)p->n_kv);
  if (p->score.dense.at) return attn_fail(ATTN_EUNSUPPORTED, "variant evict: a bias of the scores");
  return ATTN_OK;
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  static const attn_exemption of_keys[] = {{ATTN_EXEMPT_GROUPS, "the heads of a kv head share its cache"},
                                           {0, NULL}},
                              of_weights[] = {
                                  {ATTN_EXEMPT_GROUPS, "the heads of a kv head share its cache"},
                                  {ATTN_EXEMPT_ROWS, "which keys are held depends on the queries before"},
                                  {0, NULL}};
  const params *x = c->params;
  const attn_problem *p = c->problem;
  const attn_kv_score *score = attn_kv_score_at(x->score);
  attn_carver counter = {.base = NULL};
  (void)b;
  carve(c, &counter);
  out->exempt = attn_kv_observes(score) ? of_weights : of_keys;
  if (attn_kv_observes(score)) out->caps &= ~(uint32_t)ATTN_CAP_CROSS;
  if (x->score == 0) out->seed = "seed";
  out->cache = rule_of(c);
  out->selector = (attn_selector){.share = ATTN_SHARE_GROUP,
                                  .rows = ROWS,
                                  .max_runs = smaller(x->budget, (p->n_kv + 1) / 2),
                                  .max_keys = x->prompt ? 0 : smaller(x->budget, p->n_kv),
                                  .every = x->budget >= p->n_kv || x->prompt >= p->n_kv,
                                  .prepared_bytes = attn_size_times((size_t)p->n_kv, sizeof(int64_t)),
                                  .prepare = prepare,
                                  .scratch_bytes = counter.used,
                                  .select = select};
  if (!score->fixed) return ATTN_OK;
  out->selector.grain = 1;
  out->selector.kept = x->budget - x->recent;
  out->selector.always = always;
  out->selector.score = score_of;
  return ATTN_OK;
}

/* Keys that the queries at the first n positions see, of a head. */
static double pairs_up_to(const params *x, double n) {
  const double prompt = fmin(n, (double)x->prompt), budget = (double)x->budget,
               full = fmin(n, fmax(prompt, budget)); /* from here on as many as the budget */
  if (n <= 0) return 0;
  const double before = full * (full + 1) / 2;
  return before + (n - full) * budget;
}

/* Those of all queries. */
static double pairs_of(const attn_context *c) {
  const attn_problem *p = c->problem;
  const double before = (double)attn_problem_position(p, 0);
  return pairs_up_to(c->params, (double)p->n_kv) - pairs_up_to(c->params, before);
}

static attn_cost cost(const attn_context *c) {
  const attn_problem *p = c->problem;
  const params *x = c->params;
  const attn_kv_score *score = attn_kv_score_at(x->score);
  const double pairs = pairs_of(c), d = (double)p->d_qk;
  attn_cost result = attn_softmax_cost(c, pairs);
  if (x->budget >= p->n_kv) return result;
  if (attn_kv_observes(score)) {
    result.mul_add += (double)(p->batch * p->heads) * pairs * d;
    result.exp += (double)(p->batch * p->heads) * pairs;
  } else if (!score->fixed) {
    result.mul_add += (double)(p->batch * p->kv_heads * (p->n_kv - x->budget) * x->budget) * 2 * d;
  }
  return result;
}

ATTN_VARIANT(evict, .summary = "attention to the keys that a cache of bounded size still holds",
             .formula = "softmax over the `budget` keys that the cache holds at the query's position, the "
                        "`recent` newest and those that score= ranks first; O(n budget d)",
             .cite =
                 "Zhang et al. 2023, arXiv:2306.14048; Oren et al. 2024, arXiv:2401.06104; Li et al. 2024, "
                 "arXiv:2404.14469; Devoto et al. 2024, arXiv:2406.11430; Park et al. 2025, "
                 "arXiv:2504.15364",
             .caps = (ATTN_CAP_SOFTMAX & ~(ATTN_CAP_SHIFT | ATTN_CAP_MASK)) | ATTN_CAP_LSE | ATTN_CAP_DATA,
             .params = table, .params_size = sizeof(params), .budget = {.parameter = "budget"},
             .applicable = applicable, .describe = describe, .cost = cost)
