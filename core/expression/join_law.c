/* join_law.c - the law of a join, which checks hold its selection against: what patterns must see is always
 * taken; a selector that heeds what others own keeps its law, as does hashing, which asks of each key by
 * itself; weights are those of the last term, and 1 for what the others take. */
#include "core/expression/join.h"

#include <math.h>
#include <stdlib.h>

/* A query as a term's functions want it. */
typedef struct inner_query {
  attn_context context;
  attn_call call;
  attn_query query;
} inner_query;

static void enter(const term *t, const attn_query *query, inner_query *own) {
  own->call = term_call(t, query->call, &own->context);
  own->query = *query;
  own->query.call = &own->call;
}

/* The only term that selects by data; NULL: there is none, or several. */
static const term *selector_of(const join *x) {
  const term *found = NULL;
  for (int64_t t = 0; t < x->count; t++) {
    if (x->terms[t].kind != TERM_SELECTOR) continue;
    if (found) return NULL;
    found = &x->terms[t];
  }
  return found;
}

static bool always(const void *state, const attn_query *query, int64_t unit) {
  const join *x = state;
  const attn_problem *p = query->call->context->problem;
  for (int64_t t = 0; t < x->count; t++) {
    const term *at = &x->terms[t];
    inner_query own;
    if (at->kind == TERM_EVERY) return true;
    if (at->kind == TERM_PATTERN) {
      if (at->pattern.sees(at->pattern.state, query->head, attn_problem_position(p, query->i), unit))
        return true;
    } else if (at->selector.always) {
      enter(at, query, &own);
      if (at->selector.always(at->selector.state, &own.query, unit)) return true;
    }
  }
  return false;
}

static double score(const void *state, const attn_query *query, int64_t unit, double *error) {
  const term *t = selector_of(state);
  inner_query own;
  enter(t, query, &own);
  return t->selector.score(t->selector.state, &own.query, unit, error);
}

static void enclose(const void *state, const attn_query *query, int64_t units, double *low, double *high) {
  const term *t = selector_of(state);
  inner_query own;
  enter(t, query, &own);
  t->selector.enclose(t->selector.state, &own.query, units, low, high);
}

/* -- weights -- */

/* The keys that the head takes of a query, selected anew; NULL: there is no memory. */
static attn_picks *head_of(const join *x, const attn_query *query) {
  const attn_problem *p = query->call->context->problem;
  const attn_selector *s = &x->selector;
  const int64_t terms = x->count - 1;
  const size_t prepared = join_prepared_offset(x, terms), /* of whole cache lines */
      scratch = (s->scratch_bytes + 64) & ~(size_t)63;
  attn_picks *out = malloc(sizeof *out + (size_t)s->max_runs * sizeof(attn_run) + sizeof(int64_t));
  char *room = out ? aligned_alloc(64, prepared + scratch) : NULL;
  if (!room) {
    free(out);
    return NULL;
  }
  char *work = room + prepared;
  *out = (attn_picks){.max_runs = s->max_runs, .runs = (attn_run *)(out + 1)};
  out->counts = (int64_t *)(out->runs + s->max_runs);
  join_prepare(x, query->call, query->batch, query->head / (p->heads / p->kv_heads), terms, room, work);
  /* Only terms that select for each query by itself stand left of weights here. */
  const attn_block block = {.batch = query->batch, .head = query->head, .first = query->i, .count = 1};
  join_select(x, query->call, &block, room, terms, out, work);
  free(room);
  return out;
}

static bool owns(const attn_picks *head, int64_t key) {
  const run_set set = {.runs = head->runs, .count = head->counts[0]};
  return run_has(&set, key);
}

static void moments(const void *state, const attn_query *query, const int64_t *keys, int64_t count,
                    double *m) {
  const join *x = state;
  const term *t = &x->terms[x->count - 1];
  inner_query own;
  attn_picks *head = head_of(x, query);
  for (int64_t a = 0; a < count * count && !head; a++) m[a] = (double)NAN;
  if (!head) return;
  enter(t, query, &own);
  own.query.owned = head;
  t->selector.moments(t->selector.state, &own.query, keys, count, m);
  /* A key of the head has weight 1, and the others have the mean 1. */
  for (int64_t a = 0; a < count; a++)
    for (int64_t b = 0; b < count; b++)
      if (owns(head, keys[a]) || owns(head, keys[b])) m[a * count + b] = 1;
  free(head);
}

static double log_weight(const void *state, const attn_query *query, int64_t key) {
  const join *x = state;
  const term *t = &x->terms[x->count - 1];
  inner_query own;
  attn_picks *head = head_of(x, query);
  if (!head) return (double)NAN;
  enter(t, query, &own);
  own.query.owned = head;
  const double w = owns(head, key) ? 0 : t->selector.log_weight(t->selector.state, &own.query, key);
  free(head);
  return w;
}

static void state_weights(join *x) {
  const term *t = &x->terms[x->count - 1];
  const attn_selector *of = &t->selector;
  for (int64_t i = 0; i + 1 < x->count; i++)
    if (term_shares(&x->terms[i])) return;
  if (x->selector.order) return;
  if (of->moments) x->selector.moments = moments;
  if (of->log_weight) x->selector.log_weight = log_weight;
  x->selector.repeats = of->repeats;
  x->selector.epsilon = of->epsilon;
  x->selector.delta = of->delta;
  x->selector.claimed = of->claimed;
}

void join_state_law(join *x) {
  const term *t = selector_of(x);
  attn_selector *own = &x->selector;
  bool selects = false, stated = true; /* all that patterns take */
  for (int64_t i = 0; i < x->count; i++) {
    const term *at = &x->terms[i];
    selects = selects || at->kind == TERM_SELECTOR;
    if (at->kind == TERM_PATTERN && (!at->pattern.sees || at->pattern.drawn)) stated = false;
  }
  if (own->weighted) state_weights(x);
  if (own->every || !stated) return;
  if (!selects) {
    own->grain = 1;
    own->always = always;
    return;
  }
  if (!t || t->selector.margins) return;
  const attn_selector *of = &t->selector;
  const bool alone = x->count == 1;
  if (alone || of->hashes || (of->grain == 1 && of->restricts)) {
    own->grain = of->grain;
    own->kept = of->kept;
    own->mass = of->mass;
    own->hashes = of->hashes;
    own->buckets = of->buckets;
    own->always = !alone || of->always ? always : NULL;
    own->score = of->score ? score : NULL;
    own->enclose = of->enclose ? enclose : NULL;
  }
  if (alone) own->least = of->least;
}
