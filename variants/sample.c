/* sample - keys drawn uniformly and weighted to represent the others; a given number, or as many as accuracy
 * needs.
 *
 *   R = the visible keys that nobody else owns, N = |R|; b of them are drawn, without replacement or with it;
 *   a key that was drawn c times has the weight c N / b (without replacement b >= N takes all of R, weight 1)
 * so that sum_j w_j e^(s_j) has the mean D_R = sum over R of e^(s_j), and the numerator likewise. With H the
 * keys that others own and D = D_H + D_R, the number b of a row is
 *   none       count
 *   clt        (z s N / (eps D~))^2, z the quantile of N(0, 1) at 1 - delta / 2 (quantile=one: at 1 - delta)
 *   bernstein  so that P(|D~ - D| > eps D) <= delta, below
 * from a first sample of b0 = `base` keys of R, drawn with replacement and not used again: of A = e^s it
 * gives the mean x and s^2 = sum (A - x)^2 / (b0 - 1); D~ = D_H + N x. N <= base takes all of R, and b is at
 * most max_share N.
 *
 * Proof of bernstein. All A in R lie in (0, cap], cap = e^(max of s over R). Each line fails with probability
 * delta / 3 at the most; L = ln(3 / delta).
 *   (1) The standard deviation of R is <= S = min(s + cap sqrt(2 L / (b0 - 1)), cap / 2): Maurer and Pontil
 *       2009 (arXiv:0907.3740), theorem 10, for independent draws, hence with replacement; cap / 2 is
 *       Popoviciu's bound.
 *   (2) By (1) and Bernstein, mean of R >= x - S sqrt(2 L / b0) - cap L / (3 b0), so D >= D_low = D_H + N
 *   max(0, that). (3) A mean of b draws is off by more than S sqrt(2 M / b) + cap M / (3 b) with probability
 *       2 e^-M, here delta / 3 (Bernstein in the form of Boucheron, Lugosi and Massart, theorem 2.10);
 *       without replacement too, since the exponential moments are no larger (Hoeffding 1963, theorem 4). M =
 *       ln(6 / delta).
 *   The least b for which (3) is <= a = eps D_low / N is (S sqrt(2 M) + sqrt(2 M S^2 + 4 a cap M / 3))^2 / (4
 *   a^2); (1) and (2) depend on the first sample alone, (3) on the second. Together <= delta, up to the
 *   rounding of scores.
 *
 * The clt rule is that of vAttention, Desai et al. 2025 (arXiv:2510.05688), whose head is left to an
 * expression: streaming + topk + sample. Its code takes the one-sided quantile for the event of two sides.
 * Deviations: b0 is a number of keys, not a share; the promise is only about D, not about the output. Draws
 * are those of the streams (seed, 0x5a3b1e, 2^32 h + position) and, for first samples, (seed, 0x5a3ba5e,
 * ...): the same for all batch entries and lengths. Cost: b pairs a row; the first sample and H take (b0 +
 * |H|) d; the cap of bernstein is looked for in all of R, n d a row in fp64, more than exact attention costs:
 * it is a yardstick. Bounds: those of unbiased weights. count >= n is tiled. */
#include "attn_variant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum { NONE, CLT, BERNSTEIN } guarantees;

typedef struct params {
  int64_t count, base, seed;
  double eps, delta, max_share;
  int replacement, guarantee, quantile;
} params;

static const char *const answers[] = {"no", "yes", NULL};
static const char *const rules[] = {"none", "clt", "bernstein", NULL};
static const char *const sides[] = {"one", "two", NULL};

static const attn_param table[] = {
    {"count", ATTN_INT, offsetof(params, count), 1, 1 << 20, "256", NULL, "keys that are drawn for a query"},
    {"replacement", ATTN_CHOICE, offsetof(params, replacement), 0, 1, "no", answers,
     "draw keys again that were drawn already"},
    {"guarantee", ATTN_CHOICE, offsetof(params, guarantee), 0, 2, "none", rules,
     "how eps and delta choose the number of keys, instead of count. clt: holds in the limit of many draws; "
     "bernstein: a theorem"},
    {"eps", ATTN_REAL, offsetof(params, eps), 1e-6, 1, "0.1", NULL, "relative error of the denominator"},
    {"delta", ATTN_REAL, offsetof(params, delta), 1e-12, 0.5, "0.1", NULL, "chance that it is larger"},
    {"base", ATTN_INT, offsetof(params, base), 2, 1 << 20, "128", NULL, "keys of the first sample"},
    {"quantile", ATTN_CHOICE, offsetof(params, quantile), 0, 1, "two", sides,
     "guarantee=clt: one- or two-sided quantile"},
    {"max_share", ATTN_REAL, offsetof(params, max_share), 1e-6, 1, "1", NULL,
     "largest share of the keys that eps and delta may ask for"},
    {"seed", ATTN_INT, offsetof(params, seed), 0, 1e15, "0", NULL, "seed of the draws"},
    {.name = NULL},
};

enum { ROWS = 8 };

typedef struct state {
  params p;
  double z;
} state;

/* A thread's: the keys of R as runs, how many keys are before each, which of R are drawn, in which words of
 * that any are (others have no meaning: a row costs what it draws, not N), how often, scores. */
typedef struct room {
  attn_run *runs;
  int64_t *before;
  uint64_t *drawn, *words;
  int32_t *times;
  double *scores;
} room;

/* A query and R. */
typedef struct remainder_of {
  const attn_query *query;
  const attn_run *owned;
  int64_t owned_count, first, end; /* first, end: the keys that are visible */
  int64_t n, run_count;
  attn_problem problem; /* with the query's positions */
} rest;

static room lay_out(const attn_context *c, attn_carver *carver) {
  const params *x = c->params;
  const int64_t n = c->problem->n_kv, most = n / 2 + 2;
  return (room){.runs = attn_carve(carver, most, 1, sizeof(attn_run)),
                .before = attn_carve(carver, most, 1, sizeof(int64_t)),
                .drawn = attn_carve(carver, n / 64 + 1, 1, sizeof(uint64_t)),
                .words = attn_carve(carver, n / 4096 + 1, 1, sizeof(uint64_t)),
                .times = x->replacement ? attn_carve(carver, n, 1, sizeof(int32_t)) : NULL,
                .scores = attn_carve(carver, x->guarantee ? x->base : 0, 1, sizeof(double))};
}

/* ---- R ----------------------------------------------------------------------------------------------- */

static bool hidden(const rest *r, int64_t key) {
  const attn_query *y = r->query;
  return attn_score_hides(y->call->context->problem, y->batch, y->head, y->i, key);
}

/* Adds the keys from ... to - 1 but those that a bias hides. */
static void add(rest *r, const room *w, int64_t from, int64_t to) {
  const bool biases = r->query->call->context->problem->score.dense.at;
  while (from < to) {
    int64_t stop = to;
    if (biases) {
      for (; from < to && hidden(r, from);) from++;
      for (stop = from; stop < to && !hidden(r, stop);) stop++;
    }
    if (stop == from) return;
    w->runs[r->run_count] = (attn_run){from, stop - from, 1};
    w->before[r->run_count++] = r->n;
    r->n += stop - from;
    from = stop;
  }
}

/* owned: of which selection `at` is the query's. */
static rest rest_of(const attn_query *query, const attn_picks *owned, int64_t at, const room *w) {
  rest r = {.query = query, .problem = attn_call_problem(query->call, query->batch, query->head)};
  attn_visible_keys(query->call, query->batch, query->head, query->i, &r.first, &r.end);
  if (owned) {
    r.owned = owned->runs + at * owned->max_runs;
    r.owned_count = owned->counts[at];
  }
  int64_t from = r.first;
  for (int64_t o = 0; o < r.owned_count; o++) {
    add(&r, w, from, attn_min(r.owned[o].first, r.end));
    from = attn_max(from, r.owned[o].first + r.owned[o].count);
  }
  add(&r, w, from, r.end);
  return r;
}

/* Key number `rank` of R. */
static int64_t key_of(const rest *r, const room *w, int64_t rank) {
  int64_t low = 0, high = r->run_count - 1;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (w->before[middle] <= rank)
      low = middle;
    else
      high = middle - 1;
  }
  return w->runs[low].first + rank - w->before[low];
}

static attn_rng stream(const state *s, const attn_query *query, uint64_t purpose) {
  const int64_t position = attn_call_position(query->call, query->batch, query->i);
  attn_rng rng;
  attn_rng_init(&rng, (uint64_t)s->p.seed, purpose, ((uint64_t)query->head << 32) + (uint64_t)position);
  return rng;
}

/* ---- how many ---------------------------------------------------------------------------------------- */

static double score_of(const rest *r, int64_t key) {
  const attn_query *query = r->query;
  const attn_problem *p = &r->problem;
  const attn_dtype of_q = attn_stored(p->q, p->dtype), of_k = attn_stored(p->k, p->dtype);
  const int64_t kv_head = query->head / (p->heads / p->kv_heads), d = p->d_qk;
  const void *q = attn_row(query->call->q, p->q, query->batch, query->head, query->i, p->dtype),
             *k = attn_row(query->call->k, p->k, query->batch, kv_head, key, p->dtype);
  double sum[4] = {0};
  for (int64_t l = 0; l < d; l++) sum[l % 4] += attn_get(q, l, of_q) * attn_get(k, l, of_k);
  return attn_score_of(p, query->batch, query->head, query->i, key,
                       p->scale * (sum[0] + sum[1] + (sum[2] + sum[3])));
}

/* The largest score of keys first ... end - 1, at least `most`; NaN if one is. */
static double largest(const rest *r, int64_t first, int64_t end, double most) {
  for (int64_t j = first; j < end; j++) {
    const double s = score_of(r, j);
    if (!(s <= most)) most = s;
    if (isnan(most)) break;
  }
  return most;
}

/* Sum over H of e^(s - top). */
static double owned_mass(const rest *r, double top) {
  double sum = 0;
  for (int64_t o = 0; o < r->owned_count; o++) {
    const int64_t to = attn_min(r->owned[o].first + r->owned[o].count, r->end);
    for (int64_t j = attn_max(r->owned[o].first, r->first); j < to; j++)
      if (!hidden(r, j)) sum += exp(fmin(score_of(r, j) - top, 600));
  }
  return sum;
}

/* b of a row by eps and delta; all of R where the data give no number. */
static int64_t needed(const state *s, const rest *r, const room *w) {
  const params *x = &s->p;
  const double n = (double)r->n, base = (double)x->base, log_a = log(3 / x->delta), log_b = log(6 / x->delta);
  if (r->n <= x->base) return r->n;
  attn_rng rng = stream(s, r->query, 0x5a3ba5e);
  double top = -(double)INFINITY, mean = 0, square = 0, budget;
  for (int64_t t = 0; t < x->base; t++) {
    w->scores[t] = score_of(r, key_of(r, w, attn_rng_below(&rng, r->n)));
    if (!(w->scores[t] <= top)) top = w->scores[t];
  }
  for (int64_t a = 0; a < r->run_count && x->guarantee == BERNSTEIN; a++)
    top = largest(r, w->runs[a].first, w->runs[a].first + w->runs[a].count, top);
  for (int64_t t = 0; t < x->base; t++) mean += exp(w->scores[t] - top) / base;
  for (int64_t t = 0; t < x->base; t++) square += pow(exp(w->scores[t] - top) - mean, 2);
  const double spread = sqrt(square / (base - 1)), owned = owned_mass(r, top);
  if (x->guarantee == CLT) {
    budget = pow(s->z * spread * n / (x->eps * (owned + n * mean)), 2);
  } else {
    const double most = fmin(spread + sqrt(2 * log_a / (base - 1)), 0.5),
                 least = fmax(0, mean - most * sqrt(2 * log_a / base) - log_a / (3 * base)),
                 a = x->eps * (owned / n + least),
                 root = most * sqrt(2 * log_b) + sqrt(2 * log_b * most * most + 4 * a * log_b / 3);
    budget = pow(root / (2 * a), 2);
  }
  const double most = fmin(n, ceil(x->max_share * n));
  return !(budget < most) ? (int64_t)most : attn_max(1, (int64_t)ceil(budget));
}

static int64_t budget_of(const state *s, const rest *r, const room *w) {
  return s->p.guarantee ? needed(s, r, w) : s->p.count;
}

/* Is all of R taken as it is? */
static bool takes_all(const state *s, int64_t n, int64_t budget) {
  return budget >= n && (s->p.guarantee || !s->p.replacement);
}

/* ---- selecting --------------------------------------------------------------------------------------- */

static bool has(const uint64_t *set, int64_t i) { return set[i / 64] >> i % 64 & 1; }
static void set_bit(uint64_t *set, int64_t i) { set[i / 64] |= UINT64_C(1) << i % 64; }

/* The least of a set of numbers below 64 that is not empty. */
static int64_t least_of(uint64_t set) {
  int64_t at = 0;
  for (int half = 32; half; half /= 2)
    if (!(set & ((UINT64_C(1) << half) - 1))) {
      set >>= half;
      at += half;
    }
  return at;
}

/* Draws `budget` of R: with replacement, or by Floyd's rule, by which each set of `budget` keys is as
 * likely. */
static void draw(const state *s, const rest *r, int64_t budget, const room *w) {
  attn_rng rng = stream(s, r->query, 0x5a3b1e);
  memset(w->words, 0, (size_t)(r->n / 4096 + 1) * sizeof *w->words);
  for (int64_t t = 0; t < budget; t++) {
    const int64_t last = s->p.replacement ? r->n - 1 : r->n - budget + t, at = attn_rng_below(&rng, last + 1);
    const bool again = has(w->words, at / 64) && has(w->drawn, at);
    const int64_t taken = again && !s->p.replacement ? last : at;
    if (!has(w->words, taken / 64)) w->drawn[taken / 64] = 0;
    set_bit(w->words, taken / 64);
    set_bit(w->drawn, taken);
    if (w->times) w->times[taken] = again ? w->times[taken] + 1 : 1;
  }
}

/* In ascending order, each with the logarithm of its weight, `each` if it was drawn once. */
static void add_drawn(const rest *r, const room *w, double each, attn_picks *to, int64_t i) {
  int64_t a = 0;
  for (int64_t first = 0; first < r->n; first += 4096)
    for (uint64_t words = w->words[first / 4096]; words; words &= words - 1) {
      const int64_t word = first / 64 + least_of(words);
      for (uint64_t left = w->drawn[word]; left; left &= left - 1) {
        const int64_t rank = 64 * word + least_of(left);
        while (a + 1 < r->run_count && w->before[a + 1] <= rank) a++;
        const int64_t key = w->runs[a].first + rank - w->before[a];
        const int32_t times = w->times ? w->times[rank] : 1;
        attn_picks_add(to, i, key, key + 1, times > 1 ? each + log(times) : each);
      }
    }
}

static void select(const void *state_, const attn_call *call, const attn_block *b, const void *unused,
                   attn_picks *picks, void *scratch) {
  const state *s = state_;
  attn_carver carver = {.base = scratch};
  const room w = lay_out(call->context, &carver);
  (void)unused;
  for (int64_t i = 0; i < b->count; i++) {
    const attn_query query = {.call = call, .batch = b->batch, .head = b->head, .i = b->first + i};
    const rest r = rest_of(&query, picks->owned, i, &w);
    const int64_t budget = budget_of(s, &r, &w);
    const bool all = takes_all(s, r.n, budget);
    const double each = all ? 0 : log((double)r.n / (double)budget);
    picks->counts[i] = 0;
    if (!all && r.n) draw(s, &r, budget, &w);
    for (int64_t a = 0; all && a < r.run_count; a++)
      attn_picks_add(picks, i, w.runs[a].first, w.runs[a].first + w.runs[a].count, each);
    if (!all) add_drawn(&r, &w, each, picks, i);
  }
}

/* ---- the law, given the first sample ----------------------------------------------------------------- */

/* N and b of a query. */
static void numbers(const state *s, const attn_query *query, double *n, double *b) {
  const attn_context *c = query->call->context;
  attn_carver counter = {0};
  lay_out(c, &counter);
  attn_carver carver = {.base = aligned_alloc(64, counter.used + 64 - counter.used % 64)};
  *n = *b = (double)NAN;
  if (!carver.base) return;
  void *base = carver.base;
  const room w = lay_out(c, &carver);
  const rest r = rest_of(query, query->owned, 0, &w);
  const int64_t budget = budget_of(s, &r, &w);
  *n = (double)r.n;
  *b = takes_all(s, r.n, budget) ? (double)INFINITY : (double)budget;
  free(base);
}

static void moments(const void *state_, const attn_query *query, const int64_t *keys, int64_t count,
                    double *m) {
  const state *s = state_;
  double n, b;
  (void)keys;
  numbers(s, query, &n, &b);
  for (int64_t at = 0; at < count * count; at++) {
    const bool same = at / count == at % count;
    if (isinf(b))
      m[at] = 1;
    else if (s->p.replacement)
      m[at] = same ? 1 + (n - 1) / b : 1 - 1 / b;
    else
      m[at] = same ? n / b : n * (b - 1) / (b * (n - 1));
  }
}

static double log_weight(const void *state_, const attn_query *query, int64_t key) {
  double n, b;
  (void)key;
  numbers(state_, query, &n, &b);
  return isinf(b) ? 0 : log(n) - log(b);
}

/* ---- the variant ------------------------------------------------------------------------------------- */

static attn_status applicable(const attn_context *c) {
  if (c->problem->n_kv > INT32_MAX)
    return attn_fail(ATTN_EUNSUPPORTED, "variant sample: more than 2^31 - 1 keys");
  return ATTN_OK;
}

/* z with P(Z > z) = tail <= 1/2, Z ~ N(0, 1), by halving. */
static double quantile(double tail) {
  double low = 0, high = 40;
  for (int step = 0; step < 64; step++) {
    const double middle = (low + high) / 2;
    *(erfc(middle / sqrt(2)) / 2 > tail ? &low : &high) = middle;
  }
  return low;
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  attn_carver scratch = {0};
  const params *x = c->params;
  const int64_t n = c->problem->n_kv, most = x->guarantee ? n : attn_min(x->count, n);
  const bool promises = x->guarantee && !(x->max_share < 1);
  const state s = {.p = *x, .z = quantile(x->delta / (x->quantile ? 2 : 1))};
  lay_out(c, &scratch);
  out->selector = (attn_selector){.share = ATTN_SHARE_ROW,
                                  .rows = ROWS,
                                  .max_runs = most,
                                  .max_keys = most,
                                  .every = !x->guarantee && !x->replacement && x->count >= n,
                                  .weighted = true,
                                  .restricts = true,
                                  .scratch_bytes = scratch.used,
                                  .select = select,
                                  .moments = moments,
                                  .log_weight = log_weight,
                                  .repeats = x->replacement,
                                  .epsilon = promises ? x->eps : 0,
                                  .delta = promises ? x->delta : 0,
                                  .claimed = x->guarantee == CLT};
  return attn_builder_keep(b, &s, sizeof s, &out->selector.state);
}

/* Of a row that sees n keys, with eps and delta for scores that are N(0, 1). */
static attn_cost cost(const attn_context *c) {
  const params *x = c->params;
  const attn_problem *p = c->problem;
  const double rows = (double)(p->batch * p->heads * p->n_q), visible = attn_visible_pairs(p),
               each = visible / (double)p->n_q, z = quantile(x->delta / (x->quantile ? 2 : 1)),
               asked = x->guarantee == NONE  ? (double)x->count
                       : x->guarantee == CLT ? z * z * (exp(1) - 1) / (x->eps * x->eps)
                                             : each;
  attn_cost result = attn_softmax_cost(c, fmin(visible, (double)p->n_q * asked));
  if (x->guarantee)
    result.mul_add += rows * (double)p->d_qk * ((double)x->base + (x->guarantee == BERNSTEIN ? each : 0));
  return result;
}

ATTN_VARIANT(
    sample,
    .summary = "keys drawn uniformly, weighted for all: an unbiased tail, of a size that accuracy needs",
    .formula = "`count` keys drawn uniformly, each weighted N / count for the N there are (guarantee=: as "
               "many as eps and delta need); O(n count d)",
    .cite = "Desai et al. 2025, arXiv:2510.05688; Maurer and Pontil 2009, arXiv:0907.3740",
    .caps = (ATTN_CAP_SOFTMAX & ~ATTN_CAP_SHIFT) | ATTN_CAP_LSE | ATTN_CAP_DATA | ATTN_CAP_POSITIONS,
    .params = table, .params_size = sizeof(params), .seed = "seed", .budget = {.parameter = "count"},
    .applicable = applicable, .describe = describe, .cost = cost)
