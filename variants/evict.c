/* evict - attention to the keys that a cache of bounded size still holds.
 *
 * Keys arrive in the order of their positions. From position `prompt` on, a cache of `budget` keys gives
 * up the key of the least score before one arrives, except the `recent` newest (the arriving one is one of
 * them):
 *   S_t = S_(t-1) without the least of S_(t-1), and t;   o_t = softmax over S_t of the exact scores
 * A key that went never returns. With every=s the s least go at a time, and none for s - 1 arrivals; with
 * chunk=c the keys of c positions go together, by their mean score; with shared=s kv heads divide that part
 * of their budgets by the scores of the prompt's keys, Ada-KV (core/attn_eviction.h). With admit=a a key
 * stays, when it is recent no more, if its score is at least a, and the budget takes the least of those that
 * stayed: KV admission, with a score where the paper learns a gate. Queries before `prompt` see all keys up
 * to their own. The heads of a kv head share its cache. Scores (core/cache/kv_scores.c has each): random and
 * streaming look at no key, knorm, qfilter and keydiff at keys, lagkv at keys and values; tova, h2o, h2o_mean
 * and snapkv at the weights that queries gave them, and expected at their products with queries, for which
 * all queries are needed; exact, an oracle, at the weights that queries to come will give them.
 *
 * Cost: sum_t |S_t| pairs for attention, and as many products again for scores of weights; one of |S_t|
 * d_qk operations a step for keydiff, |S_t| (d_qk + d_v) for lagkv, 64 (4 |S_t| + d_qk) of each head for
 * expected; n (n + 1) pairs for exact; with shared= those of the prompt again for each pair of kv heads. Of
 * a prompt scores of a window take its last queries alone. Memory O(n d), and 2 n^1.5 for exact.
 * Bounds: SP-1, SP-2; FP-2 on the keys that are held; SEL-2 for scores of a key by itself, one at a time,
 * whose survivors are the budget - recent largest; EVICT-1 and EVICT-2 for all. budget >= n without admit is
 * tiled. */
#include "attn_variant.h"

typedef struct params {
  attn_kv_rule rule; /* its score and seed are those below */
  int64_t seed;
  int score;
} params;

static const attn_param table[] = {
    {"score", ATTN_CHOICE, offsetof(params, score), 0, ATTN_KV_SCORES - 1, "knorm", attn_kv_score_names,
     "by which keys go"},
    ATTN_KV_PARAMS(params, rule),
    {"filters", ATTN_TEXT, offsetof(params, rule.filters_file), 0, 0, "", NULL,
     "npy [kv_heads, d_qk], of score=qfilter"},
    {"seed", ATTN_INT, offsetof(params, seed), 0, 1e15, "0", NULL, "seed of score=random"},
    {.name = NULL},
};

static attn_kv_rule rule_of(const attn_context *c) {
  const params *x = c->params;
  attn_kv_rule r = x->rule;
  r.score = attn_kv_score_at(x->score);
  r.seed = (uint64_t)x->seed;
  return r;
}

ATTN_KV_FUNCTIONS(rule_of)

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  if (((const params *)c->params)->score == 0) out->seed = "seed";
  return kv_describe(b, c, out);
}

ATTN_VARIANT(evict, .summary = "attention to the keys that a cache of bounded size still holds",
             .formula = "softmax over the `budget` keys that the cache holds at the query's position, the "
                        "`recent` newest and those that score= ranks first; O(n budget d)",
             .cite = "Xiao et al. 2023, arXiv:2309.17453; Zhang et al. 2023, arXiv:2306.14048; Oren et al. "
                     "2024, arXiv:2401.06104; Li et al. 2024, "
                     "arXiv:2404.14469; Devoto et al. 2024, arXiv:2406.11430; Park et al. 2025, "
                     "arXiv:2504.15364; Liang et al. 2025, arXiv:2504.04704; Devoto et al. 2025, "
                     "arXiv:2510.00636; Godey et al. 2025, arXiv:2503.02812; Feng et al. 2024, "
                     "arXiv:2407.11550; Huang et al. 2025, arXiv:2512.17452",
             .caps = ATTN_CAP_KV_RULE, .params = table, .params_size = sizeof(params),
             .budget = {.parameter = "budget"}, .applicable = kv_applicable, .describe = describe,
             .cost = kv_cost)
