/* overlap.c - products over pairs of sets. */
#include "experiments/mathematics/overlap.h"

#include <math.h>

static const double powers[OVERLAP_POWERS] = {0.5, 2, 5, -1, -5};

void overlap_add(overlap *o, const int64_t *set, int64_t size, int64_t candidates, int64_t drawn,
                 const int64_t *before, int64_t before_size) {
  int64_t common = 0, known = 0, a = 0;
  if (candidates < 1) return;
  for (int64_t b = 0; b < before_size && before[b] < candidates; b++) {
    known++;
    while (a < size && set[a] < before[b]) a++;
    common += a < size && set[a] == before[b];
  }
  double share = (double)known / (double)candidates, r = (double)(drawn < candidates ? drawn : candidates);
  for (int t = 0; t < OVERLAP_POWERS; t++)
    o->log_product[t] += powers[t] * (double)common - r * log1p(share * expm1(powers[t]));
}

double overlap_evidence(const overlap *o, int64_t count) {
  double top = -(double)INFINITY, sum = 0;
  for (int64_t i = 0; i < count; i++)
    for (int t = 0; t < OVERLAP_POWERS; t++) top = fmax(top, o[i].log_product[t]);
  if (!isfinite(top)) return top;
  for (int64_t i = 0; i < count; i++)
    for (int t = 0; t < OVERLAP_POWERS; t++) sum += exp(o[i].log_product[t] - top);
  return top + log(sum / (double)(count * OVERLAP_POWERS));
}
