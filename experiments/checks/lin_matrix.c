/* lin_matrix.c - projects the identity, a few columns at a time. Where a projection takes slabs that begin at
 * slices, columns of a slice are read by a slab that begins there and ends with them. */
#include "experiments/checks/lin_matrix.h"

#include "experiments/evidence/support_row.h"
#include "experiments/mathematics/vector.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

attn_status projector_make(const evidence *e, const attn_spec *spec, const attn_problem *shape,
                           projector *out) {
  attn_problem x = *shape;
  x.q = x.k = x.v = x.o = (attn_stride){0};
  x.dtype = ATTN_F64;
  x.causal = false;
  if (!(e->view->caps & ATTN_CAP_CROSS)) x.n_q = x.n_kv;
  *out = (projector){.problem = x};
  out->status = evidence_plan(e, &x, spec, 0, &out->plan, &out->view);
  if (!out->status) out->problem = *attn_plan_problem(out->plan);
  if (!out->status && !out->view.projection)
    out->status = attn_fail(ATTN_EUNSUPPORTED, "no projection on a problem of another length");
  return out->status;
}

void projector_free(projector *p) {
  attn_plan_destroy(p->plan);
  p->plan = NULL;
}

static void *scratch_make(const projector *p) {
  return aligned_alloc(64, (p->view.projection->scratch + 64) / 64 * 64);
}

static attn_status used_judge(const attn_projection *of, int64_t used) {
  return used > 0 && used <= of->slots
             ? ATTN_OK
             : attn_fail(ATTN_EFOREIGN, "the projection reports %lld of %lld slots in use", (long long)used,
                         (long long)of->slots);
}

attn_status projector_apply(const projector *p, int64_t head, attn_side side, const double *x, int64_t keys,
                            int64_t d, bool pieces, double *y, int64_t *used) {
  const attn_projection *e = p->view.projection;
  void *scratch = scratch_make(p);
  if (!scratch) return attn_fail(ATTN_ENOMEM, "no memory for the scratch of a projection");
  *used = 0;
  memset(y, 0xff, (size_t)(e->slots * d) * sizeof *y); /* NaN: what is not written shows */
  for (int64_t at = 0, slices = 1; at < keys; slices = slices == 1 ? 2 : keys) {
    int64_t rows = pieces && e->slice && e->slice < (keys - at) / slices ? slices * e->slice : keys - at;
    attn_slab slab = {.head = head,
                      .side = side,
                      .x = x + at * d,
                      .x_row = d,
                      .first = at,
                      .rows = rows,
                      .d = d,
                      .y = y,
                      .y_row = d,
                      .accumulate = at > 0};
    *used = e->project(e->state, attn_plan_context(p->plan), &slab, scratch);
    at += rows;
  }
  free(scratch);
  return used_judge(e, *used);
}

attn_status projector_read(const projector *p, int64_t head, attn_side side, int64_t keys, double *e,
                           int64_t *used) {
  const attn_projection *of = p->view.projection;
  int64_t slice = of->slice ? of->slice : keys, d = side == ATTN_VALUE ? p->problem.d_v : p->problem.d_qk;
  double *x = calloc((size_t)(slice * d), sizeof *x), *y = malloc((size_t)(of->slots * d) * sizeof *y);
  void *scratch = scratch_make(p);
  attn_status status = x && y && scratch ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory to read a projection");
  *used = 0;
  for (int64_t at = 0, count; at < keys && !status; at += count) {
    int64_t first = at / slice * slice, inside = at - first;
    int64_t rows = slice < keys - first ? slice : keys - first;
    count = d < rows - inside ? d : rows - inside;
    for (int64_t c = 0; c < count; c++) x[(inside + c) * d + c] = 1;
    attn_slab slab = {.head = head,
                      .side = side,
                      .x = x,
                      .x_row = d,
                      .first = first,
                      .rows = of->slice ? inside + count : rows,
                      .d = d,
                      .y = y,
                      .y_row = d};
    memset(y, 0xff, (size_t)(of->slots * d) * sizeof *y);
    *used = of->project(of->state, attn_plan_context(p->plan), &slab, scratch);
    status = used_judge(of, *used);
    for (int64_t s = 0; s < *used && !status; s++)
      for (int64_t c = 0; c < count; c++) e[s * keys + at + c] = y[s * d + c];
    for (int64_t c = 0; c < count; c++) x[(inside + c) * d + c] = 0;
  }
  free(x);
  free(y);
  free(scratch);
  return status;
}

void projected_pair_free(projected_pair *m) {
  if (m->f != m->e) free(m->f);
  free(m->e);
  m->e = m->f = NULL;
}

static double row_norm(const double *e, int64_t rows, int64_t columns) {
  double most = 0;
  for (int64_t s = 0; s < rows; s++) {
    double sum = vector_dot(e + s * columns, e + s * columns, columns);
    if (!(sum <= most)) most = sum;
  }
  return sqrt(most);
}

attn_status projected_pair_read(const projector *p, int64_t head, int64_t keys, projected_pair *out) {
  const attn_projection *of = p->view.projection;
  int64_t size = of->slots * keys, other = 0;
  projected_pair m = {.keys = keys, .columns = keys, .e = malloc((size_t)size * sizeof(double) + 1)};
  m.f = of->shared ? m.e : malloc((size_t)size * sizeof(double) + 1);
  attn_status status = m.e && m.f ? projector_read(p, head, ATTN_KEY, keys, m.e, &m.used)
                                  : attn_fail(ATTN_ENOMEM, "no memory for the matrices of a projection");
  if (!status && m.f != m.e) status = projector_read(p, head, ATTN_VALUE, keys, m.f, &other);
  if (!status && m.f != m.e && other != m.used)
    status = attn_fail(ATTN_EFOREIGN, "keys have %lld slots in use, values %lld", (long long)m.used,
                       (long long)other);
  if (status) {
    projected_pair_free(&m);
    return status;
  }
  m.e_norm = row_norm(m.e, m.used, keys);
  m.f_norm = m.f == m.e ? m.e_norm : row_norm(m.f, m.used, keys);
  *out = m;
  return ATTN_OK;
}

void projected_product(const projected_pair *m, const double *e, const double *x, int64_t d, double *y) {
#pragma omp parallel for schedule(static)
  for (int64_t s = 0; s < m->used; s += 4) {
    int64_t rows = m->used - s < 4 ? m->used - s : 4;
    memset(y + s * d, 0, (size_t)(rows * d) * sizeof *y);
    for (int64_t j = 0; j < m->keys; j++)
      for (int64_t r = 0; r < rows; r++) {
        double weight = e[(s + r) * m->columns + j], *to = y + (s + r) * d;
        for (int64_t l = 0; l < d; l++) to[l] += weight * x[j * d + l];
      }
  }
}

void projected_errors(const double *x, int64_t keys, int64_t d, double norm, double unit, double *out) {
  double gamma = gamma_of(keys + 65, unit) + 2 * gamma_of(keys + 65, 0x1p-53);
  for (int64_t l = 0; l < d; l++) {
    double sum = 0;
    for (int64_t j = 0; j < keys; j++) sum += x[j * d + l] * x[j * d + l];
    out[l] = gamma * norm * sqrt(sum);
  }
}

void projected_slots_free(projected_slots *s) {
  head_data_free(&s->head);
  free(s->key_error);
  free(s->value_error);
  *s = (projected_slots){.key_error = NULL};
}

attn_status projected_slots_make(const attn_problem *p, const projected_pair *m, const double *k,
                                 const double *v, double unit, projected_slots *out) {
  *out = (projected_slots){.problem = *p};
  out->problem.n_kv = m->used;
  out->problem.causal = false;
  out->key_error = calloc((size_t)p->d_qk, sizeof(double));
  out->value_error = calloc((size_t)p->d_v, sizeof(double));
  attn_status status = out->key_error && out->value_error
                           ? head_data_alloc(&out->problem, &out->head)
                           : attn_fail(ATTN_ENOMEM, "no memory for the slots of a projection");
  if (status) {
    projected_slots_free(out);
    return status;
  }
  out->head.keys = m->used;
  projected_product(m, m->e, k, p->d_qk, out->head.k);
  projected_product(m, m->f, v, p->d_v, out->head.v);
  head_data_measure(&out->head);
  projected_errors(k, m->keys, p->d_qk, m->e_norm, unit, out->key_error);
  projected_errors(v, m->keys, p->d_v, m->f_norm, unit, out->value_error);
  return ATTN_OK;
}
