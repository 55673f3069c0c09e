/* collision.c - see collision.h. Sums over a uniform grid of the positive quadrant: what is summed is
 * smooth and vanishes far out, so that they are as good as the weights of the first three places
 * (Gregory's, of third order) at the axes. */
#include "experiments/mathematics/collision.h"

#include <math.h>

enum { GRID = 64 };
static const double far = 8.5;

static double weight(int i) { return i == 0 ? 3.0 / 8 : i == 1 ? 7.0 / 6 : i == 2 ? 23.0 / 24 : 1; }

/* Of the normal distribution, the density at x, and what is beyond x. */
static double density(double x) { return exp(-x * x / 2) / sqrt(2 * acos(-1)); }
static double beyond(double x) { return erfc(x / sqrt(2)) / 2; }

/* E[1(X > 0) F(X, y)^(r-1) | Y = y]. The pairs that are larger in both, P(|X'| >= x, |Y'| >= y), are
 * summed from far out to x, so that what is left of F does not cancel. */
static double column(double rho, double y, double others) {
  const double step = far / GRID, s = sqrt(1 - rho * rho);
  double outer[3] = {0}, larger = 0, sum = 0; /* the last three, and the sum of those before them */
  for (int i = GRID; i >= 0; i--) {
    const double x = i * step;
    larger += outer[2];
    outer[2] = outer[1];
    outer[1] = outer[0];
    outer[0] = 2 * density(x) * (beyond((y - rho * x) / s) + beyond((y + rho * x) / s));
    const double both = step * (larger + weight(2) * outer[2] + weight(1) * outer[1] + weight(0) * outer[0]),
                 either = 2 * beyond(x) + 2 * beyond(y) - both;
    sum += weight(i) * step * density((x - rho * y) / s) / s * exp(others * log1p(-fmin(either, 1)));
  }
  return sum;
}

double collision_probability(double angle, int64_t buckets) {
  const double step = far / GRID, rho = cos(fmin(fmax(angle, COLLISION_EDGE), acos(-1) - COLLISION_EDGE)),
               r = (double)(buckets / 2);
  double sum = 0;
  if (r <= 2) return pow(1 - angle / acos(-1), r);
  for (int j = 0; j <= GRID; j++) sum += weight(j) * step * density(j * step) * column(rho, j * step, r - 1);
  return 2 * r * sum;
}

double collision_any(double angle, int64_t buckets, int64_t hashes) {
  return -expm1((double)hashes * log1p(-collision_probability(angle, buckets)));
}

double collision_angle(double probability, int64_t buckets, int64_t hashes) {
  double low = COLLISION_EDGE, high = acos(-1) - COLLISION_EDGE;
  for (int i = 0; i < 8; i++) {
    const double middle = (low + high) / 2;
    if (collision_any(middle, buckets, hashes) > probability)
      low = middle;
    else
      high = middle;
  }
  return (low + high) / 2;
}
