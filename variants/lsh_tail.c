/* lsh_tail - keys that hashing samples, each weighted by what its chance was: unbiased sums over all keys.
 *
 *   N_ij = in how many of l tables q_i and k'_j have the same k signs of x G_t, G_t Gaussian d x k, k'_j =
 *   k_j - c S(i) = {j visible: N_ij >= hits}, the weight of key j is e^(s_ij) / u_ij, u_ij = P(N_ij >= hits)
 * and o_i is the weighted mean of v over S(i) and the last `window` visible keys, which weigh e^(s_ij). c is
 * the mean of the kv head's keys that exist (centre=yes; a shift of all keys leaves softmax as it is, but not
 * the angles), or 0. G is the same for all heads and batch entries: column b of G_t is d draws N(0, 1),
 * rounded to fp32, of the stream (seed, 0x15b7a11, t << 32 | b).
 *
 * Law. x G_tb and y G_tb differ in sign with probability angle(x, y) / pi (the plane through both is cut by a
 * uniform line), so a table has the same signs of q and k' with p = (1 - angle / pi)^k, independently of
 *   other tables: u = 1 - (1 - p)^l                           hits = 1
 *   u = 1 - (1 - p)^l - l p (1 - p)^(l - 1)     hits = 2
 * Of three vectors that do not all have one sign exactly two of three pairs differ: all agree with
 * probability 1 - (angle(q,a) + angle(q,b) + angle(a,b)) / (2 pi), the k-th power of which is p_ab, the
 * chance that a table has both a and b. The l tables are then a multinomial of (p_ab, p_a - p_ab, p_b - p_ab,
 * rest), which gives P(a, b in S). A vector 0 has the sign + everywhere: its angle is as if pi / 2 with
 * others, and 0 with another 0. A key opposite to the query has u = 0: it is never drawn, and the sums are
 * those without it.
 *
 * MagicPIG, Chen et al. 2024 (arXiv:2410.16179), whose head (first and last keys, always taken) is left to an
 * expression: streaming + lsh_tail. Deviations: its code adds 1e-4 to u, which biases keys of small u; it
 * centres by the mean of the prompt, here of the keys of the call, among them later ones. Cost n d l k for
 * hashing; a query looks up its bucket in each of l tables and counts the keys there, n l 2^-k of unrelated
 * directions; pairs n u. Memory 4 l n + 8 d n bytes a kv head. Weights are fp64: u is off by 2 k 1e-8 of
 * itself at the most, where acos loses digits. Bounds: those of unbiased weights. k = 0 is tiled. */
#include "attn_variant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct params {
  int64_t k, l, hits, window, seed;
  int centre;
} params;

static const char *const answers[] = {"no", "yes", NULL};

static const attn_param table[] = {
    {"k", ATTN_INT, offsetof(params, k), 0, 32, "10", NULL, "signs of a table; 0: every key is kept"},
    {"l", ATTN_INT, offsetof(params, l), 1, 1024, "150", NULL, "tables"},
    {"hits", ATTN_INT, offsetof(params, hits), 1, 2, "min(2,l)", NULL,
     "tables in which a key that is kept has the query's signs"},
    {"window", ATTN_INT, offsetof(params, window), 0, 1 << 20, "1", NULL,
     "last keys, always taken; 0: a row may see none"},
    {"centre", ATTN_CHOICE, offsetof(params, centre), 0, 1, "yes", answers,
     "hash keys less the mean of all keys of the kv head"},
    {"seed", ATTN_INT, offsetof(params, seed), 0, 1e15, "0", NULL, "seed of the tables"},
    {.name = NULL},
};

enum { ROWS = 8, PURPOSE = 0x15b7a11 };
enum { ALWAYS = UINT8_MAX }; /* hits of a key that is always taken */

typedef struct state {
  params p;
  const attn_sign_tables *tables;
} state;

/* Of a kv head. */
typedef struct prepared_head {
  double *mean, *unit; /* [d]; [n_kv][d] keys less the mean, of length 1 */
  void *tables;
} prepared_head;

/* A thread's. */
typedef struct room {
  double *unit;   /* [ROWS][d] queries of length 1 */
  uint32_t *word; /* [ROWS][l] */
  uint8_t *hits;  /* [n_kv] */
  void *hashing;
} room;

static prepared_head head_of(const attn_context *c, attn_carver *carver) {
  const params *x = c->params;
  const int64_t n = c->problem->n_kv, d = c->problem->d_qk;
  return (prepared_head){.mean = attn_carve(carver, d, 1, sizeof(double)),
                         .unit = attn_carve(carver, n, d, sizeof(double)),
                         .tables = attn_carve(carver, 1, 1, attn_sign_tables_bytes(c, x->k, x->l))};
}

static room lay_out(const attn_context *c, attn_carver *carver) {
  const params *x = c->params;
  const attn_problem *p = c->problem;
  return (room){.unit = attn_carve(carver, ROWS, p->d_qk, sizeof(double)),
                .word = attn_carve(carver, ROWS, x->l, sizeof(uint32_t)),
                .hits = attn_carve(carver, p->n_kv, 1, sizeof(uint8_t)),
                .hashing = attn_carve(carver, 1, 1, attn_sign_tables_scratch(c, x->k, x->l))};
}

/* The first key of the window. */
static int64_t window_of(const attn_query *x) {
  return attn_last_keys(x->call, x->batch, x->head, x->i, ((const params *)x->call->context->params)->window);
}

/* ---- vectors ----------------------------------------------------------------------------------------- */

/* As much as they differ from the first: the mean of keys that are all alike is each of them, to the bit. */
static void mean_of(const attn_call *call, int64_t batch, int64_t kv_head, double *mean) {
  const attn_problem *p = call->context->problem;
  const void *k = attn_rows(call->k, p->k, batch, kv_head, p->dtype);
  const attn_dtype t = attn_stored(p->k, p->dtype);
  const int64_t keys = attn_call_keys(call, batch);
  const double n = (double)keys;
  const bool some = keys && ((const params *)call->context->params)->centre;
  for (int64_t l = 0; l < p->d_qk; l++) mean[l] = some ? attn_get(k, l, t) : 0;
  for (int64_t j = 1; some && j < keys; j++)
    for (int64_t l = 0; l < p->d_qk; l++)
      mean[l] += attn_get(k, j * p->k.row + l, t) / n - attn_get(k, l, t) / n;
}

/* to <- (x - mean) / |x - mean|; of x = mean 0. mean: NULL is 0. */
static void direct(const void *x, const double *mean, int64_t d, attn_dtype t, double *to) {
  double most = 0, sum = 0;
  for (int64_t l = 0; l < d; l++) {
    to[l] = attn_get(x, l, t) - (mean ? mean[l] : 0);
    if (!(fabs(to[l]) <= most)) most = fabs(to[l]);
  }
  for (int64_t l = 0; l < d && most > 0; l++) {
    to[l] /= most;
    sum += to[l] * to[l];
  }
  for (int64_t l = 0; l < d && most > 0; l++) to[l] /= sqrt(sum);
}

static bool vanishes(const double *a, int64_t d) {
  for (int64_t l = 0; l < d; l++)
    if (a[l] != 0) return false;
  return true;
}

/* Of vectors of length 1, or 0. */
static double angle(const double *a, const double *b, int64_t d) {
  double sum[4] = {0}; /* which do not wait for one another */
  for (int64_t l = 0; l < d - d % 4; l += 4)
    for (int64_t r = 0; r < 4; r++) sum[r] += a[l + r] * b[l + r];
  for (int64_t l = d - d % 4; l < d; l++) sum[0] += a[l] * b[l];
  const double inner = sum[0] + sum[1] + (sum[2] + sum[3]);
  if (inner == 0 && vanishes(a, d) && vanishes(b, d)) return 0;
  return acos(inner > 1 ? 1 : inner < -1 ? -1 : inner);
}

static const double pi = 3.14159265358979323846;

/* x^n */
static double power(double x, int64_t n) {
  double y = 1;
  for (; n; n >>= 1, x *= x)
    if (n & 1) y *= x;
  return y;
}

/* The chance u of `hits` tables of l, of chance p each: terms of the binomial where the sum of few is
 * small. */
static double chance(double p, int64_t l, int64_t hits) {
  const double miss = power(1 - p, l - 1), one = (double)l * p * miss;
  if ((double)l * p > 0.5) return 1 - miss * (1 - p) - (hits == 2 ? one : 0);
  double term = one, sum = hits == 1 ? one : 0;
  for (int64_t i = 2; i <= l && (i == 2 || term > 1e-17 * sum); i++) {
    term *= (double)(l - i + 1) / (double)i * p / (1 - p);
    sum += term;
  }
  return sum;
}

/* ---- selecting --------------------------------------------------------------------------------------- */

static void prepare(const void *state_, const attn_call *call, int64_t batch, int64_t kv_head, void *prepared,
                    void *scratch) {
  const state *s = state_;
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  const int64_t d = p->d_qk, keys = attn_call_keys(call, batch);
  attn_carver carver = {.base = prepared}, own = {.base = scratch};
  const prepared_head x = head_of(c, &carver);
  const room w = lay_out(c, &own);
  const void *k = attn_rows(call->k, p->k, batch, kv_head, p->dtype);
  mean_of(call, batch, kv_head, x.mean);
  for (int64_t j = 0; j < keys; j++)
    direct(attn_row_behind(k, p->k, j, p->dtype), x.mean, d, attn_stored(p->k, p->dtype), x.unit + j * d);
  attn_sign_tables_fill(s->tables, c, keys, x.unit, x.tables, w.hashing);
}

/* -ln u; 0 where q or k is not finite, nor is then the result. */
static double weight_of(const params *p, const double *q, const double *k, int64_t d) {
  const double weight = -log(chance(power(1 - angle(q, k, d) / pi, p->k), p->l, p->hits));
  return isfinite(weight) ? weight : 0;
}

static void select(const void *state_, const attn_call *call, const attn_block *b, const void *prepared,
                   attn_picks *picks, void *scratch) {
  const state *s = state_;
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  const int64_t d = p->d_qk;
  attn_carver carver = {.base = (char *)(uintptr_t)prepared}, own = {.base = scratch};
  const prepared_head x = head_of(c, &carver);
  const room w = lay_out(c, &own);
  for (int64_t i = 0; i < b->count; i++)
    direct(attn_row(call->q, p->q, b->batch, b->head, b->first + i, p->dtype), NULL, d,
           attn_stored(p->q, p->dtype), w.unit + i * d);
  attn_sign_tables_words(s->tables, c, b->count, w.unit, w.word, w.hashing);
  for (int64_t i = 0; i < b->count; i++) {
    attn_run *runs = picks->runs + i * picks->max_runs;
    double *weights = picks->log_weights ? picks->log_weights + i * picks->max_runs : NULL;
    int64_t first, end, count = 0;
    const attn_query of = {.call = call, .batch = b->batch, .head = b->head, .i = b->first + i};
    const int64_t window = window_of(&of);
    attn_visible_keys(call, b->batch, of.head, of.i, &first, &end);
    attn_sign_tables_count(s->tables, c, x.tables, w.word + i * s->p.l, s->p.hits, first, window, w.hits,
                           w.hashing);
    memset(w.hits + window, ALWAYS, (size_t)(end - window));
    for (int64_t r = 0; picks->owned && r < picks->owned->counts[i]; r++) {
      const attn_run *run = &picks->owned->runs[i * picks->owned->max_runs + r];
      for (int64_t j = run->first; j < run->first + run->count; j++) w.hits[j] = 0;
    }
    for (int64_t j = first; j < end; j++) {
      if (w.hits[j] < s->p.hits) continue;
      if (weights && w.hits[j] != ALWAYS)
        weights[count] = weight_of(&s->p, w.unit + i * d, x.unit + j * d, d);
      runs[count++] = (attn_run){j, 1, 1};
    }
    picks->counts[i] = count;
  }
}

/* ---- the law: tables are counted one by one, not by the formulas of select --------------------------- */

enum { MOST_HITS = 2 };
/* p[i][j]: the probability that i tables, counted up to `hits`, have key a, and j have key b. */
typedef struct tally {
  double p[MOST_HITS + 1][MOST_HITS + 1];
} tally;

static tally together(const tally *x, const tally *y, int64_t hits) {
  tally z = {{{0}}};
  for (int64_t i = 0; i < (hits + 1) * (hits + 1) * (hits + 1) * (hits + 1); i++) {
    const int64_t side = hits + 1, a = i / side / side / side, b = i / side / side % side,
                  c = i / side % side, d = i % side;
    z.p[attn_min(a + c, hits)][attn_min(b + d, hits)] += x->p[a][b] * y->p[c][d];
  }
  return z;
}

/* Of l tables that have both with probability `both`, and a and b with these. */
static tally tally_of(double a, double b, double both, int64_t l, int64_t hits) {
  tally all = {{{1}}}, some = {{{fmax(0, 1 - a - b + both), fmax(0, b - both)}, {fmax(0, a - both), both}}};
  for (; l; l >>= 1, some = together(&some, &some, hits))
    if (l & 1) all = together(&all, &some, hits);
  return all;
}

/* The query's direction, then those of keys, to be freed; NULL without memory. */
static double *directions(const attn_query *query, const int64_t *keys, int64_t count) {
  const attn_problem *p = query->call->context->problem;
  const int64_t d = p->d_qk, kv_head = query->head / (p->heads / p->kv_heads);
  const attn_dtype t = p->dtype;
  const void *q = attn_row(query->call->q, p->q, query->batch, query->head, query->i, t),
             *k = attn_rows(query->call->k, p->k, query->batch, kv_head, t);
  double *unit = malloc((size_t)((count + 2) * d) * sizeof *unit), *mean = unit + (count + 1) * d;
  if (!unit) return NULL;
  mean_of(query->call, query->batch, kv_head, mean);
  direct(q, NULL, d, attn_stored(p->q, t), unit);
  for (int64_t a = 0; a < count; a++)
    direct(attn_row_behind(k, p->k, keys[a], t), mean, d, attn_stored(p->k, t), unit + (a + 1) * d);
  return unit;
}

static bool always(const void *unused, const attn_query *query, int64_t key) {
  (void)unused;
  return key >= window_of(query);
}

static void moments(const void *state_, const attn_query *query, const int64_t *keys, int64_t count,
                    double *m) {
  const params *x = &((const state *)state_)->p;
  const int64_t d = query->call->context->problem->d_qk;
  double *unit = directions(query, keys, count);
  for (int64_t at = 0; at < count * count; at++) {
    const int64_t a = at / count, b = at % count;
    const double *of_a = unit ? unit + (a + 1) * d : NULL, *of_b = unit ? unit + (b + 1) * d : NULL;
    if (b < a || always(NULL, query, keys[a]) || always(NULL, query, keys[b])) {
      m[at] = b < a ? m[b * count + a] : 1;
      continue;
    }
    const double to_a = unit ? angle(unit, of_a, d) : (double)NAN, to_b = unit ? angle(unit, of_b, d) : to_a,
                 between =
                     !unit || memcmp(of_a, of_b, (size_t)d * sizeof *of_a) == 0 ? 0 : angle(of_a, of_b, d),
                 p_a = power(1 - to_a / pi, x->k), p_b = power(1 - to_b / pi, x->k),
                 both = a == b ? p_a : power(fmax(0, 1 - (to_a + to_b + between) / (2 * pi)), x->k);
    const tally t = tally_of(p_a, p_b, both, x->l, x->hits);
    double u_a = 0, u_b = 0;
    for (int64_t i = 0; i <= x->hits; i++) {
      u_a += t.p[x->hits][i];
      u_b += t.p[i][x->hits];
    }
    m[at] = a == b ? 1 / u_a : t.p[x->hits][x->hits] / u_a / u_b;
  }
  free(unit);
}

static double log_weight(const void *state_, const attn_query *query, int64_t key) {
  double m;
  moments(state_, query, &key, 1, &m);
  return log(m);
}

/* ---- the variant ------------------------------------------------------------------------------------- */

static attn_status applicable(const attn_context *c) {
  const params *x = c->params;
  if (x->hits > x->l)
    return attn_fail(
        ATTN_EINVAL,
        "variant lsh_tail: hits = %lld > l = %lld: no key can be found in more tables than there are",
        (long long)x->hits, (long long)x->l);
  if (c->problem->n_kv > INT32_MAX)
    return attn_fail(ATTN_EUNSUPPORTED, "variant lsh_tail: more than 2^31 - 1 keys");
  return ATTN_OK;
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  static const attn_exemption centred[] = {
      {ATTN_EXEMPT_LOOKAHEAD | ATTN_EXEMPT_PREFIX,
       "centre=yes hashes keys less the mean of all keys of a head, also of later ones"},
      {0, NULL}};
  attn_carver prepared = {0}, scratch = {0};
  const params *x = c->params;
  state *s = b ? attn_builder_alloc(b, 1, sizeof *s) : NULL;
  if (b && !s) return ATTN_ENOMEM;
  if (s) *s = (state){.p = *x};
  if (x->centre && x->k) out->exempt = centred;
  if (!x->window) out->caps &= ~(uint32_t)(ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX);
  head_of(c, &prepared);
  lay_out(c, &scratch);
  out->selector = (attn_selector){.state = s,
                                  .share = ATTN_SHARE_ROW,
                                  .rows = ROWS,
                                  .max_runs = c->problem->n_kv,
                                  .every = x->k == 0,
                                  .weighted = true,
                                  .restricts = true,
                                  .prepared_bytes = prepared.used,
                                  .prepare = prepare,
                                  .scratch_bytes = scratch.used,
                                  .select = select,
                                  .always = always,
                                  .moments = moments,
                                  .log_weight = log_weight};
  return s ? attn_sign_tables_plan(b, x->k, x->l, (uint64_t)x->seed, PURPOSE, &s->tables) : ATTN_OK;
}

/* The share of keys in directions of their own that a query meets: angles have the density sin^(d-2), and of
 * one component they are 0 or pi. */
static double met(const params *x, int64_t d) {
  enum { POINTS = 65 }; /* odd: one is pi/2, where the density of any d is 1 */
  double sum = 0, all = 0;
  if (d == 1) return 0.5;
  for (int i = 0; i < POINTS; i++) {
    const double angle = (i + 0.5) / POINTS * pi, density = pow(sin(angle), (double)(d - 2));
    sum += density * chance(power(1 - angle / pi, x->k), x->l, x->hits);
    all += density;
  }
  return sum / all;
}

static attn_cost cost(const attn_context *c) {
  const params *x = c->params;
  const attn_problem *p = c->problem;
  const double rows = (double)(p->heads * p->n_q + p->kv_heads * p->n_kv);
  const double pairs = attn_visible_pairs(p), kept = fmin(pairs, (double)p->n_q * (double)x->window);
  attn_cost result = attn_softmax_cost(c, kept + (pairs - kept) * met(x, p->d_qk));
  result.mul_add += (double)(p->batch * p->d_qk * x->l * x->k) * rows;
  return result;
}

ATTN_VARIANT(lsh_tail, .summary = "keys that hashing samples, weighted by their chances: an unbiased tail",
             .formula = "keys j that share k signs of random products with the query in `hits` of l tables, "
                        "each weighted exp(s_ij) / P(that); O(n d l k + pairs d)",
             .cite = "Chen et al. 2024, arXiv:2410.16179",
             .caps = (ATTN_CAP_SOFTMAX & ~ATTN_CAP_SHIFT) | ATTN_CAP_LSE | ATTN_CAP_DATA | ATTN_CAP_POSITIONS,
             .params = table, .params_size = sizeof(params), .seed = "seed", .budget = {.parameter = "l"},
             .applicable = applicable, .describe = describe, .cost = cost)
