/* streaming - attention sinks and a sliding window.
 *
 * A query at position i sees the keys j < sink, and i - window < j <= i: `window` keys, its own among them.
 *
 * Xiao, Tian, Chen, Han, Lewis 2023, StreamingLLM (arXiv:2309.17453). Cost n (sink + window) pairs, linear in
 * n. Bounds: SP-1, SP-2, SP-3. Deviation: positions are absolute, those that the rotation of Q and K gave
 * them; the paper counts them within its cache (streaming_cache). */
#include "attn_variant.h"

typedef struct params {
  int64_t sink, window;
} params;

static const attn_param table[] = {
    {"sink", ATTN_INT, offsetof(params, sink), 0, 1 << 20, "4", NULL, "leading keys that every query sees"},
    {"window", ATTN_INT, offsetof(params, window), 1, 1 << 30, "512", NULL,
     "keys up to the query's own, which is one of them"},
    {.name = NULL},
};

typedef struct state {
  params p;
  int64_t n;
} state;

static attn_status applicable(const attn_context *c) {
  if (c->problem->causal) return ATTN_OK;
  return attn_fail(ATTN_EUNSUPPORTED,
                   "variant streaming: only causal attention, its window ends at the query");
}

/* Queries before the first key have a negative position, and see nothing. */
static int64_t row(const void *opaque, int64_t head, int64_t position, attn_run *runs) {
  const state *s = opaque;
  int64_t sinks = s->p.sink < s->n ? s->p.sink : s->n, first = position - s->p.window + 1, count = 0;
  (void)head;
  if (sinks) runs[count++] = (attn_run){0, sinks, 1};
  if (first < sinks) first = sinks;
  if (first <= position) runs[count++] = (attn_run){first, position - first + 1, 1};
  return count;
}

/* The law: SP-0 holds it against row, of which it is independent. */
static bool sees(const void *opaque, int64_t head, int64_t position, int64_t key) {
  const state *s = opaque;
  (void)head;
  return key < s->p.sink || (position - s->p.window < key && key <= position);
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const params *p = c->params;
  const state s = {.p = *p, .n = c->problem->n_kv};
  out->pattern = (attn_pattern){.row = row,
                                .max_runs = 2,
                                .sees = sees,
                                .cache = p->sink + p->window,
                                .reach = p->sink ? 0 : p->window - 1};
  return attn_builder_keep(b, &s, sizeof s, &out->pattern.state);
}

/* Keys that the positions before `end` see: the query at t - 1 sees min(t, most) of them. */
static double pairs_before(double end, double most) {
  if (!(end > 0)) return 0;
  return end <= most ? end * (end + 1) / 2 : most * (most + 1) / 2 + (end - most) * most;
}

static attn_cost cost(const attn_context *c) {
  const params *p = c->params;
  const attn_problem *x = c->problem;
  double most = (double)p->sink + (double)p->window, end = (double)x->n_kv;
  return attn_softmax_cost(c,
                           pairs_before(end, most) - pairs_before((double)attn_problem_position(x, 0), most));
}

ATTN_VARIANT(streaming, .summary = "attention sinks and a sliding window",
             .formula = "keys j < sink and i - window < j <= i: `window` keys with the query's own, where "
                        "longformer's window counts both sides; O(n (sink + window) d)",
             .cite = "Xiao et al. 2023, arXiv:2309.17453",
             .caps = ATTN_CAP_SOFTMAX | ATTN_CAP_LSE | ATTN_CAP_POSITIONS, .params = table,
             .params_size = sizeof(params), .budget = {"window", NULL}, .applicable = applicable,
             .describe = describe, .cost = cost)
