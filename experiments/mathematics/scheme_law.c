/* scheme_law.c - see scheme_law.h. P(|T| < t) of a coordinate T of a uniform unit vector is the regularised
 * incomplete beta function I(t^2; 1/2, (d-1)/2), and E |T| on a < |T| < b is (2 C / (d-1))
 * ((1-a^2)^((d-1)/2) - (1-b^2)^((d-1)/2)) with C = Gamma(d/2) / (sqrt(pi) Gamma((d-1)/2)). R u is uniform
 * for any unit vector u, and S looks the same from every basis, so that draws of errors need no R. */
#include "experiments/mathematics/scheme_law.h"

#include "experiments/mathematics/store_law.h"
#include "experiments/mathematics/vector.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_sf_gamma.h>
#include <math.h>
#include <string.h>

enum { STEPS_MOST = 5000, POINTS = 40000 };
/* Both sides sum some hundred terms of fp64: nearer than this to a threshold they may differ. */
static const double unsure = 0x1p-36;

static double nearest(const scheme_levels *s, double t) {
  double best = s->at[0];
  for (int64_t i = 1; i < s->count; i++)
    if (fabs(s->at[i] - t) < fabs(best - t)) best = s->at[i];
  return best;
}

static void measure(scheme_levels *s) {
  const double d = (double)s->d, reach = fmin(1, 14 / sqrt(d));
  double mass = 0, square = 0, fourth = 0;
  for (int i = 0; i < POINTS; i++) {
    const double t = reach * (2 * (i + 0.5) / POINTS - 1), weight = pow(1 - t * t, (d - 3) / 2),
                 left = t - nearest(s, t), own = left * left;
    mass += weight;
    square += weight * own;
    fourth += weight * own * own;
  }
  s->mean = square / mass;
  s->variance = fourth / mass - s->mean * s->mean;
}

void scheme_levels_make(int64_t bits, int64_t d, scheme_levels *s) {
  const int64_t half = bits ? (int64_t)1 << (bits - 1) : 0;
  const double power = (double)(d - 1) / 2,
               factor = bits ? 2 * exp(gsl_sf_lngamma((double)d / 2) - gsl_sf_lngamma(power)) /
                                   (sqrt(acos(-1)) * (double)(d - 1))
                             : 0;
  const double reach = fmin(1, 3 / sqrt((double)d));
  double level[8] = {0}, moved = 1;
  *s = (scheme_levels){.d = d, .count = bits ? 2 * half : 1, .mean = 1 / (double)d};
  for (int64_t k = 0; k < half; k++) level[k] = (double)(k + 1) / (double)(half + 1) * reach;
  for (int step = 0; step < STEPS_MOST && moved > 0x1p-44 * reach && bits; step++) {
    double from = 0, before[8];
    memcpy(before, level, sizeof level);
    moved = 0;
    for (int64_t k = 0; k < half; k++) {
      const double to = k + 1 < half ? (before[k] + before[k + 1]) / 2 : 1;
      level[k] = factor * (pow(1 - from * from, power) - pow(1 - to * to, power)) /
                 (gsl_cdf_beta_P(to * to, 0.5, power) - gsl_cdf_beta_P(from * from, 0.5, power));
      moved = fmax(moved, fabs(level[k] - before[k]));
      from = to;
    }
  }
  for (int64_t k = 0; k < half; k++) {
    s->at[half + k] = level[k];
    s->at[half - 1 - k] = -level[k];
  }
  if (bits) measure(s);
}

static bool is_sure(const scheme_levels *s, double t) {
  for (int64_t i = 1; i < s->count; i++)
    if (fabs((s->at[i - 1] + s->at[i]) / 2 - t) < unsure) return false;
  return true;
}

/* H x, entry by entry: the sign is that of the ones which two indices have in common. */
static void turn(int64_t d, const double *x, double *y) {
  const int64_t block = d & -d;
  for (int64_t i = 0; i < d; i++) {
    y[i] = 0;
    for (int64_t j = 0; j < block; j++) {
      double sign = 1;
      for (int64_t common = i & j; common; common &= common - 1) sign = -sign;
      y[i] += sign * x[i - i % block + j];
    }
    y[i] /= sqrt((double)block);
  }
}

static bool turned_row(attn_dtype type, int64_t d, const double *x, double *kept, double *room) {
  const double error = 0x1p-44 * vector_norm(x, d);
  bool sure = true;
  turn(d, x, room);
  for (int64_t l = 0; l < d; l++) {
    sure = sure && (float)(room[l] - error) == (float)(room[l] + error);
    room[l] = (double)(float)room[l];
  }
  store_law(type, room, d, room + d, kept);
  turn(d, room + d, kept);
  return sure;
}

bool scheme_law_row(const attn_kv_law *law, const scheme_levels *s, const double *x, double *kept,
                    double *room) {
  const int64_t d = s->d;
  if (law->turned) return turned_row(law->turned, d, x, kept, room);
  const double norm = vector_norm(x, d), size = attn_rounded(norm, ATTN_F16);
  double *rest = room, *signed_sum = room + d;
  bool sure = true;
  for (int64_t l = 0; l < d; l++) rest[l] = norm > 0 ? x[l] / norm : 0;
  for (int64_t l = 0; l < d; l++) kept[l] = signed_sum[l] = 0;
  for (int64_t r = 0; r < (law->bits ? d : 0); r++) {
    const double t = vector_dot(law->rotation + r * d, rest, d);
    sure = sure && is_sure(s, t);
    for (int64_t l = 0; l < d; l++) kept[l] += nearest(s, t) * law->rotation[r * d + l];
  }
  for (int64_t l = 0; l < d; l++) rest[l] -= kept[l];
  const double g = law->bits ? attn_rounded(vector_norm(rest, d), ATTN_F16) : 1;
  for (int64_t r = 0; r < law->signs; r++) {
    const double t = vector_dot(law->vectors + r * d, rest, d);
    sure = sure && fabs(t) > unsure;
    for (int64_t l = 0; l < d; l++) signed_sum[l] += copysign(1, t) * law->vectors[r * d + l];
  }
  for (int64_t l = 0; l < d; l++) {
    if (law->signs) kept[l] += g * sqrt(acos(-1) / 2) / (double)law->signs * signed_sum[l];
    kept[l] = norm > 0 || isnan(norm) ? kept[l] * size : 0;
    if (!isfinite(size)) kept[l] = (double)NAN;
  }
  return sure || !(norm > 0) || !isfinite(size);
}

double scheme_error_mean(const attn_kv_law *law, const scheme_levels *s) {
  const double d = (double)s->d, left = law->bits ? d * s->mean : 1;
  return law->signs ? left * (acos(-1) / 2 * d - 1) / (double)law->signs : left;
}

double scheme_error_variance(const attn_kv_law *law, const scheme_levels *s) {
  const double d = (double)s->d;
  if (!law->signs) return d * s->variance * (1 + 3 / (d + 1));
  return (acos(-1) / 2 * (law->bits ? d * s->mean : 1) - (law->bits ? 0 : 1)) / (double)law->signs;
}

double scheme_error_draw(const attn_kv_law *law, const scheme_levels *s, attn_rng *rng, double *room) {
  const int64_t d = s->d;
  double *rest = room, *own = room + d, *sum = room + 2 * d;
  for (int64_t l = 0; l < d; l++) rest[l] = attn_rng_normal(rng);
  const double norm = vector_norm(rest, d);
  for (int64_t l = 0; l < d; l++) {
    rest[l] /= norm;
    if (law->bits) rest[l] -= nearest(s, rest[l]);
    sum[l] = 0;
  }
  const double g = vector_norm(rest, d);
  if (!law->signs) return g * g;
  for (int64_t r = 0; r < law->signs; r++) {
    for (int64_t l = 0; l < d; l++) own[l] = attn_rng_normal(rng);
    const double sign = copysign(1, vector_dot_fast(own, rest, d));
    for (int64_t l = 0; l < d; l++) sum[l] += sign * own[l];
  }
  for (int64_t l = 0; l < d; l++) sum[l] = g * sqrt(acos(-1) / 2) / (double)law->signs * sum[l] - rest[l];
  return vector_dot(sum, sum, d);
}
