/* directions.h - is a gradient that of a function? Central differences along random directions, in fp64. */
#ifndef TESTS_SUPPORT_DIRECTIONS_H
#define TESTS_SUPPORT_DIRECTIONS_H

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "attn_variant.h"
#include "tests/support/basics/rng.h"

/* The function; size: that of the terms that it sums. */
typedef double (*directions_function)(const void *context, const double *x, double *size);

static inline void directions_draw(uint64_t seed, int64_t count, double *x) {
  attn_rng rng = rng_of(seed, 0, 0);
  for (int64_t i = 0; i < count; i++) x[i] = attn_rng_normal(&rng);
}

/* With d(h) = (f(x + h u) - f(x - h u)) / 2h, the differences of h and h/2 leave (4 d(h/2) - d(h)) / 3, which
 * errs by O(h^4): below a hundredth of |d(h) - d(h/2)| = O(h^2). Fewer than 4096 roundings lie between an
 * input and f, so that values err by E = 4096 u size, and what is left by 3 E / h. */
static inline void expect_derivative(const char *what, directions_function f, const void *context,
                                     int64_t count, const double *x, const double *gradient) {
  enum { DIRECTIONS = 6 };
  const double h = 0x1p-8 / sqrt((double)count); /* a step of about 2^-8 */
  double *u = malloc((size_t)count * sizeof *u), *moved = malloc((size_t)count * sizeof *moved);
  cr_assert(u && moved);
  for (uint64_t seed = 100; seed < 100 + DIRECTIONS; seed++) {
    double difference[2], size = 0, along = 0;
    directions_draw(seed, count, u);
    for (int64_t i = 0; i < count; i++) along += u[i] * gradient[i];
    for (int half = 0; half < 2; half++) {
      const double step = half ? h / 2 : h;
      double value[2];
      for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < count; i++) moved[i] = x[i] + (side ? -step : step) * u[i];
        value[side] = f(context, moved, &size);
      }
      difference[half] = (value[0] - value[1]) / (2 * step);
    }
    const double said = (4 * difference[1] - difference[0]) / 3,
                 most = fabs(difference[0] - difference[1]) / 100 + 3 * 4096 * (DBL_EPSILON / 2) * size / h;
    cr_expect(fabs(said - along) <= most,
              "%s: %.12g along a direction, %.12g by differences, apart by at most %g", what, along, said,
              most);
  }
  free(u);
  free(moved);
}

#endif
