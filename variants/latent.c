/* latent - multi-head latent attention: keys and values of all kv heads are products of one latent vector of
 * r numbers a token, which is all that a cache holds.
 *
 *   [K | V] = C W^T,  k^_jh = W_Kh c_j,  v^_jh = W_Vh c_j   (C [n_kv, r], W [kv_heads (d_qk + d_v), r])
 *   path=naive     o_i = sum_j softmax_j(scale q_i . k^_j + ...) v^_j: keys and values are expanded
 *   path=absorbed  o_i = W_Vh sum_j softmax_j(scale (W_Kh^T q_i) . c_j + ...) c_j: queries are projected, and
 *                  all heads attend to C itself, one key and value of r numbers. The same numbers
 *
 * DeepSeek-V2 (arXiv:2405.04434, section 2.1) trains W and what gives C; TransMLA (arXiv:2502.07864) factors
 * a trained model's. Here no weights are at hand: C = U_r S_r and W are the r leading singular triplets of
 * each batch entry's own [K | V], fitted to the sequence itself, its later keys too: the best that rank r can
 * do (Eckart and Young 1936), not what a model keeps of a text that it has not seen, and not causal. From
 * rank[K | V] on it is exact. A singular value to which the next is equal leaves a choice, which rounding
 * makes. Rotations that keys contain are factored with them; there is no part of the key without a latent.
 *
 * The factors are of fp64, rounded to the type of the arithmetic. A batch entry with a key or value that is
 * not finite has NaN in every row that sees a key.
 *
 * Cost, multiply-adds: naive n_q n_kv heads (d_qk + d_v), absorbed n_q n_kv heads 2 r and n_q heads r (d_qk +
 * d_v); the factors of m = kv_heads (d_qk + d_v) columns n_kv m (min(n_kv, m) / 2 + r) + 5 min(n_kv, m)^3.
 * Cache: r numbers a token in place of m. Bounds: MLA-1, MLA-2, MLA-3. */
#include "attn_variant.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum { NAIVE, ABSORBED, LONGEST = 2048 };

typedef struct params {
  int64_t rank;
  int path;
} params;

static const char *const paths[] = {"naive", "absorbed", NULL};

static const attn_param table[] = {
    {"rank", ATTN_INT, offsetof(params, rank), 0, 1 << 20, "0", NULL,
     "numbers that a cache holds of a token; 0: as many as are exact"},
    {"path", ATTN_CHOICE, offsetof(params, path), 0, 1, "absorbed", paths,
     "expand keys and values, or project queries and attend to latents"},
    {.name = NULL},
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Columns of [K | V], and of its Gram matrix at most. */
static int64_t width_of(const attn_problem *p) { return p->kv_heads * (p->d_qk + p->d_v); }
static int64_t side_of(const attn_problem *p) { return least(p->n_kv, width_of(p)); }

static int64_t rank_in(const params *x, const attn_problem *p) {
  return x->rank ? least(x->rank, side_of(p)) : side_of(p);
}
static int64_t rank_of(const attn_context *c) { return rank_in(c->params, c->problem); }

static attn_status applicable(const attn_context *c) {
  if (side_of(c->problem) > LONGEST)
    return attn_fail(
        ATTN_EUNSUPPORTED,
        "variant latent: %lld keys of %lld numbers in all heads: a singular value decomposition of "
        "more than %d rows and columns takes too long",
        (long long)c->problem->n_kv, (long long)width_of(c->problem), LONGEST);
  return ATTN_OK;
}

/* -- factors -- */

typedef struct factor_room {
  double *a; /* [K | V] or its transpose, whichever has fewer rows: [side, the other] */
  double *gram, *vectors, *values, *scratch;
} factor_room;

static factor_room room_at(const attn_problem *p, attn_carver *carver) {
  const int64_t side = side_of(p);
  return (factor_room){.a = attn_carve(carver, p->n_kv, width_of(p), sizeof(double)),
                       .gram = attn_carve(carver, side, side, sizeof(double)),
                       .vectors = attn_carve(carver, side, side, sizeof(double)),
                       .values = attn_carve(carver, side, 1, sizeof(double)),
                       .scratch = attn_carve(carver, side, 2, sizeof(double))};
}

static double inner(const double *x, const double *y, int64_t n) {
  double s[4] = {0};
  int64_t l = 0;
  for (; l + 4 <= n; l += 4)
    for (int i = 0; i < 4; i++) s[i] += x[l + i] * y[l + i];
  for (; l < n; l++) s[0] += x[l] * y[l];
  return (s[0] + s[1]) + (s[2] + s[3]);
}

static void add(double by, const double *x, double *y, int64_t n) {
  for (int64_t l = 0; l < n; l++) y[l] += by * x[l];
}

static void gram_of(const attn_context *c, const double *a, int64_t side, int64_t length, double *gram) {
#pragma omp parallel for num_threads(c->threads) schedule(dynamic, 8)
  for (int64_t i = 0; i < side; i++) {
    fenv_t outer;
    attn_float_enter(&outer);
    for (int64_t j = 0; j <= i; j++)
      gram[i * side + j] = gram[j * side + i] = inner(a + i * length, a + j * length, length);
    attn_float_leave(&outer);
  }
}

/* Triplet e, of u, a left singular vector of a: a^T u is the right one times the singular value. */
static void triplet(const attn_context *c, const factor_room *r, double scale, int64_t keys, int64_t width,
                    int64_t e, double *to_c, double *to_w) {
  const bool tall = keys > width;
  const int64_t side = least(keys, width), length = tall ? keys : width;
  const double *u = r->vectors + e * side;
  double *z = tall ? to_c : to_w;
  for (int64_t i = 0; i < side; i++) add(u[i], r->a + i * length, z, length);
  const double size = sqrt(inner(z, z, length));
  for (int64_t j = 0; j < keys; j++)
    to_c[j] = attn_rounded((tall ? z[j] : u[j] * size) / scale, c->problem->dtype);
  for (int64_t l = 0; l < width; l++)
    to_w[l] = attn_rounded(tall ? u[l] : size > 0 ? z[l] / size : 0, c->problem->dtype);
}

/* attn_latent.factor */
static void factor(const void *state, const attn_context *c, int64_t keys, const double *x, double *to_c,
                   double *to_w, void *room) {
  const int64_t width = width_of(c->problem), rank = rank_in(state, c->problem), side = least(keys, width);
  const double scale = attn_unit_scale(keys * width, x);
  attn_carver carver = {.base = room};
  const factor_room r = room_at(c->problem, &carver);
  memset(to_c, 0, (size_t)(rank * keys) * sizeof *to_c);
  memset(to_w, 0, (size_t)(rank * width) * sizeof *to_w);
  for (int64_t i = 0; i < keys * width; i++)
    r.a[keys > width ? i % width * keys + i / width : i] = x[i] * scale;
  gram_of(c, r.a, side, keys > width ? keys : width, r.gram);
  const bool found = attn_eigen(side, r.gram, r.vectors, r.values, r.scratch);
  for (int64_t i = 0; !found && i < rank * keys; i++) to_c[i] = (double)NAN;
#pragma omp parallel for num_threads(c->threads) schedule(static)
  for (int64_t e = 0; e < (found ? least(rank, side) : 0); e++) {
    fenv_t outer;
    attn_float_enter(&outer);
    triplet(c, &r, scale, keys, width, e, to_c + e * keys, to_w + e * width);
    attn_float_leave(&outer);
  }
}

static attn_latent law_of(const attn_context *c) {
  attn_carver counter = {.base = NULL};
  room_at(c->problem, &counter);
  return (attn_latent){.state = c->params, .rank = rank_of(c), .factor = factor, .room = counter.used};
}

/* -- the problem that is attended to -- */

/* Of latents every kv head reads the same rows: it remains a kv head, since its keys may have positions that
 * others have not. */
static attn_problem inner_problem(const attn_context *c) {
  attn_problem p = *c->problem;
  const int64_t r = rank_of(c);
  p.k = p.v = (attn_stride){.batch = 0};
  if (((const params *)c->params)->path == NAIVE) return p;
  p.q = p.o = (attn_stride){.batch = 0};
  p.k = p.v = (attn_stride){.batch = p.n_kv * r, .head = 0, .row = r};
  p.d_qk = p.d_v = r;
  return p;
}

typedef struct layout {
  double *x, *c, *w;        /* of an entry [n_kv, width], [rank, n_kv]; of each [batch][rank, width] */
  void *k, *v;              /* expanded, contiguous; or latents, both the same */
  void *q, *o;              /* of latents [batch, heads, n_q, rank], else NULL */
  void *factor_room, *work; /* of the inner plan */
  attn_slices row;          /* of each thread, doubles */
} layout;

static layout lay_out(const attn_context *c, size_t work, attn_carver *carver) {
  const attn_problem *p = c->problem;
  const bool naive = ((const params *)c->params)->path == NAIVE;
  const int64_t width = width_of(p), r = rank_of(c), keys = p->batch * p->n_kv,
                lines = naive ? 0 : p->batch * p->heads * p->n_q;
  const size_t size = attn_dtype_size(p->dtype);
  layout l = {.x = attn_carve(carver, p->n_kv, width, sizeof(double)),
              .c = attn_carve(carver, p->n_kv, r, sizeof(double)),
              .w = attn_carve(carver, p->batch * r, width, sizeof(double)),
              .k = attn_carve(carver, keys, naive ? p->kv_heads * p->d_qk : r, size),
              .v = attn_carve(carver, naive ? keys : 0, p->kv_heads * p->d_v, size),
              .q = attn_carve(carver, lines, r, size),
              .o = attn_carve(carver, lines, r, size),
              .factor_room = attn_carve(carver, 1, 1, law_of(c).room),
              .work = attn_carve(carver, 1, 1, work),
              .row = attn_carve_slices(carver, c->threads, (size_t)(r + width) * sizeof(double))};
  if (naive)
    l.q = NULL;
  else
    l.v = l.k;
  return l;
}

static attn_status work_size(const attn_context *c, const attn_parts *parts, size_t *bytes) {
  const attn_problem own = inner_problem(c);
  attn_carver counter = attn_carver_count(c);
  size_t work = 0;
  const attn_status status = attn_context_estimate(c, &own, "tiled", &work, NULL);
  (void)parts;
  lay_out(c, work, &counter);
  *bytes = counter.used;
  return status;
}

static attn_cost cost(const attn_context *c) {
  const attn_problem *p = c->problem, own = inner_problem(c);
  const double keys = (double)p->n_kv, m = (double)width_of(p), side = (double)side_of(p),
               r = (double)rank_of(c);
  const bool naive = ((const params *)c->params)->path == NAIVE;
  attn_cost result = {0};
  if (attn_context_estimate(c, &own, "tiled", NULL, &result)) return result;
  result.mul_add +=
      (double)p->batch * (keys * m * (side / 2 + r) + 5 * side * side * side +
                          (naive ? keys * m * r : (double)(p->heads * p->n_q * (p->d_qk + p->d_v)) * r));
  result.bytes = attn_problem_bytes(p);
  return result;
}

static attn_status plan(attn_builder *b, const attn_parts *parts, void **state) {
  const attn_problem own = inner_problem(attn_builder_context(b));
  const attn_plan *inner_plan = NULL;
  const attn_status status = attn_builder_plan(b, &own, "tiled", &inner_plan);
  (void)parts;
  *state = (void *)(uintptr_t)inner_plan;
  return status;
}

/* -- execution -- */

/* Row j of [K | V] of a batch entry. */
static void load_row(const attn_call *call, int64_t batch, int64_t j, double *to) {
  const attn_problem *p = call->context->problem;
  for (int64_t h = 0; h < p->kv_heads; h++) {
    attn_numbers[attn_stored(p->k, p->dtype)].load(attn_row(call->k, p->k, batch, h, j, p->dtype), p->d_qk,
                                                   to + h * p->d_qk);
    attn_numbers[attn_stored(p->v, p->dtype)].load(attn_row(call->v, p->v, batch, h, j, p->dtype), p->d_v,
                                                   to + p->kv_heads * p->d_qk + h * p->d_v);
  }
}

/* Row j of [K^ | V^], or of C. */
static void store_row(const attn_call *call, const layout *l, int64_t batch, int64_t keys, int64_t j,
                      double *own) {
  const attn_problem *p = call->context->problem;
  const int64_t width = width_of(p), r = rank_of(call->context), of_keys = p->kv_heads * p->d_qk;
  if (l->q) {
    for (int64_t e = 0; e < r; e++)
      attn_set(l->k, (batch * p->n_kv + j) * r + e, p->dtype, l->c[e * keys + j]);
    return;
  }
  memset(own, 0, (size_t)width * sizeof *own);
  for (int64_t e = 0; e < r; e++) add(l->c[e * keys + j], l->w + (batch * r + e) * width, own, width);
  for (int64_t at = 0; at < width; at++) {
    const bool key = at < of_keys;
    const int64_t d = key ? p->d_qk : p->d_v, place = key ? at : at - of_keys,
                  line = (batch * p->kv_heads + place / d) * p->n_kv + j;
    attn_set(key ? l->k : l->v, line * d + place % d, p->dtype, own[at]);
  }
}

/* Row `at` of [batch, heads, n_q]: W_Kh^T q; or the output, W_Vh of what the latents gave. */
static void turn_row(const attn_call *call, const layout *l, bool query, int64_t at, double *own) {
  const attn_problem *p = call->context->problem;
  const attn_dtype t = p->dtype;
  const int64_t width = width_of(p), r = rank_of(call->context), line = at / p->n_q, batch = line / p->heads,
                head = line % p->heads, h = head / (p->heads / p->kv_heads), i = at % p->n_q;
  const double *w = l->w + batch * r * width;
  double *row = own + r;
  if (query) {
    w += h * p->d_qk;
    attn_numbers[attn_stored(p->q, t)].load(attn_row(call->q, p->q, batch, head, i, t), p->d_qk, row);
    for (int64_t e = 0; e < r; e++) attn_set(l->q, at * r + e, t, inner(w + e * width, row, p->d_qk));
    return;
  }
  w += p->kv_heads * p->d_qk + h * p->d_v;
  memset(row, 0, (size_t)p->d_v * sizeof *row);
  for (int64_t e = 0; e < r; e++) add(attn_get(l->o, at * r + e, t), w + e * width, row, p->d_v);
  void *o = attn_row(call->o, p->o, batch, head, i, t);
  for (int64_t d = 0; d < p->d_v; d++) attn_set(o, d, attn_stored(p->o, t), attn_rounded(row[d], t));
}

/* Every row j of an entry's keys that exist, or `at` of [batch, heads, n_q]. */
typedef enum { LOAD, STORE, PROJECT, EXPAND } step;

static void take_rows(const attn_call *call, const layout *l, step what, int64_t batch, int64_t count) {
#pragma omp parallel for num_threads(call->context->threads) schedule(static)
  for (int64_t i = 0; i < count; i++) {
    double *own = attn_slice(l->row, omp_get_thread_num());
    fenv_t outer;
    attn_float_enter(&outer);
    if (what == LOAD)
      load_row(call, batch, i, l->x + i * width_of(call->context->problem));
    else if (what == STORE)
      store_row(call, l, batch, count, i, own);
    else
      turn_row(call, l, what == PROJECT, i, own);
    attn_float_leave(&outer);
  }
}

static attn_status execute(const void *state, const attn_call *call) {
  const attn_plan *inner_plan = state;
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  attn_carver carver = attn_carver_at(call, call->work);
  const layout l = lay_out(c, attn_plan_work_size(inner_plan), &carver);
  attn_call own = *call;
  for (int64_t b = 0; b < p->batch; b++) {
    const int64_t keys = attn_call_keys(call, b);
    take_rows(call, &l, LOAD, b, keys);
    factor(c->params, c, keys, l.x, l.c, l.w + b * rank_of(c) * width_of(p), l.factor_room);
    take_rows(call, &l, STORE, b, keys);
  }
  own.k = l.k;
  own.v = l.v;
  if (!l.q) return attn_call_run(&own, inner_plan, call->o, call->lse, l.work);
  take_rows(call, &l, PROJECT, 0, p->batch * p->heads * p->n_q);
  own.q = l.q;
  const attn_status status = attn_call_run(&own, inner_plan, l.o, call->lse, l.work);
  if (!status) take_rows(call, &l, EXPAND, 0, p->batch * p->heads * p->n_q);
  return status;
}

/* Of products q_l W_le c_je: both paths round within these chains, whichever sums they take first. */
static void inspect(const void *state, const attn_context *c, attn_view *view) {
  attn_view own;
  if (attn_plan_inspect(state, &own)) return;
  view->rounding = own.rounding;
  view->rounding.score += c->problem->d_qk + rank_of(c) + 2;
  view->rounding.value += rank_of(c) + 2;
}

static const attn_exemption fitted[] = {
    {ATTN_EXEMPT_CAUSAL | ATTN_EXEMPT_PREFIX | ATTN_EXEMPT_VALUES,
     "the factors are fitted to all keys and values of the sequence"},
    {ATTN_EXEMPT_GROUPS, "copies of a head count again in the factors, which rounds otherwise"},
    {.reason = NULL}};

static const attn_method method = {
    .work_size = work_size, .plan = plan, .execute = execute, .inspect = inspect};

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  (void)b;
  out->method = &method;
  out->latent = law_of(c);
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
