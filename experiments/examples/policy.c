/* policy - a cache that gives up the keys farthest from both ends: the `sink` first stay, and the newest.
 * StreamingLLM (Xiao et al. 2023, arXiv:2309.17453) as a rule: of a budget of sink + window keys it holds
 * what streaming:sink=sink,window=window sees. */
#include <attn_variant.h>

#include <math.h>

typedef struct params {
  attn_kv_rule rule;
} params;

static const attn_param table[] = {
    ATTN_KV_PARAMS(params, rule),
    {.name = NULL},
};

enum { SINK = 4 };

/* The key of the least score goes. */
static void by_place(const attn_kv_held *h, double *score) {
  for (int64_t j = 0; j < h->count; j++)
    score[j] = h->position[j] < SINK ? (double)INFINITY : (double)h->position[j];
}

/* The definition, apart: of key j when position t arrives. Checks hold the survivors against it. */
static double place(const attn_kv_history *h, int64_t t, int64_t j) {
  (void)h, (void)t;
  return j < SINK ? (double)INFINITY : (double)j;
}

static const attn_kv_score ends = {.name = "ends",
                                   .summary = "keys near either end",
                                   .cite = "Xiao et al. 2023, arXiv:2309.17453",
                                   .fixed = true, /* by the key and its position alone */
                                   .score = by_place,
                                   .law = place};

static attn_kv_rule rule_of(const attn_context *c) {
  attn_kv_rule r = ((const params *)c->params)->rule;
  r.score = &ends;
  return r;
}

ATTN_KV_FUNCTIONS(rule_of)

ATTN_VARIANT(policy, .summary = "attention to what a cache holds that keeps both ends",
             .formula = "softmax over the 4 first and the newest keys, `budget` in all; O(n budget d)",
             .cite = "Xiao et al. 2023, arXiv:2309.17453", .caps = ATTN_CAP_KV_RULE, .params = table,
             .params_size = sizeof(params), .budget = {.parameter = "budget"}, .applicable = kv_applicable,
             .describe = kv_describe, .cost = kv_cost)
