/* planted_budget.c - a window of `half` keys on each side, which states its parameter for a number of keys:
 * for cli/advise.c. */
#include "attn_variant.h"

typedef struct params {
  int64_t half;
} params;

static const attn_param table[] = {
    {"half", ATTN_INT, offsetof(params, half), 1, 1 << 20, "3", NULL, "keys on each side"}, {.name = NULL}};

typedef struct state {
  int64_t half, n;
} state;

static int64_t row(const void *opaque, int64_t head, int64_t position, attn_run *runs) {
  const state *s = opaque;
  const int64_t first = position > s->half ? position - s->half : 0, end = position + s->half + 1;
  (void)head;
  runs[0] = (attn_run){first, (end < s->n ? end : s->n) - first, 1};
  return 1;
}

static bool sees(const void *opaque, int64_t head, int64_t position, int64_t key) {
  const state *s = opaque;
  (void)head;
  return key - position <= s->half && position - key <= s->half;
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const state s = {.half = ((const params *)c->params)->half, .n = c->problem->n_kv};
  out->pattern = (attn_pattern){.row = row, .max_runs = 1, .sees = sees};
  return attn_builder_keep(b, &s, sizeof s, &out->pattern.state);
}

static attn_cost cost(const attn_context *c) {
  const params *p = c->params;
  return attn_softmax_cost(c, (double)c->problem->n_q * (double)(2 * p->half + 1));
}

static int64_t half_of(const attn_context *c, int64_t keys) {
  (void)c;
  return keys > 3 ? keys / 2 : 1;
}

ATTN_VARIANT(planted_budget, .summary = "a window, sized by its half", .cite = "none",
             .caps = ATTN_CAP_SOFTMAX, .params = table, .params_size = sizeof(params),
             .budget = {"half", half_of}, .describe = describe, .cost = cost)
