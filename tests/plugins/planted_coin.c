/* planted_coin.c - the query's last key, and each other with probability 1/3 and three times its weight, as
 * one who writes a plug-in may get it wrong; for cli/cases/coin.txt. */
#include "attn_variant.h"

#include <math.h>
#include <stdatomic.h>

typedef enum {
  NONE,
  MANY,       /* more runs than max_runs are counted */
  NEGATIVE,   /* ... fewer than none */
  BEYOND,     /* a run ends behind the last key */
  BEFORE,     /* ... begins before the first */
  ENDLESS,    /* ... has 2^62 keys */
  BACKWARD,   /* runs descend */
  HOLLOW,     /* a run of no keys */
  STRIDE,     /* ... of another step */
  WEIGHT_NAN, /* weights that are no numbers */
  WEIGHT_INF,
  WEIGHT_HUGE, /* ... or e^1e300 */
  AGAIN,       /* keys of others are taken again */
  ERRATIC,     /* draws hang on how often select was called */
  FROZEN,      /* ... not on the seed */
  OTHER,       /* weights are another number than those of the law */
  LAW_NAN,     /* moments that are no numbers */
  LAW_SURE,    /* ... of keys that are always taken */
  LAW_WIDE,    /* ... of keys that are drawn together */
  LAW_HALF,    /* moments without log_weight */
  LAW_ALONE,   /* moments, but no weights */
  DELTA,       /* a promise that no draw could break */
  EPSILON,     /* ... of a share below 0 */
  ORDER,       /* queries in an order that has others than there are */
  ORDER_TWICE, /* ... that has one twice */
  ORDER_ROW,   /* an order of queries that share nothing */
  SHIFTING,    /* with a builder it states more scratch than without */
  FAULTS
} fault;
static const char *const faults[] = {
    "none",   "many",    "negative",   "beyond",      "before",      "endless",  "backward",
    "hollow", "stride",  "weight_nan", "weight_inf",  "weight_huge", "again",    "erratic",
    "frozen", "other",   "law_nan",    "law_sure",    "law_wide",    "law_half", "law_alone",
    "delta",  "epsilon", "order",      "order_twice", "order_row",   "shifting", NULL};
enum { ROWS = 16 };
static const double each = 1.0 / 3;

typedef struct params {
  int fault;
  int64_t seed;
} params;
static const attn_param table[] = {
    {"fault", ATTN_CHOICE, offsetof(params, fault), 0, 0, "none", faults, "what is wrong"},
    {"seed", ATTN_INT, offsetof(params, seed), 0, 1e15, "0", NULL, "of the draws"},
    {.name = NULL}};

static fault fault_of(const attn_context *c) { return (fault)((const params *)c->params)->fault; }

/* The keys 0 ... end - 1 are those that a query sees. */
static int64_t end_of(const attn_call *call, int64_t batch, int64_t i) {
  int64_t first, end;
  const int64_t keys = attn_call_keys(call, batch);
  attn_visible_span(call->context->problem, i, &first, &end);
  return end < keys ? end : keys;
}

static bool is_owned(const attn_picks *owned, int64_t i, int64_t key) {
  for (int64_t r = 0; owned && r < owned->counts[i]; r++) {
    const attn_run run = owned->runs[i * owned->max_runs + r];
    if (key >= run.first && key < run.first + run.count) return true;
  }
  return false;
}

static void spoil(fault f, const attn_problem *p, int64_t max_runs, attn_run *runs, double *weights,
                  int64_t *count) {
  const attn_run first = runs[0];
  if (f == MANY) *count = max_runs + (1 << 24);
  if (f == NEGATIVE) *count = -1;
  if (f == BEYOND) runs[*count - 1].count = p->n_kv;
  if (f == BEFORE) runs[0] = (attn_run){-2, first.first + 3, 1};
  if (f == ENDLESS) runs[*count - 1].count = INT64_C(1) << 62;
  if (f == BACKWARD && *count > 1) runs[0] = runs[*count - 1], runs[*count - 1] = first;
  if (f == HOLLOW) runs[0].count = 0;
  if (f == STRIDE) runs[0].step = 2;
  if (!weights) return;
  if (f == WEIGHT_NAN) weights[0] = (double)NAN;
  if (f == WEIGHT_INF) weights[0] = (double)INFINITY;
  if (f == WEIGHT_HUGE) weights[0] = 1e300;
}

static void select(const void *state, const attn_call *call, const attn_block *b, const void *prepared,
                   attn_picks *picks, void *scratch) {
  static atomic_int calls;
  const attn_problem *p = call->context->problem;
  const params *x = call->context->params;
  const fault f = fault_of(call->context);
  const bool shared = f == ORDER || f == ORDER_TWICE;
  const int64_t round = f == ERRATIC ? atomic_fetch_add(&calls, 1) : 0;
  (void)state, (void)prepared, (void)scratch;
  for (int64_t i = 0; i < (shared ? 1 : b->count); i++) {
    const int64_t query = b->first + i, end = shared ? p->n_kv : end_of(call, b->batch, query);
    attn_run *runs = picks->runs + i * picks->max_runs;
    double *weights = picks->log_weights ? picks->log_weights + i * picks->max_runs : NULL;
    int64_t count = 0;
    attn_rng rng;
    attn_rng_init(&rng, f == FROZEN ? 0 : (uint64_t)(x->seed + round), 0x636f696e,
                  ((uint64_t)b->head << 32) + (uint64_t)(query + p->n_kv - p->n_q));
    for (int64_t j = 0; j < end; j++) {
      const bool last = j == end - 1, drawn = attn_rng_below(&rng, 3) == 0;
      if (!last && !drawn) continue;
      if (f != AGAIN && is_owned(picks->owned, i, j)) continue;
      runs[count] = (attn_run){j, 1, 1};
      if (weights) weights[count] = last ? 0 : f == OTHER ? log(2) : -log(each);
      count++;
    }
    if (count) spoil(f, p, picks->max_runs, runs, weights, &count);
    picks->counts[i] = count;
  }
}

/* Of a call: the queries backwards. */
static void prepare(const void *state, const attn_call *call, int64_t batch, int64_t kv_head, void *prepared,
                    void *scratch) {
  const int64_t n = call->context->problem->n_q;
  const fault f = fault_of(call->context);
  int64_t *order = prepared;
  (void)state, (void)batch, (void)kv_head, (void)scratch;
  for (int64_t i = 0; i < n; i++)
    order[i] = f == ORDER ? INT64_C(1) << 40 : f == ORDER_TWICE ? n - 1 : n - 1 - i;
}
static const int64_t *order(const void *state, const attn_call *call, const void *prepared, int64_t head) {
  (void)state, (void)call, (void)head;
  return prepared;
}

/* -- the law -- */

static void moments(const void *state, const attn_query *q, const int64_t *keys, int64_t count, double *m) {
  const int64_t last = end_of(q->call, q->batch, q->i) - 1;
  const fault f = fault_of(q->call->context);
  (void)state;
  for (int64_t a = 0; a < count; a++)
    for (int64_t b = 0; b < count; b++) {
      const bool sure = keys[a] == last || keys[b] == last || f == LAW_SURE;
      m[a * count + b] = sure ? 1 : a == b ? 1 / each : f == LAW_WIDE ? 2 : 1;
      if (f == LAW_NAN) m[a * count + b] = (double)NAN;
    }
}

static double log_weight(const void *state, const attn_query *q, int64_t key) {
  (void)state;
  return key == end_of(q->call, q->batch, q->i) - 1 ? 0 : -log(each);
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const fault f = fault_of(c);
  const bool ordered = f == ORDER || f == ORDER_TWICE || f == ORDER_ROW, shifts = f == SHIFTING && b;
  out->selector = (attn_selector){.share = f == ORDER || f == ORDER_TWICE ? ATTN_SHARE_TILE : ATTN_SHARE_ROW,
                                  .rows = ROWS,
                                  .max_runs = c->problem->n_kv,
                                  .weighted = f != LAW_ALONE,
                                  .restricts = true,
                                  .scratch_bytes = shifts ? 1 << 20 : 0,
                                  .select = select,
                                  .prepared_bytes = ordered ? (size_t)c->problem->n_q * sizeof(int64_t) : 0,
                                  .prepare = ordered ? prepare : NULL,
                                  .order = ordered ? order : NULL,
                                  .moments = moments,
                                  .log_weight = f == LAW_HALF ? NULL : log_weight,
                                  .epsilon = f == DELTA     ? 0.1
                                             : f == EPSILON ? -1
                                                            : 0,
                                  .delta = f == DELTA     ? 2
                                           : f == EPSILON ? 0.5
                                                          : 0};
  return ATTN_OK;
}

static attn_cost cost(const attn_context *c) { return attn_softmax_cost(c, attn_visible_pairs(c->problem)); }

ATTN_VARIANT(planted_coin, .summary = "keys by the toss of a coin, with a fault to choose", .cite = "none",
             .caps = (ATTN_CAP_SOFTMAX & ~ATTN_CAP_PERMUTATION & ~ATTN_CAP_MASK) | ATTN_CAP_DATA |
                     ATTN_CAP_LSE,
             .params = table, .params_size = sizeof(params), .seed = "seed", .describe = describe,
             .cost = cost)
