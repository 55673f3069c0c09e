/* eviction.c - a variant that is a rule (attn_eviction.h): on a whole sequence, query by query, attention to
 * the keys that a cache under the rule holds. What is prepared of a kv head says of each key which position
 * it made room for; the selection of a query is what was there. Where kv heads share a budget, each replays
 * the prompt of all. */
#include "core/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 16, HELD = -1 };

/* Kv heads that share a budget keep none beyond the prompt's. */
static int64_t capacity(const attn_kv_rule *r, const attn_problem *p) {
  return attn_min(attn_max(r->prompt, r->budget), p->n_kv);
}

/* With it a cache that gives up no key holds the last query's weights. */
static const attn_kv_score last_weights = {.name = "last", .window = 1};

static attn_kv_rule all_keys(const attn_problem *p) {
  return (attn_kv_rule){.score = &last_weights, .budget = p->n_kv, .recent = 1, .every = 1, .chunk = 1};
}

/* Keys, values where scores read them, and a query of each head that shares them in fp64, and the head. With
 * a score of the future a head of all keys too, and the weights of keys for queries to come: positions are
 * taken in parts of `part`, sums are kept at the end of each, and at each position of one. With a budget that
 * kv heads share the scores of each one's chunks. */
typedef struct room {
  double *keys, *values, *queries;
  int64_t *position;
  void *head;
  int64_t part, *all_position;
  void *all;
  double *sums, *after, *later; /* [n_kv], [parts, n_kv], [part, n_kv] */
  double *scores;               /* [kv_heads, n_kv] */
  int64_t *budgets;             /* [kv_heads] */
} room;

static room carve(const attn_problem *p, const attn_kv_rule *r, attn_carver *carver) {
  room w = {.keys = attn_carve(carver, p->n_kv, p->d_qk, sizeof(double)),
            .queries = attn_carve(carver, p->heads / p->kv_heads, p->d_qk, sizeof(double)),
            .position = attn_carve(carver, capacity(r, p), 1, sizeof(int64_t)),
            .head = attn_carve(carver, 1, 1, attn_kv_head_bytes(r, p, capacity(r, p)))};
  const attn_kv_rule all = all_keys(p);
  if (r->score->values) w.values = attn_carve(carver, p->n_kv, p->d_v, sizeof(double));
  if (attn_kv_pooled(r)) {
    w.scores = attn_carve(carver, p->kv_heads, p->n_kv, sizeof(double));
    w.budgets = attn_carve(carver, p->kv_heads, 1, sizeof(int64_t));
  }
  if (!r->score->future) return w;
  w.all_position = attn_carve(carver, p->n_kv, 1, sizeof(int64_t));
  w.all = attn_carve(carver, 1, 1, attn_kv_head_bytes(&all, p, p->n_kv));
  for (w.part = 1; w.part * w.part < p->n_kv;) w.part++;
  w.sums = attn_carve(carver, p->n_kv, 1, sizeof(double));
  w.after = attn_carve(carver, w.part, p->n_kv, sizeof(double));
  w.later = attn_carve(carver, w.part, p->n_kv, sizeof(double));
  return w;
}

static void observe(const attn_call *call, int64_t batch, int64_t i, attn_kv_head *h, const room *w) {
  const attn_problem *p = call->context->problem;
  const int64_t group = p->heads / p->kv_heads, first = h->kv_head * group;
  for (int64_t g = 0; g < group; g++)
    attn_convert(attn_row(call->q, p->q, batch, first + g, i, p->dtype), attn_stored(p->q, p->dtype), p->d_qk,
                 ATTN_F64, w->queries + g * p->d_qk);
  attn_kv_observe(h, p, batch, first, group, w->queries, w->keys, attn_problem_position(p, i));
}

/* ---- what is to come ---------------------------------------------------------------------------------- */

/* Sums of weights are made from the last query on, so that small ones of late queries are not lost in those
 * of early ones. */
static void add_weights(const attn_call *call, int64_t batch, int64_t t, attn_kv_head *all, const room *w) {
  all->count = t + 1;
  observe(call, batch, t, all, w);
  for (int64_t j = 0; j <= t; j++) w->sums[j] += all->weights[j];
}

/* The head of all keys, and the sums behind each part. */
static attn_kv_head look_ahead(const attn_call *call, int64_t batch, int64_t kv_head, int64_t keys,
                               const room *w) {
  const attn_problem *p = call->context->problem;
  const attn_kv_rule rule = all_keys(p);
  attn_kv_head all;
  attn_kv_head_begin(&all, &rule, p, kv_head, p->n_kv, true, w->all_position, w->all);
  for (int64_t t = 0; t < keys; t++) attn_kv_arrive(&all, t, w->keys, w->keys + t * p->d_qk);
  for (int64_t j = 0; j < keys; j++) w->sums[j] = 0;
  for (int64_t t = keys - 1; t >= 0; t--) {
    if (t == keys - 1 || (t + 1) % w->part == 0)
      memcpy(w->after + t / w->part * p->n_kv, w->sums, (size_t)keys * sizeof *w->sums);
    add_weights(call, batch, t, &all, w);
  }
  return all;
}

/* What queries t ... will give each key; asked for ascending t. */
static const double *later_at(const attn_call *call, int64_t batch, int64_t t, int64_t keys,
                              attn_kv_head *all, const room *w) {
  const int64_t n = call->context->problem->n_kv, first = t - t % w->part;
  if (t == first) {
    memcpy(w->sums, w->after + t / w->part * n, (size_t)keys * sizeof *w->sums);
    for (int64_t u = attn_min(first + w->part, keys) - 1; u >= first; u--) {
      add_weights(call, batch, u, all, w);
      memcpy(w->later + (u - first) * n, w->sums, (size_t)keys * sizeof *w->sums);
    }
  }
  return w->later + (t - first) * n;
}

/* ---- the selection ------------------------------------------------------------------------------------ */

/* A kv head to which keys arrive one by one. Queries before `observed` are not looked at: no score that a key
 * goes by reads them. */
typedef struct replay {
  const attn_call *call;
  const room *w;
  int64_t batch, keys, observed;
  attn_kv_head head, all;
} replay;

static void widen(const attn_call *call, const void *x, attn_stride of, const replay *r, int64_t d,
                  double *out) {
  const attn_dtype dtype = call->context->problem->dtype;
  for (int64_t t = 0; t < r->keys; t++)
    attn_convert(attn_row(x, of, r->batch, r->head.kv_head, t, dtype), attn_stored(of, dtype), d, ATTN_F64,
                 out + t * d);
}

static replay begin(const attn_kv_rule *r, const attn_call *call, int64_t batch, int64_t kv_head,
                    const room *w) {
  const attn_problem *p = call->context->problem;
  const attn_kv_score *s = r->score;
  replay x = {.call = call, .w = w, .batch = batch, .keys = attn_call_keys(call, batch)};
  attn_kv_head_begin(&x.head, r, p, kv_head, capacity(r, p), true, w->position, w->head);
  x.head.values = w->values;
  x.observed = !attn_kv_observes(s) ? p->n_kv : s->sums ? 0 : attn_max(0, attn_kv_first(r) - s->window);
  widen(call, call->k, p->k, &x, p->d_qk, w->keys);
  if (w->values) widen(call, call->v, p->v, &x, p->d_v, w->values);
  if (s->future) x.all = look_ahead(call, batch, kv_head, x.keys, w);
  return x;
}

static void look_beyond(replay *x, int64_t t) {
  if (x->head.rule.score->future) x->head.later = later_at(x->call, x->batch, t, x->keys, &x->all, x->w);
}

/* Returns how many keys went. */
static int64_t arrive(replay *x, int64_t t) {
  const attn_problem *p = x->call->context->problem;
  look_beyond(x, t);
  const int64_t gone = attn_kv_arrive(&x->head, t, x->w->keys, x->w->keys + t * p->d_qk);
  if (t >= x->observed) observe(x->call, x->batch, t, &x->head, x->w);
  return gone;
}

/* Of a kv head, by the scores of the prompt's keys in all that share. */
static int64_t budget_of(const attn_kv_rule *r, const attn_call *call, int64_t batch, int64_t kv_head,
                         const room *w) {
  const attn_problem *p = call->context->problem;
  if (!attn_kv_pooled(r) || attn_call_keys(call, batch) <= r->prompt) return r->budget;
  for (int64_t h = 0; h < p->kv_heads; h++) {
    replay x = begin(r, call, batch, h, w);
    for (int64_t t = 0; t < r->prompt; t++) arrive(&x, t);
    look_beyond(&x, r->prompt);
    attn_kv_chunk_scores(&x.head, r->prompt, w->keys, w->scores + h * p->n_kv);
  }
  attn_kv_share(r, p->kv_heads, p->n_kv, w->scores, w->budgets);
  return w->budgets[kv_head];
}

/* Of each key the position that it made room for, HELD to the end. */
static void prepare(const void *rule, const attn_call *call, int64_t batch, int64_t kv_head, void *prepared,
                    void *scratch) {
  const attn_problem *p = call->context->problem;
  attn_kv_rule own = *(const attn_kv_rule *)rule;
  int64_t *went = prepared;
  attn_carver carver = {.base = scratch};
  const room w = carve(p, &own, &carver);
  own.budget = budget_of(&own, call, batch, kv_head, &w);
  replay x = begin(&own, call, batch, kv_head, &w);
  for (int64_t t = 0; t < p->n_kv; t++) went[t] = HELD;
  for (int64_t t = 0; t < x.keys; t++) {
    const int64_t gone = arrive(&x, t);
    for (int64_t g = 0; g < gone; g++) went[x.head.gone_position[g]] = t;
  }
}

static void select(const void *rule, const attn_call *call, const attn_block *b, const void *prepared,
                   attn_picks *picks, void *scratch) {
  const attn_kv_rule *r = rule;
  const int64_t *went = prepared;
  (void)scratch;
  for (int64_t i = 0; i < b->count; i++) {
    const int64_t t = attn_problem_position(call->context->problem, b->first + i),
                  keys = attn_min(t + 1, attn_call_keys(call, b->batch));
    picks->counts[i] = 0;
    if (t < r->prompt && keys > 0) attn_picks_add(picks, i, 0, keys, 0);
    for (int64_t j = 0; j < keys && t >= r->prompt; j++)
      if (went[j] == HELD || went[j] > t) attn_picks_add(picks, i, j, j + 1, 0);
  }
}

/* The law of scores that are fixed, where one key goes for each that arrives, and no other: besides
 * what is safe, the largest stay. */
static bool always(const void *rule, const attn_query *query, int64_t key) {
  const attn_kv_rule *r = rule;
  const int64_t t = attn_call_position(query->call, query->batch, query->i),
                last = attn_min(t, attn_call_keys(query->call, query->batch) - 1);
  return t < r->prompt || last - key < r->recent;
}

/* By the score's definition, where it states one, apart from what prepare ranks by. */
static double score_of(const void *rule, const attn_query *query, int64_t key, double *error) {
  enum { SHORT = 256 };
  const attn_kv_rule *r = rule;
  const attn_problem *p = query->call->context->problem;
  const int64_t kv_head = query->head / (p->heads / p->kv_heads), d = p->d_qk;
  double row[SHORT], *own = d > SHORT ? malloc((size_t)d * sizeof *own) : row, score = (double)NAN;
  *error = 0;
  if (!own) return score;
  attn_convert(attn_row(query->call->k, p->k, query->batch, kv_head, key, p->dtype),
               attn_stored(p->k, p->dtype), d, ATTN_F64, own);
  const double *filter = r->filters ? r->filters + kv_head * d : NULL;
  const attn_kv_held held = {.d = d,
                             .count = 1,
                             .position = &key,
                             .keys = own,
                             .seed = r->seed,
                             .kv_head = kv_head,
                             .filter = filter};
  const attn_kv_history history = {
      .d = d, .n = key + 1, .keys = own, .first = key, .seed = r->seed, .kv_head = kv_head, .filter = filter};
  if (r->score->law)
    score = r->score->law(&history, key, key);
  else
    r->score->score(&held, &score);
  if (own != row) free(own);
  *error = isfinite(score) ? (double)(d + 2) * 0x1p-53 * fabs(score) : 0;
  return score;
}

attn_status attn_kv_describe(attn_builder *b, const attn_context *c, const attn_kv_rule *r, attn_parts *out) {
  if (!c || !r || !out) return attn_null("a rule of caches", !c ? "context" : !r ? "rule" : "parts");
  /* The first holds where scores read values. */
  static const attn_exemption of_keys[] = {{ATTN_EXEMPT_VALUES, "which keys are held depends on values"},
                                           {ATTN_EXEMPT_GROUPS, "the heads of a kv head share its cache"},
                                           {0, NULL}},
                              of_weights[] = {{ATTN_EXEMPT_VALUES, "which keys are held depends on values"},
                                              {ATTN_EXEMPT_GROUPS, "the heads of a kv head share its cache"},
                                              {ATTN_EXEMPT_ROWS,
                                               "which keys are held depends on the queries before"},
                                              {0, NULL}},
                              of_future[] = {{ATTN_EXEMPT_VALUES, "which keys are held depends on values"},
                                             {ATTN_EXEMPT_GROUPS, "the heads of a kv head share its cache"},
                                             {ATTN_EXEMPT_LOOKAHEAD | ATTN_EXEMPT_PREFIX | ATTN_EXEMPT_ROWS,
                                              "which keys are held depends on the queries and keys to come"},
                                             {0, NULL}},
                              of_heads[] = {{ATTN_EXEMPT_HEADS, "kv heads share their budgets"}, {0, NULL}};
  const attn_problem *p = c->problem;
  const void *kept;
  attn_carver counter = {.base = NULL};
  attn_kv_rule own = *r;
  attn_status status = b ? attn_kv_read_filters(&own, p, b->arena) : ATTN_OK;
  if (!status) status = attn_builder_keep(b, &own, sizeof own, &kept);
  if (status) return status;
  carve(p, r, &counter);
  const bool all_queries = r->score->future || attn_kv_observes(r->score);
  out->exempt = r->score->future ? of_future : all_queries ? of_weights : of_keys;
  if (!r->score->values) out->exempt++;
  if (b && r->shared > 0)
    status = attn_join_exemptions(b, (const attn_exemption *const[]){out->exempt, of_heads}, 2, &out->exempt);
  if (all_queries) out->caps &= ~(uint32_t)ATTN_CAP_CROSS;
  out->cache = own;
  out->selector =
      (attn_selector){.state = kept,
                      .share = ATTN_SHARE_GROUP,
                      .rows = ROWS,
                      .max_runs = attn_min(r->shared > 0 ? r->prompt : r->budget, (p->n_kv + 1) / 2),
                      .max_keys = r->prompt ? 0 : attn_min(r->budget, p->n_kv),
                      .every = attn_kv_first(r) >= p->n_kv,
                      .prepared_bytes = attn_size_times((size_t)p->n_kv, sizeof(int64_t)),
                      .prepare = prepare,
                      .scratch_bytes = counter.used,
                      .select = select};
  if (!r->score->fixed || r->every > 1 || r->chunk > 1 || r->shared > 0 || attn_kv_admits(r)) return status;
  out->selector.grain = 1;
  out->selector.kept = r->budget - r->recent;
  out->selector.always = always;
  out->selector.score = score_of;
  return ATTN_OK;
}
