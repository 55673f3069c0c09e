/* moments.c - moments of sampled rows and projections, kept for all variants of a block. */
#include "experiments/evidence/moments.h"

#include "experiments/mathematics/pair_moments.h"
#include "experiments/mathematics/vector.h"
#include "experiments/support/region.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double work_preferred = 0x1p28; /* multiply-adds */
enum { EXPONENTIAL = 20 };                   /* multiply-adds that an exponential is worth */

static attn_status moment_row_make(const probe *p, int64_t r, region *memory, moment_row *row,
                                   row_moment *out) {
  const attn_problem *x = &p->problem;
  int64_t n = x->n_kv, d_v = x->d_v;
  const double *q = (const double *)p->q + r * x->d_qk;
  double *o = region_zeros(memory, d_v, sizeof *o), *weight = region_take(memory, n, sizeof *weight);
  *row = (moment_row){.log_p = region_take(memory, n, sizeof *row->log_p),
                      .along = region_take(memory, n, sizeof *row->along),
                      .away = region_take(memory, n * d_v, sizeof *row->away)};
  const attn_status status = region_status(memory, "for the moments of a row");
  if (status) return status;
  row->count = attn_reference_row(x, NULL, p->q, p->k, p->v, p->e.kv_len, 0, 0, r, weight, o, row->log_p);
  if (row->count < 0) return attn_fail(ATTN_ENOMEM, "no memory for the weights of a row");
  row->x_square = x->scale * vector_dot_fast(q, q, x->d_qk);
  out->square = vector_dot_fast(o, o, d_v);
  for (int64_t j = 0; j < row->count; j++) {
    row->log_p[j] = log(weight[j]);
    row->along[j] = x->scale * vector_dot_fast(q, p->head.k + j * x->d_qk, x->d_qk);
    for (int64_t l = 0; l < d_v; l++) row->away[j * d_v + l] = p->head.v[j * d_v + l] - o[l];
  }
  return ATTN_OK;
}

static attn_status entry_compute(const probe *p, const feature_law *law, moment_entry *out) {
  region memory = {.last = NULL};
  moment_row rows[MOMENT_ROWS];
  const moment_input input = {.law = law,
                              .k = p->head.k,
                              .n = p->head.keys,
                              .d = p->problem.d_qk,
                              .d_v = p->problem.d_v,
                              .scale = p->problem.scale,
                              .rows = rows,
                              .count = out->count};
  attn_status status = ATTN_OK;
  for (int64_t r = 0; r < out->count && !status; r++)
    status = moment_row_make(p, out->row[r], &memory, &rows[r], &out->rows[r]);
  if (!status) status = moments_compute(&input, out->rows);
  region_free(&memory);
  return status;
}

attn_status row_moments(const evidence *e, const probe *p, const feature_law *law, double work,
                        const moment_entry **out) {
  const attn_problem *x = &p->problem;
  double pairs = (double)p->head.keys * (double)(p->head.keys + 1) / 2;
  double most = work_preferred / fmax(pairs, 1) - (double)x->d_qk, each = (double)(x->d_v + EXPONENTIAL);
  if (pairs * ((double)x->d_qk + each) > work)
    return attn_fail(ATTN_EUNSUPPORTED, "more pairs of keys than the exact second moment may cost");
  moment_entry made = {.made = true, .a = law->a, .count = (int64_t)fmax(1, fmin(MOMENT_ROWS, most / each))};
  if (made.count > x->n_q) made.count = x->n_q;
  for (int64_t r = 0; r < made.count; r++) {
    made.row[r] = (2 * r + 1) * x->n_q / (2 * made.count);
    made.of_run[r] = p->rows[made.row[r]];
  }
  moment_entry *kept = &e->cache->moments[law->kind];
  bool same = kept->made && kept->a == made.a && kept->count == made.count;
  for (int64_t r = 0; r < made.count && same; r++) same = kept->of_run[r] == made.of_run[r];
  if (!same) {
    attn_status status = entry_compute(p, law, &made);
    if (status) return status;
    *kept = made;
  }
  *out = kept;
  return ATTN_OK;
}

/* The rows of A are projected d_qk at a time, as keys are. */
attn_status projected_error(const probe *p, const sketch *s, double *error) {
  int64_t d = p->problem.d_qk, k = p->view.projection->slots, used = 0;
  region memory = {.last = NULL};
  double *x = region_take(&memory, s->n * d, sizeof *x), *ea = region_take(&memory, k * d, sizeof *ea);
  double *fv = region_take(&memory, k * s->d_v, sizeof *fv);
  attn_status status = region_status(&memory, "to project weights");
  if (!status) status = probe_project(p, ATTN_VALUE, s->v, s->d_v, fv, &used);
  for (int64_t first = 0; first < s->rows && !status; first += d) {
    for (int64_t i = 0; i < s->n; i++)
      for (int64_t c = 0; c < d; c++) x[i * d + c] = first + c < s->rows ? s->a[first + c][i] : 0;
    status = probe_project(p, ATTN_KEY, x, d, ea, &used);
    for (int64_t c = 0; c < d && first + c < s->rows && !status; c++)
      for (int64_t l = 0; l < s->d_v; l++) {
        double sum = -s->product[(first + c) * s->d_v + l];
        for (int64_t t = 0; t < k; t++) sum += ea[t * d + c] * fv[t * s->d_v + l];
        error[(first + c) * s->d_v + l] = sum;
      }
  }
  region_free(&memory);
  return status;
}

attn_status sketch_of_run(const evidence *e, const probe *p, sketch *out) {
  const exact_rows *x = e->exact;
  int64_t n = p->problem.n_kv, d_v = p->problem.d_v, have,
          first = exact_line(x, p->batch, p->run_head, &have);
  sketch s = {.law = p->view.projection->law,
              .shared = p->view.projection->shared,
              .rows = have < SKETCH_ROWS ? have : SKETCH_ROWS,
              .n = n,
              .keys = p->head.keys,
              .d_v = d_v,
              .v = p->head.v,
              .product = calloc((size_t)(SKETCH_ROWS * d_v), sizeof *s.product)};
  if (!s.product) return attn_fail(ATTN_ENOMEM, "no memory for the product of a sketch");
  for (int64_t r = 0; r < s.rows; r++) {
    int64_t at = first + r * have / s.rows;
    s.a[r] = x->p + at * n;
    memcpy(s.product + r * d_v, x->o + at * d_v, (size_t)d_v * sizeof *s.product);
  }
  attn_status status = sketch_measure(&s);
  if (status)
    sketch_free(&s);
  else
    *out = s;
  return status;
}
