/* nystrom - landmarks: o = F Z (B V) with F = softmax(c Q Kl^T), B = softmax(c Ql K^T), c the scale, and Z of
 * A = softmax(c Ql Kl^T), Ql and Kl the `landmarks` rows that represent the queries and keys:
 *
 *   by=mean    means of nearly equal segments of the rows        by=sample   a row drawn from each segment
 *   middle=newton    Z <- Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4, `iterations` times from A^T / (|A|_1
 *   |A|_inf) middle=pinv      A^+, singular values of at most rcond times the largest left out
 *   middle=agents    agent attention: o = softmax(c Q Ql^T) B V, a landmark query passes on what it sees
 *
 * Xiong et al. 2021, Nystroemformer (arXiv:2102.03902), newton; Han et al. 2023, agent attention
 * (arXiv:2312.08874), agents. A and Z are fp64, the rest of the tensors' type. Cost n landmarks (2 d_qk + 2
 * d_v) + 4 iterations landmarks^3 multiply-adds. Bounds: LIN-3, LOW-1, NYS-1 (newton), NYS-2 (pinv), NYS-3
 * (agents).
 *
 * The log-sum-exp is an estimate: with f_i, b_l and a_l the sums of exponentials that divide the rows of F, B
 * and A, the ratio of all keys' sum to that of the landmark keys is b_l / a_l as landmark query l sees it,
 * and its logarithm is interpolated as outputs are, by g = F Z: lse_i = ln f_i + sum_l g_il ln(b_l / a_l) /
 * sum_l g_il. It is exact where all keys are landmarks, and always a number; sum_l g_il b_l / a_l, Nystroem's
 * estimate of the row sums of exp(c Q K^T), is negative for many rows of real queries. Of agents F is taken
 * with Kl here alone, and Z is I.
 *
 * Deviations: the published initialisation takes one maximum of |A|_1 and |A|_inf over all heads and batch
 * entries, which makes outputs depend on neighbours; here each head has its own. What is learned is left out:
 * convolutions of V, and agent attention's biases; so are paddings in front. Causal attention is
 * dyadic(nystrom). */
#include "attn_variant.h"

#include <math.h>
#include <omp.h>
#include <string.h>

typedef enum { MEAN, SAMPLE } choice;

typedef struct params {
  int64_t landmarks, iterations, seed;
  double rcond;
  int middle, by;
} params;

static const char *const middles[] = {"newton", "pinv", "agents", NULL}; /* as attn_middle */
static const char *const choices[] = {"mean", "sample", NULL};

static const attn_param table[] = {
    {"landmarks", ATTN_INT, offsetof(params, landmarks), 1, 1 << 10, "64", NULL,
     "rows that stand for the queries, and for the keys"},
    {"middle", ATTN_CHOICE, offsetof(params, middle), 0, 2, "newton", middles,
     "what is between landmarks; agents: queries meet landmarks of queries"},
    {"iterations", ATTN_INT, offsetof(params, iterations), 0, 1000, "6", NULL, "steps of newton"},
    {"rcond", ATTN_REAL, offsetof(params, rcond), 0, 0.5, "1e-06", NULL,
     "singular values left out by pinv, over the largest"},
    {"by", ATTN_CHOICE, offsetof(params, by), 0, 1, "mean", choices,
     "means of segments, or a row drawn from each"},
    {"seed", ATTN_INT, offsetof(params, seed), 0, 1e15, "0", NULL, "seed of the rows drawn"},
    {.name = NULL},
};

static attn_status applicable(const attn_context *c) {
  if (c->problem->causal)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "variant nystrom: causal attention is impossible, a landmark mixes positions and so the "
                     "future; dyadic(nystrom) is causal");
  return ATTN_OK;
}

/* The number of landmarks of `keys` keys. */
static int64_t landmarks_of(const attn_context *c, int64_t keys) {
  return attn_min(((const params *)c->params)->landmarks, attn_min(c->problem->n_q, keys));
}

/* -- the parts: B V, F times the landmarks' values, and F times two columns for the log-sum-exp -- */

enum { PURPOSE = 0x6e7973 }; /* "nys" */
enum { FROM, TO, RATIO, PARTS };

typedef struct state {
  const attn_low_rank *law;
  params p;
  const attn_plan *parts[PARTS];
  const attn_kernels *wide; /* of fp64 */
  size_t work;              /* bytes, of the largest part */
} state;

static attn_problem problem_of(const attn_context *c, int part) {
  const attn_problem *x = c->problem;
  attn_problem p = *x;
  p.q = p.k = p.v = p.o = (attn_stride){0};
  if (part == FROM) {
    p.n_q = landmarks_of(c, x->n_kv);
    p.k = x->k;
    p.v = x->v;
    return p;
  }
  p.n_kv = landmarks_of(c, x->n_kv);
  p.kv_heads = x->heads;
  p.q = x->q;
  if (part == TO)
    p.o = x->o;
  else
    p.d_v = 2;
  return p;
}

static attn_status parts_size(const attn_context *c, size_t *work, attn_cost *cost) {
  *work = 0;
  *cost = (attn_cost){0};
  for (int i = 0; i < PARTS; i++) {
    const attn_problem problem = problem_of(c, i);
    size_t bytes;
    attn_cost own;
    const attn_status status = attn_context_estimate(c, &problem, "tiled", &bytes, &own);
    if (status) return status;
    if (bytes > *work) *work = bytes;
    if (i == RATIO) break; /* the log-sum-exp is asked for by few */
    cost->mul_add += own.mul_add;
    cost->exp += own.exp;
  }
  return ATTN_OK;
}

/* The law: the rows, of n, of landmark l. */
static void segment(const void *opaque, attn_side side, int64_t n, int64_t landmarks, int64_t l,
                    int64_t *first, int64_t *count) {
  const params *x = opaque;
  *first = l * n / landmarks;
  *count = (l + 1) * n / landmarks - *first;
  if (x->by == MEAN) return;
  attn_rng rng;
  attn_rng_init(&rng, (uint64_t)x->seed, PURPOSE + (uint64_t)side, (uint64_t)l);
  *first += attn_rng_below(&rng, *count);
  *count = 1;
}

static attn_status plan(attn_builder *b, const attn_parts *parts, void **out) {
  const attn_context *c = attn_builder_context(b);
  attn_status status = ATTN_OK;
  state *s = attn_builder_alloc(b, 1, sizeof *s);
  if (!s) return ATTN_ENOMEM;
  *s =
      (state){.law = &parts->low_rank, .p = *(const params *)c->params, .wide = attn_kernels_f64(c->kernels)};
  for (int i = 0; i < PARTS && !status; i++) {
    const attn_problem problem = problem_of(c, i);
    status = attn_builder_plan(b, &problem, "tiled", &s->parts[i]);
    if (!status && attn_plan_work_size(s->parts[i]) > s->work) s->work = attn_plan_work_size(s->parts[i]);
  }
  *out = s;
  return status;
}

/* -- work memory -- */

typedef struct layout {
  double *q, *k;           /* landmarks in fp64: [batch, heads, m, d_qk], [batch, kv_heads, m, d_qk] */
  void *q_rows, *k_rows;   /* in the tensors' type, those of k for each query head */
  void *messages, *values; /* B V and Z B V: [batch, heads, m, d_v] */
  double *mass;            /* ln b: [batch, heads, m] */
  void *columns,
      *ratio; /* Z of ln(b / a) and of 1 [batch, heads, m, 2], and F times that, [batch, heads, n_q, 2] */
  int64_t *lengths;    /* landmarks of each batch entry */
  void *work;          /* of the parts */
  attn_slices threads; /* see middle_at */
} layout;

/* What a thread computes Z in: rows of `row` and of `wide` elements. */
typedef struct middle_room {
  int64_t row, wide;
  double *a, *z;      /* [m, m] */
  double *u, *values; /* B V, ln(b / a) and 1, [m, d_v + 2], and Z times that */
  double *sums;       /* ln a, [m] */
  double *scratch;    /* of what makes Z */
} middle_room;

static middle_room middle_at(const attn_context *c, attn_carver *carver) {
  const int64_t m = landmarks_of(c, c->problem->n_kv), row = attn_padded(m, ATTN_F64),
                wide = attn_padded(c->problem->d_v + 2, ATTN_F64);
  const int between = ((const params *)c->params)->middle;
  return (middle_room){.row = row,
                       .wide = wide,
                       .a = attn_carve(carver, m, row, sizeof(double)),
                       .z = attn_carve(carver, m, row, sizeof(double)),
                       .u = attn_carve(carver, m, wide, sizeof(double)),
                       .values = attn_carve(carver, m, wide, sizeof(double)),
                       .sums = attn_carve(carver, m, 1, sizeof(double)),
                       .scratch = attn_carve(carver, m,
                                             between == ATTN_MIDDLE_NEWTON ? 3 * row
                                             : between == ATTN_MIDDLE_PINV ? 8 * (m + 1)
                                                                           : 0,
                                             sizeof(double))};
}

static layout lay_out(const attn_context *c, size_t work, attn_carver *carver) {
  const attn_problem *p = c->problem;
  const int64_t m = landmarks_of(c, p->n_kv), lines = p->batch * p->heads;
  const size_t size = attn_dtype_size(p->dtype);
  attn_carver middle = attn_carver_count(c);
  middle_at(c, &middle);
  return (layout){.q = attn_carve(carver, lines * m, p->d_qk, sizeof(double)),
                  .k = attn_carve(carver, p->batch * p->kv_heads * m, p->d_qk, sizeof(double)),
                  .q_rows = attn_carve(carver, lines * m, p->d_qk, size),
                  .k_rows = attn_carve(carver, lines * m, p->d_qk, size),
                  .messages = attn_carve(carver, lines * m, p->d_v, size),
                  .values = attn_carve(carver, lines * m, p->d_v, size),
                  .mass = attn_carve(carver, lines, m, sizeof(double)),
                  .columns = attn_carve(carver, lines * m, 2, size),
                  .ratio = attn_carve(carver, lines * p->n_q, 2, size),
                  .lengths = attn_carve(carver, p->batch, 1, sizeof(int64_t)),
                  .work = attn_carve(carver, 1, 1, work),
                  .threads = attn_carve_slices(carver, c->threads, middle.used)};
}

static attn_status work_size(const attn_context *c, const attn_parts *parts, size_t *bytes) {
  size_t work;
  attn_cost ignored;
  attn_carver counter = attn_carver_count(c);
  const attn_status status = parts_size(c, &work, &ignored);
  (void)parts;
  if (status) return status;
  lay_out(c, work, &counter);
  *bytes = counter.used;
  return ATTN_OK;
}

static attn_cost cost(const attn_context *c) {
  const attn_problem *p = c->problem;
  const params *x = c->params;
  const double m = (double)landmarks_of(c, p->n_kv), d = (double)p->d_qk, d_v = (double)p->d_v;
  size_t work;
  attn_cost result;
  if (parts_size(c, &work, &result)) return result;
  double middle = m * m * (d + d_v);
  if (x->middle == ATTN_MIDDLE_NEWTON) middle += 4 * (double)x->iterations * m * m * m;
  if (x->middle == ATTN_MIDDLE_PINV) middle += 41 * m * m * m;
  const double batch = (double)p->batch, heads = (double)p->heads, kv_heads = (double)p->kv_heads;
  result.mul_add += batch * heads * middle;
  if (x->by == MEAN) result.mul_add += batch * d * (heads * (double)p->n_q + kv_heads * (double)p->n_kv) / 2;
  result.exp += batch * heads * m * m;
  result.bytes = attn_problem_bytes(p);
  return result;
}

/* -- landmarks -- */

static void narrow_rows(const double *x, int64_t count, attn_dtype t, void *to, int64_t at) {
  for (int64_t l = 0; l < count; l++) attn_set(to, at + l, t, x[l]);
}

/* Those of a query head, or of a kv head for all its query heads; of rows that do not exist they are
 * zeros. */
static void prepare_head(const state *s, const attn_call *call, const layout *w, bool keys, int64_t line) {
  const attn_problem *p = call->context->problem;
  const int64_t m = landmarks_of(call->context, p->n_kv), d = p->d_qk, size = m * d,
                heads = keys ? p->kv_heads : p->heads, group = p->heads / p->kv_heads, batch = line / heads,
                head = line % heads, exist = attn_call_keys(call, batch), n = keys ? exist : p->n_q,
                used = landmarks_of(call->context, exist);
  const attn_stride stride = keys ? p->k : p->q;
  double *to = (keys ? w->k : w->q) + line * size;
  memset(to, 0, (size_t)size * sizeof *to);
  attn_landmarks(s->law, keys ? ATTN_KEY : ATTN_QUERY,
                 attn_rows(keys ? call->k : call->q, stride, batch, head, p->dtype), stride.row,
                 attn_stored(stride, p->dtype), n, used, d, to);
  if (!keys) narrow_rows(to, size, p->dtype, w->q_rows, line * size);
  for (int64_t g = 0; keys && g < group; g++)
    narrow_rows(to, size, p->dtype, w->k_rows, (batch * p->heads + head * group + g) * size);
}

/* -- what is between landmarks, of m in use -- */

/* From B V to Z B V, and to Z ln(b / a) and Z 1. */
static void pass_between(const state *s, const attn_call *call, const layout *w, int64_t line, void *room) {
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  const int64_t most = landmarks_of(c, p->n_kv), m = w->lengths[line / p->heads], d = p->d_qk, d_v = p->d_v,
                batch = line / p->heads, head = line % p->heads,
                kv_line = batch * p->kv_heads + head / (p->heads / p->kv_heads);
  attn_carver carver = attn_carver_at(call, room);
  const middle_room r = middle_at(c, &carver);
  bool found = true;
  memset(r.a, 0, (size_t)(most * r.row) * sizeof *r.a);
  memset(r.u, 0, (size_t)(most * r.wide) * sizeof *r.u);
  memset(r.values, 0, (size_t)(most * r.wide) * sizeof *r.values);
  attn_landmark_weights(w->q + line * most * d, w->k + kv_line * most * d, m, d, p->scale, r.a, r.row,
                        r.sums);
  for (int64_t l = 0; l < m; l++) {
    double *row = r.u + l * r.wide;
    for (int64_t i = 0; i < d_v; i++) row[i] = attn_get(w->messages, (line * most + l) * d_v + i, p->dtype);
    row[d_v] = call->lse ? w->mass[line * most + l] - r.sums[l] : 0;
    row[d_v + 1] = 1;
  }
  if (s->p.middle == ATTN_MIDDLE_NEWTON)
    attn_iterated_inverse(s->wide, s->p.iterations, m, r.row, r.a, r.z, r.scratch);
  if (s->p.middle == ATTN_MIDDLE_PINV) found = attn_pseudo_inverse(s->p.rcond, m, r.row, r.a, r.z, r.scratch);
  const double *result = s->p.middle == ATTN_MIDDLE_AGENTS ? r.u : r.values;
  if (result == r.values && m > 0)
    attn_product(s->wide, m, d_v + 2, m, (attn_matrix){r.z, r.row, 1}, r.u, r.wide, false, r.values, r.wide);
  for (int64_t l = 0; l < most; l++)
    for (int64_t i = 0; i < d_v + 2; i++) {
      const double x = found ? result[l * r.wide + i] : (double)NAN;
      if (i < d_v)
        attn_set(w->values, (line * most + l) * d_v + i, p->dtype, x);
      else
        attn_set(w->columns, (line * most + l) * 2 + i - d_v, p->dtype, x);
    }
}

/* -- execution -- */

static void prepare(const state *s, const attn_call *call, const layout *w) {
  const attn_problem *p = call->context->problem;
  const int64_t lines = p->batch * p->heads, kv_lines = p->batch * p->kv_heads;
#pragma omp parallel for num_threads(call->context->threads) schedule(dynamic, 1)
  for (int64_t i = 0; i < lines + kv_lines; i++) {
    fenv_t outer;
    attn_float_enter(&outer);
    prepare_head(s, call, w, i < kv_lines, i < kv_lines ? i : i - kv_lines);
    attn_float_leave(&outer);
  }
  for (int64_t b = 0; b < p->batch; b++) w->lengths[b] = landmarks_of(call->context, attn_call_keys(call, b));
}

static void pass(const state *s, const attn_call *call, const layout *w) {
  const attn_problem *p = call->context->problem;
#pragma omp parallel for num_threads(call->context->threads) schedule(dynamic, 1)
  for (int64_t line = 0; line < p->batch * p->heads; line++) {
    fenv_t outer;
    attn_float_enter(&outer);
    pass_between(s, call, w, line, attn_slice(w->threads, omp_get_thread_num()));
    attn_float_leave(&outer);
  }
}

static attn_status run(const state *s, int part, const void *q, const void *k, const void *v,
                       const int64_t *kv_len, void *o, double *lse, void *work) {
  return lse ? attn_plan_execute_lse(s->parts[part], q, k, v, kv_len, o, lse, work)
             : attn_plan_execute(s->parts[part], q, k, v, kv_len, o, work);
}

/* call->lse: ln f, and from it the estimate. */
static attn_status estimate(const state *s, const attn_call *call, const layout *w) {
  const attn_problem *p = call->context->problem;
  const attn_status status =
      run(s, RATIO, call->q, w->k_rows, w->columns, w->lengths, w->ratio, call->lse, w->work);
  for (int64_t i = 0; !status && i < p->batch * p->heads * p->n_q; i++)
    if (w->lengths[i / (p->heads * p->n_q)] > 0)
      call->lse[i] += attn_get(w->ratio, 2 * i, p->dtype) / attn_get(w->ratio, 2 * i + 1, p->dtype);
  return status;
}

static attn_status execute(const void *opaque, const attn_call *call) {
  const state *s = opaque;
  attn_carver carver = attn_carver_at(call, call->work);
  const layout w = lay_out(call->context, s->work, &carver);
  prepare(s, call, &w);
  attn_status status =
      run(s, FROM, w.q_rows, call->k, call->v, call->kv_len, w.messages, call->lse ? w.mass : NULL, w.work);
  if (status) return status;
  pass(s, call, &w);
  const void *meet = s->p.middle == ATTN_MIDDLE_AGENTS ? w.q_rows : w.k_rows;
  status = run(s, TO, call->q, meet, w.values, w.lengths, call->o, NULL, w.work);
  return status || !call->lse ? status : estimate(s, call, &w);
}

/* -- the variant -- */

static const attn_exemption shared[] = {{ATTN_EXEMPT_ROWS, "landmarks are of all queries"}, {.reason = NULL}};
static const attn_exemption few[] = {
    {ATTN_EXEMPT_ROWS, "landmarks are of all queries"},
    {ATTN_EXEMPT_GROUPS,
     "fewer landmarks than a tile has queries: those of heads that share keys are summed together"},
    {.reason = NULL}};

static const attn_method landmarks = {.work_size = work_size, .plan = plan, .execute = execute};

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const params *x = c->params;
  (void)b;
  out->method = &landmarks;
  out->low_rank = (attn_low_rank){.state = x,
                                  .rank = x->landmarks,
                                  .middle = (attn_middle)x->middle,
                                  .iterations = x->iterations,
                                  .rcond = x->rcond,
                                  .segment = segment};
  out->exempt = x->landmarks < ATTN_TILE ? few : shared;
  if (x->by == MEAN) out->seed = NULL;
  /* For the other middles, sums are 1 and shifts cancel only as exactly as Z is an inverse. */
  if (x->middle == ATTN_MIDDLE_AGENTS) out->caps |= ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX | ATTN_CAP_SHIFT;
  return ATTN_OK;
}

ATTN_VARIANT(nystrom, .summary = "landmarks of queries and keys (Nystroemformer, agent attention)",
             .formula =
                 "softmax(c Q Kl^T) Z softmax(c Ql K^T) V, Ql and Kl landmarks of queries and keys, Z near "
                 "the inverse of softmax(c Ql Kl^T); middle=agents: softmax(c Q Ql^T) softmax(c Ql "
                 "K^T) V; O(n landmarks d + landmarks^3)",
             .cite = "Xiong et al. 2021, arXiv:2102.03902; Han et al. 2023, arXiv:2312.08874",
             .caps = ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_LSE | ATTN_CAP_HALF, .params = table,
             .params_size = sizeof(params), .seed = "seed", .budget = {.parameter = "landmarks"},
             .applicable = applicable, .describe = describe, .cost = cost)
