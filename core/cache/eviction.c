/* eviction.c - a variant that is a rule (attn_eviction.h): on a whole sequence, query by query, attention to
 * the keys that a cache under the rule holds. What is prepared of a kv head says of each key which position
 * it made room for; the selection of a query is what was there. */
#include "core/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 16, HELD = -1 };

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t capacity(const attn_kv_rule *r, const attn_problem *p) {
  return smaller(r->prompt > r->budget ? r->prompt : r->budget, p->n_kv);
}

/* With it a cache that gives up no key holds the last query's weights. */
static const attn_kv_score last_weights = {.name = "last", .window = 1};

static attn_kv_rule all_keys(const attn_problem *p) {
  return (attn_kv_rule){.score = &last_weights, .budget = p->n_kv, .recent = 1, .every = 1, .chunk = 1};
}

/* Keys, values where scores read them, and a query of each head that shares them in fp64, and the head. With
 * a score of the future a head of all keys too, and the weights of keys for queries to come: positions are
 * taken in parts of `part`, sums are kept at the end of each, and at each position of one. */
typedef struct room {
  double *keys, *values, *queries;
  int64_t *position;
  void *head;
  int64_t part, *all_position;
  void *all;
  double *sums, *after, *later; /* [n_kv], [parts, n_kv], [part, n_kv] */
} room;

static room carve(const attn_problem *p, const attn_kv_rule *r, attn_carver *carver) {
  room w = {.keys = attn_carve(carver, p->n_kv, p->d_qk, sizeof(double)),
            .queries = attn_carve(carver, p->heads / p->kv_heads, p->d_qk, sizeof(double)),
            .position = attn_carve(carver, capacity(r, p), 1, sizeof(int64_t)),
            .head = attn_carve(carver, 1, 1, attn_kv_head_bytes(r, p, capacity(r, p)))};
  const attn_kv_rule all = all_keys(p);
  if (r->score->values) w.values = attn_carve(carver, p->n_kv, p->d_v, sizeof(double));
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
    for (int64_t u = smaller(first + w->part, keys) - 1; u >= first; u--) {
      add_weights(call, batch, u, all, w);
      memcpy(w->later + (u - first) * n, w->sums, (size_t)keys * sizeof *w->sums);
    }
  }
  return w->later + (t - first) * n;
}

/* ---- the selection ------------------------------------------------------------------------------------ */

/* Of each key the position that it made room for, HELD to the end. */
static void prepare(const void *rule, const attn_call *call, int64_t batch, int64_t kv_head, void *prepared,
                    void *scratch) {
  const attn_kv_rule *r = rule;
  const attn_problem *p = call->context->problem;
  const int64_t keys = attn_call_keys(call, batch), first = attn_problem_position(p, 0);
  int64_t *went = prepared;
  attn_carver carver = {.base = scratch};
  const room w = carve(p, r, &carver);
  attn_kv_head h, all = {.count = 0};
  for (int64_t t = 0; t < p->n_kv; t++) went[t] = HELD;
  for (int64_t t = 0; t < keys; t++)
    attn_convert(attn_row(call->k, p->k, batch, kv_head, t, p->dtype), attn_stored(p->k, p->dtype), p->d_qk,
                 ATTN_F64, w.keys + t * p->d_qk);
  for (int64_t t = 0; t < keys && w.values; t++)
    attn_convert(attn_row(call->v, p->v, batch, kv_head, t, p->dtype), attn_stored(p->v, p->dtype), p->d_v,
                 ATTN_F64, w.values + t * p->d_v);
  attn_kv_head_begin(&h, r, p, kv_head, capacity(r, p), true, w.position, w.head);
  h.values = w.values;
  if (r->score->future) all = look_ahead(call, batch, kv_head, keys, &w);
  for (int64_t t = 0; t < keys; t++) {
    if (r->score->future) h.later = later_at(call, batch, t, keys, &all, &w);
    const int64_t gone = attn_kv_arrive(&h, t, w.keys, w.keys + t * p->d_qk);
    for (int64_t g = 0; g < gone; g++) went[h.gone_position[g]] = t;
    if (attn_kv_observes(r->score) && t >= first) observe(call, batch, t - first, &h, &w);
  }
}

static void select(const void *rule, const attn_call *call, const attn_block *b, const void *prepared,
                   attn_picks *picks, void *scratch) {
  const attn_kv_rule *r = rule;
  const int64_t *went = prepared;
  (void)scratch;
  for (int64_t i = 0; i < b->count; i++) {
    const int64_t t = attn_problem_position(call->context->problem, b->first + i),
                  keys = smaller(t + 1, attn_call_keys(call, b->batch));
    picks->counts[i] = 0;
    if (t < r->prompt && keys > 0) attn_picks_add(picks, i, 0, keys, 0);
    for (int64_t j = 0; j < keys && t >= r->prompt; j++)
      if (went[j] == HELD || went[j] > t) attn_picks_add(picks, i, j, j + 1, 0);
  }
}

/* The law of scores that are fixed, where one key goes for each that arrives: besides what is safe, the
 * largest stay. */
static bool always(const void *rule, const attn_query *query, int64_t key) {
  const attn_kv_rule *r = rule;
  const int64_t t = attn_call_position(query->call, query->batch, query->i),
                last = smaller(t, attn_call_keys(query->call, query->batch) - 1);
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

attn_status attn_kv_applicable(const attn_context *c, const attn_kv_rule *r) {
  if (!c || !r) return attn_null("a rule of caches", c ? "rule" : "context");
  const attn_problem *p = c->problem;
  const char *name = c->variant->name;
  if (!r->score || !r->score->score) return attn_fail(ATTN_EINVAL, "variant %s: its rule has no score", name);
  if (r->budget < 1 || r->recent < 1 || r->prompt < 0 || r->every < 1 || r->chunk < 1)
    return attn_fail(
        ATTN_EINVAL,
        "variant %s: its rule has budget %lld, recent %lld, prompt %lld, every %lld and chunk %lld, "
        "expected at least 1, but 0 of prompt",
        name, (long long)r->budget, (long long)r->recent, (long long)r->prompt, (long long)r->every,
        (long long)r->chunk);
  if (r->recent > r->budget)
    return attn_fail(ATTN_EINVAL, "variant %s: budget = %lld, expected at least recent = %lld", name,
                     (long long)r->budget, (long long)r->recent);
  if (attn_kv_kept(r) < 0)
    return attn_fail(
        ATTN_EINVAL,
        "variant %s: budget = %lld, expected at least recent - 1 and every = %lld in chunks of %lld: %lld",
        name, (long long)r->budget, (long long)r->every, (long long)r->chunk,
        (long long)(r->recent - 1 + attn_kv_period(r)));
  if (r->score->fixed && r->score->values)
    return attn_fail(ATTN_EINVAL, "variant %s: score %s is fixed, and reads values; let it not be fixed",
                     name, r->score->name);
  if (r->score->products && (!r->score->window || r->score->sums))
    return attn_fail(ATTN_EINVAL, "variant %s: score %s reads products, which needs a window and no sums",
                     name, r->score->name);
  if (r->score->filters != (r->filters_file && *r->filters_file))
    return attn_fail(ATTN_EINVAL, "variant %s: score=%s %s", name, r->score->name,
                     r->score->filters ? "needs filters=FILE, npy [kv_heads, d_qk]" : "reads no filters");
  if (!p->causal) return attn_fail(ATTN_EUNSUPPORTED, "variant %s: only causal attention", name);
  if ((attn_kv_observes(r->score) || r->score->future) && p->n_q != p->n_kv)
    return attn_fail(
        ATTN_EUNSUPPORTED,
        "variant %s: score=%s ranks by the weights of all queries, of which %lld of %lld are given", name,
        r->score->name, (long long)p->n_q, (long long)p->n_kv);
  return p->score.dense.at ? attn_fail(ATTN_EUNSUPPORTED, "variant %s: a bias of the scores", name) : ATTN_OK;
}

attn_status attn_kv_read_filters(attn_kv_rule *r, const attn_problem *p, attn_arena *arena) {
  int64_t rows, columns;
  double *given = NULL, *kept = NULL;
  if (!r->score->filters) return ATTN_OK;
  attn_status status = attn_matrix_read(r->filters_file, &rows, &columns, &given);
  if (status) return status;
  if (rows != p->kv_heads || columns != p->d_qk)
    status =
        attn_fail(ATTN_EINVAL, "filters: %s is %lld x %lld, expected %lld kv heads x %lld", r->filters_file,
                  (long long)rows, (long long)columns, (long long)p->kv_heads, (long long)p->d_qk);
  else if (!(kept = attn_arena_alloc(arena, rows * columns, sizeof *kept)))
    status = ATTN_ENOMEM;
  else
    memcpy(kept, given, (size_t)(rows * columns) * sizeof *kept);
  free(given);
  r->filters = kept;
  return status;
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
                                             {0, NULL}};
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
  if (all_queries) out->caps &= ~(uint32_t)ATTN_CAP_CROSS;
  out->cache = own;
  out->selector = (attn_selector){.state = kept,
                                  .share = ATTN_SHARE_GROUP,
                                  .rows = ROWS,
                                  .max_runs = smaller(r->budget, (p->n_kv + 1) / 2),
                                  .max_keys = r->prompt ? 0 : smaller(r->budget, p->n_kv),
                                  .every = r->budget >= p->n_kv || r->prompt >= p->n_kv,
                                  .prepared_bytes = attn_size_times((size_t)p->n_kv, sizeof(int64_t)),
                                  .prepare = prepare,
                                  .scratch_bytes = counter.used,
                                  .select = select};
  if (!r->score->fixed || r->every > 1 || r->chunk > 1) return ATTN_OK;
  out->selector.grain = 1;
  out->selector.kept = r->budget - r->recent;
  out->selector.always = always;
  out->selector.score = score_of;
  return ATTN_OK;
}

/* When keys go: at position `first`; from `second` on, at every `period`-th. */
typedef struct schedule {
  int64_t first, second, period;
} schedule;

/* The first time chunks may begin elsewhere, where it is the prompt's end. */
static schedule schedule_of(const attn_kv_rule *r) {
  const int64_t first = r->prompt > r->budget ? r->prompt : r->budget;
  return (schedule){.first = first,
                    .second = first + r->budget - r->recent + 1 - attn_kv_kept(r) * r->chunk -
                              (first - r->recent + 1) % r->chunk,
                    .period = attn_kv_period(r)};
}

int64_t attn_kv_count(const attn_kv_rule *r, int64_t position) {
  const schedule s = schedule_of(r);
  if (position < s.first) return position + 1;
  const int64_t last = position < s.second ? s.first : position - (position - s.second) % s.period;
  return attn_kv_kept(r) * r->chunk + position + 1 - (last - r->recent + 1) / r->chunk * r->chunk;
}

/* from + (from + 1) + ... of n terms. */
static double ascending(double n, double from) { return n * from + n * (n - 1) / 2; }

/* Keys that the queries at the first n positions see, of a head. */
static double pairs_up_to(const attn_kv_rule *r, double n) {
  const schedule s = schedule_of(r);
  const double first = (double)s.first, second = (double)s.second, period = (double)s.period,
               later = fmax(0, n - second), rest = fmod(later, period),
               from = (double)attn_kv_count(r, s.second);
  return n <= 0 ? 0
                : ascending(fmin(n, first), 1) +
                      ascending(fmax(0, fmin(n, second) - first), (double)attn_kv_count(r, s.first)) +
                      (later - rest) / period * ascending(period, from) + ascending(rest, from);
}

attn_cost attn_kv_cost(const attn_context *c, const attn_kv_rule *r) {
  if (!c || !r) return (attn_cost){0};
  const attn_problem *p = c->problem;
  const double pairs = pairs_up_to(r, (double)p->n_kv) - pairs_up_to(r, (double)attn_problem_position(p, 0)),
               d = (double)p->d_qk;
  attn_cost result = attn_softmax_cost(c, pairs);
  if (r->budget >= p->n_kv) return result;
  if (attn_kv_observes(r->score) || r->score->future) {
    const double all = (double)p->n_kv * ((double)p->n_kv + 1),
                 weights = (double)(p->batch * p->heads) * (r->score->future ? all : pairs);
    result.mul_add += weights * d;
    result.exp += weights;
    if (r->score->products)
      result.mul_add += (double)(p->batch * p->heads * p->n_kv * r->score->window) * d +
                        weights * 4 * (double)r->score->window / (double)r->every;
  } else if (!r->score->fixed) {
    const schedule s = schedule_of(r);
    const double times = fmax(0, (double)(p->n_kv - s.first)) / (double)s.period;
    result.mul_add += (double)(p->batch * p->kv_heads) * times * (double)r->budget * 2 *
                      (d + (r->score->values ? (double)p->d_v : 0));
  }
  return result;
}
