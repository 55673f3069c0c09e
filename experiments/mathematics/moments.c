/* moments.c - exact second moments of rows over the draws of random features (moments.h has the formulas). */
#include "experiments/mathematics/moments.h"

#include "experiments/evidence/cache.h"
#include "experiments/evidence/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/mathematics/vector.h"

static const double work_preferred = 0x1p28; /* multiply-adds */
enum { EXPONENTIAL = 20 };                   /* multiply-adds that an exponential is worth */

void feature_law_resize(feature_law *law, int64_t m) {
  double d = (double)law->d, last = (double)(m % law->d), full = (double)(m / law->d), count = (double)m;
  law->m = m;
  law->pairs = 0;
  law->independent = law->blocks = count;
  law->share = 1 / count;
  if (!law->orthogonal) return;
  law->pairs = full * d * (d - 1) + last * (last - 1);
  law->blocks = count * count / (full * d * d + last * last);
  law->share = (m < law->d ? count : d) / count;
  if (law->pairs > 0) law->independent = count * count / (count + law->pairs * 3 / (d * d - 1));
}

const char *feature_law_of(const evidence *e, feature_law *out) {
  const attn_feature_map *map = e->view->features;
  if (!map) return "no random features";
  const attn_feature_law *given = &map->law;
  bool twofold = given->kind == ATTN_FEATURES_HYPERBOLIC || given->kind == ATTN_FEATURES_TRIG;
  if (given->kind == ATTN_FEATURES_UNKNOWN)
    return "the variant describes no law of its features: nothing to hold them against";
  if (given->vectors < 1 || map->columns % given->vectors ||
      (given->kind != ATTN_FEATURES_OTHER && map->columns != given->vectors * (twofold ? 2 : 1)))
    return "the variant's law of its features does not fit their number of columns";
  *out = (feature_law){.kind = given->kind,
                       .d = e->problem->d_qk,
                       .orthogonal = given->orthogonal,
                       .constant = given->fixed_length};
  feature_law_resize(out, given->vectors);
  return NULL;
}

bool feature_law_is_favor(const feature_law *law) {
  return law->kind == ATTN_FEATURES_POSITIVE || law->kind == ATTN_FEATURES_HYPERBOLIC ||
         law->kind == ATTN_FEATURES_TRIG;
}

/* One row against all keys that it sees. */
typedef struct moment_row {
  int64_t count; /* keys seen: a causal row sees the first ones */
  double *log_p; /* [count] */
  double *along; /* [count] x.y_j */
  double *away;  /* [count, d_v] v_j - o */
  double x_square;
} moment_row;

static void moment_row_free(moment_row *row) {
  free(row->log_p);
  free(row->along);
  free(row->away);
}

static attn_status moment_row_make(const probe *p, int64_t r, moment_row *row, row_moment *out) {
  const attn_problem *x = &p->problem;
  int64_t n = x->n_kv, d_v = x->d_v;
  const double *q = (const double *)p->q + r * x->d_qk;
  double *o = calloc((size_t)d_v, sizeof *o), *weight = malloc((size_t)n * sizeof *weight);
  *row = (moment_row){.log_p = malloc((size_t)n * sizeof *row->log_p),
                      .along = malloc((size_t)n * sizeof *row->along),
                      .away = malloc((size_t)(n * d_v) * sizeof *row->away)};
  attn_status status = o && weight && row->log_p && row->along && row->away
                           ? ATTN_OK
                           : attn_fail(ATTN_ENOMEM, "no memory for the moments of a row");
  if (status == ATTN_OK) {
    row->count = attn_reference_row(x, NULL, p->q, p->k, p->v, p->e.kv_len, 0, 0, r, weight, o, row->log_p);
    row->x_square = x->scale * vector_dot_fast(q, q, x->d_qk);
    out->square = vector_dot_fast(o, o, d_v);
    for (int64_t j = 0; j < row->count; j++) {
      row->log_p[j] = log(weight[j]);
      row->along[j] = x->scale * vector_dot_fast(q, p->head.k + j * x->d_qk, x->d_qk);
      for (int64_t l = 0; l < d_v; l++) row->away[j * d_v + l] = p->head.v[j * d_v + l] - o[l];
    }
  }
  free(o);
  free(weight);
  return status;
}

/* p_i p_j (h(t) - 1); the weights as logarithms where h may overflow and they underflow. */
static double excess(bool exponential, double log_p, double t) {
  if (exponential) return t > 50 ? exp(log_p + t) : exp(log_p) * expm1(t);
  if (fabs(t) > 50) return exp(log_p + fabs(t)) / 2;
  double half = sinh(t / 2);
  return exp(log_p) * 2 * half * half;
}

/* Adds the pairs (i, j), j <= i, to rho and spread of each row. */
static void moment_pairs(const probe *p, attn_features_kind kind, const moment_row *rows, int64_t count,
                         int64_t i, row_moment *sums) {
  const attn_problem *x = &p->problem;
  const double *k = p->head.k;
  double sign = kind == ATTN_FEATURES_TRIG ? -1 : 1;
  for (int64_t j = 0; j <= i; j++) {
    double keys = vector_dot_fast(k + i * x->d_qk, k + j * x->d_qk, x->d_qk);
    for (int64_t r = 0; r < count; r++) {
      const moment_row *row = &rows[r];
      if (i >= row->count) continue;
      const double *a = row->away + i * x->d_v, *b = row->away + j * x->d_v;
      double t = row->x_square + sign * (row->along[i] + row->along[j]) + x->scale * keys;
      double share =
          (i == j ? 1 : 2) * excess(kind == ATTN_FEATURES_POSITIVE, row->log_p[i] + row->log_p[j], t);
      sums[r].rho += share;
      sums[r].spread += share * vector_dot_fast(a, b, x->d_v);
    }
  }
}

static attn_status moments_compute(const probe *p, attn_features_kind kind, moment_entry *out) {
  moment_row rows[MOMENT_ROWS] = {{0}};
  int64_t n = p->head.keys;
  row_moment *sums = calloc((size_t)(n * out->count) + 1, sizeof *sums);
  attn_status status = sums ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for the moments of rows");
  for (int64_t r = 0; r < out->count && status == ATTN_OK; r++)
    status = moment_row_make(p, out->rows[r].row, &rows[r], &out->rows[r]);
  if (status == ATTN_OK) {
#pragma omp parallel for schedule(dynamic, 4)
    for (int64_t i = 0; i < n; i++) moment_pairs(p, kind, rows, out->count, i, sums + i * out->count);
    for (int64_t r = 0; r < out->count; r++) {
      out->rows[r].rho = 1;
      for (int64_t i = 0; i < n; i++) {
        out->rows[r].rho += sums[i * out->count + r].rho;
        out->rows[r].spread += sums[i * out->count + r].spread;
      }
    }
  }
  for (int64_t r = 0; r < out->count; r++) moment_row_free(&rows[r]);
  free(sums);
  return status;
}

attn_status row_moments(const evidence *e, const probe *p, attn_features_kind kind, double work,
                        const moment_entry **out) {
  const attn_problem *x = &p->problem;
  double pairs = (double)p->head.keys * (double)(p->head.keys + 1) / 2;
  double most = work_preferred / fmax(pairs, 1) - (double)x->d_qk, each = (double)(x->d_v + EXPONENTIAL);
  if (pairs * ((double)x->d_qk + each) > work)
    return attn_fail(ATTN_EUNSUPPORTED, "more pairs of keys than the exact second moment may cost");
  moment_entry made = {.made = true, .count = (int64_t)fmax(1, fmin(MOMENT_ROWS, most / each))};
  if (made.count > x->n_q) made.count = x->n_q;
  for (int64_t r = 0; r < made.count; r++) {
    made.rows[r].row = (2 * r + 1) * x->n_q / (2 * made.count);
    made.rows[r].of_run = p->rows[made.rows[r].row];
  }
  moment_entry *kept = &e->cache->moments[kind];
  bool same = kept->made && kept->count == made.count;
  for (int64_t r = 0; r < made.count && same; r++) same = kept->rows[r].of_run == made.rows[r].of_run;
  if (!same) {
    attn_status status = moments_compute(p, kind, &made);
    if (status != ATTN_OK) return status;
    *kept = made;
  }
  *out = kept;
  return ATTN_OK;
}

double moment_collapse(const feature_law *law, const row_moment *row) {
  double spread = fmax(row->rho - 1, 0) / law->independent, x = law->share / (2 * spread);
  if (spread == 0) return 0;
  double bennett = exp(-spread / (law->share * law->share) * ((1 + x) * log1p(x) - x));
  return law->kind == ATTN_FEATURES_TRIG ? 4 * spread : fmin(4 * spread, bennett);
}
