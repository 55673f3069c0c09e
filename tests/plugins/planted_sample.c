/* planted_sample.c - the last `window` visible keys and a uniform sample of the others, weighted to represent
 * all of them, with a fault to choose, for cli/cases/selections.txt and checks/tails.c. */
#include "attn_variant.h"

#include <math.h>

typedef enum { NONE, DROPPED, OFF, SHIFTED, LAST, NEIGHBOURS, DOUBLE, HEAD, PROMISE, FROZEN } fault;
static const char *const faults[] = {"none",   "dropped", "off",     "shifted", "last", "neighbours",
                                     "double", "head",    "promise", "frozen",  NULL};
static const char *const answers[] = {"no", "yes", NULL};
enum { ROWS = 32, PURPOSE = 0x706c73 };

typedef struct params {
  int fault, replacement;
  int64_t window, sample, seed;
  double promise;
} params;

static const attn_param table[] = {
    {"fault", ATTN_CHOICE, offsetof(params, fault), 0, 0, "none", faults, "what is wrong"},
    {"replacement", ATTN_CHOICE, offsetof(params, replacement), 0, 0, "no", answers,
     "may a key be drawn twice"},
    {"window", ATTN_INT, offsetof(params, window), 0, 1 << 20, "4", NULL, "last keys, which are kept"},
    {"sample", ATTN_INT, offsetof(params, sample), 1, 1 << 20, "8", NULL, "keys that are drawn"},
    {"promise", ATTN_REAL, offsetof(params, promise), 0, 1e6, "0", NULL,
     "share of D beyond which D~ is in half the draws at most"},
    {"seed", ATTN_INT, offsetof(params, seed), 0, 1e15, "0", NULL, "of the draws"},
    {.name = NULL}};

/* The keys that a query sees, and how many of them come before the window. */
typedef struct sight {
  int64_t end, rest, drawn;
} sight;
static sight sight_of(const attn_call *call, int64_t batch, int64_t i) {
  const attn_problem *p = call->context->problem;
  const params *x = call->context->params;
  const int64_t keys = attn_call_keys(call, batch), past = i + p->n_kv - p->n_q + 1;
  sight s = {.end = p->causal && past < keys ? (past < 0 ? 0 : past) : keys};
  s.rest = s.end > x->window ? s.end - x->window : 0;
  s.drawn = x->replacement || x->sample < s.rest ? x->sample : s.rest;
  if (!s.rest) s.drawn = 0;
  return s;
}

static double weight_of(const params *x, const sight *s) {
  if (!s->drawn || x->fault == DROPPED) return 1;
  return (double)s->rest / (double)(s->drawn + (x->fault == OFF));
}

/* How often each key is drawn, into times [end]. from: room for as many. */
static void draw(const params *x, const sight *s, attn_rng *rng, int64_t *times, int64_t *from) {
  int64_t among = x->fault == DOUBLE || x->fault == HEAD ? s->end : s->rest;
  if (x->fault == LAST && among > s->drawn) among--;
  for (int64_t j = 0; j < s->end; j++) times[j] = 0, from[j] = j;
  if (x->fault == NEIGHBOURS) {
    const int64_t first = attn_rng_below(rng, among);
    for (int64_t r = 0; r < s->drawn; r++) times[(first + r) % among]++;
    return;
  }
  for (int64_t r = 0; r < s->drawn; r++) {
    const int64_t at = x->replacement ? attn_rng_below(rng, among) : r + attn_rng_below(rng, among - r),
                  key = from[at];
    times[key]++;
    if (!x->replacement) from[at] = from[r], from[r] = key;
  }
}

static void select(const void *state, const attn_call *call, const attn_block *b, const void *prepared,
                   attn_picks *picks, void *scratch) {
  const attn_problem *p = call->context->problem;
  const params *x = call->context->params;
  int64_t *times = scratch, *from = times + p->n_kv;
  (void)state, (void)prepared;
  for (int64_t i = 0; i < b->count; i++) {
    const sight s = sight_of(call, b->batch, b->first + i);
    const double weight = weight_of(x, &s);
    attn_run *runs = picks->runs + i * picks->max_runs;
    double *weights = picks->log_weights + i * picks->max_runs;
    int64_t count = 0;
    attn_rng rng;
    attn_rng_init(&rng, x->fault == FROZEN ? 0 : (uint64_t)x->seed, PURPOSE,
                  (uint64_t)b->head << 32 | (uint64_t)(b->first + i + p->n_kv - p->n_q));
    if (s.drawn)
      draw(x, &s, &rng, times, from);
    else
      for (int64_t j = 0; j < s.end; j++) times[j] = 0;
    for (int64_t j = 0; j < s.end; j++) {
      const int64_t kept = j >= s.rest;
      if (!kept && !times[j]) continue;
      const double drawn = x->fault == HEAD && kept ? 0 : (double)times[j] * weight;
      runs[count] = (attn_run){j, 1, 1};
      weights[count++] = log((double)kept + drawn);
    }
    if (x->fault == SHIFTED && count > 1) {
      const double first = weights[0];
      for (int64_t r = 0; r + 1 < count; r++) weights[r] = weights[r + 1];
      weights[count - 1] = first;
    }
    picks->counts[i] = count;
  }
}

/* -- the law -- */

static void moments(const void *state, const attn_query *q, const int64_t *keys, int64_t count, double *m) {
  const params *x = q->call->context->params;
  const sight s = sight_of(q->call, q->batch, q->i);
  const double n = (double)s.rest, drawn = (double)s.drawn;
  (void)state;
  for (int64_t a = 0; a < count; a++)
    for (int64_t b = 0; b < count; b++) {
      double mean = 1;
      if (keys[a] < s.rest && keys[b] < s.rest) {
        if (x->replacement)
          mean = (drawn - 1) / drawn + (a == b ? n / drawn : 0);
        else if (s.drawn < s.rest)
          mean = a == b ? n / drawn : (drawn - 1) / drawn * n / (n - 1);
      }
      m[a * count + b] = mean;
    }
}

static double log_weight(const void *state, const attn_query *q, int64_t key) {
  const sight s = sight_of(q->call, q->batch, q->i);
  (void)state;
  return key < s.rest ? log((double)s.rest / (double)s.drawn) : 0;
}

static int64_t most_runs(const attn_context *c) {
  const params *x = c->params;
  const int64_t most = x->window + x->sample, n = c->problem->n_kv;
  return most < n ? most : n;
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const params *x = c->params;
  (void)b;
  out->selector = (attn_selector){.share = ATTN_SHARE_ROW,
                                  .rows = ROWS,
                                  .max_runs = most_runs(c),
                                  .weighted = true,
                                  .scratch_bytes = (size_t)c->problem->n_kv * 2 * sizeof(int64_t),
                                  .select = select,
                                  .moments = moments,
                                  .log_weight = log_weight,
                                  .repeats = x->replacement,
                                  .epsilon = x->fault == PROMISE ? 1e-6 : x->promise,
                                  .delta = x->fault == PROMISE || x->promise > 0 ? 0.5 : 0};
  return ATTN_OK;
}

static attn_cost cost(const attn_context *c) {
  return attn_softmax_cost(c, (double)c->problem->n_q * (double)most_runs(c));
}

ATTN_VARIANT(planted_sample, .summary = "a window and a uniform sample, with a fault to choose",
             .cite = "none",
             .caps = (ATTN_CAP_SOFTMAX & ~ATTN_CAP_PERMUTATION & ~ATTN_CAP_MASK) | ATTN_CAP_DATA |
                     ATTN_CAP_LSE,
             .params = table, .params_size = sizeof(params), .seed = "seed", .describe = describe,
             .cost = cost)
