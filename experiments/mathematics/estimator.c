/* estimator.c - the moments are those of pair_moments.h: of one vector, E W_i.W_k = sum_jl p_ij p_kl h(a_ij,
 * a_kl) (v_j - o_i)(v_l - o_k) for any two rows i and k, since sum_j p_ij (v_j - o_i) = 0; of m vectors at
 * most 1/independent of that (feature_law.h). */
#include "experiments/mathematics/estimator.h"

#include "experiments/mathematics/feature_maps.h"
#include "experiments/mathematics/pair_moments.h"
#include "experiments/mathematics/vector.h"

#include <math.h>
#include <stdlib.h>

enum { TOKENS = ESTIMATOR_TOKENS, ROWS = ESTIMATOR_ROWS, VALUES = ESTIMATOR_VALUES, RANK = 16, STEP = 3 };
static const double query_square = 0.5, key_square[2] = {0.25, 1};

static void normals(attn_rng *rng, int64_t count, double *x) {
  for (int64_t i = 0; i < count; i++) x[i] = attn_rng_normal(rng);
}

/* count orthonormal vectors of R^d, uniform: Gaussian ones by Gram and Schmidt, twice, since that is
 * enough. */
static void frame_draw(attn_rng *rng, int64_t count, int64_t d, double *q) {
  normals(rng, count * d, q);
  for (int64_t i = 0; i < count; i++) {
    double *x = q + i * d;
    for (int64_t s = 0; s < 2 * i; s++) {
      const double *y = q + s % i * d, along = vector_dot_fast(x, y, d);
      for (int64_t l = 0; l < d; l++) x[l] -= along * y[l];
    }
    double norm = vector_norm(x, d);
    for (int64_t l = 0; l < d; l++) x[l] /= norm;
  }
}

void estimator_free(estimator *e) {
  if (!e) return;
  region_free(&e->memory);
  free(e);
}

static void direction_draw(attn_rng *rng, int64_t rank, double square, double *x) {
  normals(rng, rank, x);
  double factor = sqrt(square) / vector_norm(x, rank);
  for (int64_t l = 0; l < rank; l++) x[l] *= factor;
}

static void raise(const double *low, const double *axes, int64_t rank, int64_t d, double *x) {
  for (int64_t i = 0; i < TOKENS; i++)
    for (int64_t l = 0; l < d; l++) {
      x[i * d + l] = 0;
      for (int64_t k = 0; k < rank; k++) x[i * d + l] += low[i * (rank + 1) + k] * axes[k * d + l];
    }
}

static void rows_fill(estimator *e) {
  for (int64_t r = 0; r < ROWS; r++) {
    double *p = e->p + r * TOKENS, *o = e->o + r * VALUES;
    e->row[r] = TOKENS - 1 - STEP * r;
    e->seen[r] = e->causal ? e->row[r] + 1 : TOKENS;
    e->sum[r] = 0;
    for (int64_t j = 0; j < e->seen[r]; j++) {
      p[j] = exp(vector_dot(e->x_low + e->row[r] * e->rank, e->y_low + j * e->rank, e->rank));
      e->sum[r] += p[j];
    }
    for (int64_t j = 0; j < e->seen[r]; j++) {
      p[j] /= e->sum[r];
      for (int64_t l = 0; l < VALUES; l++) o[l] += p[j] * e->v[j * VALUES + l];
    }
  }
}

static bool spread_fill(estimator *e) {
  double log_p[ROWS * TOKENS], along[ROWS * TOKENS], away[ROWS * TOKENS * VALUES];
  moment_row rows[ROWS];
  row_moment out[ROWS];
  for (int64_t r = 0; r < ROWS; r++) {
    const double *x = e->x_low + e->row[r] * e->rank;
    rows[r] = (moment_row){.count = e->seen[r],
                           .log_p = log_p + r * TOKENS,
                           .along = along + r * TOKENS,
                           .away = away + r * TOKENS * VALUES,
                           .x_square = vector_dot(x, x, e->rank)};
    for (int64_t j = 0; j < e->seen[r]; j++) {
      rows[r].log_p[j] = log(e->p[r * TOKENS + j]);
      rows[r].along[j] = vector_dot(x, e->y_low + j * e->rank, e->rank);
      for (int64_t l = 0; l < VALUES; l++)
        rows[r].away[j * VALUES + l] = e->v[j * VALUES + l] - e->o[r * VALUES + l];
    }
  }
  const moment_input input = {.law = &e->law,
                              .k = e->y_low,
                              .n = TOKENS,
                              .d = e->rank,
                              .d_v = VALUES,
                              .scale = 1,
                              .rows = rows,
                              .count = ROWS};
  if (moments_compute(&input, out)) return false;
  for (int64_t r = 0; r < ROWS; r++) e->spread[r] = out[r].spread;
  return true;
}

/* E of the square of `along` for one vector, over pairs of (row, key). */
static double along_square(const estimator *e) {
  double a[ROWS * TOKENS * (RANK + 1)], square[ROWS * TOKENS], c[ROWS * TOKENS], total = 0;
  double sign = e->law.kind == ATTN_FEATURES_TRIG ? -1 : 1;
  int64_t count = 0, rank = e->rank;
  for (int64_t r = 0; r < ROWS; r++)
    for (int64_t j = 0; j < e->seen[r]; j++, count++) {
      c[count] = e->p[r * TOKENS + j] * (e->v[j * VALUES] - e->o[r * VALUES]) / ROWS;
      for (int64_t l = 0; l < rank; l++)
        a[count * rank + l] = e->x_low[e->row[r] * rank + l] + sign * e->y_low[j * rank + l];
      square[count] = vector_dot_fast(a + count * rank, a + count * rank, rank);
    }
  for (int64_t i = 0; i < count; i++)
    for (int64_t j = 0; j <= i; j++) {
      double inner = vector_dot_fast(a + i * rank, a + j * rank, rank),
             t = moment_exponent(&e->law, square[i], square[j], inner);
      double h = e->law.kind == ATTN_FEATURES_POSITIVE ? exp(t) : cosh(t);
      total += (i == j ? 1 : 2) * c[i] * c[j] * h;
    }
  return total;
}

estimator *estimator_make(const feature_law *law, bool causal, attn_rng *rng) {
  int64_t d = law->d, rank = d < RANK ? d : RANK;
  estimator *e = calloc(1, sizeof *e);
  bool made = e;
  double *axes = NULL;
  if (made) {
    e->law = *law;
    e->causal = causal;
    e->rank = rank + 1;
    axes = region_take(&e->memory, rank * d, sizeof *axes);
    e->x = region_take(&e->memory, TOKENS * d, sizeof(double));
    e->y = region_take(&e->memory, TOKENS * d, sizeof(double));
    e->x_low = region_zeros(&e->memory, TOKENS * (rank + 1), sizeof(double));
    e->y_low = region_zeros(&e->memory, TOKENS * (rank + 1), sizeof(double));
    made = !e->memory.refused;
  }
  if (made) {
    frame_draw(rng, rank, d, axes);
    normals(rng, TOKENS * VALUES, e->v);
    for (int64_t i = 0; i < TOKENS; i++) {
      direction_draw(rng, rank, query_square, e->x_low + i * e->rank);
      direction_draw(rng, rank, key_square[i % 2], e->y_low + i * e->rank);
      e->v[i * VALUES] = i % 2 ? 1 : -1;
    }
    raise(e->x_low, axes, rank, d, e->x);
    raise(e->y_low, axes, rank, d, e->y);
    rows_fill(e);
    made = spread_fill(e);
    e->deviation = sqrt(fmax(0, along_square(e)) / law->independent);
  }
  if (made) return e;
  estimator_free(e);
  return NULL;
}

estimate_error estimator_judge(const estimator *e, const double *o, const double *share) {
  estimate_error out = {0, 0};
  for (int64_t r = 0; r < ROWS; r++) {
    double square = 0;
    for (int64_t l = 0; l < VALUES; l++) {
      double w = share[r] * (o[e->row[r] * VALUES + l] - e->o[r * VALUES + l]);
      if (l == 0) out.along += w / ROWS;
      square += w * w;
    }
    out.square += square * e->law.independent / (e->spread[r] * ROWS);
  }
  return out;
}

/* -- draws of the law -- */

/* chi_d: -2 ln of d/2 uniform numbers, and the square of a normal one if d is odd. */
static double length_draw(attn_rng *rng, int64_t d) {
  double square = 0, product = 1;
  for (int64_t i = 0; i < d / 2; i++) {
    product *= attn_rng_uniform(rng);
    if (i % 8 < 7 && i + 1 < d / 2) continue; /* 2^-53 each at the least: no underflow */
    square -= 2 * log(product);
    product = 1;
  }
  double x = d % 2 ? attn_rng_normal(rng) : 0;
  return sqrt(square + x * x);
}

/* Coordinates w [m, rank] of the vectors: in the subspace, and the length of what is left. frame: [rank,
 * d]. */
static void vectors_draw(const estimator *e, attn_rng *rng, double *frame, double *w) {
  int64_t d = e->law.d, inside = e->rank - 1;
  for (int64_t r = 0; r < e->law.m; r++) {
    double *own = w + r * e->rank;
    if (!e->law.orthogonal) {
      normals(rng, inside, own);
      own[inside] = length_draw(rng, d - inside);
      continue;
    }
    if (r % d == 0) frame_draw(rng, inside, d, frame);
    double length = length_draw(rng, d), left = length * length;
    for (int64_t k = 0; k < inside; k++) {
      own[k] = length * frame[k * d + r % d];
      left -= own[k] * own[k];
    }
    own[inside] = sqrt(fmax(0, left));
  }
}

attn_status estimator_draw(const estimator *e, attn_rng *rng, estimate_error *out) {
  int64_t m = e->law.m, rank = e->rank, columns = features_columns(&e->law);
  feature_law low = e->law; /* of the coordinates */
  low.d = rank;
  double vectors = (double)m * (low.kind == ATTN_FEATURES_HYPERBOLIC ? 2 : 1);
  /* The factor of d components, where features_fill has that of the coordinates. */
  double scale = (double)(rank - e->law.d) / 4 * log1p(-4 * e->law.a);
  double share[ROWS], o[TOKENS * VALUES] = {0};
  double *w = malloc((size_t)(m * rank + e->law.d * rank + (TOKENS + 2) * columns) * sizeof *w);
  if (!w) return attn_fail(ATTN_ENOMEM, "no memory for draws of random features");
  double *frame = w + m * rank, *key = frame + e->law.d * rank, *query = key + TOKENS * columns,
         *error = query + columns;
  vectors_draw(e, rng, frame, w);
  bool finite = true;
  for (int64_t j = 0; j < TOKENS; j++)
    finite &= features_fill(&low, w, e->y_low + j * rank, scale, key + j * columns, error);
  for (int64_t r = 0; r < ROWS; r++) {
    double *row = o + e->row[r] * VALUES, total = 0;
    finite &= features_fill(&low, w, e->x_low + e->row[r] * rank, scale, query, error);
    for (int64_t j = 0; j < e->seen[r]; j++) {
      double weight = vector_dot_fast(query, key + j * columns, columns) / vectors;
      total += weight;
      for (int64_t l = 0; l < VALUES; l++) row[l] += weight * e->v[j * VALUES + l];
    }
    for (int64_t l = 0; l < VALUES; l++) row[l] /= total;
    share[r] = total / e->sum[r];
  }
  free(w);
  if (!finite) return attn_fail(ATTN_ENUMERIC, "features of a draw of the law are not finite");
  *out = estimator_judge(e, o, share);
  return ATTN_OK;
}
