/* planted_select.c - a selector of the five keys of largest score with a fault to choose, for
 * cli/cases/selections.txt. */
#include "attn_variant.h"

#include <math.h>

typedef enum { NONE, MAGNITUDE, PADDING, FUTURE, LATER, MORE, LAST, HALF, UNNESTED } fault;
static const char *const faults[] = {"none", "magnitude", "padding", "future",   "later",
                                     "more", "last",      "half",    "unnested", NULL};
enum { PAGE = 16, ROWS = 32 };

typedef struct params {
  int fault;
  int64_t k;
} params;

static const attn_param table[] = {
    {"fault", ATTN_CHOICE, offsetof(params, fault), 0, 0, "none", faults, "what is wrong"},
    {"k", ATTN_INT, offsetof(params, k), 1, 1 << 20, "5", NULL, "keys of a query"},
    {.name = NULL}};

static int64_t most_kept(const attn_context *c) {
  const int64_t k = ((const params *)c->params)->k, n = c->problem->n_kv;
  return k < n ? k : n;
}

/* Of query i and the first `last` keys. */
static void score_keys(const attn_call *call, const attn_block *b, int64_t i, int64_t last, double *score) {
  const attn_problem *p = call->context->problem;
  const params *x = call->context->params;
  const fault f = (fault)x->fault;
  const int64_t kv = b->head / (p->heads / p->kv_heads), d = f == HALF ? p->d_qk / 2 : p->d_qk;
  const void *q = attn_at(attn_rows(call->q, p->q, b->batch, b->head, p->dtype), i * p->q.row, p->dtype),
             *keys = attn_rows(call->k, p->k, b->batch, kv, p->dtype);
  for (int64_t j = 0; j < last; j++) {
    const void *k = attn_at(keys, j * p->k.row, p->dtype);
    double s = 0;
    for (int64_t l = 0; l < d && p->dtype == ATTN_F32; l++)
      s += (double)((const float *)q)[l] * (double)((const float *)k)[l];
    for (int64_t l = 0; l < d && p->dtype == ATTN_F64; l++)
      s += ((const double *)q)[l] * ((const double *)k)[l];
    if (isnan(s) || (f == UNNESTED && x->k > 5 && j % 3 == 0)) s = -(double)INFINITY;
    score[j] = p->scale * (f == MAGNITUDE ? fabs(s) : s);
  }
}

/* The best keys by as many passes, each for what comes after the one before it in the order of scores. */
static void select(const void *state, const attn_call *call, const attn_block *b, const void *prepared,
                   attn_picks *picks, void *scratch) {
  attn_run *runs = picks->runs;
  int64_t *counts = picks->counts;
  const attn_problem *p = call->context->problem;
  const params *x = call->context->params;
  const fault f = (fault)x->fault;
  double *score = scratch;
  bool *taken = (bool *)(score + p->n_kv);
  (void)state, (void)prepared;
  for (int64_t i = b->first; i < b->first + b->count; i++, counts++, runs += most_kept(call->context) + 1) {
    const int64_t keys = f == PADDING ? p->n_kv : attn_call_keys(call, b->batch),
                  past = i + p->n_kv - p->n_q + 1 + (f == FUTURE);
    const int64_t end = p->causal && past < keys ? (past < 0 ? 0 : past) : keys,
                  last = f == LAST && end > PAGE ? end - PAGE : end;
    *counts = 0;
    for (int64_t j = 0; j < p->n_kv; j++) taken[j] = false;
    score_keys(call, b, i, last, score);
    for (int64_t r = 0; r < x->k + (f == MORE) && r < last; r++) {
      int64_t best = -1;
      double top = 0;
      for (int64_t j = 0; j < last; j++) {
        const double s = score[j];
        if (taken[j] || (best >= 0 && !(s > top) && !(f == LATER && s >= top))) continue;
        best = j;
        top = s;
      }
      if (best >= 0) taken[best] = true;
    }
    for (int64_t j = 0; j < p->n_kv; j++)
      if (taken[j]) runs[(*counts)++] = (attn_run){j, 1, 1};
  }
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  (void)b;
  out->selector = (attn_selector){.share = ATTN_SHARE_ROW,
                                  .rows = ROWS,
                                  .max_runs = most_kept(c) + 1,
                                  .max_keys = most_kept(c),
                                  .scratch_bytes = (size_t)c->problem->n_kv * (sizeof(double) + sizeof(bool)),
                                  .select = select,
                                  .grain = 1,
                                  .kept = most_kept(c)};
  return ATTN_OK;
}

static attn_cost cost(const attn_context *c) {
  return attn_softmax_cost(c, (double)c->problem->n_q * (double)most_kept(c));
}

ATTN_VARIANT(planted_select, .summary = "five keys of largest score, with a fault to choose", .cite = "none",
             .caps = (ATTN_CAP_SOFTMAX & ~ATTN_CAP_SHIFT & ~ATTN_CAP_SCORE & ~ATTN_CAP_MASK &
                      ~ATTN_CAP_HALF) |
                     ATTN_CAP_DATA,
             .params = table, .params_size = sizeof(params), .budget = {.parameter = "k"},
             .describe = describe, .cost = cost)
