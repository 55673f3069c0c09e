/* store_law.c - types of caches by their definitions. Codes are chosen in fp32, operation by operation as the
 * definitions have it; an operation of two numbers of fp32 is rounded to the same in fp64 and then to fp32
 * (Figueroa 1995). */
#include "experiments/mathematics/store_law.h"

#include <math.h>
#include <stdbool.h>

enum { BLOCK = 32 };

/* A floating-point format: bits of the significand, the exponent of its least unit, its largest number. */
typedef struct float_format {
  int bits, least;
  double largest;
} float_format;
static const float_format half = {11, -24, 65504}, brain = {8, -133, 0x1.fep127}, eighth = {4, -9, 448};

static double unit_at(const float_format *f, double x) {
  return ldexp(1, x == 0 ? f->least : (int)fmax(ilogb(x) - f->bits + 1, f->least));
}

/* Nearest, ties to even; beyond the largest Inf. */
static double rounded(const float_format *f, double x) {
  if (!isfinite(x)) return x;
  const double unit = unit_at(f, x), near = nearbyint(x / unit) * unit;
  return fabs(near) > f->largest ? copysign((double)INFINITY, x) : near;
}

static double single(double x) { return (double)(float)x; }

static void as_floats(const float_format *f, bool saturates, const double *x, int64_t count, double *kept,
                      double *step) {
  for (int64_t i = 0; i < count; i++) {
    kept[i] = rounded(f, x[i]);
    step[i] = unit_at(f, fmin(fabs(x[i]), f->largest)) / 2;
    if (!saturates && !isfinite(kept[i])) step[i] = (double)INFINITY;
    if (!saturates) continue;
    if (!isfinite(x[i])) kept[i] = (double)NAN;
    if (isfinite(x[i]) && !(fabs(kept[i]) <= f->largest)) kept[i] = copysign(f->largest, x[i]);
    step[i] += fmax(0, fabs(x[i]) - f->largest);
  }
}

/* What f16 may be off by. */
static double half_error(double x) { return unit_at(&half, x) / 2; }

static void no_numbers(int64_t count, double *kept, double *step) {
  for (int64_t i = 0; i < count; i++) kept[i] = (double)NAN, step[i] = (double)INFINITY;
}

/* Signed codes of |code| <= top, times a scale. */
static void as_signed(bool wide, const double *x, int64_t count, double *kept, double *step) {
  double most = 0;
  for (int64_t i = 0; i < count; i++)
    if (fabs(x[i]) > fabs(most)) most = x[i];
  const double scale = wide ? single(fabs(most) / 127) : single(most / -8), own = rounded(&half, scale),
               inverse = scale != 0 ? single(1 / scale) : 0;
  if (!isfinite(own)) {
    no_numbers(count, kept, step);
    return;
  }
  for (int64_t i = 0; i < count; i++) {
    const double product = isfinite(inverse) ? single(x[i] * inverse) : 0,
                 code = wide ? round(product) : fmin(15, trunc(single(product + 8.5))) - 8;
    kept[i] = code * own + 0.0; /* a code has no -0 */
    /* q4_0 has -8 and no 8. */
    step[i] = fabs(scale) * (wide ? 0.5 : 1) * (1 + 0x1p-15) + (wide ? 127 : 8) * half_error(scale) +
              (isfinite(inverse) ? 0 : fabs(most));
  }
}

static void as_unsigned(int bits, const double *x, int64_t count, bool full, double *kept, double *step) {
  const double top = ldexp(1, bits) - 1;
  double most = x[0], least = x[0];
  for (int64_t i = 0; i < count + !full; i++) { /* a last block that is not full ends with zeros */
    const double own = i < count ? x[i] : 0;
    most = fmax(most, own);
    least = fmin(least, own);
  }
  const double wanted = single(single(most - least) / top), scale = rounded(&half, wanted),
               from = rounded(&half, least);
  if (!isfinite(scale) || !isfinite(from)) {
    no_numbers(count, kept, step);
    return;
  }
  for (int64_t i = 0; i < count; i++) {
    const double code = scale > 0 ? fmin(top, fmax(0, nearbyint(single(single(x[i] - from) / scale)))) : 0;
    kept[i] = single(scale * code + from);
    step[i] = wanted / 2 + (top + 0.5) * half_error(wanted) + half_error(least) +
              0x1p-22 * (fabs(most) + fabs(least)) + (scale > 0 ? 0 : most - least);
  }
}

static bool all_finite(const double *x, int64_t count) {
  bool finite = true;
  for (int64_t i = 0; i < count; i++) finite = finite && isfinite(x[i]);
  return finite;
}

static void block_law(attn_dtype type, const double *x, int64_t count, double *kept, double *step) {
  if (type == ATTN_F16)
    as_floats(&half, false, x, count, kept, step);
  else if (type == ATTN_BF16)
    as_floats(&brain, false, x, count, kept, step);
  else if (type == ATTN_FP8)
    as_floats(&eighth, true, x, count, kept, step);
  else if (!all_finite(x, count))
    no_numbers(count, kept, step);
  else if (type == ATTN_Q8_0 || type == ATTN_Q4_0)
    as_signed(type == ATTN_Q8_0, x, count, kept, step);
  else
    as_unsigned((int)type - (int)ATTN_INT1 + 1, x, count, count == BLOCK, kept, step);
}

void store_law_block(int bits, const double *x, int64_t count, double *kept, double *step) {
  if (all_finite(x, count))
    as_unsigned(bits, x, count, true, kept, step);
  else
    no_numbers(count, kept, step);
}

/* `count` elements of keys from which `mean` has been taken in kept. */
static void one_scale(double top, const double *mean, int64_t d, int64_t count, double *kept, double *step) {
  double most = 0;
  for (int64_t i = 0; i < count; i++) most = fmax(most, fabs(kept[i]));
  const double scale = single(most / top);
  const bool sound = all_finite(kept, count);
  for (int64_t i = 0; i < count; i++) {
    const double own = mean[i % d], code = scale > 0 ? nearbyint(single(kept[i] / scale)) : 0;
    kept[i] = sound ? single(fmax(-top, fmin(top, code)) * scale + own) : (double)NAN;
    if (step) step[i] = sound ? scale / 2 + 0x1p-22 * (most + fabs(own)) + 0x1p-142 : (double)INFINITY;
  }
}

void store_law_groups(const attn_kv_store *s, const double *x, int64_t keys, int64_t d, double *kept,
                      double *step, double *mean) {
  const double top = ldexp(1, (int)s->k - (int)ATTN_INT1) - 1;
  for (int64_t l = 0; l < d; l++) {
    double sum = 0;
    for (int64_t j = 0; j < keys; j++) sum += x[j * d + l];
    mean[l] = s->smooth && keys ? single(sum / (double)keys) : 0;
    for (int64_t j = 0; j < keys; j++) kept[j * d + l] = single(x[j * d + l] - mean[l]);
  }
  for (int64_t j = 0; j < keys; j += s->group) {
    const int64_t count = (keys - j < s->group ? keys - j : s->group) * d;
    one_scale(top, mean, d, count, kept + j * d, step ? step + j * d : NULL);
  }
}

void store_law(attn_dtype type, const double *x, int64_t count, double *kept, double *step) {
  for (int64_t at = 0; at < count; at += BLOCK) {
    const int64_t part = count - at < BLOCK ? count - at : BLOCK;
    if (type == ATTN_F32)
      for (int64_t i = at; i < at + part; i++) kept[i] = x[i], step[i] = 0;
    else
      block_law(type, x + at, part, kept + at, step + at);
  }
}
