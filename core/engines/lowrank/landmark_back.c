/* landmark_back.c - gradients of the engine of landmarks: what the execution computes once more, and its
 * steps backwards. */
#include "core/engines/lowrank/landmark_head.h"

#include <math.h>
#include <omp.h>
#include <string.h>

/* Besides the execution's, in the tensors' type, except those by landmarks: dq and dk [batch, heads, m,
 * d_qk], of each query head. */
typedef struct back {
  landmark_layout of;
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

static back_room back_at(const attn_low_rank *x, const landmark_room *r, attn_carver *carver) {
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

static back lay_out_back(const attn_context *c, const attn_low_rank *law, size_t work, attn_carver *carver) {
  const attn_problem *p = c->problem;
  const int64_t lines = p->batch * p->heads, rows = lines * landmark_count(c, law, p->n_kv),
                all = lines * p->n_q;
  const size_t size = attn_dtype_size(p->dtype);
  attn_carver one = attn_carver_count(c);
  const landmark_room r = landmark_room_at(c, law, &one);
  back_at(law, &r, &one);
  return (back){.of = landmark_lay_out(c, law, work, carver),
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

static attn_status parts_back_size(const landmark_state *s, size_t *work) {
  attn_status status = ATTN_OK;
  *work = s->work;
  for (int i = 0; i < LANDMARK_PARTS && !status; i++) status = attn_plan_backward_most(s->parts[i], work);
  return status;
}

attn_status landmark_backward_size(const void *opaque, const attn_context *c, const attn_parts *parts,
                                   size_t *bytes) {
  attn_carver counter = attn_carver_count(c);
  size_t work;
  const attn_status status = parts_back_size(opaque, &work);
  lay_out_back(c, &parts->low_rank, work, &counter);
  *bytes = counter.used;
  return status;
}

/* From the gradients by Z B V, Z ln(b / a) and Z 1 to those by B V, ln b and the landmarks in A. */
static void pass_back(const landmark_state *s, const attn_call *call, const back *w, const attn_gradients *g,
                      int64_t line, void *memory) {
  const attn_problem *p = call->context->problem;
  const attn_dtype t = p->dtype;
  attn_carver carver = attn_carver_at(call, memory);
  const landmark_room r = landmark_meet(s, call, &w->of, line, &carver);
  const back_room b = back_at(s->law, &r, &carver);
  const int64_t first = line * r.most, m = r.m, d = p->d_qk, d_v = p->d_v;
  const bool agents = s->law->middle == ATTN_MIDDLE_AGENTS;
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
  if (s->law->middle == ATTN_MIDDLE_NEWTON && m > 0)
    iterated_inverse_back(s->wide, s->law->iterations, m, r.row, r.a, b.dz, b.da, b.scratch);
  if (s->law->middle == ATTN_MIDDLE_PINV && m > 0)
    found = pseudo_inverse_back(s->law->rcond, m, r.row, r.a, b.dz, b.da, b.scratch);
  for (int64_t l = 0; l < r.most; l++) {
    w->d_mass[first + l] = by_u[l * r.wide + d_v];
    r.sums[l] = found ? -w->d_mass[first + l] : (double)NAN; /* by ln a */
    landmark_narrow(by_u + l * r.wide, d_v, t, w->d_messages, (first + l) * d_v);
  }
  landmark_weights_back(w->of.q + first * d, landmark_keys(p, &w->of, line, r.most), m, d, p->scale, r.a,
                        b.da, r.row, r.sums, w->dq + first * d, w->dk + first * d);
}

static void add_rows(const void *x, int64_t first, int64_t count, attn_dtype t, double *to) {
  for (int64_t i = first; i < first + count; i++) to[i] += attn_get(x, i, t);
}

/* From landmarks to the queries of a head, or the keys of a kv head. */
static void spread(const landmark_state *s, const attn_call *call, const back *w, const attn_gradients *g,
                   bool keys, int64_t line) {
  const attn_problem *p = call->context->problem;
  const int64_t most = landmark_count(call->context, s->law, p->n_kv), d = p->d_qk,
                n = keys ? p->n_kv : p->n_q, heads = keys ? p->kv_heads : p->heads, group = p->heads / heads,
                batch = line / heads, exist = keys ? attn_call_keys(call, batch) : n,
                m = w->of.lengths[batch];
  double *from = keys ? w->dk : w->dq;
  void *to = keys ? g->dk : g->dq;
  for (int64_t h = line * group; to && h < (line + 1) * group; h++) {
    if (keys != (s->law->middle == ATTN_MIDDLE_AGENTS))
      add_rows(w->d_meet, h * most * d, m * d, p->dtype, from);
    if (keys && g->dlse) add_rows(w->dk_more, h * most * d, m * d, p->dtype, from);
    if (!keys) add_rows(w->dq_rows, h * most * d, m * d, p->dtype, from);
    landmark_rows_back(s->law, keys ? ATTN_KEY : ATTN_QUERY, from + h * most * d, exist, m, d, p->dtype,
                       attn_at(to, line * n * d, p->dtype));
  }
  for (int64_t i = line * n * d; to && !keys && g->dlse && i < (line + 1) * n * d; i++)
    attn_set(to, i, p->dtype, attn_get(to, i, p->dtype) + attn_get(w->dq_more, i, p->dtype));
}

/* The gradients of a part where it meets rows k with values v. */
static attn_status part_back(const landmark_state *s, int part, const attn_call *call,
                             const landmark_layout *l, const void *k, const void *v, void *o, double *lse,
                             attn_gradients to) {
  const attn_tensors x = {
      .q = call->q, .k = k, .v = v, .kv_len = l->lengths, .o = o, .lse = lse, .work = l->work};
  return attn_plan_backward(s->parts[part], &x, &to);
}

/* Of lse = ln f + N / D. */
static attn_status estimate_back(const landmark_state *s, const attn_call *call, const back *w,
                                 const attn_gradients *g) {
  const attn_problem *p = call->context->problem;
  const landmark_layout *l = &w->of;
  const attn_status status =
      landmark_run(s, LANDMARK_RATIO, call->q, l->k_rows, l->columns, l->lengths, l->ratio, w->lse, l->work);
  for (int64_t i = 0; !status && i < p->batch * p->heads * p->n_q; i++) {
    const double over = attn_get(l->ratio, 2 * i, p->dtype), under = attn_get(l->ratio, 2 * i + 1, p->dtype),
                 by = g->dlse[i] / under; /* in an entry without keys nobody reads it */
    attn_set(w->d_ratio, 2 * i, p->dtype, by);
    attn_set(w->d_ratio, 2 * i + 1, p->dtype, by == 0 ? 0 : -by * over / under);
  }
  const attn_gradients to = {
      .d_o = w->d_ratio, .dlse = g->dlse, .dq = w->dq_more, .dk = w->dk_more, .dv = w->d_columns};
  return status ? status : part_back(s, LANDMARK_RATIO, call, l, l->k_rows, l->columns, l->ratio, w->lse, to);
}

/* Of o = F (Z B V). */
static attn_status meet_back(const landmark_state *s, const attn_call *call, const back *w,
                             const attn_gradients *g) {
  const landmark_layout *l = &w->of;
  const void *landmark = s->law->middle == ATTN_MIDDLE_AGENTS ? l->q_rows : l->k_rows;
  const attn_status status =
      landmark_run(s, LANDMARK_RATIO, call->q, landmark, l->columns, l->lengths, l->ratio, w->lse, l->work);
  const attn_gradients to = {
      .d_o = g->d_o, .d_o_at = g->d_o_at, .dq = g->dq, .dk = w->d_meet, .dv = w->d_values};
  return status ? status : part_back(s, LANDMARK_TO, call, l, landmark, l->values, call->o, w->lse, to);
}

attn_status landmark_backward(const void *opaque, const attn_call *call, const attn_gradients *g) {
  const landmark_state *s = opaque;
  const attn_problem *p = call->context->problem;
  const int64_t lines = p->batch * p->heads, kv_lines = p->batch * p->kv_heads;
  attn_carver carver = attn_carver_at(call, call->work);
  size_t work;
  attn_status status = parts_back_size(s, &work);
  const back w = lay_out_back(call->context, s->law, work, &carver);
  const landmark_layout *l = &w.of;
  if (status) return status;
  if ((status = landmark_prepare(s, call, l))) return status;
  status = landmark_run(s, LANDMARK_FROM, l->q_rows, call->k, call->v, call->kv_len, l->messages, l->mass,
                        l->work);
  if (status) return status;
  landmark_pass(s, call, l);
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
      s->parts[LANDMARK_FROM], &x,
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
