/* planted_coin.c - the query's last key, and each other with probability 1/3 and three times its weight, as
 * one who writes a plug-in may get it wrong; for cli/cases/coin.txt. */
#include "tests/support/method.h"

#include <math.h>
#include <stdatomic.h>

#define FAULTS(FAULT)                                                              \
  FAULT(none),            /* right */                                              \
      FAULT(many),        /* more runs than max_runs are counted */                \
      FAULT(negative),    /* ... fewer than none */                                \
      FAULT(beyond),      /* a run ends behind the last key */                     \
      FAULT(before),      /* ... begins before the first */                        \
      FAULT(endless),     /* ... has 2^62 keys */                                  \
      FAULT(backward),    /* runs descend */                                       \
      FAULT(hollow),      /* a run of no keys */                                   \
      FAULT(stride),      /* ... of another step */                                \
      FAULT(weight_nan),  /* weights that are no numbers */                        \
      FAULT(weight_inf),  /* ... or infinite */                                    \
      FAULT(weight_huge), /* ... or e^1e300 */                                     \
      FAULT(again),       /* keys of others are taken again */                     \
      FAULT(erratic),     /* draws hang on how often select was called */          \
      FAULT(frozen),      /* ... not on the seed */                                \
      FAULT(other),       /* weights are another number than those of the law */   \
      FAULT(law_nan),     /* moments that are no numbers */                        \
      FAULT(law_sure),    /* ... of keys that are always taken */                  \
      FAULT(law_wide),    /* ... of keys that are drawn together */                \
      FAULT(delta),       /* a promise that no draw could break */                 \
      FAULT(order),       /* queries in an order that has others than there are */ \
      FAULT(order_twice), /* ... that has one twice */                             \
      FAULT(order_row),   /* an order of queries that share nothing */             \
      FAULT(shifting)     /* with a builder it states more scratch than without */
NAME_FAULTS;
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
  if (f == F_many) *count = max_runs + (1 << 24);
  if (f == F_negative) *count = -1;
  if (f == F_beyond) runs[*count - 1].count = p->n_kv;
  if (f == F_before) runs[0] = (attn_run){-2, first.first + 3, 1};
  if (f == F_endless) runs[*count - 1].count = INT64_C(1) << 62;
  if (f == F_backward && *count > 1) runs[0] = runs[*count - 1], runs[*count - 1] = first;
  if (f == F_hollow) runs[0].count = 0;
  if (f == F_stride) runs[0].step = 2;
  if (!weights) return;
  if (f == F_weight_nan) weights[0] = (double)NAN;
  if (f == F_weight_inf) weights[0] = (double)INFINITY;
  if (f == F_weight_huge) weights[0] = 1e300;
}

static void select(const void *state, const attn_call *call, const attn_block *b, const void *prepared,
                   attn_picks *picks, void *scratch) {
  static atomic_int calls;
  const attn_problem *p = call->context->problem;
  const params *x = call->context->params;
  const fault f = fault_of(call->context);
  const bool shared = f == F_order || f == F_order_twice;
  const int64_t round = f == F_erratic ? atomic_fetch_add(&calls, 1) : 0;
  (void)state, (void)prepared, (void)scratch;
  for (int64_t i = 0; i < (shared ? 1 : b->count); i++) {
    const int64_t query = b->first + i, end = shared ? p->n_kv : end_of(call, b->batch, query);
    attn_run *runs = picks->runs + i * picks->max_runs;
    double *weights = picks->log_weights ? picks->log_weights + i * picks->max_runs : NULL;
    int64_t count = 0;
    attn_rng rng;
    attn_rng_init(&rng, f == F_frozen ? 0 : (uint64_t)(x->seed + round), 0x636f696e,
                  ((uint64_t)b->head << 32) + (uint64_t)(query + p->n_kv - p->n_q));
    for (int64_t j = 0; j < end; j++) {
      const bool last = j == end - 1, drawn = attn_rng_below(&rng, 3) == 0;
      if (!last && !drawn) continue;
      if (f != F_again && is_owned(picks->owned, i, j)) continue;
      runs[count] = (attn_run){j, 1, 1};
      if (weights) weights[count] = last ? 0 : f == F_other ? log(2) : -log(each);
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
    order[i] = f == F_order ? INT64_C(1) << 40 : f == F_order_twice ? n - 1 : n - 1 - i;
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
      const bool sure = keys[a] == last || keys[b] == last || f == F_law_sure;
      m[a * count + b] = sure ? 1 : a == b ? 1 / each : f == F_law_wide ? 2 : 1;
      if (f == F_law_nan) m[a * count + b] = (double)NAN;
    }
}

static double log_weight(const void *state, const attn_query *q, int64_t key) {
  (void)state;
  return key == end_of(q->call, q->batch, q->i) - 1 ? 0 : -log(each);
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const fault f = fault_of(c);
  const bool ordered = f == F_order || f == F_order_twice || f == F_order_row, shifts = f == F_shifting && b;
  out->selector =
      (attn_selector){.share = f == F_order || f == F_order_twice ? ATTN_SHARE_TILE : ATTN_SHARE_ROW,
                      .rows = ROWS,
                      .max_runs = c->problem->n_kv,
                      .weighted = true,
                      .restricts = true,
                      .scratch_bytes = shifts ? 1 << 20 : 0,
                      .select = select,
                      .prepared_bytes = ordered ? (size_t)c->problem->n_q * sizeof(int64_t) : 0,
                      .prepare = ordered ? prepare : NULL,
                      .order = ordered ? order : NULL,
                      .moments = moments,
                      .log_weight = log_weight,
                      .epsilon = f == F_delta ? 0.1 : 0,
                      .delta = f == F_delta ? 2 : 0};
  return ATTN_OK;
}

ATTN_VARIANT(planted_coin, .summary = "keys by the toss of a coin, with a fault to choose", .cite = "none",
             .caps = (ATTN_CAP_SOFTMAX & ~ATTN_CAP_PERMUTATION & ~ATTN_CAP_MASK) | ATTN_CAP_DATA |
                     ATTN_CAP_LSE,
             .params = table, .params_size = sizeof(params), .seed = "seed", .describe = describe,
             .cost = exact_cost)
