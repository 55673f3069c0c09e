/* landmark_engine.c - the engine of landmarks: o = F Z (B V) with F = softmax(c Q Kl^T), B = softmax(c Ql
 * K^T), c the scale, and Z of A = softmax(c Ql Kl^T), Ql and Kl the rows that the variant lets stand for
 * queries and keys (attn_low_rank.segment, .middle). F and B are exact attention's, of landmarks. A and Z
 * are fp64, the rest of the tensors' type.
 *
 * The log-sum-exp is an estimate: with f_i, b_l and a_l the sums of exponentials that divide the rows of
 * F, B and A, the ratio of all keys' sum to that of the landmark keys is b_l / a_l as landmark query l
 * sees it, and its logarithm is interpolated as outputs are, by g = F Z: lse_i = ln f_i + sum_l g_il
 * ln(b_l / a_l) / sum_l g_il. It is exact where all keys are landmarks, and always a number; sum_l g_il
 * b_l / a_l, Nystroem's estimate of the row sums of exp(c Q K^T), is negative for many rows of real
 * queries. Of agents F is taken with Kl here alone, and Z is I. */
#include "core/engines/lowrank/landmark_head.h"

#include <math.h>
#include <omp.h>
#include <string.h>

int64_t landmark_count(const attn_context *c, const attn_low_rank *law, int64_t keys) {
  return attn_min(law->rank, attn_min(c->problem->n_q, keys));
}

static attn_problem problem_of(const attn_context *c, const attn_low_rank *law, int part) {
  const attn_problem *x = c->problem;
  attn_problem p = *x;
  p.q = p.k = p.v = p.o = (attn_stride){0};
  if (part == LANDMARK_FROM) {
    p.n_q = landmark_count(c, law, x->n_kv);
    p.k = x->k;
    p.v = x->v;
    return p;
  }
  p.n_kv = landmark_count(c, law, x->n_kv);
  p.kv_heads = x->heads;
  p.q = x->q;
  if (part == LANDMARK_TO)
    p.o = x->o;
  else
    p.d_v = 2;
  return p;
}

static attn_status parts_size(const attn_context *c, const attn_low_rank *law, size_t *work,
                              attn_cost *cost) {
  *work = 0;
  *cost = (attn_cost){0};
  for (int i = 0; i < LANDMARK_PARTS; i++) {
    const attn_problem problem = problem_of(c, law, i);
    size_t bytes;
    attn_cost own;
    const attn_status status = attn_context_estimate(c, &problem, "tiled", &bytes, &own);
    if (status) return status;
    if (bytes > *work) *work = bytes;
    if (i == LANDMARK_RATIO) break; /* the log-sum-exp is asked for by few */
    cost->mul_add += own.mul_add;
    cost->exp += own.exp;
  }
  return ATTN_OK;
}

static attn_status plan(attn_builder *b, const attn_parts *parts, void **out) {
  const attn_context *c = attn_builder_context(b);
  attn_status status = ATTN_OK;
  landmark_state *s = attn_builder_alloc(b, 1, sizeof *s);
  if (!s) return ATTN_ENOMEM;
  *s = (landmark_state){.law = &parts->low_rank, .wide = attn_kernels_f64(c->kernels)};
  for (int i = 0; i < LANDMARK_PARTS && !status; i++) {
    const attn_problem problem = problem_of(c, s->law, i);
    status = attn_builder_plan(b, &problem, "tiled", &s->parts[i]);
    if (!status && attn_plan_work_size(s->parts[i]) > s->work) s->work = attn_plan_work_size(s->parts[i]);
  }
  *out = s;
  return status;
}

/* -- work memory -- */

landmark_room landmark_room_at(const attn_context *c, const attn_low_rank *law, attn_carver *carver) {
  const int64_t m = landmark_count(c, law, c->problem->n_kv), row = attn_padded(m, ATTN_F64),
                wide = attn_padded(c->problem->d_v + 2, ATTN_F64);
  return (landmark_room){.most = m,
                         .row = row,
                         .wide = wide,
                         .a = attn_carve(carver, m, row, sizeof(double)),
                         .z = attn_carve(carver, m, row, sizeof(double)),
                         .u = attn_carve(carver, m, wide, sizeof(double)),
                         .values = attn_carve(carver, m, wide, sizeof(double)),
                         .sums = attn_carve(carver, m, 1, sizeof(double)),
                         .scratch = attn_carve(carver, m,
                                               law->middle == ATTN_MIDDLE_NEWTON ? 3 * row
                                               : law->middle == ATTN_MIDDLE_PINV ? 8 * (m + 1)
                                                                                 : 0,
                                               sizeof(double))};
}

landmark_layout landmark_lay_out(const attn_context *c, const attn_low_rank *law, size_t work,
                                 attn_carver *carver) {
  const attn_problem *p = c->problem;
  const int64_t m = landmark_count(c, law, p->n_kv), lines = p->batch * p->heads;
  const size_t size = attn_dtype_size(p->dtype);
  attn_carver middle = attn_carver_count(c);
  landmark_room_at(c, law, &middle);
  return (landmark_layout){.q = attn_carve(carver, lines * m, p->d_qk, sizeof(double)),
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
  const attn_status status = parts_size(c, &parts->low_rank, &work, &ignored);
  if (status) return status;
  landmark_lay_out(c, &parts->low_rank, work, &counter);
  *bytes = counter.used;
  return ATTN_OK;
}

/* The rows of a side, of n, that are added up. */
static double rows_read(const attn_low_rank *law, attn_side side, int64_t n, int64_t landmarks) {
  double rows = 0;
  for (int64_t l = 0; l < landmarks; l++) {
    int64_t first, count;
    law->segment(law->state, side, n, landmarks, l, &first, &count);
    if (count > 1) rows += (double)count;
  }
  return rows;
}

attn_cost attn_landmark_cost(const attn_context *c, const attn_low_rank *x) {
  if (!c || !x || !x->segment) return (attn_cost){0};
  const attn_problem *p = c->problem;
  const int64_t count = landmark_count(c, x, p->n_kv);
  const double m = (double)count, d = (double)p->d_qk, d_v = (double)p->d_v, batch = (double)p->batch,
               heads = (double)p->heads, kv_heads = (double)p->kv_heads;
  size_t work;
  attn_cost result;
  if (parts_size(c, x, &work, &result)) return result;
  double middle = m * m * (d + d_v);
  if (x->middle == ATTN_MIDDLE_NEWTON) middle += 4 * (double)x->iterations * m * m * m;
  if (x->middle == ATTN_MIDDLE_PINV) middle += 41 * m * m * m;
  result.mul_add += batch * heads * middle;
  result.mul_add +=
      batch * d / 2 *
      (heads * rows_read(x, ATTN_QUERY, p->n_q, count) + kv_heads * rows_read(x, ATTN_KEY, p->n_kv, count));
  result.exp += batch * heads * m * m;
  result.bytes = attn_problem_bytes(p);
  return result;
}

/* -- landmarks -- */

/* Those of a query head, or of a kv head for all its query heads; of rows that do not exist they are
 * zeros. */
static bool prepare_head(const landmark_state *s, const attn_call *call, const landmark_layout *w, bool keys,
                         int64_t line) {
  const attn_problem *p = call->context->problem;
  const int64_t m = landmark_count(call->context, s->law, p->n_kv), d = p->d_qk, size = m * d,
                heads = keys ? p->kv_heads : p->heads, group = p->heads / p->kv_heads, batch = line / heads,
                head = line % heads, exist = attn_call_keys(call, batch), n = keys ? exist : p->n_q,
                used = landmark_count(call->context, s->law, exist);
  const attn_stride stride = keys ? p->k : p->q;
  double *to = (keys ? w->k : w->q) + line * size;
  memset(to, 0, (size_t)size * sizeof *to);
  if (!landmark_rows(s->law, keys ? ATTN_KEY : ATTN_QUERY,
                     attn_rows(keys ? call->k : call->q, stride, batch, head, p->dtype), stride.row,
                     attn_stored(stride, p->dtype), n, used, d, to))
    return false;
  if (!keys) landmark_narrow(to, size, p->dtype, w->q_rows, line * size);
  for (int64_t g = 0; keys && g < group; g++)
    landmark_narrow(to, size, p->dtype, w->k_rows, (batch * p->heads + head * group + g) * size);
  return true;
}

/* -- what is between landmarks, of m in use -- */

/* The landmark keys of a query head. */
const double *landmark_keys(const attn_problem *p, const landmark_layout *w, int64_t line, int64_t most) {
  const int64_t kv_line = line / p->heads * p->kv_heads + line % p->heads / (p->heads / p->kv_heads);
  return w->k + kv_line * most * p->d_qk;
}

/* A, Z, which is NaN where it is not found, and of what Z is multiplied with B V, ln(b / a) and 1. */
landmark_room landmark_meet(const landmark_state *s, const attn_call *call, const landmark_layout *w,
                            int64_t line, attn_carver *carver) {
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  landmark_room r = landmark_room_at(c, s->law, carver);
  const int64_t most = r.most, m = w->lengths[line / p->heads], d = p->d_qk, d_v = p->d_v;
  bool found = true;
  r.m = m;
  memset(r.a, 0, (size_t)(most * r.row) * sizeof *r.a);
  memset(r.u, 0, (size_t)(most * r.wide) * sizeof *r.u);
  memset(r.values, 0, (size_t)(most * r.wide) * sizeof *r.values);
  landmark_weights(w->q + line * most * d, landmark_keys(p, w, line, most), m, d, p->scale, r.a, r.row,
                   r.sums);
  for (int64_t l = 0; l < m; l++) {
    double *row = r.u + l * r.wide;
    for (int64_t i = 0; i < d_v; i++) row[i] = attn_get(w->messages, (line * most + l) * d_v + i, p->dtype);
    row[d_v] = call->lse ? w->mass[line * most + l] - r.sums[l] : 0;
    row[d_v + 1] = 1;
  }
  if (s->law->middle == ATTN_MIDDLE_NEWTON)
    iterated_inverse(s->wide, s->law->iterations, m, r.row, r.a, r.z, r.scratch);
  if (s->law->middle == ATTN_MIDDLE_PINV)
    found = pseudo_inverse(s->law->rcond, m, r.row, r.a, r.z, r.scratch);
  for (int64_t i = 0; i < m * r.row && !found; i++) r.z[i] = (double)NAN;
  return r;
}

/* From B V to Z B V, and to Z ln(b / a) and Z 1. */
static void pass_between(const landmark_state *s, const attn_call *call, const landmark_layout *w,
                         int64_t line, void *room) {
  const attn_problem *p = call->context->problem;
  attn_carver carver = attn_carver_at(call, room);
  const landmark_room r = landmark_meet(s, call, w, line, &carver);
  const int64_t most = r.most, m = r.m, d_v = p->d_v;
  const double *result = s->law->middle == ATTN_MIDDLE_AGENTS ? r.u : r.values;
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

attn_status landmark_prepare(const landmark_state *s, const attn_call *call, const landmark_layout *w) {
  const attn_problem *p = call->context->problem;
  const int64_t lines = p->batch * p->heads, kv_lines = p->batch * p->kv_heads;
  bool sound = true;
#pragma omp parallel for num_threads(call->context->threads) schedule(dynamic, 1)
  for (int64_t i = 0; i < lines + kv_lines; i++) {
    fenv_t outer;
    attn_float_enter(&outer);
    if (!prepare_head(s, call, w, i < kv_lines, i < kv_lines ? i : i - kv_lines)) {
#pragma omp atomic write
      sound = false;
    }
    attn_float_leave(&outer);
  }
  for (int64_t b = 0; b < p->batch; b++)
    w->lengths[b] = landmark_count(call->context, s->law, attn_call_keys(call, b));
  return sound ? ATTN_OK
               : attn_fail(ATTN_EFOREIGN, "variant %s: low_rank.segment gives rows that there are not",
                           call->context->variant->name);
}

void landmark_pass(const landmark_state *s, const attn_call *call, const landmark_layout *w) {
  const attn_problem *p = call->context->problem;
#pragma omp parallel for num_threads(call->context->threads) schedule(dynamic, 1)
  for (int64_t line = 0; line < p->batch * p->heads; line++) {
    fenv_t outer;
    attn_float_enter(&outer);
    pass_between(s, call, w, line, attn_slice(w->threads, omp_get_thread_num()));
    attn_float_leave(&outer);
  }
}

attn_status landmark_run(const landmark_state *s, int part, const void *q, const void *k, const void *v,
                         const int64_t *kv_len, void *o, double *lse, void *work) {
  return lse ? attn_plan_execute_lse(s->parts[part], q, k, v, kv_len, o, lse, work)
             : attn_plan_execute(s->parts[part], q, k, v, kv_len, o, work);
}

/* call->lse: ln f, and from it the estimate. */
static attn_status estimate(const landmark_state *s, const attn_call *call, const landmark_layout *w) {
  const attn_problem *p = call->context->problem;
  const attn_status status = landmark_run(s, LANDMARK_RATIO, call->q, w->k_rows, w->columns, w->lengths,
                                          w->ratio, call->lse, w->work);
  for (int64_t i = 0; !status && i < p->batch * p->heads * p->n_q; i++)
    if (w->lengths[i / (p->heads * p->n_q)] > 0)
      call->lse[i] += attn_get(w->ratio, 2 * i, p->dtype) / attn_get(w->ratio, 2 * i + 1, p->dtype);
  return status;
}

static attn_status execute(const void *opaque, const attn_call *call) {
  const landmark_state *s = opaque;
  attn_carver carver = attn_carver_at(call, call->work);
  const landmark_layout w = landmark_lay_out(call->context, s->law, s->work, &carver);
  attn_status status = landmark_prepare(s, call, &w);
  if (status) return status;
  status = landmark_run(s, LANDMARK_FROM, w.q_rows, call->k, call->v, call->kv_len, w.messages,
                        call->lse ? w.mass : NULL, w.work);
  if (status) return status;
  landmark_pass(s, call, &w);
  const void *meet = s->law->middle == ATTN_MIDDLE_AGENTS ? w.q_rows : w.k_rows;
  status = landmark_run(s, LANDMARK_TO, call->q, meet, w.values, w.lengths, call->o, NULL, w.work);
  return status || !call->lse ? status : estimate(s, call, &w);
}

static bool accepts(const attn_parts *p) { return attn_parts_kinds(p) == ATTN_PART_LANDMARKS; }

const attn_engine attn_engine_landmarks = {"landmarks",
                                           accepts,
                                           {.work_size = work_size,
                                            .plan = plan,
                                            .execute = execute,
                                            .backward_size = landmark_backward_size,
                                            .backward = landmark_backward}};
