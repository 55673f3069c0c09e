/* join.c - a join as one selector: of each query (or block) first the keys of the leftmost term, then those
 * of the next that are not taken, and so on, with their weights; one softmax runs over all of them
 * (attn_selector.h), so that no partial results are joined and nothing is counted twice. */
#include "core/expression/join.h"
#include "core/expression/expression_kinds.h"

#include <stdio.h>
#include <string.h>

/* Bytes of the selections of a block, beyond which it has fewer queries. */
enum { MOST_BYTES = 1 << 22 };

/* -- what the terms are -- */

static attn_status refuse(const term *t, const char *reason) {
  return expression_refuse_part(ATTN_EINVAL, t->of, reason);
}

/* Names for expressions are replaced by their terms. */
static attn_status collect(attn_builder *b, const attn_context *c, const attn_expression *e, join *x) {
  attn_status status = ATTN_OK;
  if (e->kind == ATTN_EXPRESSION_ATOM && e->atom->expression) return collect(b, c, e->atom->expression, x);
  if (e->kind == ATTN_EXPRESSION_ATOM) {
    if (x->count == EXPRESSION_ATOMS)
      return expression_refuse_part(ATTN_EUNSUPPORTED, e, "more than 16 terms");
    return term_describe(b, c, e, &x->terms[x->count++]);
  }
  for (int64_t t = 0; t < e->count && !status; t++) status = collect(b, c, e->terms[t], x);
  return status;
}

/* Weighted keys represent all that remain, so only the last term may have them. */
static attn_status check_weighted_last(const join *x) {
  for (int64_t t = 0; t < x->count; t++) {
    const term *own = &x->terms[t];
    if (own->kind != TERM_SELECTOR || !own->selector.weighted) continue;
    if (t + 1 < x->count)
      return refuse(&x->terms[t + 1], "nothing remains: the weights of the term before stand for every key");
    if (t && !own->selector.restricts)
      return refuse(own, "its weights stand for every key, and it cannot draw among those that remain");
  }
  return ATTN_OK;
}

/* How the queries are cut into blocks: as those that share a selection want it. */
static attn_status find_blocks(join *x, attn_selector *own) {
  const term *tile = NULL;
  bool alone = true, grouped = true;
  own->rows = 1;
  for (int64_t t = 0; t < x->count; t++) {
    const term *at = &x->terms[t];
    const attn_selector *of = &at->selector;
    grouped = grouped && (at->kind == TERM_SELECTOR ? of->share == ATTN_SHARE_GROUP
                          : at->kind == TERM_EVERY  ? true
                                                    : !at->pattern.per_head);
    alone = alone && term_shares(at);
    if (at->kind == TERM_PATTERN) own->rows = ATTN_TILE;
    if (at->kind != TERM_SELECTOR) continue;
    own->rows = attn_max(own->rows, of->rows);
    if (of->index.heads && own->index.heads &&
        (of->index.heads != own->index.heads || of->index.width != own->index.width))
      return refuse(at, "ranks by index tensors of another shape than a term before it");
    if (of->index.heads) own->index = of->index;
    if (!term_shares(at)) continue;
    if (tile && (tile->selector.rows != of->rows || tile->selector.order || of->order))
      return refuse(at, "shares its selections by other blocks than a term before it");
    tile = at;
  }
  if (tile) own->rows = tile->selector.rows;
  own->share = alone ? ATTN_SHARE_TILE : grouped && !tile ? ATTN_SHARE_GROUP : ATTN_SHARE_ROW;
  if (own->share == ATTN_SHARE_ROW && !tile)
    own->rows = attn_max(
        1, attn_min(own->rows, MOST_BYTES / (int64_t)(sizeof(attn_run) + sizeof(double)) / own->max_runs));
  return ATTN_OK;
}

static void find_sizes(const join *x, int64_t n_kv, attn_selector *own) {
  bool limited = true;
  own->max_runs = own->max_keys = 0;
  for (int64_t t = 0; t < x->count; t++) {
    const term *at = &x->terms[t];
    const bool weighted = at->kind == TERM_SELECTOR && at->selector.weighted;
    own->every = own->every || at->kind == TERM_EVERY;
    own->weighted = own->weighted || weighted;
    /* Runs of other weights are cut by those that were there. */
    own->max_runs = own->max_runs * (weighted ? 2 : 1) + at->max_runs;
    limited = limited && at->kind == TERM_SELECTOR && at->selector.max_keys > 0;
    if (limited) own->max_keys += attn_min(at->selector.max_keys, n_kv);
  }
  own->max_runs = attn_min(own->max_runs, n_kv);
  if (!limited) own->max_keys = 0;
}

/* -- selecting -- */

/* What a thread works in. */
typedef struct room {
  attn_picks own; /* of a term */
  attn_run *raw;  /* of a row of a pattern */
  run_set next;   /* of a selection */
  void *scratch;  /* of a term */
} room;

static room lay_out(const join *x, attn_carver *carver) {
  const attn_selector *s = &x->selector;
  int64_t runs = 1, raw = 1;
  size_t scratch = 0;
  for (int64_t t = 0; t < x->count; t++) {
    const term *at = &x->terms[t];
    const size_t bytes = at->kind == TERM_SELECTOR ? at->selector.scratch_bytes : 0;
    runs = attn_max(runs, at->max_runs);
    if (at->kind == TERM_PATTERN) raw = attn_max(raw, at->pattern.max_runs);
    if (bytes > scratch) scratch = bytes;
  }
  room r = {.raw = attn_carve(carver, raw, 1, sizeof(attn_run))};
  r.own = (attn_picks){.runs = attn_carve(carver, s->rows, runs, sizeof(attn_run)),
                       .counts = attn_carve(carver, s->rows, 1, sizeof(int64_t)),
                       .log_weights = s->weighted ? attn_carve(carver, s->rows, runs, sizeof(double)) : NULL};
  r.next = (run_set){.runs = attn_carve(carver, s->max_runs, 1, sizeof(attn_run)),
                     .log_weights = s->weighted ? attn_carve(carver, s->max_runs, 1, sizeof(double)) : NULL,
                     .most = s->max_runs};
  r.scratch = attn_carve(carver, 1, 1, scratch);
  return r;
}

size_t join_prepared_offset(const join *x, int64_t before) {
  size_t bytes = 0;
  for (int64_t t = 0; t < before; t++)
    if (x->terms[t].kind == TERM_SELECTOR)
      bytes = attn_size_sum(bytes, attn_size_sum(x->terms[t].selector.prepared_bytes, 63) & ~(size_t)63);
  return bytes;
}

void join_prepare(const join *x, const attn_call *call, int64_t batch, int64_t kv_head, int64_t terms,
                  void *prepared, void *scratch) {
  attn_carver carver = {.base = scratch};
  const room r = lay_out(x, &carver);
  for (int64_t t = 0; t < terms; t++) {
    const attn_selector *of = &x->terms[t].selector;
    attn_context own;
    const attn_call inner = term_call(&x->terms[t], call, &own);
    if (x->terms[t].kind == TERM_SELECTOR && of->prepare)
      of->prepare(of->state, &inner, batch, kv_head, (char *)prepared + join_prepared_offset(x, t),
                  r.scratch);
  }
}

static void prepare(const void *state, const attn_call *call, int64_t batch, int64_t kv_head, void *prepared,
                    void *scratch) {
  const join *x = state;
  join_prepare(x, call, batch, kv_head, x->count, prepared, scratch);
}

static const int64_t *order(const void *state, const attn_call *call, const void *prepared, int64_t head) {
  const join *x = state;
  for (int64_t t = 0; t < x->count; t++) {
    const attn_selector *of = &x->terms[t].selector;
    attn_context own;
    const attn_call inner = term_call(&x->terms[t], call, &own);
    if (x->terms[t].kind == TERM_SELECTOR && of->order)
      return of->order(of->state, &inner, (const char *)prepared + join_prepared_offset(x, t), head);
  }
  return NULL;
}

static run_set set_of(const attn_picks *x, int64_t i, bool weighted) {
  return (run_set){.runs = x->runs + i * x->max_runs,
                   .log_weights = weighted ? x->log_weights + i * x->max_runs : NULL,
                   .count = x->counts[i],
                   .most = x->max_runs};
}

/* Of selection i, which is to join those of the terms before. */
static attn_picks_fault fault_of(const term *t, const term_request *asked, const room *r, int64_t i,
                                 const run_set *owned) {
  const bool weighted = t->kind == TERM_SELECTOR && t->selector.weighted;
  const attn_picks_fault fault = attn_picks_check(&t->selector, t->context.problem->n_kv, &r->own, i);
  if (fault) return fault;
  const run_set own = set_of(&r->own, i, weighted);
  return asked->owned && t->selector.restricts && run_sets_intersect(owned, &own) ? ATTN_PICKS_OWNED
                                                                                  : ATTN_PICKS_SOUND;
}

/* Of keys that a block shares, a query takes those that it sees. False: a selection is at fault, which is
 * noted. */
static bool add_term(const join *x, const term *t, const term_request *asked, room *r, attn_picks *out) {
  const bool weighted = t->kind == TERM_SELECTOR && t->selector.weighted,
             tile = x->selector.share == ATTN_SHARE_TILE;
  bool sound = true;
  for (int64_t i = 0; i < (tile ? 1 : asked->block->count); i++) {
    const int64_t of = term_shares(t) ? 0 : i;
    const run_set owned = set_of(out, i, false), more = set_of(&r->own, of, weighted);
    const attn_picks_fault fault = fault_of(t, asked, r, of, &owned);
    int64_t begin = 0, end = INT64_MAX;
    if (fault) {
      out->counts[i] = ATTN_PICKS_NOTED + fault;
      sound = false;
      continue;
    }
    if (!tile && term_shares(t))
      attn_visible_keys(asked->call, asked->block->batch, asked->block->head, term_query(asked, i), &begin,
                        &end);
    run_join(&owned, &more, begin, end, &r->next);
    const int64_t written = attn_min(r->next.count, r->next.most);
    out->counts[i] = r->next.count;
    memcpy(owned.runs, r->next.runs, (size_t)written * sizeof *owned.runs);
    if (weighted)
      memcpy(out->log_weights + i * out->max_runs, r->next.log_weights, (size_t)written * sizeof(double));
  }
  return sound;
}

void join_select(const join *x, const attn_call *call, const attn_block *block, const void *prepared,
                 int64_t terms, attn_picks *out, void *scratch) {
  const bool tile = x->selector.share == ATTN_SHARE_TILE;
  const int64_t selections = tile ? 1 : block->count;
  attn_carver carver = {.base = scratch};
  room r = lay_out(x, &carver);
  const attn_run *raw = r.raw;
  bool sound = true;
  memset(out->counts, 0, (size_t)selections * sizeof *out->counts);
  for (int64_t t = 0; t < terms && sound; t++) {
    const term *at = &x->terms[t];
    const term_request asked = {.call = call,
                                .block = block,
                                .order = x->selector.order ? order(x, call, prepared, block->head) : NULL,
                                .prepared = (const char *)prepared + join_prepared_offset(x, t),
                                .owned = t && (tile || !term_shares(at)) ? out : NULL,
                                .raw = (attn_run *)(uintptr_t)raw,
                                .scratch = r.scratch};
    term_select(at, &asked, &r.own);
    sound = add_term(x, at, &asked, &r, out);
  }
}

static void select(const void *state, const attn_call *call, const attn_block *block, const void *prepared,
                   attn_picks *picks, void *scratch) {
  const join *x = state;
  join_select(x, call, block, prepared, x->count, picks, scratch);
}

/* -- its parts -- */

/* Its selector, of the terms before the features. */
static attn_status find_selector(const attn_context *c, join *x) {
  attn_selector own = {.state = x, .select = select};
  attn_carver counter = {0};
  find_sizes(x, c->problem->n_kv, &own);
  const attn_status status = find_blocks(x, &own);
  if (status) return status;
  for (int64_t t = 0; t < x->count; t++)
    if (x->terms[t].kind == TERM_SELECTOR && x->terms[t].selector.order) own.order = order;
  own.prepared_bytes = join_prepared_offset(x, x->count);
  own.prepare = own.prepared_bytes ? prepare : NULL;
  x->selector = own;
  lay_out(x, &counter);
  x->selector.scratch_bytes = counter.used;
  return ATTN_OK;
}

/* What it keeps of what its terms keep. */
static attn_status find_exemptions(attn_builder *b, join *x) {
  const attn_exemption *lists[EXPRESSION_ATOMS];
  const int64_t all = x->count + x->features;
  x->caps = ~UINT32_C(0);
  for (int64_t t = 0; t < all; t++) {
    lists[t] = x->terms[t].exempt;
    x->caps &= x->terms[t].caps | ATTN_CAP_EXACT | ATTN_CAP_LSE | ATTN_CAP_DATA;
  }
  if (!x->selector.every) x->caps &= ~(uint32_t)ATTN_CAP_EXACT;
  return b ? attn_join_exemptions(b, lists, all, &x->exempt) : ATTN_OK;
}

/* builder: NULL for its sizes. */
static attn_status describe_terms(attn_builder *b, const attn_context *c, join *x) {
  *x = (join){.count = 0};
  attn_status status = collect(b, c, c->expression, x);
  if (!status) status = check_weighted_last(x);
  if (status) return status;
  x->features = x->terms[x->count - 1].kind == TERM_FEATURES;
  x->count -= x->features;
  status = find_selector(c, x);
  if (!status) status = find_exemptions(b, x);
  if (!status) join_state_law(x);
  return status;
}

/* What the engine refuses, at the place of the features. */
static attn_status check_features(const attn_context *c, const attn_parts *parts, const term *features) {
  size_t ignored;
  const attn_status status = attn_engine_residual.method.work_size(c, parts, &ignored);
  char why[400];
  if (!status || status == ATTN_ENOMEM) return status;
  snprintf(why, sizeof why, "%s", attn_last_error());
  return expression_refuse_part(status, features->of, why);
}

/* A head that is one pattern is attended to as one. */
static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  join own, *x = b ? attn_builder_alloc(b, 1, sizeof *x) : &own;
  if (!x) return ATTN_ENOMEM;
  const attn_status status = describe_terms(b, c, x);
  if (status) return status;
  if (x->features && x->count == 1 && x->terms[0].kind == TERM_PATTERN)
    out->pattern = x->terms[0].pattern;
  else
    out->selector = x->selector;
  out->caps &= x->caps;
  out->exempt = x->exempt;
  if (!x->features) return ATTN_OK;
  out->features = x->terms[x->count].features;
  return check_features(c, out, &x->terms[x->count]);
}

/* Keys that several terms take are counted for each. */
static void head_cost(const attn_context *c, const join *x, attn_cost *cost) {
  if (x->selector.every) {
    *cost = attn_softmax_cost(c, attn_visible_pairs(c->problem));
    return;
  }
  for (int64_t t = 0; t < x->count; t++) {
    const attn_cost own = x->terms[t].context.variant->cost(&x->terms[t].context);
    const double bytes = cost->bytes > own.bytes ? cost->bytes : own.bytes;
    expression_add_cost(cost, own, 1);
    cost->bytes = bytes;
  }
}

static attn_status size(const attn_context *c, size_t *work_size, attn_cost *cost) {
  join x;
  const attn_status status = describe_terms(NULL, c, &x);
  (void)work_size; /* an engine's */
  if (status || !cost) return status;
  head_cost(c, &x, cost);
  if (!x.features) return ATTN_OK;
  /* The head takes an exponential a pair. */
  const term *features = &x.terms[x.count];
  const double pairs = cost->exp / (double)(c->problem->batch * c->problem->heads),
               visible = attn_visible_pairs(c->problem);
  expression_add_cost(cost, attn_residual_cost(c, &features->features, pairs < visible ? pairs : visible), 1);
  expression_add_cost(cost, features->context.variant->cost(&features->context), 1);
  return ATTN_OK;
}

const expression_kind expression_join = {.describe = describe, .size = size};
