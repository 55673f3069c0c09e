/* pooled - the last keys one by one, and means of blocks of all keys, in one softmax.
 *
 * Entry b stands for keys b block - overlap ... b block + block - 1: its key and its value are the means of
 * theirs. A query sees the last `window` keys, its own among them, and the entries whose last key is its own
 * or comes before it; the sink of the problem is one more term. whole=yes leaves out the first entries, of
 * fewer keys. With top it sees of these entries the `top` of the largest score by a lightning indexer
 * (attn_index: topk's by=index, the same for all heads), whose keys, the extra tensor index_k or else the
 * mean of the keys over kv heads, an entry has the means of as well. With block=128, window=128 it is the
 * heavily compressed attention of DeepSeek-V4 (HCA), with block=4, overlap=4, window=128, top=512 its sparse
 * attention (CSA); known from implementations alone. With window=0 a query sees only entries, as the
 * compressed branch of nsa does. Deviation: there the weights of a mean are learned, here they are equal.
 *
 * Cost O(n (window + n / block) d); with top n^2 / block products of the index, and O(n (window + top) d).
 * Bound: POOL-1. */
#include "attn_variant.h"

#include <stddef.h>

typedef struct params {
  int64_t block, overlap, window, top;
  attn_index index;
  int whole;
} params;

static const char *const answers[] = {"no", "yes", NULL};

static const attn_param table[] = {
    {"block", ATTN_INT, offsetof(params, block), 1, 1 << 20, "128", NULL, "keys of an entry"},
    {"overlap", ATTN_INT, offsetof(params, overlap), 0, 1 << 20, "0", NULL,
     "keys before its block that an entry is a mean of, too"},
    {"window", ATTN_INT, offsetof(params, window), 0, 1 << 30, "128", NULL,
     "keys up to the query's own that it sees one by one; 0: none"},
    {"whole", ATTN_CHOICE, offsetof(params, whole), 0, 1, "no", answers,
     "leave out the first entries, of fewer keys than block and overlap"},
    {"top", ATTN_INT, offsetof(params, top), 0, 1 << 20, "0", NULL,
     "entries of a query, of largest score by the index; 0: all"},
    {"index_heads", ATTN_INT, offsetof(params, index.heads), 0, 1 << 10, "0", NULL,
     "top: heads of the extra tensors index_q and index_w; 0: the queries'"},
    {"index_width", ATTN_INT, offsetof(params, index.width), 0, 1 << 14, "0", NULL,
     "top: columns of index_q and index_k; 0: d_qk"},
    {.name = NULL},
};

static attn_status applicable(const attn_context *c) {
  const attn_score *s = &c->problem->score;
  if (!c->problem->causal)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "variant pooled: only causal attention, its window ends at the query");
  return s->relative || s->dense.at
             ? attn_fail(ATTN_EUNSUPPORTED, "variant pooled: no bias is known of a mean of keys")
             : ATTN_OK;
}

static attn_pooling law_of(const attn_context *c) {
  const params *x = c->params;
  attn_pooling law = {.window = x->window,
                      .block = x->block,
                      .overlap = x->overlap,
                      .first = x->whole ? (x->overlap + x->block - 1) / x->block : 0};
  if (!x->top || x->top >= c->problem->n_kv / x->block - law.first) return law;
  law.top = x->top;
  law.index.heads = x->index.heads ? x->index.heads : c->problem->heads;
  law.index.width = x->index.width ? x->index.width : c->problem->d_qk;
  return law;
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  enum { OF_ALL = ATTN_EXEMPT_GROUPS | ATTN_EXEMPT_HEADS };
  static const attn_exemption by_index[] = {{OF_ALL, "top ranks entries for all heads together"}, {0, NULL}};
  (void)b;
  out->pooling = law_of(c);
  if (!out->pooling.top) return ATTN_OK;
  out->caps |= ATTN_CAP_DATA;
  out->exempt = by_index;
  return ATTN_OK;
}

static attn_cost cost(const attn_context *c) {
  const attn_problem *p = c->problem;
  const attn_pooling x = law_of(c);
  const double visible = attn_visible_pairs(p), last = (double)p->n_q * (double)x.window,
               entries = visible / (double)x.block, top = (double)p->n_q * (double)x.top;
  attn_cost result =
      attn_softmax_cost(c, (last < visible ? last : visible) + (x.top && top < entries ? top : entries));
  result.mul_add += (double)(p->batch * p->kv_heads * x.index.heads * x.index.width) * entries;
  result.mul_add += (double)(p->batch * p->kv_heads * p->n_kv) * (double)(p->d_qk + p->d_v);
  return result;
}

ATTN_VARIANT(pooled, .summary = "the last keys, and means of blocks of all, in one softmax (HCA, CSA)",
             .formula =
                 "keys i - window < j <= i, and the mean key and value of each block of `block` keys "
                 "that ends at i or before, or of these the best `top` by an index; O(n (window + n / block) "
                 "d)",
             .cite = "DeepSeek-AI 2026, DeepSeek-V4 (HCA, CSA), by its implementations",
             /* A row whose window is padding, without an entry as yet, is zeros: no weights add up to 1. */
             .caps = ATTN_CAP_CAUSAL | ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_SCORE | ATTN_CAP_HALF,
             .params = table, .params_size = sizeof(params), .budget = {"window", NULL},
             .applicable = applicable, .describe = describe, .cost = cost)
