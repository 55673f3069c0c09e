/* longnet - dilated attention: branches of longer and longer segments, of which each takes every r-th key.
 *
 * Branch b cuts positions into segments of w_b and takes, for head h, those whose place in the segment is
 * h mod r_b, modulo r_b. A query among them sees the keys among them of its segment; causal: up to its own.
 * The softmaxes of the branches that have the query are joined by their denominators Z_b,
 *   o_i = sum_b Z_b o_ib / sum_b Z_b = sum_j m_ij e^s_ij v_j / sum_j m_ij e^s_ij,
 * m_ij the number of branches in which query i sees key j: a key that several branches see counts several
 * times. Here it is one softmax of s_ij + ln m_ij.
 *
 * LongNet, Ding et al. 2023 (arXiv:2307.02486), equations from memory; the branches of the paper have w and r
 * that grow geometrically, r_1 = 1. Cost about n sum_b w_b / r_b^2 pairs. Bounds: LN-1, FP-2. Deviations: a
 * sequence need not be a multiple of a segment; a query that no branch has gives 0. */
#include "attn_variant.h"

#include <math.h>

typedef struct params {
  attn_int_list segments, dilations;
} params;

static const attn_param table[] = {
    {"segments", ATTN_INT_LIST, offsetof(params, segments), 1, 1 << 30, "64+256+1024", NULL,
     "lengths of the segments of each branch, ascending"},
    {"dilations", ATTN_INT_LIST, offsetof(params, dilations), 1, 1 << 20, "1+4+16", NULL,
     "of each branch: every r-th key, ascending"},
    {.name = NULL},
};

enum { BRANCHES = 16, ROWS = 8 };

static attn_status applicable(const attn_context *c) {
  const params *x = c->params;
  const attn_int_list *w = &x->segments, *r = &x->dilations;
  if (w->count != r->count || w->count < 1 || w->count > BRANCHES)
    return attn_fail(ATTN_EINVAL,
                     "variant longnet: %lld segments and %lld dilations, expected as many, 1 ... %d",
                     (long long)w->count, (long long)r->count, BRANCHES);
  for (int64_t b = 0; b < w->count; b++)
    if (r->items[b] > w->items[b])
      return attn_fail(ATTN_EINVAL, "variant longnet: dilation %lld is more than its segment, %lld",
                       (long long)r->items[b], (long long)w->items[b]);
  if (c->problem->n_q > c->problem->n_kv)
    return attn_fail(ATTN_EUNSUPPORTED, "variant longnet: n_q > n_kv leaves queries without a position");
  return ATTN_OK;
}

/* The next key of each branch that has the query, from `first` on; `end` where there is none. */
typedef struct branch {
  int64_t next, end, step;
} branch;

static branch branch_of(const params *x, int64_t b, int64_t head, int64_t position, int64_t first,
                        int64_t end) {
  const int64_t w = x->segments.items[b], r = x->dilations.items[b], start = position - position % w,
                of_head = head % r;
  if ((position - start) % r != of_head) return (branch){end, end, r};
  const int64_t next = start + of_head, skip = next < first ? (first - next + r - 1) / r : 0;
  return (branch){next + skip * r, attn_min(start + w, end), r};
}

static void select(const void *unused, const attn_call *call, const attn_block *block, const void *prepared,
                   attn_picks *picks, void *scratch) {
  const attn_context *c = call->context;
  const params *x = c->params;
  const int64_t count = x->segments.count;
  (void)unused;
  (void)prepared;
  (void)scratch;
  for (int64_t i = 0; i < block->count; i++) {
    const int64_t row = block->first + i;
    branch at[BRANCHES];
    int64_t first, end;
    attn_visible_keys(call, block->batch, block->head, row, &first, &end);
    for (int64_t b = 0; b < count; b++)
      at[b] = branch_of(x, b, block->head, attn_problem_position(c->problem, row), first, end);
    picks->counts[i] = 0;
    for (int64_t key = first; key < end;) {
      int64_t times = 0;
      key = end;
      for (int64_t b = 0; b < count; b++)
        if (at[b].next < at[b].end) key = attn_min(key, at[b].next);
      for (int64_t b = 0; b < count; b++)
        if (at[b].next == key && key < at[b].end) at[b].next += at[b].step, times++;
      if (times) attn_picks_add(picks, i, key, key + 1, log((double)times));
    }
  }
}

/* The law: in how many branches the query sees the key, causality aside. */
static int64_t branches(const attn_query *q, int64_t key) {
  const params *x = q->call->context->params;
  const int64_t position = attn_problem_position(q->call->context->problem, q->i);
  int64_t count = 0;
  for (int64_t b = 0; b < x->segments.count; b++) {
    const int64_t w = x->segments.items[b], r = x->dilations.items[b];
    count += position / w == key / w && position % w % r == q->head % r && key % w % r == q->head % r;
  }
  return count;
}

static bool always(const void *unused, const attn_query *q, int64_t key) {
  (void)unused;
  return branches(q, key) > 0;
}

static double log_weight(const void *unused, const attn_query *q, int64_t key) {
  (void)unused;
  return log((double)branches(q, key));
}

/* Keys that the branches have together. */
static int64_t most_keys(const attn_context *c) {
  const params *x = c->params;
  const int64_t n = c->problem->n_kv;
  int64_t keys = 0;
  for (int64_t b = 0; b < x->segments.count && keys < n; b++)
    keys += (attn_min(x->segments.items[b], n) - 1) / x->dilations.items[b] + 1;
  return attn_min(keys, n);
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  (void)b;
  if (((const params *)c->params)->dilations.items[0] > 1)
    out->caps &= ~(uint32_t)(ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX);
  out->selector = (attn_selector){.share = ATTN_SHARE_ROW,
                                  .rows = ROWS,
                                  .max_runs = most_keys(c),
                                  .max_keys = most_keys(c),
                                  .weighted = true,
                                  .select = select,
                                  .grain = 1,
                                  .always = always,
                                  .log_weight = log_weight};
  return ATTN_OK;
}

/* Of the r_b^th part of the queries each sees the r_b^th part of its segment, causal about half. */
static attn_cost cost(const attn_context *c) {
  const params *x = c->params;
  const attn_problem *p = c->problem;
  double pairs = 0;
  for (int64_t b = 0; b < x->segments.count; b++) {
    const double r = (double)x->dilations.items[b], w = fmin((double)x->segments.items[b], (double)p->n_kv);
    pairs += (double)p->n_q * (p->causal ? (w / r + 1) / 2 : w / r) / r;
  }
  return attn_softmax_cost(c, fmin(pairs, attn_visible_pairs(p)));
}

ATTN_VARIANT(
    longnet, .summary = "dilated attention by segments, joined by their denominators",
    .formula = "keys of the query's segment of w at the head's places modulo r, for each w of `segments` "
               "and r of `dilations` that has the query; a key that m branches see counts m times; "
               "O(n sum w / r^2 d)",
    .cite = "Ding et al. 2023, arXiv:2307.02486", .caps = ATTN_CAP_SOFTMAX | ATTN_CAP_LSE, .params = table,
    .params_size = sizeof(params), .applicable = applicable, .describe = describe, .cost = cost)
