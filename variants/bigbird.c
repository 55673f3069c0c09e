/* bigbird - blocks of keys: a window of blocks, random blocks, and leading global blocks.
 *
 * With positions cut into blocks of b, a query of block i sees every key of the blocks
 *   i - (w-1)/2 ... i + (w-1)/2,  r blocks drawn without replacement from the rest,  and the g leading ones;
 * queries of a global block see everything. Each head draws its own blocks; they are not symmetrised, and
 * never repeat a window or global block; fewer are left near the ends of a short sequence. Causal: j <= i,
 * and the random blocks are drawn from those before the window.
 *
 * tail=uniform: the r drawn blocks represent all N that could be drawn, each of their keys with weight N / r
 * (of fewer than r candidates all are taken, with weight 1), so that numerator and denominator of the softmax
 * over all keys are unbiased over draws. Nobody has published it; with tail=drop, which is BigBird, what is
 * not drawn has no weight.
 *
 * Zaheer et al. 2020 (arXiv:2007.14062). Cost n b (w + r + g) pairs, linear in n. Bounds: SP-1 to SP-5; of
 * tail=uniform SP-1 and the laws of weights. */
#include "attn_variant.h"

#include <math.h>
#include <stdlib.h>

typedef enum { DROP, UNIFORM } tail_kind;
typedef struct params {
  int64_t block, window, random, global, seed;
  int tail;
} params;
static const char *const tails[] = {"drop", "uniform", NULL};

static const attn_param table[] = {
    {"block", ATTN_INT, offsetof(params, block), 1, 1 << 20, "64", NULL, "keys of a block"},
    {"window", ATTN_INT, offsetof(params, window), 1, 1 << 20, "3", NULL,
     "blocks of the sliding window, odd"},
    {"random", ATTN_INT, offsetof(params, random), 0, 1 << 16, "3", NULL,
     "random blocks of a block of queries"},
    {"global", ATTN_INT, offsetof(params, global), 0, 1 << 20, "2", NULL,
     "leading blocks that see and are seen by all"},
    {"seed", ATTN_INT, offsetof(params, seed), 0, 1e15, "0", NULL, "seed of the random blocks"},
    {"tail", ATTN_CHOICE, offsetof(params, tail), 0, 1, "drop", tails,
     "uniform: drawn blocks stand for those that are not drawn"},
    {.name = NULL},
};

typedef struct state {
  params p;
  const params *given; /* of the plan: the law reads nothing that the algorithm makes */
  int64_t n, blocks;
  bool causal;
  int64_t *drawn; /* [heads][blocks][random], ascending, -1 where too few were left */
} state;

static attn_status applicable(const attn_context *c) {
  const params *p = c->params;
  if (p->window % 2 == 0)
    return attn_fail(ATTN_EINVAL, "variant bigbird: window=%lld, expected an odd number of blocks",
                     (long long)p->window);
  if (p->tail == UNIFORM && !p->random)
    return attn_fail(ATTN_EINVAL,
                     "variant bigbird: tail=uniform, but random=0 draws nothing to represent the others");
  if (c->problem->n_q > c->problem->n_kv)
    return attn_fail(ATTN_EUNSUPPORTED, "variant bigbird: n_q > n_kv leaves queries without a block");
  return ATTN_OK;
}

/* The window of block i after the global blocks: first ... end - 1. */
static void window_of(const state *s, int64_t i, int64_t *first, int64_t *end) {
  int64_t side = s->p.window / 2;
  *first = attn_max(i - side, attn_min(s->p.global, s->blocks));
  *end = attn_max(*first, attn_min(i + side + 1, s->blocks));
}

/* How many blocks block i may draw: global ... first - 1, and, unless causal, end ... blocks - 1. */
static int64_t candidates_of(const state *s, int64_t i, int64_t *before) {
  int64_t first, end;
  window_of(s, i, &first, &end);
  *before = attn_max(first - s->p.global, 0);
  return *before + (s->causal ? 0 : s->blocks - end);
}

static void draw(const state *s, int64_t head, int64_t i, int64_t *out) {
  int64_t first, end, before, count = 0;
  window_of(s, i, &first, &end);
  const int64_t total = candidates_of(s, i, &before);
  attn_rng rng;
  /* A block's stream is named by the head and the block alone: a longer sequence draws the same. */
  attn_rng_init(&rng, (uint64_t)s->p.seed, 0xb16b12d, ((uint64_t)head << 32) + (uint64_t)i);
  /* Floyd's sampling without replacement, kept in ascending order by insertion. */
  for (int64_t j = total - attn_min(s->p.random, total); j < total; j++) {
    int64_t pick = attn_rng_below(&rng, j + 1), at;
    for (at = 0; at < count && out[at] != pick; at++) continue;
    if (at < count) pick = j;
    for (at = count++; at > 0 && out[at - 1] > pick; at--) out[at] = out[at - 1];
    out[at] = pick;
  }
  for (int64_t k = 0; k < count; k++) out[k] = out[k] < before ? s->p.global + out[k] : end + out[k] - before;
  for (; count < s->p.random; count++) out[count] = -1;
}

static void add(const state *s, int64_t first, int64_t end, attn_run *runs, int64_t *count) {
  int64_t from = first * s->p.block, to = attn_min(end * s->p.block, s->n);
  if (from >= to) return;
  attn_run *last = *count ? &runs[*count - 1] : NULL;
  if (last && last->first + last->count == from)
    last->count += to - from;
  else
    runs[(*count)++] = (attn_run){from, to - from, 1};
}

static int64_t row(const void *opaque, int64_t head, int64_t position, attn_run *runs) {
  const state *s = opaque;
  int64_t i = position / s->p.block, first, end, count = 0, r = 0;
  if (i < s->p.global) {
    runs[0] = (attn_run){0, s->n, 1};
    return 1;
  }
  window_of(s, i, &first, &end);
  const int64_t *drawn = s->drawn + (head * s->blocks + i) * s->p.random;
  add(s, 0, attn_min(s->p.global, s->blocks), runs, &count);
  for (; r < s->p.random && drawn[r] >= 0 && drawn[r] < first; r++)
    add(s, drawn[r], drawn[r] + 1, runs, &count);
  add(s, first, end, runs, &count);
  for (; r < s->p.random && drawn[r] >= 0; r++) add(s, drawn[r], drawn[r] + 1, runs, &count);
  return count;
}

/* The law: SP-0 holds it against row, of which it is independent. */
static bool sees(const void *opaque, int64_t head, int64_t position, int64_t key) {
  const params *p = ((const state *)opaque)->given;
  int64_t own = position / p->block, other = key / p->block;
  (void)head;
  return own < p->global || other < p->global || llabs(own - other) <= p->window / 2;
}

static bool candidate(const void *opaque, int64_t head, int64_t position, int64_t block) {
  const state *s = opaque;
  int64_t grain = s->given->block;
  return !sees(s, head, position, block * grain) && !(s->causal && block > position / grain);
}

/* The queries of a block see the same keys; all those of global blocks see everything. Small blocks share a
 * tile. */
static int64_t group(const void *opaque, int64_t position) {
  const state *s = opaque;
  int64_t i = position / s->p.block;
  if (i < s->p.global) return -1;
  return s->p.block < ATTN_TILE ? 0 : i;
}

/* What row reads: the blocks, and those that are drawn. */
static attn_status make_state(attn_builder *b, const attn_context *c, state **out) {
  const attn_problem *x = c->problem;
  state *s = attn_builder_alloc(b, 1, sizeof *s);
  if (!s) return ATTN_ENOMEM;
  *s = (state){.p = *(const params *)c->params, .given = c->params, .n = x->n_kv, .causal = x->causal};
  s->blocks = (s->n + s->p.block - 1) / s->p.block;
  size_t ignored;
  int64_t factors[] = {x->heads, s->blocks, s->p.random, (int64_t)sizeof *s->drawn};
  attn_status status = attn_size_product("variant bigbird: the random blocks", factors, 4, &ignored);
  if (status) return status;
  if (!(s->drawn = attn_builder_alloc(b, x->heads * s->blocks * s->p.random, sizeof *s->drawn)))
    return ATTN_ENOMEM;
  for (int64_t head = 0; head < x->heads; head++)
    for (int64_t i = 0; i < s->blocks; i++) draw(s, head, i, s->drawn + (head * s->blocks + i) * s->p.random);
  *out = s;
  return ATTN_OK;
}

/* ---- tail=uniform ------------------------------------------------------------------------------------ */

/* Appends the part of the blocks first ... end - 1 that queries of the tile see. */
static void pick(const state *s, int64_t first, int64_t end, int64_t from, int64_t to, double weight,
                 attn_picks *out) {
  first = attn_max(first * s->p.block, from);
  end = attn_min(end * s->p.block, to);
  if (first >= end) return;
  const int64_t at = out->counts[0]++;
  out->runs[at] = (attn_run){first, end - first, 1};
  out->log_weights[at] = weight;
}

static void select(const void *opaque, const attn_call *call, const attn_block *b, const void *prepared,
                   attn_picks *out, void *scratch) {
  const state *s = opaque;
  const attn_problem *x = call->context->problem;
  const int64_t i = attn_problem_position(x, b->first) / s->p.block,
                *drawn = s->drawn + (b->head * s->blocks + i) * s->p.random;
  int64_t from, to, first, end, before, r = 0;
  (void)prepared, (void)scratch;
  attn_visible_span(x, b->first, &from, &end);
  attn_visible_span(x, b->first + b->count - 1, &first, &to);
  to = attn_min(to, attn_call_keys(call, b->batch));
  out->counts[0] = 0;
  if (i < s->p.global) {
    pick(s, 0, s->blocks, from, to, 0, out);
    return;
  }
  window_of(s, i, &first, &end);
  const int64_t all = candidates_of(s, i, &before);
  const double weight = log((double)attn_max(all, 1) / (double)attn_max(attn_min(all, s->p.random), 1));
  pick(s, 0, attn_min(s->p.global, s->blocks), from, to, 0, out);
  for (; r < s->p.random && drawn[r] >= 0 && drawn[r] < first; r++)
    pick(s, drawn[r], drawn[r] + 1, from, to, weight, out);
  pick(s, first, end, from, to, 0, out);
  for (; r < s->p.random && drawn[r] >= 0; r++) pick(s, drawn[r], drawn[r] + 1, from, to, weight, out);
}

/* The law: blocks are counted one by one. */
static int64_t count_candidates(const state *s, int64_t head, int64_t position) {
  int64_t count = 0;
  for (int64_t block = 0; block * s->given->block < s->n; block++)
    count += candidate(s, head, position, block);
  return count;
}

static int64_t position_of(const attn_query *x) {
  return attn_problem_position(x->call->context->problem, x->i);
}

static bool always(const void *opaque, const attn_query *x, int64_t key) {
  const state *s = opaque;
  return sees(s, x->head, position_of(x), key) ||
         count_candidates(s, x->head, position_of(x)) <= s->given->random;
}

static double log_weight(const void *opaque, const attn_query *x, int64_t key) {
  const state *s = opaque;
  return always(s, x, key)
             ? 0
             : log((double)count_candidates(s, x->head, position_of(x)) / (double)s->given->random);
}

/* Two of N blocks are among r that are drawn without replacement with probability r (r - 1) / (N (N - 1)). */
static void moments(const void *opaque, const attn_query *x, const int64_t *keys, int64_t count, double *m) {
  const state *s = opaque;
  const double all = (double)count_candidates(s, x->head, position_of(x)), drawn = (double)s->given->random;
  for (int64_t a = 0; a < count; a++)
    for (int64_t b = 0; b < count; b++) {
      const bool same = keys[a] / s->given->block == keys[b] / s->given->block;
      m[a * count + b] = all <= drawn || sees(s, x->head, position_of(x), keys[a]) ||
                                 sees(s, x->head, position_of(x), keys[b])
                             ? 1
                         : same ? all / drawn
                                : all * (drawn - 1) / (drawn * (all - 1));
    }
}

/* Queries of a tile are of one block. */
static int64_t rows_of(const attn_context *c) {
  const params *p = c->params;
  const int64_t offset = attn_problem_position(c->problem, 0);
  int64_t rows = attn_min(p->block, ATTN_TILE);
  while (p->block % rows || offset % rows) rows--;
  return rows;
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const params *p = c->params;
  state *s = NULL;
  const attn_status status = b ? make_state(b, c, &s) : ATTN_OK;
  if (status) return status;
  /* Where the queries of a tile were of one block, those of other positions may not be. */
  if (p->tail == UNIFORM) out->caps &= ~(uint32_t)ATTN_CAP_POSITIONS;
  if (p->tail == UNIFORM)
    out->selector = (attn_selector){.state = s,
                                    .share = ATTN_SHARE_TILE,
                                    .rows = rows_of(c),
                                    .max_runs = p->random + 2,
                                    .weighted = true,
                                    .select = select,
                                    .always = always,
                                    .moments = moments,
                                    .log_weight = log_weight};
  else
    out->pattern = (attn_pattern){.state = s,
                                  .row = row,
                                  .max_runs = p->random + 2,
                                  .group = group,
                                  .per_head = true,
                                  .sees = sees,
                                  .grain = p->block,
                                  .global = p->global > 0,
                                  .drawn = p->random,
                                  .candidate = candidate};
  return ATTN_OK;
}

/* Pairs of one head, with G = g b global keys:  (n_q - G) row + G n,  row = G + r b + w b, at most n.
 * Causal: (w/2 + 1/2) b keys of the window (w/2 whole blocks), and half of n. */
static attn_cost cost(const attn_context *c) {
  const params *p = c->params;
  const attn_problem *x = c->problem;
  double n = (double)x->n_kv, queries = (double)x->n_q, block = (double)p->block,
         global = (double)attn_min(p->global * p->block, x->n_kv);
  double side = (double)(p->window / 2) * block, all = x->causal ? n / 2 : n;
  double row = global + (double)p->random * block + (x->causal ? side + block / 2 : 2 * side + block);
  double whole = global < queries ? global : queries;
  return attn_softmax_cost(c, (queries - whole) * (row < all ? row : all) + whole * all);
}

/* The window, in blocks, that holds `keys` keys, the query's own included. */
static int64_t blocks_of(const attn_context *c, int64_t keys) {
  const params *p = c->params;
  int64_t side = c->problem->causal ? keys - 1 : keys / 2;
  return 2 * ((side + p->block - 1) / p->block) + 1;
}

ATTN_VARIANT(bigbird, .summary = "window, random and global blocks",
             .formula =
                 "keys of the `window` blocks around the query's, of `random` drawn ones and of the `global` "
                 "leading ones, of `block` keys each; O(n block (window + random + global) d)",
             .cite = "Zaheer et al. 2020, arXiv:2007.14062",
             .caps = ATTN_CAP_SOFTMAX | ATTN_CAP_LSE | ATTN_CAP_POSITIONS, .params = table,
             .params_size = sizeof(params), .seed = "seed", .budget = {"window", blocks_of},
             .applicable = applicable, .describe = describe, .cost = cost)
