/* adamw.c - steps of AdamW against its formulas, written out from the first step on. */
#include "experiments/training/adamw.h"

#include <criterion/criterion.h>
#include <math.h>

enum { WEIGHTS = 3, STEPS = 40 };

/* The mean of g_1 ... g_t under weights decay^(t - i). */
static double average(const double *g, int64_t t, double decay) {
  double sum = 0, all = 0;
  for (int64_t i = 0; i < t; i++) {
    sum += pow(decay, (double)(t - 1 - i)) * g[i * WEIGHTS];
    all += pow(decay, (double)(t - 1 - i));
  }
  return sum / all;
}

Test(training_adamw, steps) {
  const bool decays[WEIGHTS] = {false, true, false};
  double g[STEPS * WEIGHTS], squares[STEPS * WEIGHTS], first[WEIGHTS] = {0}, second[WEIGHTS] = {0},
                                                       w[WEIGHTS] = {1, -2, 3};
  adamw a = {.count = WEIGHTS,
             .steps = STEPS,
             .rate = 0.1,
             .decay = 0.5,
             .decays = decays,
             .first = first,
             .second = second};
  for (int64_t t = 0; t < STEPS; t++) {
    double given[WEIGHTS], expected[WEIGHTS], norm = 0;
    for (int j = 0; j < WEIGHTS; j++) given[j] = (t % 3 ? 0.1 : 5) * cos((double)(t * WEIGHTS + j));
    for (int j = 0; j < WEIGHTS; j++) norm += given[j] * given[j];
    for (int j = 0; j < WEIGHTS; j++) {
      g[t * WEIGHTS + j] = given[j] / fmax(1, sqrt(norm));
      squares[t * WEIGHTS + j] = g[t * WEIGHTS + j] * g[t * WEIGHTS + j];
    }
    const double rate = adamw_rate(&a, t);
    for (int j = 0; j < WEIGHTS; j++)
      expected[j] = w[j] * (decays[j] ? 1 - rate * 0.5 : 1) -
                    rate * average(g + j, t + 1, 0.9) / (sqrt(average(squares + j, t + 1, 0.98)) + 1e-9);
    adamw_step(&a, given, w);
    for (int j = 0; j < WEIGHTS; j++)
      cr_expect(fabs(w[j] - expected[j]) <= 1e-13, "step %d: %.17g, not %.17g", (int)t, w[j], expected[j]);
  }
  cr_expect(a.step == STEPS);
}

Test(training_adamw, rate) {
  const adamw a = {.steps = 100, .rate = 2};
  cr_expect(fabs(adamw_rate(&a, 0) - 0.2) < 1e-15 && fabs(adamw_rate(&a, 9) - 2) < 1e-15);
  cr_expect(adamw_rate(&a, 10) == 2 && fabs(adamw_rate(&a, 55) - 1) < 1e-14);
  for (int64_t t = 11; t < 100; t++) cr_expect(adamw_rate(&a, t) < adamw_rate(&a, t - 1));
  cr_expect(adamw_rate(&a, 99) > 0 && adamw_rate(&a, 99) < 0.01);
  cr_expect(adamw_rate(&(adamw){.steps = 1, .rate = 2}, 0) == 2);
}
