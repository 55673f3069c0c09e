/* svd - the best approximation of rank r of the exact weights or of the scores: what no method of low rank
 * can surpass.
 *
 *   of=weights  P_r V, P_r = sum_(e <= r) u_e s_e w_e^T of the singular value decomposition of the exact
 *               weights P of a head, masks included
 *   of=scores   softmax of the best approximation of rank r of the scores scale Q K^T over keys that exist;
 *               transforms and masks act on it. r >= d_qk is exact.
 *
 * Eckart and Young 1936 (Psychometrika 1). All work is in fp64. With G = P P^T = U S^2 U^T it is P_r V = U_r
 * U_r^T (P V). Of the scores: K^T K = W L W^T and C = Q W L^(1/2) give Q K^T = C (K W L^(-1/2))^T, whose
 * second factor is orthonormal; with the r first eigenvectors R of C^T C, (Q K^T)_r = Q (W L^(1/2) R R^T
 * L^(-1/2) W^T) K^T. A singular value to which the next is equal leaves a choice, which rounding makes: keys
 * in another order, or shifted, may change it.
 *
 * Cost n_q n_kv (d_qk + d_v) and for weights n_q^2 n_kv / 2 + 5 n_q^3 multiply-adds a head, 16 n_q^2 + 8 n_q
 * n_kv bytes a thread: an oracle for n <= 1024. Bounds: LOW-1, LIN-3 (weights), LOW-2 (scores). P_r is not
 * causal where P is, and its rows do not sum to 1. */
#include "attn_variant.h"

#include <float.h>
#include <math.h>
#include <omp.h>
#include <string.h>

enum { LONGEST = 1024 };
typedef enum { WEIGHTS, SCORES } matrix;

typedef struct params {
  int64_t r;
  int of;
} params;

static const char *const matrices[] = {"weights", "scores", NULL};

static const attn_param table[] = {
    {"r", ATTN_INT, offsetof(params, r), 1, 1 << 20, "64", NULL, "rank"},
    {"of", ATTN_CHOICE, offsetof(params, of), 0, 1, "weights", matrices, "the matrix that is approximated"},
    {.name = NULL},
};

static attn_status applicable(const attn_context *c) {
  const attn_problem *p = c->problem;
  if (p->n_q > LONGEST || p->n_kv > LONGEST)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "variant svd: n_q = %lld, n_kv = %lld: a singular value decomposition of more than %d "
                     "rows or columns takes too long",
                     (long long)p->n_q, (long long)p->n_kv, LONGEST);
  return ATTN_OK;
}

/* Is the matrix taken as it is? Of P only the rows count: fewer keys are of smaller rank, too, but that is
 * known no sooner than padding. */
static bool is_whole(const attn_context *c) {
  const params *x = c->params;
  const attn_problem *p = c->problem;
  return x->r >= (x->of == SCORES ? p->d_qk : p->n_q < p->n_kv ? p->n_q : p->n_kv);
}

/* What a thread works in. */
typedef struct room {
  double *q, *k; /* [n_q, d_qk], [n_kv, d_qk]: the head in fp64 */
  double *p, *o; /* [n_q, n_kv] weights; [n_q, d_v] P V */
  /* Gram matrices, their eigenvectors and more, [side, side] each, NULL where the matrix is whole; of scores
   * a third. */
  double *gram, *vectors, *product;
  double *values, *scratch; /* [side], [2 side] */
  int64_t *keys;            /* [n_kv], that a row sees */
  attn_run *runs;
} room;

static room room_at(const attn_context *c, attn_carver *carver) {
  const attn_problem *p = c->problem;
  const bool scores = ((const params *)c->params)->of == SCORES, whole = is_whole(c);
  const attn_pattern *graph = p->mask.kind == ATTN_MASK_PATTERN ? p->mask.pattern : NULL;
  const int64_t side = whole ? 0 : scores ? p->d_qk : p->n_q, wide = side > p->d_qk ? side : p->d_qk;
  return (room){.q = attn_carve(carver, p->n_q, p->d_qk, sizeof(double)),
                .k = attn_carve(carver, p->n_kv, p->d_qk, sizeof(double)),
                .p = attn_carve(carver, p->n_q, p->n_kv, sizeof(double)),
                .o = attn_carve(carver, p->n_q, p->d_v, sizeof(double)),
                .gram = attn_carve(carver, side, side, sizeof(double)),
                .vectors = attn_carve(carver, side, side, sizeof(double)),
                .product = attn_carve(carver, scores ? 3 * side : 0, side, sizeof(double)),
                .values = attn_carve(carver, wide, 1, sizeof(double)),
                .scratch = attn_carve(carver, wide, 2, sizeof(double)),
                .keys = attn_carve(carver, p->n_kv, 1, sizeof(int64_t)),
                .runs = attn_carve(carver, graph ? graph->max_runs : 1, 1, sizeof(attn_run))};
}

static size_t room_bytes(const attn_context *c) {
  attn_carver counter = attn_carver_count(c);
  room_at(c, &counter);
  return counter.used;
}

static attn_status work_size(const attn_context *c, const attn_parts *parts, size_t *bytes) {
  attn_carver counter = attn_carver_count(c);
  (void)parts;
  attn_carve_slices(&counter, c->threads, room_bytes(c));
  *bytes = counter.used;
  return ATTN_OK;
}

static attn_cost cost(const attn_context *c) {
  const attn_problem *p = c->problem;
  const double n = (double)p->n_q, d = (double)p->d_qk, keys = (double)p->n_kv;
  const bool scores = ((const params *)c->params)->of == SCORES;
  attn_cost result = attn_softmax_cost(c, attn_visible_pairs(p));
  if (!is_whole(c))
    result.mul_add += (double)(p->batch * p->heads) *
                      (scores ? (keys + 2 * n) * d * d + 15 * d * d * d : n * n * keys / 2 + 5 * n * n * n);
  return result;
}

static void widen(const void *x, attn_stride s, int64_t rows, int64_t d, attn_dtype t, double *to) {
  for (int64_t i = 0; i < rows; i++)
    attn_numbers[attn_stored(s, t)].load(attn_row_behind(x, s, i, t), d, to + i * d);
}

/* to[d, d] = x^T x, of x [rows, d], times a power of four by which no square overflows: directions stay. */
static void gram_of(const double *x, int64_t rows, int64_t d, double *to) {
  const double scale = attn_unit_scale(rows * d, x);
  memset(to, 0, (size_t)(d * d) * sizeof *to);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t l = 0; l < d; l++) attn_add_times(x[i * d + l] * scale * scale, x + i * d, to + l * d, d);
}

/* q <- q (W L^(1/2) R R^T L^(-1/2) W^T). Directions in which keys have no components but rounding have no
 * scores. */
static bool reduce_scores(int64_t r, int64_t n_q, int64_t keys, int64_t d, const room *x) {
  double *to = x->product, *from = to + d * d,
         *c = from + d * d; /* W L^(1/2), L^(-1/2) W^T; q^T q, then R's product */
  gram_of(x->k, keys, d, x->gram);
  if (!attn_eigen(d, x->gram, x->vectors, x->values, x->scratch)) return false;
  for (int64_t e = 0; e < d; e++) {
    const bool present = x->values[e] > (double)(keys + 16 * d) * DBL_EPSILON * x->values[0];
    const double root = present ? sqrt(x->values[e]) : 0;
    for (int64_t l = 0; l < d; l++) {
      to[l * d + e] = x->vectors[e * d + l] * root;
      from[e * d + l] = present ? x->vectors[e * d + l] / root : 0;
    }
  }
  gram_of(x->q, n_q, d, c);
  /* C^T C = to^T (q^T q) to */
  memset(x->gram, 0, (size_t)(d * d) * sizeof *x->gram);
  for (int64_t a = 0; a < d; a++) {
    memset(x->vectors, 0, (size_t)d * sizeof *x->vectors);
    for (int64_t b = 0; b < d; b++) attn_add_times(c[a * d + b], to + b * d, x->vectors, d);
    for (int64_t e = 0; e < d; e++) attn_add_times(to[a * d + e], x->vectors, x->gram + e * d, d);
  }
  for (int64_t a = 0; a < d; a++)
    for (int64_t b = 0; b < a; b++)
      x->gram[a * d + b] = x->gram[b * d + a] = (x->gram[a * d + b] + x->gram[b * d + a]) / 2;
  if (!attn_eigen(d, x->gram, x->vectors, x->values, x->scratch)) return false;
  /* Row by row: q W L^(1/2), its components along R, and back. */
  for (int64_t i = 0; i < n_q; i++) {
    double *q = x->q + i * d, *scaled = x->scratch, *kept = scaled + d;
    memset(scaled, 0, 2 * (size_t)d * sizeof *scaled);
    for (int64_t l = 0; l < d; l++) attn_add_times(q[l], to + l * d, scaled, d);
    for (int64_t e = 0; e < r; e++)
      attn_add_times(attn_inner(x->vectors + e * d, scaled, d), x->vectors + e * d, kept, d);
    memset(q, 0, (size_t)d * sizeof *q);
    for (int64_t e = 0; e < d; e++) attn_add_times(kept[e], from + e * d, q, d);
  }
  return true;
}

/* Row i of P, and of P V. */
static void exact_row(const attn_call *call, int64_t batch, int64_t head, int64_t i, const room *x) {
  const attn_problem *p = call->context->problem;
  const int64_t count = attn_seen_keys(p, batch, head, i, attn_call_keys(call, batch), x->runs, x->keys);
  const void *v = attn_rows(call->v, p->v, batch, head / (p->heads / p->kv_heads), p->dtype);
  double *w = x->p + i * p->n_kv, *o = x->o + i * p->d_v, sum = 0;
  double top = p->score.sink ? p->score.sink[head] : -(double)INFINITY;
  memset(w, 0, (size_t)p->n_kv * sizeof *w);
  memset(o, 0, (size_t)p->d_v * sizeof *o);
  for (int64_t c = 0; c < count; c++) {
    const int64_t j = x->keys[c];
    w[j] = attn_score_of(p, batch, head, i, j,
                         p->scale * attn_inner(x->q + i * p->d_qk, x->k + j * p->d_qk, p->d_qk));
    if (w[j] > top) top = w[j];
  }
  for (int64_t c = 0; c < count; c++) sum += w[x->keys[c]] = exp(w[x->keys[c]] - top);
  if (p->score.sink) sum += exp(p->score.sink[head] - top);
  for (int64_t c = 0; c < count; c++) {
    w[x->keys[c]] /= sum;
    for (int64_t l = 0; l < p->d_v; l++)
      o[l] += w[x->keys[c]] * attn_get(v, x->keys[c] * p->v.row + l, attn_stored(p->v, p->dtype));
  }
}

/* o <- U_r U_r^T o. P is scaled, whose rows may all be tiny beside a sink. */
static bool project(int64_t r, int64_t n_q, int64_t n_kv, int64_t d_v, const room *x) {
  const double scale = attn_unit_scale(n_q * n_kv, x->p);
  for (int64_t i = 0; i < n_q * n_kv; i++) x->p[i] *= scale;
  for (int64_t a = 0; a < n_q; a++)
    for (int64_t b = 0; b <= a; b++)
      x->gram[a * n_q + b] = x->gram[b * n_q + a] = attn_inner(x->p + a * n_kv, x->p + b * n_kv, n_kv);
  if (!attn_eigen(n_q, x->gram, x->vectors, x->values, x->scratch)) return false;
  double *along = x->gram; /* [r, d_v] in rows that are not needed any more */
  for (int64_t l0 = 0; l0 < d_v; l0 += n_q) {
    const int64_t count = d_v - l0 < n_q ? d_v - l0 : n_q;
    memset(along, 0, (size_t)(r * count) * sizeof *along);
    for (int64_t e = 0; e < r; e++)
      for (int64_t i = 0; i < n_q; i++)
        attn_add_times(x->vectors[e * n_q + i], x->o + i * d_v + l0, along + e * count, count);
    for (int64_t i = 0; i < n_q; i++) {
      memset(x->o + i * d_v + l0, 0, (size_t)count * sizeof *x->o);
      for (int64_t e = 0; e < r; e++)
        attn_add_times(x->vectors[e * n_q + i], along + e * count, x->o + i * d_v + l0, count);
    }
  }
  return true;
}

static void attend(const attn_call *call, int64_t batch, int64_t head, void *work) {
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  const params *y = c->params;
  const int64_t kv_head = head / (p->heads / p->kv_heads), keys = attn_call_keys(call, batch);
  attn_carver carver = attn_carver_at(call, work);
  const room x = room_at(c, &carver);
  bool found = true;
  widen(attn_rows(call->q, p->q, batch, head, p->dtype), p->q, p->n_q, p->d_qk, p->dtype, x.q);
  widen(attn_rows(call->k, p->k, batch, kv_head, p->dtype), p->k, keys, p->d_qk, p->dtype, x.k);
  if (!is_whole(c) && y->of == SCORES) found = reduce_scores(y->r, p->n_q, keys, p->d_qk, &x);
  for (int64_t i = 0; i < p->n_q; i++) exact_row(call, batch, head, i, &x);
  if (!is_whole(c) && y->of == WEIGHTS) found = project(y->r, p->n_q, p->n_kv, p->d_v, &x);
  void *o = (void *)(uintptr_t)attn_rows(call->o, p->o, batch, head, p->dtype);
  for (int64_t i = 0; i < p->n_q * p->d_v; i++)
    attn_set(o, i / p->d_v * p->o.row + i % p->d_v, attn_stored(p->o, p->dtype),
             found ? x.o[i] : (double)NAN);
}

static attn_status execute(const void *state, const attn_call *call) {
  (void)state;
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  attn_carver carver = attn_carver_at(call, call->work);
  const attn_slices rooms = attn_carve_slices(&carver, c->threads, room_bytes(c));
#pragma omp parallel for num_threads(c->threads) schedule(dynamic, 1)
  for (int64_t task = 0; task < p->batch * p->heads; task++) {
    fenv_t outer;
    attn_float_enter(&outer);
    attend(call, task / p->heads, task % p->heads, attn_slice(rooms, omp_get_thread_num()));
    attn_float_leave(&outer);
  }
  return ATTN_OK;
}

static const attn_exemption of_weights[] = {
    {ATTN_EXEMPT_CAUSAL | ATTN_EXEMPT_LOOKAHEAD | ATTN_EXEMPT_PREFIX | ATTN_EXEMPT_ROWS,
     "the best approximation of a head's weights depends on all of them, and is not causal where they are"},
    {.reason = NULL}};
static const attn_exemption of_scores[] = {
    {ATTN_EXEMPT_LOOKAHEAD | ATTN_EXEMPT_PREFIX | ATTN_EXEMPT_ROWS,
     "the best approximation of a head's scores depends on all of its queries and keys"},
    {.reason = NULL}};

static const attn_method oracle = {.work_size = work_size,
                                   .execute = execute,
                                   .no_gradient =
                                       "singular vectors turn without bound where two values meet"};

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const attn_problem *p = c->problem;
  const params *x = c->params;
  const bool scores = x->of == SCORES;
  (void)b;
  out->method = &oracle;
  if (!is_whole(c)) {
    out->exempt = scores ? of_scores : of_weights;
    out->low_rank = (attn_low_rank){.rank = x->r, .best = scores ? ATTN_BEST_SCORES : ATTN_BEST_WEIGHTS};
    if (scores) out->caps |= ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX;
    return ATTN_OK;
  }
  out->caps |= (ATTN_CAP_SOFTMAX & ~ATTN_CAP_KEYS) | ATTN_CAP_EXACT | ATTN_CAP_PERMUTATION;
  /* Of fp64 and a last rounding, in steps that are no longer than these. */
  const double unit = attn_numbers[p->dtype].unit;
  out->rounding = (attn_rounding){.unit = unit,
                                  .score = p->d_qk,
                                  .value = p->n_kv,
                                  .sum = p->n_kv,
                                  .exp_error = 2 * unit,
                                  .kappa_s = 1,
                                  .kappa_d = 3,
                                  .map = p->score.softcap > 0 ? 4 * unit : 0};
  return ATTN_OK;
}

ATTN_VARIANT(svd, .summary = "the best approximation of rank r of the weights or of the scores, an oracle",
             .formula = "P_r V, P_r the best approximation of rank r of the weights P (of=scores: softmax of "
                        "that of the scores); O(n^3), slower than exact attention: a yardstick",
             .cite = "Eckart and Young 1936, doi:10.1007/BF02288367",
             .caps = ATTN_CAP_CAUSAL | ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_SCORE | ATTN_CAP_MASK |
                     ATTN_CAP_HALF,
             .params = table, .params_size = sizeof(params), .budget = {.parameter = "r"},
             .applicable = applicable, .describe = describe, .cost = cost)
