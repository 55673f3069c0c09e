/* vslash - columns and diagonals that the last queries of a head choose for all of them.
 *
 *   p_ij = softmax over the visible keys of s_ij, for the last `last` queries i at a key that exists
 *   column j: sum_i p_ij;   diagonal g: sum of p_ij with t_i - j = g, t_i the position of query i
 *   S(i) = the `vertical` columns of the largest sum of those after the first `sink`, the `slash` diagonals
 *   of the largest sum (ties: the lower j, the lower g), the first `sink` keys and the last `window` ones, of
 *   which a bias of -Inf hides none
 * and o_i is the softmax over what of S(i) it sees. Causal: no g < 0. A p that is no number counts as 0, a
 * logit of the softmax's own as nothing.
 *
 * MInference, Jiang et al. 2024 (arXiv:2407.02490), vertical-slash heads; from memory of their code. Cost
 * n_kv last d_qk for the sums, pairs about n_q (vertical + slash), less where these meet. Bounds: SP-1, SP-2;
 * FP-2 on the selected keys; SEL-2. Deviations: their first 30 keys and nearest 100 diagonals are among those
 * that are counted, here sink and window are kept besides; their kernel widens a diagonal to blocks of 64
 * keys. Later queries choose what earlier ones see, so that a causal row depends on later keys: it is for
 * prompts, and no cache decodes it. */
#include "attn_variant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct params {
  int64_t vertical, slash, last, sink, window;
} params;

static const attn_param table[] = {
    {"vertical", ATTN_INT, offsetof(params, vertical), 0, 1 << 20, "128", NULL, "keys that all queries see"},
    {"slash", ATTN_INT, offsetof(params, slash), 0, 1 << 20, "128", NULL,
     "distances at which all queries see a key"},
    {"last", ATTN_INT, offsetof(params, last), 1, 1 << 20, "64", NULL, "last queries, which choose"},
    {"sink", ATTN_INT, offsetof(params, sink), 0, 1 << 20, "30", NULL, "first keys that are kept besides"},
    {"window", ATTN_INT, offsetof(params, window), 1, 1 << 20, "1", NULL, "last keys that are kept besides"},
    {.name = NULL},
};

enum { ROWS = 8, CHUNK = 64 };

/* Diagonal g has the place g + before(p), of diagonals(p). */
static int64_t before(const attn_problem *p) { return p->causal ? 0 : p->n_q - 1; }
static int64_t diagonals(const attn_problem *p) { return p->n_kv + before(p); }

/* The queries *first ... *end - 1 choose. */
static void choosing(const attn_call *call, int64_t batch, int64_t *first, int64_t *end) {
  const attn_problem *p = call->context->problem;
  *end = attn_max(attn_call_keys(call, batch) - attn_problem_position(p, 0), 0);
  *end = attn_min(*end, p->n_q);
  *first = attn_max(*end - ((const params *)call->context->params)->last, 0);
}

/* ---- choosing ---------------------------------------------------------------------------------------- */

typedef struct room {
  void *scores, *gemm, *rows; /* [ROWS][n_kv]; of keys that are stored in another type */
  double *p, *column, *diagonal;
} room;

static room lay_out(const attn_context *c, attn_carver *carver) {
  const attn_problem *p = c->problem;
  const size_t e = attn_dtype_size(p->dtype);
  return (room){.scores = attn_carve(carver, ROWS, p->n_kv, e),
                .gemm = attn_carve(carver, 1, 1, attn_gemm_scratch(c->kernels)),
                .rows = attn_carve(carver, p->q.stored || p->k.stored ? ROWS + CHUNK : 0, p->d_qk, e),
                .p = attn_carve(carver, p->n_kv, 1, sizeof(double)),
                .column = attn_carve(carver, p->n_kv, 1, sizeof(double)),
                .diagonal = attn_carve(carver, diagonals(p), 1, sizeof(double))};
}

/* What the heads of a kv head see: keys, ascending, and places of diagonals, descending. */
typedef struct chosen {
  int64_t columns, distances;         /* at most */
  int64_t *counts, *vertical, *slash; /* [group][2], [group][columns], [group][distances] */
} chosen;

static chosen chosen_at(const attn_context *c, attn_carver *carver) {
  const params *x = c->params;
  const attn_problem *p = c->problem;
  const int64_t group = p->heads / p->kv_heads, size = sizeof(int64_t);
  chosen out = {attn_min(x->vertical, p->n_kv), attn_min(x->slash, diagonals(p)), NULL, NULL, NULL};
  out.counts = attn_carve(carver, group, 2, size);
  out.vertical = attn_carve(carver, group, out.columns, size);
  out.slash = attn_carve(carver, group, out.distances, size);
  return out;
}

/* Products of rows i ... of a head with all keys. */
static void multiply(const attn_call *call, int64_t batch, int64_t head, int64_t i, int64_t rows,
                     const room *w) {
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  const int64_t keys = attn_call_keys(call, batch), kv_head = head / (p->heads / p->kv_heads);
  const attn_matrix q =
      attn_load_rows(c->kernels, attn_stored(p->q, p->dtype),
                     attn_row(call->q, p->q, batch, head, i, p->dtype), p->q.row, rows, p->d_qk, w->rows);
  for (int64_t first = 0; first < keys; first += CHUNK) {
    const int64_t count = attn_min(CHUNK, keys - first);
    const attn_matrix k = attn_load_rows(
        c->kernels, attn_stored(p->k, p->dtype), attn_row(call->k, p->k, batch, kv_head, first, p->dtype),
        p->k.row, count, p->d_qk, p->k.stored ? attn_at(w->rows, ROWS * p->d_qk, p->dtype) : NULL);
    attn_gemm(c->kernels, rows, count, p->d_qk, q, (attn_matrix){k.at, k.column, k.row}, false,
              attn_at(w->scores, first, p->dtype), p->n_kv, w->gemm);
  }
}

/* Adds the weights of query i to the sums. x: its products. */
static void add_row(const attn_call *call, int64_t batch, int64_t head, int64_t i, void *x, const room *w) {
  const attn_problem *p = call->context->problem;
  const int64_t diagonal = attn_problem_position(p, i) + before(p);
  double most = -(double)INFINITY, sum = 0;
  int64_t first, end;
  attn_visible_keys(call, batch, head, i, &first, &end);
  attn_score_row(call, batch, head, i, first, end - first, attn_at(x, first, p->dtype));
  for (int64_t j = first; j < end; j++) {
    w->p[j] = attn_score_hides(p, batch, head, i, j) ? -(double)INFINITY : attn_get(x, j, p->dtype);
    if (w->p[j] > most) most = w->p[j];
  }
  for (int64_t j = first; j < end; j++) {
    w->p[j] = exp(w->p[j] - most);
    if (!(w->p[j] >= 0)) w->p[j] = 0;
    sum += w->p[j];
  }
  for (int64_t j = first; j < end && sum > 0; j++) {
    w->column[j] += w->p[j] / sum;
    w->diagonal[diagonal - j] += w->p[j] / sum;
  }
}

/* The k-th largest of numbers from 0 on, 0 < k <= count: their bits are in their order. */
static double kth_largest(const double *x, int64_t count, int64_t k) {
  uint64_t bar = 0, own;
  for (int bit = 62; bit >= 0; bit--) {
    const uint64_t higher = bar | UINT64_C(1) << bit;
    int64_t above = 0;
    for (int64_t i = 0; i < count; i++) {
      memcpy(&own, &x[i], sizeof own);
      above += own >= higher;
    }
    if (above >= k) bar = higher;
  }
  double result;
  memcpy(&result, &bar, sizeof result);
  return result;
}

/* The places of the k largest of x, of equal ones the lower, ascending. Returns how many. */
static int64_t choose(const double *x, int64_t first, int64_t end, int64_t k, int64_t *places) {
  int64_t count = 0;
  k = attn_min(k, end - first);
  if (k <= 0) return 0;
  const double bar = kth_largest(x + first, end - first, k);
  int64_t equal = k;
  for (int64_t i = first; i < end; i++) equal -= x[i] > bar;
  for (int64_t i = first; i < end; i++)
    if (x[i] > bar || (x[i] >= bar && equal-- > 0)) places[count++] = i;
  return count;
}

static void prepare(const void *unused, const attn_call *call, int64_t batch, int64_t kv_head, void *prepared,
                    void *scratch) {
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  const params *x = c->params;
  const int64_t group = p->heads / p->kv_heads, keys = attn_call_keys(call, batch);
  attn_carver carver = {.base = scratch}, own = {.base = prepared};
  const room w = lay_out(c, &carver);
  const chosen out = chosen_at(c, &own);
  int64_t begin, end;
  (void)unused;
  choosing(call, batch, &begin, &end);
  for (int64_t g = 0; g < group; g++) {
    const int64_t head = kv_head * group + g;
    memset(w.column, 0, (size_t)p->n_kv * sizeof *w.column);
    memset(w.diagonal, 0, (size_t)diagonals(p) * sizeof *w.diagonal);
    for (int64_t i = begin; i < end; i += ROWS) {
      const int64_t rows = attn_min(ROWS, end - i);
      multiply(call, batch, head, i, rows, &w);
      for (int64_t r = 0; r < rows; r++)
        add_row(call, batch, head, i + r, attn_at(w.scores, r * p->n_kv, p->dtype), &w);
    }
    out.counts[2 * g] =
        choose(w.column, attn_min(x->sink, keys), keys, x->vertical, out.vertical + g * out.columns);
    out.counts[2 * g + 1] = choose(w.diagonal, 0, diagonals(p), x->slash, out.slash + g * out.distances);
  }
}

/* ---- selecting --------------------------------------------------------------------------------------- */

static void select(const void *unused, const attn_call *call, const attn_block *b, const void *prepared,
                   attn_picks *picks, void *scratch) {
  const attn_problem *p = call->context->problem;
  const params *x = call->context->params;
  attn_carver own = {.base = (char *)(uintptr_t)prepared};
  const chosen in = chosen_at(call->context, &own);
  const int64_t g = b->head % (p->heads / p->kv_heads), *vertical = in.vertical + g * in.columns,
                *slash = in.slash + g * in.distances;
  (void)unused, (void)scratch;
  for (int64_t r = 0; r < b->count; r++) {
    const int64_t i = b->first + r, window = attn_last_keys(call, b->batch, b->head, i, x->window),
                  zero = attn_problem_position(p, i) + before(p); /* key j is on the diagonal at zero - j */
    int64_t first, end, v = 0, d = in.counts[2 * g + 1] - 1;
    attn_visible_keys(call, b->batch, b->head, i, &first, &end);
    picks->counts[r] = 0;
    attn_picks_add(picks, r, first, attn_min(x->sink, end), 0);
    first = attn_min(attn_max(first, x->sink), end);
    for (int64_t key = first; key < window; first = key + 1) {
      while (v < in.counts[2 * g] && vertical[v] < first) v++;
      while (d >= 0 && zero - slash[d] < first) d--;
      key = v < in.counts[2 * g] ? attn_min(vertical[v], window) : window;
      if (d >= 0) key = attn_min(key, zero - slash[d]);
      if (key < window) attn_picks_add(picks, r, key, key + 1, 0);
    }
    attn_picks_add(picks, r, attn_max(window, attn_min(x->sink, end)), end, 0);
  }
}

/* ---- the law: in fp64, sums within what rounding may do to them -------------------------------------- */

static bool always(const void *unused, const attn_query *q, int64_t key) {
  const params *x = q->call->context->params;
  (void)unused;
  return key < x->sink || key >= attn_last_keys(q->call, q->batch, q->head, q->i, x->window);
}

/* Ends of the sums: [n_kv], [diagonals]. */
typedef struct sums {
  double *column[2], *diagonal[2], *p;
} sums;

static double score_of(const attn_query *q, int64_t key, double *error) {
  const attn_problem *p = q->call->context->problem;
  const attn_dtype of_q = attn_stored(p->q, p->dtype), of_k = attn_stored(p->k, p->dtype);
  const void *a = attn_row(q->call->q, p->q, q->batch, q->head, q->i, p->dtype),
             *b = attn_row(q->call->k, p->k, q->batch, q->head / (p->heads / p->kv_heads), key, p->dtype);
  double sum = 0, size = 0;
  for (int64_t l = 0; l < p->d_qk; l++) {
    const double product = attn_get(a, l, of_q) * attn_get(b, l, of_k);
    sum += product;
    size += fabs(product);
  }
  *error = attn_rank_error(p, p->d_qk, size);
  return attn_rank_score(q, key, sum, error);
}

/* Scores that are off by e at most change a weight by a factor e^(2e) at most; one that is no number is in 0
 * ... 1. */
static void law_of_row(const attn_query *q, int64_t rows, const sums *s) {
  const attn_problem *p = q->call->context->problem;
  const int64_t at = attn_problem_position(p, q->i) + before(p);
  double most = -(double)INFINITY, all = 0, off = 0;
  int64_t first, end;
  attn_visible_keys(q->call, q->batch, q->head, q->i, &first, &end);
  for (int64_t j = first; j < end; j++) {
    double error;
    s->p[j] = score_of(q, j, &error);
    if (attn_score_hides(p, q->batch, q->head, q->i, j)) continue;
    off = isfinite(s->p[j]) && isfinite(error) ? fmax(off, error) : (double)INFINITY;
    most = fmax(most, s->p[j]);
  }
  for (int64_t j = first; j < end; j++) all += s->p[j] = exp(s->p[j] - most);
  off = expm1(2 * off) + (double)(end - first + rows + 64) * 0x1p-51;
  for (int64_t j = first; j < end && most > -(double)INFINITY; j++) {
    const double weight = s->p[j] / all, error = weight * off + 0x1p-1022,
                 ends[] = {weight > error ? weight - error : 0, weight + error < 1 ? weight + error : 1};
    for (int e = 0; e < 2; e++) s->column[e][j] += ends[e], s->diagonal[e][at - j] += ends[e];
  }
}

static int ascending(const void *a_, const void *b_) {
  const double a = *(const double *)a_, b = *(const double *)b_;
  return (a > b) - (a < b);
}

/* The k-th largest of x [count]. */
static double kth_of(const double *x, int64_t count, int64_t k, double *space) {
  if (k < 1 || k > count) return k < 1 ? (double)INFINITY : -(double)INFINITY;
  memcpy(space, x, (size_t)count * sizeof *x);
  qsort(space, (size_t)count, sizeof *space, ascending);
  return space[count - k];
}

/* Of k chosen ones: a sum above all that may be the (k + 1)-th largest is surely chosen, one below all that
 * may be the k-th surely not. */
static void margins(const void *unused, const attn_query *query, int64_t keys, double *low, double *high) {
  const attn_problem *p = query->call->context->problem;
  const params *x = query->call->context->params;
  const int64_t all = diagonals(p), from = attn_min(x->sink, keys), n = p->n_kv,
                zero = attn_problem_position(p, query->i) + before(p);
  double *space = calloc((size_t)(3 * n + 3 * all), sizeof *space);
  (void)unused;
  for (int64_t j = 0; j < keys; j++) low[j] = -(double)INFINITY, high[j] = space ? low[j] : (double)INFINITY;
  if (!space) return;
  double *diagonal = space + 2 * n, *sorted = diagonal + 2 * all;
  const sums s = {{space, space + n}, {diagonal, diagonal + all}, sorted};
  attn_query own = *query;
  int64_t end;
  choosing(query->call, query->batch, &own.i, &end);
  for (const int64_t rows = end - own.i; own.i < end; own.i++) law_of_row(&own, rows, &s);
  const double of_column[] = {kth_of(s.column[1] + from, keys - from, x->vertical + 1, sorted),
                              kth_of(s.column[0] + from, keys - from, x->vertical, sorted)},
               of_diagonal[] = {kth_of(s.diagonal[1], all, x->slash + 1, sorted),
                                kth_of(s.diagonal[0], all, x->slash, sorted)};
  for (int64_t j = from; j < keys; j++) {
    low[j] = s.column[0][j] - of_column[0];
    high[j] = s.column[1][j] - of_column[1];
    if (zero - j < 0 || zero - j >= all) continue;
    low[j] = fmax(low[j], s.diagonal[0][zero - j] - of_diagonal[0]);
    high[j] = fmax(high[j], s.diagonal[1][zero - j] - of_diagonal[1]);
  }
  free(space);
}

/* ---- planning ---------------------------------------------------------------------------------------- */

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const params *x = c->params;
  const attn_problem *p = c->problem;
  attn_carver scratch = {0}, prepared = {0};
  (void)b;
  lay_out(c, &scratch);
  chosen_at(c, &prepared);
  out->selector = (attn_selector){
      .share = ATTN_SHARE_ROW,
      .rows = ROWS,
      .max_runs = attn_min((p->n_kv + 1) / 2, x->vertical + x->slash + 2),
      .max_keys = p->score.dense.at ? 0 : attn_min(p->n_kv, x->vertical + x->slash + x->sink + x->window),
      .every = x->vertical >= p->n_kv - x->sink || x->slash >= diagonals(p) || x->window >= p->n_kv,
      .prepared_bytes = prepared.used,
      .prepare = prepare,
      .scratch_bytes = scratch.used,
      .select = select,
      .grain = 1,
      .always = always,
      .margins = margins};
  return ATTN_OK;
}

/* A column, a diagonal: of as many of the keys that a query sees as of all keys. */
static attn_cost cost(const attn_context *c) {
  const params *x = c->params;
  const attn_problem *p = c->problem;
  const double pairs = attn_visible_pairs(p), queries = (double)p->n_q,
               columns = fmin(1, (double)x->vertical / (double)p->n_kv),
               distances = fmin(1, (double)x->slash / (double)diagonals(p)),
               besides = queries * (double)(x->sink + x->window),
               rows = (double)(p->batch * p->heads) * (double)attn_min(x->last, p->n_q) * (double)p->n_kv;
  attn_cost result =
      attn_softmax_cost(c, fmin(pairs, pairs * (1 - (1 - columns) * (1 - distances)) + besides));
  result.mul_add += rows * (double)p->d_qk;
  result.exp += rows;
  return result;
}

static const attn_exemption of_choosing[] = {
    {ATTN_EXEMPT_LOOKAHEAD | ATTN_EXEMPT_PREFIX | ATTN_EXEMPT_ROWS,
     "the last queries of a head choose keys and distances for all its queries"},
    {.reason = NULL}};

ATTN_VARIANT(
    vslash, .summary = "columns and diagonals that the last queries of a head choose for all of them",
    .formula = "the `vertical` keys j and the `slash` distances i - j of the largest sums of weights "
               "over the `last` last queries, the first `sink` keys and the last `window`; O(n last "
               "d + n (vertical + slash) d)",
    .cite = "Jiang et al. 2024, arXiv:2407.02490",
    .caps = (ATTN_CAP_SOFTMAX & ~ATTN_CAP_SHIFT) | ATTN_CAP_LSE | ATTN_CAP_DATA, .params = table,
    .params_size = sizeof(params), .budget = {.parameter = "vertical"}, .exempt = of_choosing,
    .describe = describe, .cost = cost)
