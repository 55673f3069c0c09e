/* lsh - attention to the keys that hashing puts into a query's bucket, with exact weights.
 *
 *   h_t(x) = argmax of [x R_t, -x R_t] (ties: the lower index), R_t Gaussian d x (buckets / 2), for t = 1 ...
 *   rounds S(i) = the visible keys j with h_t(q_i) = h_t(k_j) in any round t, and the last `window` visible
 *   ones, of which a bias of -Inf hides none
 * and o_i is the softmax over S(i). Rotations are the same for all heads and batch entries: column c of R_t
 * is d draws N(0, 1), rounded to fp32, of the stream (seed, 0x15b, (t - 1) << 32 | c).
 *
 * Law of a round: with b = 2 r buckets, and normal pairs (X, Y), (X', Y') whose correlation is the cosine of
 * the angle of q and k, P(h(q) = h(k)) = 2 r E[1(X > 0, Y > 0) F(X, Y)^(r-1)], F(x, y) = P(|X'| < x, |Y'| <
 * y); r = 1: 1 - angle/pi; r = 2: (1 - angle/pi)^2. Of T independent rounds 1 - (1 - P)^T.
 *
 * Reformer, Kitaev et al. 2020 (arXiv:2001.04451). Cost n d rounds buckets / 2 for hashing, about n^2 rounds
 * / buckets pairs. Bounds: SP-1, SP-2; FP-2 on the selected keys. Deviations: Reformer sorts by bucket and
 * attends within chunks of the order and the chunk before, so that keys of a bucket may miss each other and
 * later tokens shift the chunks; here a bucket is seen whole, and a row depends on what it sees alone. Its
 * keys are the normalised queries; here K is hashed, as it is. */
#include "attn_variant.h"

#include <math.h>

typedef struct params {
  int64_t rounds, buckets, window, seed;
} params;

static const attn_param table[] = {
    {"rounds", ATTN_INT, offsetof(params, rounds), 1, 64, "4", NULL, "independent hashes"},
    {"buckets", ATTN_INT, offsetof(params, buckets), 2, 4096, "64", NULL, "buckets of a round, even"},
    {"window", ATTN_INT, offsetof(params, window), 0, 1 << 20, "1", NULL,
     "last keys, always kept; 0: a row may see none"},
    {"seed", ATTN_INT, offsetof(params, seed), 0, 1e15, "0", NULL, "seed of the rotations"},
    {.name = NULL},
};

enum { ROWS = 8 };
typedef struct state {
  params p;
  int64_t half; /* columns of all rounds */
  void *r;      /* [d][half] */
} state;

/* A thread's: products of rows, a packed product's scratch, buckets of queries [rounds][ROWS], which keys are
 * kept. */
typedef struct room {
  void *products, *gemm;
  void *rows; /* of a tensor that is stored in another type */
  uint16_t *bucket, *kept;
} room;

static room lay_out(const attn_context *c, attn_carver *carver) {
  const params *x = c->params;
  const size_t e = attn_dtype_size(c->problem->dtype);
  return (room){.products = attn_carve(carver, ROWS, x->rounds * x->buckets / 2, e),
                .gemm = attn_carve(carver, 1, 1, attn_gemm_scratch(c->kernels)),
                .rows = attn_carve(carver, c->problem->q.stored || c->problem->k.stored ? ROWS : 0,
                                   c->problem->d_qk, e),
                .bucket = attn_carve(carver, x->rounds, ROWS, sizeof(uint16_t)),
                .kept = attn_carve(carver, c->problem->n_kv, 1, sizeof(uint16_t))};
}

/* The keys' buckets, [rounds][n_kv]. */
static size_t prepared_bytes(const attn_context *c) {
  return attn_size_times((size_t)((const params *)c->params)->rounds * sizeof(uint16_t),
                         (size_t)c->problem->n_kv);
}

/* Buckets of `count` rows of x, at bucket[round * row + i]. */
static void hash(const state *s, const attn_context *c, const void *x, attn_stride stride, int64_t count,
                 const room *w, uint16_t *bucket, int64_t row) {
  const attn_problem *p = c->problem;
  const int64_t columns = s->p.buckets / 2;
  for (int64_t first = 0; first < count; first += ROWS) {
    const int64_t rows = attn_min(ROWS, count - first);
    const attn_matrix from =
        attn_load_rows(c->kernels, attn_stored(stride, p->dtype), attn_row_behind(x, stride, first, p->dtype),
                       stride.row, rows, p->d_qk, w->rows);
    attn_gemm(c->kernels, rows, s->half, p->d_qk, from, (attn_matrix){s->r, s->half, 1}, false, w->products,
              s->half, w->gemm);
    for (int64_t i = 0; i < rows; i++)
      for (int64_t t = 0; t < s->p.rounds; t++) {
        double most = -(double)INFINITY;
        int64_t at = 0;
        for (int64_t l = 0; l < 2 * columns; l++) {
          const double y = attn_get(w->products, i * s->half + t * columns + l % columns, p->dtype),
                       own = l < columns ? y : -y;
          if (own > most) most = own, at = l;
        }
        bucket[t * row + first + i] = (uint16_t)at;
      }
  }
}

static void prepare(const void *state_, const attn_call *call, int64_t batch, int64_t kv_head, void *prepared,
                    void *scratch) {
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  attn_carver carver = {.base = scratch};
  const room w = lay_out(c, &carver);
  hash(state_, c, attn_rows(call->k, p->k, batch, kv_head, p->dtype), p->k, attn_call_keys(call, batch), &w,
       prepared, p->n_kv);
}

static void select(const void *state_, const attn_call *call, const attn_block *b, const void *prepared,
                   attn_picks *picks, void *scratch) {
  const state *s = state_;
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  attn_carver carver = {.base = scratch};
  const room w = lay_out(c, &carver);
  hash(s, c, attn_row(call->q, p->q, b->batch, b->head, b->first, p->dtype), p->q, b->count, &w, w.bucket,
       ROWS);
  for (int64_t i = 0; i < b->count; i++) {
    int64_t first, end;
    const int64_t window = attn_last_keys(call, b->batch, b->head, b->first + i, s->p.window);
    attn_visible_keys(call, b->batch, b->head, b->first + i, &first, &end);
    for (int64_t j = first; j < end; j++) w.kept[j] = j >= window;
    for (int64_t t = 0; t < s->p.rounds; t++) {
      const uint16_t *bucket = (const uint16_t *)prepared + t * p->n_kv, own = w.bucket[t * ROWS + i];
      for (int64_t j = first; j < end; j++) w.kept[j] |= bucket[j] == own;
    }
    picks->counts[i] = 0;
    for (int64_t j = first; j < end; j++)
      if (w.kept[j]) attn_picks_add(picks, i, j, j + 1, 0);
  }
}

static bool always(const void *unused, const attn_query *query, int64_t key) {
  const params *x = query->call->context->params;
  (void)unused;
  return key >= attn_last_keys(query->call, query->batch, query->head, query->i, x->window);
}

static attn_status applicable(const attn_context *c) {
  const params *x = c->params;
  if (x->buckets % 2)
    return attn_fail(ATTN_EINVAL, "variant lsh: buckets = %lld, expected an even number",
                     (long long)x->buckets);
  if (c->problem->n_kv > INT32_MAX)
    return attn_fail(ATTN_EUNSUPPORTED, "variant lsh: more than 2^31 - 1 keys");
  return ATTN_OK;
}

static attn_status make_state(attn_builder *b, const attn_context *c, state **out) {
  state *s = attn_builder_alloc(b, 1, sizeof *s);
  if (!s) return ATTN_ENOMEM;
  *s = (state){.p = *(const params *)c->params};
  s->half = s->p.rounds * s->p.buckets / 2;
  s->r = attn_builder_alloc(b, c->problem->d_qk * s->half, attn_dtype_size(c->problem->dtype));
  if (!s->r) return ATTN_ENOMEM;
  for (int64_t l = 0; l < s->half; l++) {
    const int64_t round = l / (s->p.buckets / 2), column = l % (s->p.buckets / 2);
    attn_rng rng;
    attn_rng_init(&rng, (uint64_t)s->p.seed, 0x15b, (uint64_t)(round << 32 | column));
    attn_rng_normals(&rng, c->problem->d_qk, c->problem->dtype, s->r, l, s->half);
  }
  *out = s;
  return ATTN_OK;
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  attn_carver scratch = {0};
  const params *x = c->params;
  state *s = NULL;
  const attn_status status = b ? make_state(b, c, &s) : ATTN_OK;
  if (!x->window) out->caps &= ~(uint32_t)(ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX);
  lay_out(c, &scratch);
  out->selector = (attn_selector){.state = s,
                                  .share = ATTN_SHARE_ROW,
                                  .rows = ROWS,
                                  .max_runs = (c->problem->n_kv + 1) / 2,
                                  .prepared_bytes = prepared_bytes(c),
                                  .prepare = prepare,
                                  .scratch_bytes = scratch.used,
                                  .select = select,
                                  .always = always,
                                  .hashes = x->rounds,
                                  .buckets = x->buckets};
  return status;
}

static attn_cost cost(const attn_context *c) {
  const params *x = c->params;
  const attn_problem *p = c->problem;
  /* Few of many normal vectors of two components are the longest of any direction: the corners of their
   * hull. */
  const double all = (double)x->buckets,
               used = p->d_qk == 2 ? fmin(all, 2 * sqrt(2 * acos(-1) * log(all))) : all,
               /* Of one component there are two buckets, by its sign, in every round. */
      seen = p->d_qk == 1 ? 0.5 : 1 - pow(1 - 1 / used, (double)x->rounds),
               rows = (double)(p->batch * p->d_qk);
  const double pairs = attn_visible_pairs(p), kept = fmin(pairs, (double)p->n_q * (double)x->window);
  attn_cost result = attn_softmax_cost(c, kept + (pairs - kept) * seen);
  result.mul_add +=
      rows * (double)(p->heads * p->n_q + p->kv_heads * p->n_kv) * (double)(x->rounds * x->buckets / 2);
  return result;
}

ATTN_VARIANT(lsh, .summary = "attention to the keys that hashing puts into a query's bucket",
             .formula = "keys with h_t(k_j) = h_t(q_i) in any of `rounds` rounds, h_t = argmax [x R_t, -x "
                        "R_t], and the last `window`; O(n d rounds buckets + pairs d)",
             .cite = "Kitaev et al. 2020, arXiv:2001.04451",
             .caps = (ATTN_CAP_SOFTMAX & ~ATTN_CAP_SHIFT) | ATTN_CAP_LSE | ATTN_CAP_DATA | ATTN_CAP_POSITIONS,
             .params = table, .params_size = sizeof(params), .seed = "seed",
             .budget = {.parameter = "rounds"}, .applicable = applicable, .describe = describe, .cost = cost)
