/* latent_copies.c - see latent_copies.h. */
#include "experiments/evidence/latent_copies.h"

#include "experiments/mathematics/vector.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char purpose[] = "for keys and values of latents";

static int64_t width_of(const attn_problem *p) { return p->kv_heads * (p->d_qk + p->d_v); }

/* Where element `at` of row j of entry b stands, in K or in V: its tensor and its index there. */
static bool place_of(const attn_problem *p, int64_t b, int64_t j, int64_t at, int64_t *index) {
  const bool key = at < p->kv_heads * p->d_qk;
  const int64_t d = key ? p->d_qk : p->d_v, column = key ? at : at - p->kv_heads * p->d_qk;
  *index = ((b * p->kv_heads + column / d) * p->n_kv + j) * d + column % d;
  return key;
}

attn_status latent_factors_make(const attn_plan *plan, const attn_latent *law, const void *k, const void *v,
                                int64_t batch, int64_t keys, latent_factors *out) {
  const attn_problem *p = attn_plan_problem(plan);
  void *room = aligned_alloc(64, (attn_latent_room(law, p) + 64) / 64 * 64);
  *out = (latent_factors){.keys = keys,
                          .fitted = law->prompt && law->prompt < keys ? law->prompt : keys,
                          .width = width_of(p),
                          .rank = law->rank};
  out->x = region_take(&out->memory, keys * out->width, sizeof *out->x);
  out->c = region_take(&out->memory, keys * out->rank, sizeof *out->c);
  out->w = region_take(&out->memory, out->rank * out->width, sizeof *out->w);
  out->memory.refused |= !room;
  const attn_status status = region_status(&out->memory, purpose);
  for (int64_t i = 0; !status && i < keys * out->width; i++) {
    int64_t index;
    const bool key = place_of(p, batch, i / out->width, i % out->width, &index);
    out->x[i] = attn_get(key ? k : v, index, p->dtype);
  }
  if (!status) attn_latent_factor(law, attn_plan_context(plan), keys, out->x, out->c, out->w, room);
  free(room);
  return status;
}

void latent_factors_free(latent_factors *f) { region_free(&f->memory); }

void latent_row(const latent_factors *f, int64_t j, double *to) {
  memset(to, 0, (size_t)f->width * sizeof *to);
  for (int64_t e = 0; e < f->rank; e++)
    for (int64_t l = 0; l < f->width; l++) to[l] += f->c[e * f->keys + j] * f->w[e * f->width + l];
}

attn_status latent_copies_make(const attn_plan *plan, const latent_factors *f, int64_t count,
                               stored_copies *out) {
  const attn_problem *p = attn_plan_problem(plan);
  const int64_t rows = count * p->kv_heads * p->n_kv;
  const size_t size = attn_dtype_size(p->dtype);
  *out = (stored_copies){.memory.last = NULL};
  double *row = region_take(&out->memory, width_of(p), sizeof *row);
  out->k = out->own_k = region_zeros(&out->memory, rows * p->d_qk, size);
  out->v = out->own_v = region_zeros(&out->memory, rows * p->d_v, size);
  const attn_status status = region_status(&out->memory, purpose);
  for (int64_t b = 0; !status && b < count; b++)
    for (int64_t j = 0; j < f[b].keys; j++) {
      latent_row(&f[b], j, row);
      for (int64_t at = 0; at < f[b].width; at++) {
        int64_t index;
        const bool key = place_of(p, b, j, at, &index);
        attn_set(key ? out->own_k : out->own_v, index, p->dtype, row[at]);
      }
    }
  return status;
}

attn_status latent_run_make(const attn_plan *plan, const attn_view *view, const void *k, const void *v,
                            const int64_t *kv_len, latent_run *out) {
  const attn_problem *p = attn_plan_problem(plan);
  const int64_t rank = view->latent->rank;
  *out = (latent_run){.problem = p, .view = view};
  out->of = region_zeros(&out->memory, p->batch, sizeof *out->of);
  out->reach = region_zeros(&out->memory, p->batch * rank, sizeof *out->reach);
  attn_status status = region_status(&out->memory, purpose);
  for (int64_t b = 0; !status && b < p->batch; b++) {
    const latent_factors *f = &out->of[b];
    status = latent_factors_make(plan, view->latent, k, v, b, kv_len ? kv_len[b] : p->n_kv, &out->of[b]);
    for (int64_t i = 0; !status && i < rank * f->keys; i++) {
      double *most = &out->reach[b * rank + i / f->keys];
      *most = fmax(*most, fabs(f->c[i]));
    }
  }
  return status ? status : latent_copies_make(plan, out->of, p->batch, &out->kept);
}

void latent_run_free(latent_run *x) {
  for (int64_t b = 0; x->of && b < x->problem->batch; b++) latent_factors_free(&x->of[b]);
  stored_copies_free(&x->kept);
  region_free(&x->memory);
}

/* Of column `at` of [K | V] the largest sum_e |W_le||c_je|. */
static double column_reach(const latent_run *x, int64_t batch, int64_t at) {
  const latent_factors *f = &x->of[batch];
  double sum = 0;
  for (int64_t e = 0; e < f->rank; e++) sum += x->reach[batch * f->rank + e] * fabs(f->w[e * f->width + at]);
  return sum;
}

row_verdict latent_row_bound(const latent_run *x, const head_data *head, row_space *s, prior *out,
                             double *v_reach) {
  const attn_problem *p = x->problem;
  const int64_t h = head->head / (p->heads / p->kv_heads);
  const double length = vector_norm(s->q, p->d_qk);
  head_data own = *head;
  row_extremes scores;
  const row_verdict verdict = row_attend(head, NULL, s, &scores);
  if (latent_reads(x->view->latent, p, s->i)) {
    double size = 0;
    own.v_max = 0;
    for (int64_t l = 0; l < p->d_qk; l++) size += fabs(s->q[l]) * column_reach(x, own.batch, h * p->d_qk + l);
    for (int64_t l = 0; l < p->d_v; l++)
      own.v_max = fmax(own.v_max, column_reach(x, own.batch, p->kv_heads * p->d_qk + h * p->d_v + l));
    own.k_max = length > 0 ? size / length : 0;
  }
  *v_reach = own.v_max;
  if (verdict != ROW_OK) return verdict;
  return row_apriori_bound(&own, &x->view->rounding, length, scores.bias, s->count, out);
}
