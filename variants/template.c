/* template - the smallest complete variant, to copy: attention to the keys of the query's own block.
 *
 *   query i sees key j iff floor(i / b) = floor(j / b)
 *
 * Give here the formula, the paper, the cost (n b pairs), the bound (SP-1: the error is the attention mass
 * outside the block) and every deviation. It is built in the tree when variants.def names it, and as a
 * plug-in by cc -std=c17 -shared -fPIC -DATTN_PLUGIN -I core template.c -o template.so */
#include "attn_variant.h"

/* Parameters: a struct, and one table row for each field. */
typedef struct params {
  int64_t block;
} params;

static const attn_param table[] = {
    {"block", ATTN_INT, offsetof(params, block), 1, 1 << 20, "64", NULL, "keys of a block"},
    {.name = NULL},
};

/* What describe prepares and row reads; it lives in the plan's memory. */
typedef struct state {
  int64_t block, n;
} state;

static int64_t row(const void *opaque, int64_t head, int64_t position, attn_run *runs) {
  const state *s = opaque;
  int64_t first = position / s->block * s->block, end = first + s->block;
  (void)head;
  runs[0] = (attn_run){first, (end < s->n ? end : s->n) - first, 1};
  return 1;
}

/* The law: the definition above, of a pair. SP-0 holds row against it; it is written apart from row. */
static bool sees(const void *opaque, int64_t head, int64_t position, int64_t key) {
  const state *s = opaque;
  (void)head;
  return position / s->block == key / s->block;
}

/* Conditions beyond the capabilities below, each with its reason. */
static attn_status applicable(const attn_context *c) {
  if (c->problem->n_q > c->problem->n_kv)
    return attn_fail(ATTN_EUNSUPPORTED, "variant template: n_q > n_kv leaves queries without a block");
  return ATTN_OK;
}

/* What it is made of: a pattern. Without a builder sizes alone are asked for, and the state is NULL. */
static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const params *p = c->params;
  const state s = {.block = p->block, .n = c->problem->n_kv};
  out->pattern = (attn_pattern){.row = row, .max_runs = 1, .sees = sees, .grain = p->block};
  return attn_builder_keep(b, &s, sizeof s, &out->pattern.state);
}

/* From the formula, before there is a plan. */
static attn_cost cost(const attn_context *c) {
  const params *p = c->params;
  const int64_t n = c->problem->n_kv, keys = p->block < n ? p->block : n;
  return attn_softmax_cost(c, (double)c->problem->n_q * (double)keys / (c->problem->causal ? 2 : 1));
}

ATTN_VARIANT(template, .summary = "attention within blocks, the variant to copy",
             .formula = "keys floor(i / block) = floor(j / block); O(n block d)", .cite = "none",
             .caps = ATTN_CAP_SOFTMAX | ATTN_CAP_LSE | ATTN_CAP_POSITIONS, .params = table,
             .params_size = sizeof(params), .applicable = applicable, .describe = describe, .cost = cost)
