/* latent - multi-head latent attention: keys and values of all kv heads are products of one latent vector of
 * r numbers a token, which is all that a cache holds.
 *
 *   [K | V] = C W^T,  k^_jh = W_Kh c_j,  v^_jh = W_Vh c_j   (C [n_kv, r], W [kv_heads (d_qk + d_v), r])
 *   path=naive     o_i = sum_j softmax_j(scale q_i . k^_j + ...) v^_j: keys and values are expanded
 *   path=absorbed  o_i = W_Vh sum_j softmax_j(scale (W_Kh^T q_i) . c_j + ...) c_j: queries are projected, and
 *                  all heads attend to C itself, one key and value of r numbers. The same numbers
 *   shared=s       k^_jh = [W_Kh c_j ; r_j], r_j [s] the mean over kv heads of the last s columns of k_jh,
 *                  kept beside c_j and not factored: r + s numbers a token. Of rope=shared's keys it is exact
 *   prompt=P       W of the first P keys, c_j = [k_j | v_j] W for all: queries at positions before P read
 *                  keys and values as they are given, those behind a fit that has seen no later key
 *
 * DeepSeek-V2 (arXiv:2405.04434, section 2.1) trains W and what gives C, and rotates r_j alone; TransMLA
 * (arXiv:2502.07864) factors a trained model's. Here no weights are at hand: C = U_r S_r and W are the r
 * leading singular triplets of each batch entry's own [K | V], without a prompt of the whole sequence, its
 * later keys too: the best that rank r can do (Eckart and Young 1936), not what a model keeps of a text that
 * it has not seen, and not causal. With a prompt W is the best for its keys, and later keys are moved to the
 * nearest vector in the span of W. From rank[K | V] on it is exact, with a prompt at r = kv_heads (d_qk - s +
 * d_v). A singular value to which the next is equal leaves a choice, which rounding makes. Rotations that
 * keys contain are factored with them, except in the shared columns.
 *
 * The factors are of fp64, rounded to the type of the arithmetic. A batch entry with a key or value that is
 * not finite (with a prompt: among its keys) has NaN in every row that sees a key (behind it).
 *
 * Cost, multiply-adds: naive n_q n_kv heads (d_qk + d_v), absorbed n_q n_kv heads (2 r + s) and n_q heads r
 * (d_qk + d_v); the factors of m = kv_heads (d_qk - s + d_v) columns n_kv m (min(n_kv, m) / 2 + r) + 5
 * min(n_kv, m)^3, with a prompt P m^2 / 2 + n_kv m r + 5 m^3, and its queries what exact attention costs.
 * Cache: r + s numbers a token in place of kv_heads (d_qk + d_v). Bounds: MLA-1, MLA-2, MLA-3. */
#include "attn_variant.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum { NAIVE, ABSORBED, LONGEST = 2048 };

typedef struct params {
  int64_t rank;
  int path;
  int64_t prompt, shared;
} params;

static const char *const paths[] = {"naive", "absorbed", NULL};

static const attn_param table[] = {
    {"rank", ATTN_INT, offsetof(params, rank), 0, 1 << 20, "0", NULL,
     "numbers of a token's latent; 0: as many as are exact"},
    {"path", ATTN_CHOICE, offsetof(params, path), 0, 1, "absorbed", paths,
     "expand keys and values, or project queries and attend to latents"},
    {"prompt", ATTN_INT, offsetof(params, prompt), 0, 1 << 30, "0", NULL,
     "keys to which the factors are fitted, whose queries read all as it is given; 0: all keys"},
    {"shared", ATTN_INT, offsetof(params, shared), 0, 1 << 20, "0", NULL,
     "last columns of keys that all kv heads have in common, kept beside the latent"},
    {.name = NULL},
};

static bool is_naive(const attn_context *c) { return ((const params *)c->params)->path == NAIVE; }
static int64_t width_of(const attn_problem *p) { return p->kv_heads * (p->d_qk + p->d_v); }

/* Columns of [K | V] that are factored. */
static int64_t columns_of(const attn_context *c) {
  return width_of(c->problem) - c->problem->kv_heads * ((const params *)c->params)->shared;
}

/* Rows of the Gram matrix, at most. */
static int64_t side_of(const attn_context *c) {
  const params *x = c->params;
  return x->prompt ? columns_of(c) : attn_min(c->problem->n_kv, columns_of(c));
}

static attn_latent law_of(const attn_context *c) {
  const params *x = c->params;
  const int64_t side = side_of(c);
  return (attn_latent){.rank = (x->rank ? attn_min(x->rank, side) : side) + x->shared,
                       .shared = x->shared,
                       .prompt = x->prompt};
}

static attn_status applicable(const attn_context *c) {
  const params *x = c->params;
  const attn_problem *p = c->problem;
  if (x->shared > p->d_qk)
    return attn_fail(ATTN_EINVAL, "variant latent: shared=%lld of keys of %lld numbers", (long long)x->shared,
                     (long long)p->d_qk);
  if (x->prompt && !p->causal)
    return attn_fail(ATTN_EUNSUPPORTED, "variant latent: prompt=%lld: only causal attention has a prompt",
                     (long long)x->prompt);
  if (side_of(c) > LONGEST)
    return attn_fail(
        ATTN_EUNSUPPORTED,
        "variant latent: %lld keys of %lld numbers in all heads: a singular value decomposition of "
        "more than %d rows and columns takes too long",
        (long long)p->n_kv, (long long)width_of(p), LONGEST);
  return ATTN_OK;
}

/* ---- the problem that is attended to ------------------------------------------------------------------ */

/* Queries whose positions lie within the prompt: the first of them. */
static int64_t given_rows(const attn_context *c) {
  const attn_problem *p = c->problem;
  const int64_t rows = ((const params *)c->params)->prompt - (p->n_kv - p->n_q);
  return ((const params *)c->params)->prompt && rows > 0 ? attn_min(rows, p->n_q) : 0;
}

/* Of latents every kv head reads the same rows: it remains a kv head, since its keys may have positions that
 * others have not. */
static attn_problem inner_problem(const attn_context *c) {
  const attn_latent law = law_of(c);
  if (!is_naive(c)) return attn_latent_problem(&law, c->problem);
  attn_problem p = *c->problem;
  p.k = p.v = (attn_stride){.batch = 0};
  if (given_rows(c)) p.o = (attn_stride){.batch = 0};
  return p;
}

typedef struct layout {
  double *x, *c, *w; /* of an entry [n_kv, width], [rank, n_kv]; of each [batch][rank, width] */
  void *k, *v;       /* expanded, contiguous; or latents, both the same */
  void *q, *o;       /* of latents [batch, heads, n_q, ..]; else NULL, unless other queries read no latents */
  double *lse;       /* then those of queries that do */
  int64_t *given;    /* [batch] keys that exist within the prompt */
  void *room, *work; /* of factors; of an inner plan */
  attn_slices row;   /* of each thread, doubles */
} layout;

static layout lay_out(const attn_context *c, size_t work, attn_carver *carver) {
  const attn_problem *p = c->problem;
  const bool naive = is_naive(c), both = given_rows(c) > 0;
  const attn_latent law = law_of(c);
  const int64_t width = width_of(p), r = law.rank, keys = p->batch * p->n_kv,
                lines = p->batch * p->heads * p->n_q, outputs = naive && !both ? 0 : lines;
  const size_t size = attn_dtype_size(p->dtype);
  layout l = {.x = attn_carve(carver, p->n_kv, width, sizeof(double)),
              .c = attn_carve(carver, p->n_kv, r, sizeof(double)),
              .w = attn_carve(carver, p->batch * r, width, sizeof(double)),
              .k = attn_carve(carver, keys, naive ? p->kv_heads * p->d_qk : r, size),
              .v = attn_carve(carver, naive ? keys : 0, p->kv_heads * p->d_v, size),
              .q = attn_carve(carver, naive ? 0 : lines, r, size),
              .o = attn_carve(carver, outputs, naive ? p->d_v : r - law.shared, size),
              .lse = attn_carve(carver, both ? lines : 0, 1, sizeof(double)),
              .given = attn_carve(carver, both ? p->batch : 0, 1, sizeof(int64_t)),
              .room = attn_carve(carver, 1, 1, attn_latent_room(&law, p)),
              .work = attn_carve(carver, 1, 1, work),
              .row = attn_carve_slices(carver, c->threads, (size_t)width * sizeof(double))};
  if (naive)
    l.q = NULL;
  else
    l.v = l.k;
  if (!outputs) l.o = NULL;
  if (!both) l.lse = NULL;
  return l;
}

static attn_status work_size(const attn_context *c, const attn_parts *parts, size_t *bytes) {
  const attn_problem own = inner_problem(c);
  attn_carver counter = attn_carver_count(c);
  size_t work = 0, exact = 0;
  attn_status status = attn_context_estimate(c, &own, "tiled", &work, NULL);
  if (!status && given_rows(c)) status = attn_context_estimate(c, c->problem, "tiled", &exact, NULL);
  (void)parts;
  lay_out(c, work > exact ? work : exact, &counter);
  *bytes = counter.used;
  return status;
}

static attn_cost cost(const attn_context *c) {
  const attn_problem *p = c->problem, own = inner_problem(c);
  const params *x = c->params;
  const attn_latent law = law_of(c);
  const double keys = (double)p->n_kv, m = (double)columns_of(c), side = (double)side_of(c),
               r = (double)(law.rank - law.shared), fitted = x->prompt ? fmin((double)x->prompt, keys) : keys;
  /* The share of the pairs whose key is of the prompt, of as many queries as keys. */
  const double share = given_rows(c) ? fitted / keys * (2 - fitted / keys) : 0;
  attn_cost result = {0}, exact = {0};
  if (attn_context_estimate(c, &own, "tiled", NULL, &result)) return result;
  if (share > 0 && attn_context_estimate(c, p, "tiled", NULL, &exact)) return result;
  result.mul_add += share * exact.mul_add +
                    (double)p->batch *
                        (fitted * m * side / 2 + keys * m * r + 5 * side * side * side +
                         (is_naive(c) ? keys * m * r : (double)(p->heads * p->n_q * (p->d_qk + p->d_v)) * r));
  result.bytes = attn_problem_bytes(p);
  return result;
}

typedef struct plans {
  const attn_plan *inner, *exact; /* exact: NULL where no query reads keys as they are given */
} plans;

static attn_status plan(attn_builder *b, const attn_parts *parts, void **state) {
  const attn_context *c = attn_builder_context(b);
  const attn_problem own = inner_problem(c);
  plans *made = attn_builder_alloc(b, 1, sizeof *made);
  if (!made) return ATTN_ENOMEM;
  *made = (plans){NULL, NULL};
  (void)parts;
  *state = made;
  const attn_status status = attn_builder_plan(b, &own, "tiled", &made->inner);
  if (status || !given_rows(c)) return status;
  return attn_builder_plan(b, c->problem, "tiled", &made->exact);
}

/* ---- execution ---------------------------------------------------------------------------------------- */

/* Row j of [K^ | V^], or of C. */
static void store_row(const attn_call *call, const layout *l, int64_t batch, int64_t keys, int64_t j,
                      double *own) {
  const attn_problem *p = call->context->problem;
  const int64_t width = width_of(p), r = law_of(call->context).rank, of_keys = p->kv_heads * p->d_qk;
  if (l->q) {
    for (int64_t e = 0; e < r; e++)
      attn_set(l->k, (batch * p->n_kv + j) * r + e, p->dtype, l->c[e * keys + j]);
    return;
  }
  memset(own, 0, (size_t)width * sizeof *own);
  for (int64_t e = 0; e < r; e++)
    for (int64_t at = 0; at < width; at++) own[at] += l->c[e * keys + j] * l->w[(batch * r + e) * width + at];
  for (int64_t at = 0; at < width; at++) {
    const bool key = at < of_keys;
    const int64_t d = key ? p->d_qk : p->d_v, place = key ? at : at - of_keys,
                  line = (batch * p->kv_heads + place / d) * p->n_kv + j;
    attn_set(key ? l->k : l->v, line * d + place % d, p->dtype, own[at]);
  }
}

/* Output `at` of [batch, heads, n_q], of a query that reads latents. */
static void give_row(const attn_call *call, const layout *l, const attn_latent *law, int64_t at,
                     double *own) {
  const attn_problem *p = call->context->problem;
  const int64_t line = at / p->n_q, i = at % p->n_q;
  if (i < given_rows(call->context)) return;
  if (call->lse && l->lse) call->lse[at] = l->lse[at];
  if (l->q) {
    attn_latent_expand(law, p, l->w, l->o, at, call->o, own);
    return;
  }
  void *o = attn_row(call->o, p->o, line / p->heads, line % p->heads, i, p->dtype);
  for (int64_t d = 0; d < p->d_v; d++)
    attn_set(o, d, attn_stored(p->o, p->dtype), attn_get(l->o, at * p->d_v + d, p->dtype));
}

/* Every row j of an entry's keys that exist, or `at` of [batch, heads, n_q]. */
typedef enum { LOAD, STORE, PROJECT, GIVE } step;

static void take_rows(const attn_call *call, const layout *l, step what, int64_t batch, int64_t count) {
  const attn_problem *p = call->context->problem;
  const attn_latent law = law_of(call->context);
#pragma omp parallel for num_threads(call->context->threads) schedule(static)
  for (int64_t i = 0; i < count; i++) {
    double *own = attn_slice(l->row, omp_get_thread_num());
    fenv_t outer;
    attn_float_enter(&outer);
    if (what == LOAD)
      attn_latent_load(p, call->k, call->v, batch, i, l->x + i * width_of(p));
    else if (what == STORE)
      store_row(call, l, batch, count, i, own);
    else if (what == PROJECT)
      attn_latent_absorb(&law, p, l->w, call->q, i, l->q, own);
    else
      give_row(call, l, &law, i, own);
    attn_float_leave(&outer);
  }
}

/* Queries of the prompt; the others read its keys, and are written over. */
static attn_status attend_given(const attn_call *call, const attn_plan *exact, const layout *l) {
  const attn_context *c = call->context;
  attn_call own = *call;
  for (int64_t b = 0; b < c->problem->batch; b++)
    l->given[b] = attn_min(attn_call_keys(call, b), ((const params *)c->params)->prompt);
  own.kv_len = l->given;
  return attn_call_run(&own, exact, call->o, call->lse, l->work);
}

static attn_status execute(const void *state, const attn_call *call) {
  const plans *of = state;
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  const attn_latent law = law_of(c);
  const size_t work = attn_plan_work_size(of->inner), exact = of->exact ? attn_plan_work_size(of->exact) : 0;
  attn_carver carver = attn_carver_at(call, call->work);
  const layout l = lay_out(c, work > exact ? work : exact, &carver);
  const int64_t queries = p->batch * p->heads * p->n_q;
  attn_call own = *call;
  attn_status status = of->exact ? attend_given(call, of->exact, &l) : ATTN_OK;
  if (status || given_rows(c) == p->n_q) return status;
  for (int64_t b = 0; b < p->batch; b++) {
    const int64_t keys = attn_call_keys(call, b);
    take_rows(call, &l, LOAD, b, keys);
    attn_latent_factor(&law, c, keys, l.x, l.c, l.w + b * law.rank * width_of(p), l.room);
    take_rows(call, &l, STORE, b, keys);
  }
  own.k = l.k;
  own.v = l.v;
  if (l.q) {
    take_rows(call, &l, PROJECT, 0, queries);
    own.q = l.q;
  }
  status =
      attn_call_run(&own, of->inner, l.o ? l.o : call->o, call->lse && l.lse ? l.lse : call->lse, l.work);
  if (!status && l.o) take_rows(call, &l, GIVE, 0, queries);
  return status;
}

/* Of products q_l W_le c_je: both paths round within these chains, whichever sums they take first. */
static void inspect(const void *state, const attn_context *c, attn_view *view) {
  attn_view own;
  if (attn_plan_inspect(((const plans *)state)->inner, &own)) return;
  const int64_t r = law_of(c).rank;
  view->rounding = own.rounding;
  view->rounding.score += c->problem->d_qk + r + 2;
  view->rounding.value += r + 2;
}

static const attn_exemption fitted[] = {
    {ATTN_EXEMPT_CAUSAL | ATTN_EXEMPT_PREFIX | ATTN_EXEMPT_VALUES,
     "the factors are fitted to all keys and values of the sequence"},
    {ATTN_EXEMPT_GROUPS, "copies of a head count again in the factors, which rounds otherwise"},
    {.reason = NULL}};
static const attn_exemption fitted_to_prompt[] = {
    {ATTN_EXEMPT_VALUES | ATTN_EXEMPT_HEADS, "the latents are those of all kv heads' keys and values"},
    {ATTN_EXEMPT_GROUPS, "copies of a head count again in the factors, which rounds otherwise"},
    {.reason = NULL}};

static const attn_method method = {.work_size = work_size,
                                   .plan = plan,
                                   .execute = execute,
                                   .inspect = inspect,
                                   .no_gradient = "eigenvectors turn without bound where two values meet"};

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  (void)b;
  out->method = &method;
  out->latent = law_of(c);
  if (!out->latent.prompt) return ATTN_OK;
  out->exempt = fitted_to_prompt;
  out->caps &= ~(uint32_t)ATTN_CAP_POSITIONS;
  return ATTN_OK;
}

ATTN_VARIANT(latent, .summary = "keys and values of all heads from one latent vector a token (MLA)",
             .formula = "softmax(c q (W_K c_j)) W_V c_j, [K | V] = C W^T of rank r, or absorbed, all heads "
                        "attend to C; O(n^2 heads r)",
             .cite = "DeepSeek-AI 2024, arXiv:2405.04434; Meng et al. 2025, arXiv:2502.07864",
             .caps = ATTN_CAP_CAUSAL | ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_SCORE | ATTN_CAP_MASK |
                     ATTN_CAP_HALF | ATTN_CAP_LSE | ATTN_CAP_POSITIONS,
             .params = table, .params_size = sizeof(params), .exempt = fitted,
             .budget = {.parameter = "rank"}, .applicable = applicable, .describe = describe, .cost = cost)
