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
  int64_t most, m, row, wide; /* landmarks, and those in use */
  double *a, *z;              /* [m, m] */
  double *u, *values;         /* B V, ln(b / a) and 1, [m, d_v + 2], and Z times that */
  double *sums;               /* ln a, [m] */
  double *scratch;            /* of what makes Z */
} middle_room;

static middle_room middle_at(const attn_context *c, attn_carver *carver) {
  const int64_t m = landmarks_of(c, c->problem->n_kv), row = attn_padded(m, ATTN_F64),
                wide = attn_padded(c->problem->d_v + 2, ATTN_F64);
  const int between = ((const params *)c->params)->middle;
  return (middle_room){.most = m,
                       .row = row,
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

/* The landmark keys of a query head. */
static const double *keys_of(const attn_problem *p, const layout *w, int64_t line, int64_t most) {
  const int64_t kv_line = line / p->heads * p->kv_heads + line % p->heads / (p->heads / p->kv_heads);
  return w->k + kv_line * most * p->d_qk;
}

/* A, Z, which is NaN where it is not found, and of what Z is multiplied with B V, ln(b / a) and 1. */
static middle_room meet(const state *s, const attn_call *call, const layout *w, int64_t line,
                        attn_carver *carver) {
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  middle_room r = middle_at(c, carver);
  const int64_t most = r.most, m = w->lengths[line / p->heads], d = p->d_qk, d_v = p->d_v;
  bool found = true;
  r.m = m;
  memset(r.a, 0, (size_t)(most * r.row) * sizeof *r.a);
  memset(r.u, 0, (size_t)(most * r.wide) * sizeof *r.u);
  memset(r.values, 0, (size_t)(most * r.wide) * sizeof *r.values);
  attn_landmark_weights(w->q + line * most * d, keys_of(p, w, line, most), m, d, p->scale, r.a, r.row,
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
  for (int64_t i = 0; i < m * r.row && !found; i++) r.z[i] = (double)NAN;
  return r;
}

/* From B V to Z B V, and to Z ln(b / a) and Z 1. */
static void pass_between(const state *s, const attn_call *call, const layout *w, int64_t line, void *room) {
  const attn_problem *p = call->context->problem;
  attn_carver carver = attn_carver_at(call, room);
  const middle_room r = meet(s, call, w, line, &carver);
  const int64_t most = r.most, m = r.m, d_v = p->d_v;
  const double *result = s->p.middle == ATTN_MIDDLE_AGENTS ? r.u : r.values;
  if (result == r.values && m > 0)
    attn_product(s->wide, m, d_v + 2, m, (attn_matrix){r.z, r.row, 1}, r.u, r.wide, false, r.values, r.wide);
  for (int64_t l = 0; l < most; l++)
    for (int64_t i = 0; i < d_v + 2; i++) {
      const double x = result[l * r.wide + i];
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

/* -- gradients: what the execution computes once more, and its steps backwards -- */

/* Besides the execution's, in the tensors' type, except those by landmarks: dq and dk [batch, heads, m,
 * d_qk], of each query head. */
typedef struct back {
  layout of;
  double *lse;                         /* ln f, of F and then of the log-sum-exp's: [batch, heads, n_q] */
  void *d_values, *d_columns, *d_meet; /* by Z B V, by Z ln(b / a) and Z 1, and by landmarks that F meets */
  void *d_ratio, *dq_more, *dk_more;   /* of the log-sum-exp: [.., n_q, 2], [.., n_q, d_qk], [.., m, d_qk] */
  void *d_messages, *dq_rows;
  double *d_mass, *dq, *dk;
  attn_slices threads; /* see back_room */
} back;

/* What a thread goes back through Z in. */
typedef struct back_room {
  double *by_values, *by_u; /* [m, wide] */
  double *dz, *da;          /* [m, row] */
  double *scratch;
} back_room;

static back_room back_at(const attn_context *c, const middle_room *r, attn_carver *carver) {
  const params *x = c->params;
  const int64_t m = r->most;
  return (back_room){.by_values = attn_carve(carver, m, r->wide, sizeof(double)),
                     .by_u = attn_carve(carver, m, r->wide, sizeof(double)),
                     .dz = attn_carve(carver, m, r->row, sizeof(double)),
                     .da = attn_carve(carver, m, r->row, sizeof(double)),
                     .scratch = attn_carve(carver, m,
                                           x->middle == ATTN_MIDDLE_NEWTON ? (x->iterations + 8) * r->row
                                           : x->middle == ATTN_MIDDLE_PINV ? 16 * (m + 1)
                                                                           : m,
                                           sizeof(double))};
}

static back lay_out_back(const attn_context *c, size_t work, attn_carver *carver) {
  const attn_problem *p = c->problem;
  const int64_t lines = p->batch * p->heads, rows = lines * landmarks_of(c, p->n_kv), all = lines * p->n_q;
  const size_t size = attn_dtype_size(p->dtype);
  attn_carver one = attn_carver_count(c);
  const middle_room r = middle_at(c, &one);
  back_at(c, &r, &one);
  return (back){.of = lay_out(c, work, carver),
                .lse = attn_carve(carver, all, 1, sizeof(double)),
                .d_values = attn_carve(carver, rows, p->d_v, size),
                .d_columns = attn_carve(carver, rows, 2, size),
                .d_meet = attn_carve(carver, rows, p->d_qk, size),
                .d_ratio = attn_carve(carver, all, 2, size),
                .dq_more = attn_carve(carver, all, p->d_qk, size),
                .dk_more = attn_carve(carver, rows, p->d_qk, size),
                .d_messages = attn_carve(carver, rows, p->d_v, size),
                .dq_rows = attn_carve(carver, rows, p->d_qk, size),
                .d_mass = attn_carve(carver, rows, 1, sizeof(double)),
                .dq = attn_carve(carver, rows, p->d_qk, sizeof(double)),
                .dk = attn_carve(carver, rows, p->d_qk, sizeof(double)),
                .threads = attn_carve_slices(carver, c->threads, one.used)};
}

static attn_status parts_back_size(const state *s, size_t *work) {
  attn_status status = ATTN_OK;
  *work = s->work;
  for (int i = 0; i < PARTS && !status; i++) {
    size_t bytes = 0;
    status = attn_plan_backward_size(s->parts[i], &bytes);
    if (bytes > *work) *work = bytes;
  }
  return status;
}

static attn_status backward_size(const void *opaque, const attn_context *c, const attn_parts *parts,
                                 size_t *bytes) {
  attn_carver counter = attn_carver_count(c);
  size_t work;
  const attn_status status = parts_back_size(opaque, &work);
  (void)parts;
  lay_out_back(c, work, &counter);
  *bytes = counter.used;
  return status;
}

/* From the gradients by Z B V, Z ln(b / a) and Z 1 to those by B V, ln b and the landmarks in A. */
static void pass_back(const state *s, const attn_call *call, const back *w, const attn_gradients *g,
                      int64_t line, void *memory) {
  const attn_problem *p = call->context->problem;
  const attn_dtype t = p->dtype;
  attn_carver carver = attn_carver_at(call, memory);
  const middle_room r = meet(s, call, &w->of, line, &carver);
  const back_room b = back_at(call->context, &r, &carver);
  const int64_t first = line * r.most, m = r.m, d = p->d_qk, d_v = p->d_v;
  const bool agents = s->p.middle == ATTN_MIDDLE_AGENTS;
  double *by_u = agents ? b.by_values : b.by_u;
  bool found = true;
  memset(b.by_values, 0, (size_t)(r.most * r.wide) * sizeof *b.by_values);
  memset(b.by_u, 0, (size_t)(r.most * r.wide) * sizeof *b.by_u);
  memset(b.dz, 0, (size_t)(r.most * r.row) * sizeof *b.dz);
  memset(b.da, 0, (size_t)(r.most * r.row) * sizeof *b.da);
  for (int64_t l = 0; l < m; l++) {
    double *row = b.by_values + l * r.wide;
    for (int64_t i = 0; i < d_v; i++) row[i] = attn_get(w->d_values, (first + l) * d_v + i, t);
    for (int64_t i = 0; g->dlse && i < 2; i++) row[d_v + i] = attn_get(w->d_columns, (first + l) * 2 + i, t);
  }
  if (!agents && m > 0)
    attn_product(s->wide, m, d_v + 2, m, (attn_matrix){r.z, 1, r.row}, b.by_values, r.wide, false, by_u,
                 r.wide);
  for (int64_t i = 0; i < m * m; i++)
    b.dz[i / m * r.row + i % m] = attn_inner(b.by_values + i / m * r.wide, r.u + i % m * r.wide, d_v + 2);
  if (s->p.middle == ATTN_MIDDLE_NEWTON && m > 0)
    attn_iterated_inverse_back(s->wide, s->p.iterations, m, r.row, r.a, b.dz, b.da, b.scratch);
  if (s->p.middle == ATTN_MIDDLE_PINV && m > 0)
    found = attn_pseudo_inverse_back(s->p.rcond, m, r.row, r.a, b.dz, b.da, b.scratch);
  for (int64_t l = 0; l < r.most; l++) {
    w->d_mass[first + l] = by_u[l * r.wide + d_v];
    r.sums[l] = found ? -w->d_mass[first + l] : (double)NAN; /* by ln a */
    narrow_rows(by_u + l * r.wide, d_v, t, w->d_messages, (first + l) * d_v);
  }
  attn_landmark_weights_back(w->of.q + first * d, keys_of(p, &w->of, line, r.most), m, d, p->scale, r.a, b.da,
                             r.row, r.sums, w->dq + first * d, w->dk + first * d);
}

static void add_rows(const void *x, int64_t first, int64_t count, attn_dtype t, double *to) {
  for (int64_t i = first; i < first + count; i++) to[i] += attn_get(x, i, t);
}

/* From landmarks to the queries of a head, or the keys of a kv head. */
static void spread(const state *s, const attn_call *call, const back *w, const attn_gradients *g, bool keys,
                   int64_t line) {
  const attn_problem *p = call->context->problem;
  const int64_t most = landmarks_of(call->context, p->n_kv), d = p->d_qk, n = keys ? p->n_kv : p->n_q,
                heads = keys ? p->kv_heads : p->heads, group = p->heads / heads, batch = line / heads,
                exist = keys ? attn_call_keys(call, batch) : n, m = w->of.lengths[batch];
  double *from = keys ? w->dk : w->dq;
  void *to = keys ? g->dk : g->dq;
  for (int64_t h = line * group; to && h < (line + 1) * group; h++) {
    if (keys != (s->p.middle == ATTN_MIDDLE_AGENTS)) add_rows(w->d_meet, h * most * d, m * d, p->dtype, from);
    if (keys && g->dlse) add_rows(w->dk_more, h * most * d, m * d, p->dtype, from);
    if (!keys) add_rows(w->dq_rows, h * most * d, m * d, p->dtype, from);
    attn_landmarks_back(s->law, keys ? ATTN_KEY : ATTN_QUERY, from + h * most * d, exist, m, d, p->dtype,
                        attn_at(to, line * n * d, p->dtype));
  }
  for (int64_t i = line * n * d; to && !keys && g->dlse && i < (line + 1) * n * d; i++)
    attn_set(to, i, p->dtype, attn_get(to, i, p->dtype) + attn_get(w->dq_more, i, p->dtype));
}

/* The gradients of a part where it meets rows k with values v. */
static attn_status part_back(const state *s, int part, const attn_call *call, const layout *l, const void *k,
                             const void *v, void *o, double *lse, attn_gradients to) {
  const attn_tensors x = {
      .q = call->q, .k = k, .v = v, .kv_len = l->lengths, .o = o, .lse = lse, .work = l->work};
  return attn_plan_backward(s->parts[part], &x, &to);
}

/* Of lse = ln f + N / D. */
static attn_status estimate_back(const state *s, const attn_call *call, const back *w,
                                 const attn_gradients *g) {
  const attn_problem *p = call->context->problem;
  const layout *l = &w->of;
  const attn_status status =
      run(s, RATIO, call->q, l->k_rows, l->columns, l->lengths, l->ratio, w->lse, l->work);
  for (int64_t i = 0; !status && i < p->batch * p->heads * p->n_q; i++) {
    const double over = attn_get(l->ratio, 2 * i, p->dtype), under = attn_get(l->ratio, 2 * i + 1, p->dtype),
                 by = l->lengths[i / (p->heads * p->n_q)] > 0 ? g->dlse[i] / under : 0;
    attn_set(w->d_ratio, 2 * i, p->dtype, by);
    attn_set(w->d_ratio, 2 * i + 1, p->dtype, by == 0 ? 0 : -by * over / under);
  }
  const attn_gradients to = {
      .d_o = w->d_ratio, .dlse = g->dlse, .dq = w->dq_more, .dk = w->dk_more, .dv = w->d_columns};
  return status ? status : part_back(s, RATIO, call, l, l->k_rows, l->columns, l->ratio, w->lse, to);
}

/* Of o = F (Z B V). */
static attn_status meet_back(const state *s, const attn_call *call, const back *w, const attn_gradients *g) {
  const layout *l = &w->of;
  const void *landmark = s->p.middle == ATTN_MIDDLE_AGENTS ? l->q_rows : l->k_rows;
  const attn_status status =
      run(s, RATIO, call->q, landmark, l->columns, l->lengths, l->ratio, w->lse, l->work);
  const attn_gradients to = {
      .d_o = g->d_o, .d_o_at = g->d_o_at, .dq = g->dq, .dk = w->d_meet, .dv = w->d_values};
  return status ? status : part_back(s, TO, call, l, landmark, l->values, call->o, w->lse, to);
}

static attn_status backward(const void *opaque, const attn_call *call, const attn_gradients *g) {
  const state *s = opaque;
  const attn_problem *p = call->context->problem;
  const int64_t lines = p->batch * p->heads, kv_lines = p->batch * p->kv_heads;
  attn_carver carver = attn_carver_at(call, call->work);
  size_t work;
  attn_status status = parts_back_size(s, &work);
  const back w = lay_out_back(call->context, work, &carver);
  const layout *l = &w.of;
  if (status) return status;
  prepare(s, call, l);
  status = run(s, FROM, l->q_rows, call->k, call->v, call->kv_len, l->messages, l->mass, l->work);
  if (status) return status;
  pass(s, call, l);
  status = meet_back(s, call, &w, g);
  if (g->dlse && !status) status = estimate_back(s, call, &w, g);
  if (status) return status;
#pragma omp parallel for num_threads(call->context->threads) schedule(dynamic, 1)
  for (int64_t line = 0; line < lines; line++) {
    fenv_t outer;
    attn_float_enter(&outer);
    pass_back(s, call, &w, g, line, attn_slice(w.threads, omp_get_thread_num()));
    attn_float_leave(&outer);
  }
  attn_tensors x = {.q = l->q_rows, .k = call->k, .v = call->v, .kv_len = call->kv_len};
  x.o = l->messages, x.lse = l->mass, x.work = l->work;
  status = attn_plan_backward(
      s->parts[FROM], &x,
      &(attn_gradients){.d_o = w.d_messages, .dlse = w.d_mass, .dq = w.dq_rows, .dk = g->dk, .dv = g->dv});
#pragma omp parallel for num_threads(call->context->threads) schedule(dynamic, 1)
  for (int64_t i = 0; i < (status ? 0 : lines + kv_lines); i++) {
    fenv_t outer;
    attn_float_enter(&outer);
    spread(s, call, &w, g, i < kv_lines, i < kv_lines ? i : i - kv_lines);
    attn_float_leave(&outer);
  }
  if (g->dsink) memset(g->dsink, 0, (size_t)p->heads * sizeof *g->dsink);
  return status;
}

/* -- the variant -- */

static const attn_exemption shared[] = {{ATTN_EXEMPT_ROWS, "landmarks are of all queries"}, {.reason = NULL}};
static const attn_exemption few[] = {
    {ATTN_EXEMPT_ROWS, "landmarks are of all queries"},
    {ATTN_EXEMPT_GROUPS,
     "fewer landmarks than a tile has queries: those of heads that share keys are summed together"},
    {.reason = NULL}};

static const attn_method landmarks = {.work_size = work_size,
                                      .plan = plan,
                                      .execute = execute,
                                      .backward_size = backward_size,
                                      .backward = backward};

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
