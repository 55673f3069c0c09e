/* adamw.c - see adamw.h. */
#include "experiments/training/adamw.h"

#include <math.h>

#include "attn_variant.h"

static const double FIRST = 0.9, SECOND = 0.98, EPSILON = 1e-9, NORM = 1;

double adamw_rate(const adamw *a, int64_t step) {
  const double at = (double)step, steps = (double)a->steps, rise = fmax(1, floor(steps / 10));
  if (at < rise) return a->rate * (at + 1) / rise;
  return a->rate * (1 + cos(acos(-1) * (at - rise) / fmax(1, steps - rise))) / 2;
}

void adamw_step(adamw *a, double *gradients, double *weights) {
  const double norm = sqrt(attn_inner(gradients, gradients, a->count)), cut = norm > NORM ? NORM / norm : 1,
               rate = adamw_rate(a, a->step++);
  const double first = 1 - pow(FIRST, (double)a->step), second = 1 - pow(SECOND, (double)a->step);
  for (int64_t i = 0; i < a->count; i++) {
    const double g = gradients[i] *= cut;
    a->first[i] += (1 - FIRST) * (g - a->first[i]);
    a->second[i] += (1 - SECOND) * (g * g - a->second[i]);
    if (a->decays[i]) weights[i] -= rate * a->decay * weights[i];
    weights[i] -= rate * (a->first[i] / first) / (sqrt(a->second[i] / second) + EPSILON);
  }
}
